"""`@relevo/web` in a real browser, against a Relevo that runs and its Web Push sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import requests
from playwright.sync_api import sync_playwright

from support import kits, website
from support.optional_parts import find_part
from support.processes import PATIENCE_S, eventually
from support.website import Visitor

pytestmark = [pytest.mark.needs("kits"), pytest.mark.needs("chromium-headless-shell")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=find_part("chromium-headless-shell"), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def shop(clients: Path, dsn: str, tmp_path: Path) -> Iterator[tuple[kits.Running, Any]]:
    """A Relevo that runs, and a web site before it."""
    with (
        website.serve(website.shop()) as site,
        kits.run(dsn, tmp_path, native=True, http_cors_origins=site.url) as running,
    ):
        site.set(url=running.url, publicKey="BPd-the-sandbox-s", keyName=kits.KEY_NAME, key=kits.KEY)
        yield running, site


def push(running: kits.Running, owner: str, title: str, **more: Any) -> int:
    """Tell an owner something, as the app's server does."""
    said = {"type": "order.shipped", "key": str(uuid4()), "title": title, "audience": "owners", "owners": [owner]}
    headers = {"Authorization": f"Bearer {running.app_token}"}
    answer = requests.post(f"{running.url}/v1/events", json=said | more, headers=headers, timeout=PATIENCE_S)
    assert answer.ok, answer.text
    return int(answer.json()["event_id"])


def phones(running: kits.Running, owner: str) -> list[bool]:
    """Tell of each phone of an owner whether it receives."""
    headers = {"Authorization": f"Bearer {running.app_token}"}
    answer = requests.get(f"{running.url}/v1/installations?owner={owner}", headers=headers, timeout=PATIENCE_S)
    return [each["receives"] for each in answer.json()["items"]]


def test_a_browser_s_life(browser: Any, shop: Any, dsn: str) -> None:
    """It registers without asking, subscribes on a tap, shows and replaces, and reports taps, also later."""
    running, site = shop
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("insert into relevo.event_types (event_type, opens) values ('order.shipped', true)")
        ana = Visitor(browser, site, running.sandbox)
        page = ana.page
        page.evaluate("push.start('ana')")
        assert (ana.status(), page.evaluate("push.state().permission")) == ("registered", "undetermined")
        assert page.evaluate("untapped") == "NoTapError"
        page.click("#on")
        eventually(lambda: page.evaluate("push.state().on"), ana.status)

        push(running, "ana", "First", push={"tag": "order"}, data={"url": "/#order"})
        ana.receive("First")
        eventually(lambda: ana.shown() == ["First"])
        event = push(running, "ana", "Second", push={"tag": "order"}, data={"url": "/#order"})
        ana.receive("Second")
        eventually(lambda: ana.shown() == ["Second"], "what has the same tag is replaced")

        ana.in_worker("() => tapOn('Second')")
        assert ana.in_worker("() => noted().opened") == [f"{site.url}/#order"]
        find = "select opened_at, opened_action from relevo.notification_deliveries where notification_event_id = %s"
        assert conn.execute(find, [event]).fetchone()[0] is not None  # type: ignore[index]
        assert (ana.shown(), ana.kept("queue")) == ([], [])

        later = push(running, "ana", "Third", data={"url": "/"})
        ana.receive("Third")
        eventually(ana.shown)
        ana.context.set_offline(True)
        ana.in_worker("() => tapOn('Third', 'track')")
        assert page.evaluate("taps") == [{"data": page.evaluate("taps[0].data"), "action": "track"}]
        assert [each["kind"] for each in ana.kept("queue")] == ["opened"]
        ana.context.set_offline(False)
        eventually(lambda: conn.execute(find, [later]).fetchone()[1] == "track", "the tap was reported")  # type: ignore[index]

        page.evaluate("inbox.refresh()")
        titles = page.evaluate("inbox.state().items.map((each) => each.title)")
        assert (titles, page.evaluate("inbox.state().unread")) == (["Third", "Second", "First"], 3)


BUTTONS = [{"id": "track", "title": "Track it", "link": "/#track"}, {"id": "later", "title": "Later"}]


