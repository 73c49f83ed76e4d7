"""The sandbox's page in a real browser: it fits narrow and wide windows, light and dark, empty and full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import sync_playwright

from relevo.core.known_services import LABELS, NATIVE
from relevo.sandbox import Sandbox
from support import senders
from support.optional_parts import find_part

AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
EXPO_PHONE = "ExponentPushToken[carla]"
pytestmark = pytest.mark.needs("chromium-headless-shell")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=find_part("chromium-headless-shell"), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("full", [False, True])
def test_the_page_fits(browser: Any, sandbox: Sandbox, client: Any, width: int, colours: str, full: bool) -> None:
    """Nothing sticks out of the window, text stands out from its ground, and nothing complains in the console."""
    if full:
        client.push(*(f"ExponentPushToken[phone-{n}]" for n in range(30)), title="Ñandú " * 30, body="x" * 500)
        sandbox.add_fault("500", share=0.0)
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=colours)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(client.url)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    ground, ink = page.evaluate(
        "[getComputedStyle(document.documentElement).backgroundColor, getComputedStyle(document.body).color]"
    )
    assert (brightness(ground) > brightness(ink)) == (colours == "light"), (ground, ink)
    assert ("phone-29" in page.content()) == full
    assert said == []
    page.close()


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize(
    "path", ["/", "/events/7", "/deliveries/3", "/deliveries/4", "/phones/ExponentPushToken%5Bphone-3%5D"]
)
def test_anybody_can_use_each_page(browser: Any, client: Any, path: str, colours: str) -> None:
    """On a narrow screen too nothing sticks out, and axe finds no serious fault."""
    data = {"notificationEventId": 7, "notificationDeliveryId": 3}
    client.push("ExponentPushToken[phone-3]", title="Ñandú " * 30, body="x" * 500, data=data)
    page = browser.new_page(viewport={"width": 360, "height": 800}, color_scheme=colours)
    page.goto(client.url + path)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(told => told.violations)")
    assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
    page.close()


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_phones_of_every_kind_have_a_switch(browser: Any, colours: str) -> None:
    """Phones of all services stand side by side; one is switched off and on by its button, and shows what waited."""
    with Sandbox(native=True) as native:
        for token in (native.fcm_token("ana"), *(native.token(name, "eva") for name in NATIVE[1:]), EXPO_PHONE):
            native.switch(token, on=True)
        page = browser.new_page(viewport={"width": 360, "height": 800}, color_scheme=colours)
        page.goto(native.url)
        for label in LABELS.values():
            assert page.locator(".phones .badge", has_text=label).count() == 1
        page.get_by_role("button", name="Switch off: ana").click()
        page.get_by_role("button", name="Switch on: ana").wait_for()
        headers = {"authorization": f"Bearer {senders.access_token(native)}"}
        message = {"token": native.fcm_token("ana"), "notification": {"title": "It waited"}}
        url = f"{native.fcm}/v1/projects/relevo-sandbox/messages:send"
        assert senders.http1_post(native, url, json={"message": message}, headers=headers).status_code == 200
        page.goto(native.url)
        assert "It waited" not in page.inner_text("body")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(told => told.violations)")
        assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
        page.get_by_role("button", name="Switch on: ana").click()
        page.get_by_text("It waited").wait_for()
        page.close()


def test_the_page_runs_nothing_that_others_wrote(browser: Any, sandbox: Sandbox, client: Any) -> None:
    """A title full of markup is shown as text, and no script of it runs."""
    client.push("ExponentPushToken[ana]", title="<script>document.title='owned'</script><img src=x onerror=alert(1)>")
    page = browser.new_page()
    page.goto(client.url)
    assert page.title() != "owned"
    assert "<script>document.title" in page.inner_text("body")
    assert page.query_selector("img") is None
    page.close()


def brightness(colour: str) -> float:
    """Return how bright a computed colour such as rgb(1, 2, 3) is."""
    return sum(float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3])
