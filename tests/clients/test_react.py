"""`@relevo/react` in a real browser: by keyboard, read by axe, in a narrow window; for phones by react-native-web."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playwright.sync_api import expect, sync_playwright

import generate_clients
from relevo.config import Settings
from support import kits, screens, website
from support.optional_parts import find_part
from support.processes import PATIENCE_S
from support.screens import Person

pytestmark = [pytest.mark.needs("kits"), pytest.mark.needs("chromium-headless-shell")]


@pytest.fixture(scope="module")
def shop(clients: Path, module_settings: Callable[..., Settings], tmp_path_factory: Any) -> Iterator[screens.Shop]:
    """A Relevo that runs, a site with the screens, and one for phones."""
    folder = tmp_path_factory.mktemp("screens")
    dsn = str(module_settings().database_url)
    with website.serve(screens.pages(folder)) as site, kits.run(dsn, folder, http_cors_origins=site.url) as running:
        site.set(url=running.url, keyName=kits.KEY_NAME, key=kits.KEY)
        with psycopg.connect(dsn, autocommit=True) as conn:
            yield screens.Shop(running, site.url, conn)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=find_part("chromium-headless-shell"), args=["--no-sandbox"])
        expect.set_options(timeout=PATIENCE_S * 1000)
        yield chromium
        chromium.close()


def test_parts_without_a_screen(clients: Path) -> None:
    """Links, hours, digests, texts and states are read and written as the page on screens says."""
    kits.run_tests("react/parts")


def test_bell_and_inbox_by_keyboard(browser: Any, shop: screens.Shop) -> None:
    """The bell counts and opens the inbox; items are marked, loaded and archived; Escape leads back; what is new shows."""
    shop.push("ana", [f"Order {place}" for place in range(1, 26)], data={"url": "#order"})
    ana = Person(browser, shop, "ana", screens="bell")
    ana.sees("button", "Notifications, 25 unread")
    ana.goes_to("Notifications, 25 unread")
    ana.presses("Enter")
    assert ana.focused() == "Notifications"
    ana.goes_to("Order 25")
    ana.goes_to("Mark as read")
    ana.presses("Space")
    ana.sees("button", "Notifications, 24 unread")
    assert ana.focused() == "Mark as unread"
    ana.goes_to("Archive")
    ana.presses("Enter")
    ana.sees("link", "Order 25", count=0)
    assert ana.focused() == "Order 24"
    ana.goes_to("Load more")
    ana.presses("Enter")
    ana.sees("link", "Order 1")
    assert ana.focused() in ("Order 5", "Order 6")
    shop.push("ana", ["Brand new"])
    ana.sees("button", "Notifications, 25 unread")
    assert ana.page.get_by_text("Brand new").count() == 1
    assert ana.page.get_by_role("link", name="Order 1", exact=True).count() == 1, "pages that were loaded stay"
    ana.goes_to("Mark all as read", back=True)
    ana.presses("Enter")
    ana.sees("button", "Notifications, none unread")
    ana.presses("Escape")
    ana.sees("dialog", "Notifications", count=0)
    assert ana.focused() == "Notifications, none unread"
    ana.presses("Enter")
    ana.goes_to("Close")
    ana.presses("Tab")
    assert ana.focused() == "After"
    ana.sees("dialog", "Notifications", count=0)
    assert shop.unread("ana") == 0
    ana.leaves()


def test_preferences_by_keyboard(browser: Any, shop: screens.Shop) -> None:
    """Each choice is saved and changes nothing else; what cannot be saved shows what was there before."""
    ben = Person(browser, shop, "ben", screens="preferences")
    ben.sees("switch", "Offers")
    phone = ben.page.evaluate("push.device.installationId()")
    shop.set_preference(phone, "bridges", {"keywords": ["puente"], "region": "Maule", "monto_min": "10.50"})
    ben.page.reload()
    ben.sees("switch", "Offers")
    ben.goes_to("Offers")
    ben.presses("Space")
    ben.sees_text("Saved.")
    assert shop.choices("ben") == [("offers", True, "Offers: Discounts.")]
    ben.goes_to("Football")
    ben.presses("Space")
    ben.goes_to("Chess")
    ben.presses("Space")
    shop.sees(lambda: shop.preference(phone, "topics")["topics"] == ["football", "chess"])
    ben.presses("Space")
    shop.sees(lambda: shop.preference(phone, "topics")["topics"] == ["football"])
    before = shop.preference(phone, "bridges")
    ben.goes_to("Delivery")
    ben.presses("ArrowDown", "ArrowDown", "Tab")
    assert ben.focused() == "Time"
    ben.page.keyboard.type("0730AM")
    ben.goes_to("Save")
    ben.presses("Enter")
    shop.sees(lambda: shop.preference(phone, "topics")["delivery"] == "daily 07:30")
    shop.sees(lambda: shop.preference(phone, "bridges") == before | {"delivery": "daily 07:30"})
    assert shop.preference(phone, "topics")["topics"] == ["football"]
    ben.goes_to("Keep quiet hours")
    ben.presses("Space")
    ben.goes_to("From")
    ben.page.keyboard.type("1130PM")
    ben.goes_to("Save")
    ben.presses("Enter")
    shop.sees(lambda: shop.quiet(phone) == (["23:30-07:00"], "owner"))
    assert shop.choices("ben") == [("offers", True, "Offers: Discounts.")]

    ben.context.route(
        "**/quiet", lambda route: route.fulfill(status=500) if route.request.method == "PUT" else route.continue_()
    )
    ben.goes_to("Keep quiet hours", back=True)
    ben.presses("Space")
    ben.sees("alert", "", text="Not saved. The former setting is back.")
    expect(ben.page.get_by_role("switch", name="Keep quiet hours")).to_be_checked()
    assert shop.quiet(phone) == (["23:30-07:00"], "owner")
    ben.context.unroute("**/quiet")
    ben.presses("Space")
    shop.sees(lambda: shop.quiet(phone) == ([], "owner"))
    ben.leaves()


@pytest.mark.parametrize(
    ("locale", "theme", "width"),
    [("en", "light", 320), ("en", "dark", 1280), ("es", "light", 1280), ("es", "dark", 320)],
)
def test_everybody_can_use_them(browser: Any, shop: screens.Shop, locale: str, theme: str, width: int) -> None:
    """Axe finds nothing, and nothing sticks out, in either language and theme, wide and narrow, open and closed."""
    shop.push("eva", ["Ñandú " * 20, "Read it"], data={"url": "https://shop.example/order"})
    eva = Person(browser, shop, "eva", width=width, locale=locale, color_scheme=theme)
    eva.page.get_by_role("switch").first.wait_for()
    eva.page.get_by_text("Ñandú").first.wait_for()
    assert eva.faults() == []
    eva.page.get_by_role("button", name="Notific").first.click()
    eva.page.get_by_role("dialog").wait_for()
    assert eva.faults() == []
    eva.leaves()


HOSTILE = ["<img src=x onerror=window.owned=1><b>bold</b>", "javascript", "java\\nscript", "data", "app", "other app"]
LINKS = [
    "https://shop.example/",
    "javascript:window.owned=1",
    " java\nscript:window.owned=1",
    "data:text/html,x",
    "myshop://order",
    "evil://x",
]


def test_text_is_text_and_links_are_safe(browser: Any, shop: screens.Shop) -> None:
    """Markup is shown as text; a link leads to http, https, the page itself or a scheme of the app, and nowhere else."""
    for title, url in zip(HOSTILE, LINKS, strict=True):
        shop.push("mal", [title], data={"url": url})
    mal = Person(browser, shop, "mal", screens="inbox")
    mal.page.get_by_text(HOSTILE[0]).wait_for()
    expect(mal.page.locator(".relevo-item")).to_have_count(len(HOSTILE))
    assert mal.page.locator(".relevo-item :is(img, b)").count() == 0
    found = mal.page.evaluate(
        "[...document.querySelectorAll('.relevo-item a')].map((each) => each.getAttribute('href')).sort()"
    )
    assert found == ["https://shop.example/", "myshop://order"]
    assert mal.page.evaluate("window.owned") is None
    mal.leaves()


def test_states_of_the_inbox(browser: Any, shop: screens.Shop) -> None:
    """It says that it loads, is empty, failed or has nobody; trying again helps, and so does logging in."""
    nil = Person(browser, shop, "nil", screens="inbox", **{"logged-out": "1"})
    nil.sees_text("Loading…")
    nil.context.route("**/v1/inbox?*", lambda route: route.abort())
    nil.page.evaluate("push.start('nil')")
    nil.sees_text("Notifications cannot be loaded.")
    nil.context.unroute("**/v1/inbox?*")
    nil.goes_to("Try again")
    nil.presses("Enter")
    nil.sees_text("No notifications yet.")
    nil.page.evaluate("push.logOut()")
    nil.sees_text("Log in to see your notifications.")
    shop.push("lou", ["For Lou"])
    nil.page.evaluate("push.start('lou')")
    expect(nil.page.get_by_text("For Lou")).to_be_visible()
    shop.push("nil", ["For Nil"])
    nil.page.evaluate("push.logOut()")
    nil.sees_text("Log in to see your notifications.")
    nil.page.evaluate("push.start('nil')")
    expect(nil.page.get_by_text("For Nil")).to_be_visible()
    assert nil.page.get_by_text("For Lou").count() == 0
    nil.leaves()


def test_an_app_opens_items_by_itself(browser: Any, shop: screens.Shop) -> None:
    """With `onOpen` the app gets item and link in place of the browser, by key too; the item is read."""
    shop.push("ope", ["Plain"])
    shop.push("ope", ["Leads"], data={"url": "https://shop.example/order"})
    ope = Person(browser, shop, "ope", screens="inbox", opens="1")
    for title in ("Leads", "Plain"):
        ope.sees("button" if title == "Plain" else "link", title)
        ope.goes_to(title)
        ope.presses("Enter")
    assert ope.page.evaluate("opened") == [["Leads", "https://shop.example/order"], ["Plain", None]]
    assert ope.page.url.startswith(shop.url)
    shop.sees(lambda: shop.unread("ope") == 0)
    ope.leaves()


def test_the_page_of_stories(browser: Any) -> None:
    """The guide's page of all screens has each in every state, fits a narrow window, and axe finds nothing."""
    for width in (320, 1280):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(generate_clients.STORIES.as_uri())
        assert page.locator(".relevo-inbox").count() == 4 * 5
        assert page.locator(".relevo-preferences").count() == 4
        assert screens.faults(page) == []
        page.close()


def test_the_screens_of_phones(browser: Any, shop: screens.Shop) -> None:
    """The same page with the components of React Native: it shows, marks and saves, and axe finds nothing."""
    shop.push("rna", ["On its way", "Delivered"], data={"url": "myshop://order"})
    rna = Person(browser, shop, "rna", path="/native", width=320)
    rna.sees("button", "Notifications, 2 unread")
    rna.page.get_by_role("button", name="Mark as read: On its way").click()
    rna.sees("button", "Notifications, 1 unread")
    rna.page.get_by_role("switch", name="Offers").click()
    rna.sees_text("Saved.")
    assert shop.choices("rna") == [("offers", True, "Offers: Discounts.")]
    assert rna.faults() == []
    rna.leaves()