@pytest.mark.parametrize("declarative", [False, True], ids=["plain", "declarative"])
def test_buttons_and_links(browser: Any, shop: Any, dsn: str, declarative: bool) -> None:
    """A push has picture, icon and buttons; a tap on one opens its link and is reported by its id.

    The service worker does the same with a declarative push.
    """
    running, site = shop
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("insert into relevo.event_types (event_type, opens) values ('order.shipped', true)")
        if declarative:
            file = Path(running.sandbox.projects_file)
            projects = json.loads(file.read_text())
            for services in projects.values():
                services["webpush"]["page"] = "https://shop.example/"
            file.write_text(json.dumps(projects))
        ana = Visitor(browser, site, running.sandbox)
        ana.page.evaluate("push.start('ana')")
        ana.page.click("#on")
        eventually(lambda: ana.page.evaluate("push.state().on"), ana.status)
        web = {"icon": "/web.png", "badgeIcon": "/b.png", "requireInteraction": True, "lang": "en"}
        said = {"link": "/#order", "image": "/p.png", "actions": BUTTONS, "icon": "ic", "badge": 4, "web": web}
        event = push(running, "ana", "Buttons", push=said)
        ana.receive("Buttons")
        [shown] = eventually(lambda: ana.in_worker("() => noted().options"))
        assert [(each["action"], each["title"]) for each in shown["actions"]] == [
            ("track", "Track it"),
            ("later", "Later"),
        ]
        assert (shown["icon"], shown["badge"], shown["image"]) == ("/web.png", "/b.png", "/p.png")
        assert (shown["requireInteraction"], shown["lang"]) == (True, "en")
        assert ana.in_worker("() => noted().badge") == 4
        ana.in_worker("() => tapOn('Buttons', 'track')")
        origin = "https://shop.example" if declarative else site.url
        assert ana.in_worker("() => noted().opened") == [f"{origin}/#track"]
        find = "select opened_action from relevo.notification_deliveries where notification_event_id = %s"
        assert conn.execute(find, [event]).fetchone() == ("track",)


def test_log_out_tabs_and_a_subscription_that_is_replaced(browser: Any, shop: Any) -> None:
    """A log-out without network goes before the next log-in; no tab reads another's inbox; the worker renews."""
    running, site = shop
    ana = Visitor(browser, site, running.sandbox)
    ana.page.click("#on")
    ana.page.evaluate("push.start('ana')")
    assert (ana.status(), phones(running, "ana")) == ("registered", [True])

    renewed = running.sandbox.subscription("renewed")
    ana.in_worker("(text) => renewSubscription(text)", renewed)
    push(running, "ana", "Hello")
    eventually(lambda: running.sandbox.received(renewed), "the worker handed its new subscription in")

    tab = ana.open()
    tab.evaluate("push.start('ana')")
    assert tab.evaluate("push.device.installationId()") == ana.page.evaluate("push.device.installationId()")
    ana.context.set_offline(True)
    ana.page.evaluate("push.logOut()")
    assert (ana.status(), ana.subscription(), phones(running, "ana")) == ("logged-out", None, [True])
    ana.context.set_offline(False)
    ana.page = ana.open()  # the next visit
    ana.page.evaluate("push.start('ben')")
    eventually(lambda: ana.page.evaluate("push.state().on"), ana.status)
    assert (phones(running, "ana"), phones(running, "ben")) == ([], [True])
    push(running, "ben", "for Ben")
    eventually(lambda: ana.page.evaluate("inbox.refresh().then(() => inbox.state().items.length)"))
    tab.evaluate("inbox.refresh()")
    assert "not registered" in tab.evaluate("String(inbox.state().error)")  # it was Ana's
    assert tab.evaluate("inbox.state().items") == []
    ana.page.evaluate("push.switchOff()")
    assert (ana.status(), ana.subscription(), phones(running, "ben")) == ("registered", None, [False])
    ana.page.evaluate("Promise.all([push.start('ana'), push.logOut()])")  # what began before a log-out ends with it
    assert (ana.status(), ana.subscription(), phones(running, "ana")) == ("logged-out", None, [])
