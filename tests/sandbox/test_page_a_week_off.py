"""Somebody with three phones, at the sandbox's page: one is switched off, one is tapped, one still waits for its push."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest
import requests
from playwright.sync_api import sync_playwright

from support import kits
from support.optional_parts import find_part
from support.processes import PATIENCE_S, eventually

PUSHES = 30
ANDROID, TABLET = "ExponentPushToken[android]", "ExponentPushToken[tablet!MessageRateExceeded*1]"
pytestmark = pytest.mark.needs("chromium-headless-shell")


class Story:
    """An app's server, and the phones of one of its users."""

    def __init__(self, running: kits.Running) -> None:
        self.running = running
        self.secrets: dict[str, str] = {}

    def call(self, method: str, path: str, secret: str | None = None, **more: Any) -> Any:
        """Call Relevo, as the app's server or as a phone."""
        headers = {"Authorization": f"Bearer {secret or self.running.app_token}"}
        answer = requests.request(method, self.running.url + path, headers=headers, timeout=PATIENCE_S, **more)
        assert answer.ok, answer.text
        return answer.json()

    def register(self, token: str, **more: Any) -> None:
        """Register a phone, and let the sandbox know its app."""
        phone = str(uuid4())
        body = {"token": token, "owner": "ana"} | more
        self.secrets[token] = self.call("PUT", f"/v1/installations/{phone}", json=body)["secret"]
        app = {"url": self.running.url, "installationId": phone, "secret": self.secrets[token]}
        place = f"{self.running.sandbox.url}/sandbox/phones/{quote(token, safe='')}"
        assert requests.post(place, json={"app": app}, timeout=PATIENCE_S).ok

    def push(self, *titles: str) -> int:
        """Push to the user; return the last event."""
        said = {"type": "chat", "audience": "owners", "owners": ["ana"]}
        events = [said | {"key": title, "title": title} for title in titles]
        return int(self.call("POST", "/v1/events/batch", json={"events": events})["items"][-1]["event_id"])


def speaks_spanish(page: Any, conn: Any) -> bool:
    """Choose Spanish as a person would, again if the app got no answer; return whether Relevo knows it."""
    page.get_by_label("Language").select_option("es-CL")
    with page.expect_navigation():  # the form is posted, and the page is drawn anew
        page.get_by_role("button", name="Change").click()
    find = "select locale from relevo.device_installations where token = %s"
    return bool(conn.execute(find, [ANDROID]).fetchone() == ("es-CL",))


def test_a_phone_that_was_off(dsn: str, tmp_path: Path) -> None:
    """It shows what Apple kept, and the inbox has all; what is read on one phone is withdrawn from the one that waits."""
    with (
        kits.run(dsn, tmp_path, native=True, worker_idle_backoff_max_ms=500) as running,
        psycopg.connect(dsn, autocommit=True) as conn,
        sync_playwright() as driver,
    ):
        conn.execute("insert into relevo.event_types (event_type, opens, complete_on) values ('chat', true, 'read')")
        browser = driver.chromium.launch(executable_path=find_part("chromium-headless-shell"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 360, "height": 800})
        story, sandbox = Story(running), running.sandbox
        iphone = sandbox.apns_token("iphone")
        story.register(iphone, provider="apns", platform="ios")
        story.register(ANDROID, platform="android")
        page.goto(f"{sandbox.url}/phones/{iphone}")
        page.get_by_role("button", name="Switch off: iphone").click()
        titles = [f"Message {n}" for n in range(1, PUSHES + 1)]
        story.push(*titles)
        eventually(lambda: sandbox.phones()[ANDROID]["received"] == PUSHES, "the other phone got all")
        page.get_by_text("Off: 1 waiting, 29 dropped").wait_for()
        page.get_by_role("button", name="Switch on: iphone").click()
        [kept] = page.locator("article h2").all_inner_texts()
        assert kept in titles

        inbox = story.call("GET", f"/v1/inbox?limit={PUSHES + 1}", story.secrets[iphone])["items"]
        assert [item["title"] for item in inbox] == titles[::-1]
        counts = story.call("GET", "/v1/inbox/counts", story.secrets[iphone])
        assert counts["unread"] == PUSHES

        story.register(TABLET, platform="android")
        last = story.push("Read this")
        state = "select status, opened_at is not null from relevo.notification_deliveries d where notification_event_id = %s"
        state += " and installation_id = (select installation_id from relevo.device_installations where token = %s)"
        eventually(lambda: conn.execute(state, [last, TABLET]).fetchone() == ("retryable", False), "it waits")
        page.goto(f"{sandbox.url}/phones/{quote(ANDROID, safe='')}")
        page.get_by_role("button", name="Tap").first.click()
        page.get_by_text("Tapped, and read in the inbox").wait_for()
        page.get_by_role("button", name="Dismiss").first.click()
        page.get_by_text("Dismissed", exact=True).wait_for()
        assert conn.execute(state, [last, ANDROID]).fetchone()[1]  # type: ignore[index]
        assert story.call("GET", "/v1/inbox/counts", story.secrets[iphone])["unread"] == PUSHES
        conn.execute("update relevo.due_chunks set due_at = now()")  # its next try would come in a minute
        eventually(lambda: conn.execute(state, [last, TABLET]).fetchone() == ("cancelled", False), "it is withdrawn")
        assert sandbox.received(TABLET) == []

        eventually(lambda: speaks_spanish(page, conn), "the app said its new language")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        browser.close()
