"""Operators at the dashboard in a real browser, with and without a script: they act, others cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from playwright.sync_api import sync_playwright

from relevo.access import api_tokens
from relevo.operators import audit
from relevo.sandbox import Sandbox
from support.dashboard_person import enter, sticks_out
from support.filled_dashboard import kill, register, run
from support.http_server import EVENT, Served, fan_out, phone
from support.optional_parts import find_part

pytestmark = pytest.mark.needs("chromium-headless-shell")
WAIT_MS = 60_000


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium."""
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=find_part("chromium-headless-shell"), args=["--no-sandbox"])
        yield started
        started.close()


def window(chromium: Any, served: Served, role: str, **options: Any) -> Any:
    """Open a window, logged in with a new token of a role."""
    context = chromium.new_context(**options)
    context.set_default_timeout(WAIT_MS)
    return enter(context, served, served.client(role))


def test_a_redrive_and_a_pause_without_a_script(served: Served, conn: psycopg.Connection[Any], chromium: Any) -> None:
    """By links and forms alone: the dead letters, what a redrive would do, the redrive; a pause with its reason, and its end."""
    for _ in range(2):
        phone(conn)
    event = kill(served, conn)
    run(served, "dispatch")
    page = window(chromium, served, "operator", java_script_enabled=False)
    page.click("nav >> text=Dead letters")
    assert "MessageTooBig" in page.inner_text("main")
    page.click("text=Send again…")
    assert "2 deliveries would be sent again." in page.inner_text("main")
    assert conn.execute("select count(*) from relevo.dead_letters").fetchall() == [(2,)]
    page.click("button:has-text('Send 2 again')")
    assert page.inner_text("h1") == "2 dead letters will be sent again."
    assert conn.execute("select count(*) from relevo.dead_letters").fetchall() == [(0,)]
    page.goto(f"{served.server.url}/dashboard/events/{event}")
    page.click("text=Cancel event…")
    page.click("text=Keep it as it is")
    assert page.url.endswith(f"/dashboard/events/{event}")

    page.goto(served.server.url + "/dashboard/system")
    page.click("tr:has-text('dispatch') >> text=Pause")
    page.fill("#reason", "a drill")
    page.click("button:has-text('Pause')")
    assert page.inner_text("h1") == "dispatch is paused in the whole fleet."
    page.click("text=Continue")
    assert "a drill" in page.inner_text("tr:has-text('dispatch')")
    page.click("tr:has-text('dispatch') >> text='Resume'")
    page.click("button:has-text('Resume')")
    page.click("text=Recorded in the audit")
    told = page.inner_text("main")
    assert all(action in told for action in ("redrive", "pause", "resume", "a drill"))
    page.context.close()


def test_a_test_push_is_followed_live(
    serve: Callable[..., Served], conn: psycopg.Connection[Any], chromium: Any, sandbox: Sandbox
) -> None:
    """Its page renews itself until the push was taken, and says by how many."""
    served = serve(expo_base_url=sandbox.url)
    good = register(conn, "ana")
    page = window(chromium, served, "operator")
    page.click("nav >> text=Compose")
    page.fill("#phones", str(good))
    page.fill("#title", "Hello")
    page.click("#test >> text=Preview")
    page.click("button:has-text('Send')")
    page.wait_for_url("**/dashboard/compose/*")
    assert page.inner_text("h1") == "On its way to 1 phone."
    fan_out(served)
    run(served, "dispatch")
    conn.execute("update relevo.awaited_receipts set look_at = now() - interval '1 hour'")
    run(served, "receipt")
    page.wait_for_selector("h1:has-text('Accepted for 1 of 1 phone.')")
    assert sticks_out(page) == []
    page.context.close()


def test_who_may_not(served: Served, conn: psycopg.Connection[Any], chromium: Any) -> None:
    """A viewer has no buttons, and is refused at their address; a form of another page, an ended and a revoked session do nothing; all recorded."""
    served.client("app").post("/v1/events", EVENT)
    run(served, "dispatch")
    page = window(chromium, served, "viewer")
    for path in (
        "/dashboard",
        "/dashboard/system",
        "/dashboard/events/1",
        "/dashboard/dead-letters",
        "/dashboard/sources",
    ):
        page.goto(served.server.url + path)
        assert page.locator("a[href^='/dashboard/actions']").count() == 0, path
    assert page.goto(served.server.url + "/dashboard/actions/pause?cycle=dispatch").status == 403
    assert "operator" in page.inner_text("h1")
    conn.execute("update relevo.http_sessions set created_at = now() - interval '2 days', expires_at = now()")
    page.goto(served.server.url + "/dashboard/audit")
    assert page.inner_text("h1") == "Log in"
    assert "You were logged out." in page.inner_text("main")
    page.context.close()

    page = window(chromium, served, "operator")
    page.goto(served.server.url + "/dashboard/actions/pause?cycle=dispatch")
    page.evaluate("document.querySelector('main input[name=form]').value = 'forged'")
    page.fill("#reason", "x")
    page.click("main button")
    assert page.inner_text("h1") == "This form belongs to another session."
    page.goto(served.server.url + "/dashboard/actions/pause?cycle=dispatch")
    page.fill("#reason", "x")
    for token in api_tokens.list_all(served.app.database):
        if token["state"] == "valid":
            api_tokens.revoke(served.app.database, token["id"])
    page.click("main button")
    page.wait_for_selector("text=You were logged out.")
    page.context.close()

    entries = audit.latest(served.app.database, limit=100)
    assert {"refused_role", "refused_form", "refused_session"} <= {entry["action"] for entry in entries}
    assert "pause" not in {entry["action"] for entry in entries}


def test_an_event_is_written_looked_at_sent_and_cancelled(
    served: Served, conn: psycopg.Connection[Any], chromium: Any
) -> None:
    """Its page leads on: what is wrong first, then how it looks on each kind of phone, the event's page, and there its end."""
    phone(conn)
    page = window(chromium, served, "operator", timezone_id="America/Santiago")
    page.click("nav >> text=Compose")
    page.fill("#event-title", "Shops close early")
    page.select_option("#audience", "topics")
    page.click("button:has-text('Preview') >> nth=0")
    assert page.inner_text("[role=alert] .bad") == "No topic is entered."
    page.select_option("#audience", "everyone")
    page.fill("#deadline_at", "2027-01-01T09:00")
    page.click("button:has-text('Preview') >> nth=0")
    assert page.locator(".look .shown:has-text('Shops close early')").count() == 6
    assert sticks_out(page) == []
    page.dblclick("button:has-text('Send to 1 phone')")
    page.wait_for_url("**/dashboard/events/*")
    assert "Shops close early" in page.inner_text("h1")
    assert conn.execute("select deadline_at = '2027-01-01 12:00Z' from relevo.notification_events").fetchall() == [
        (True,)
    ]
    page.click("text=Cancel event…")
    page.fill("#reason", "a typing error")
    page.click("button:has-text('Cancel event')")
    assert conn.execute("select state from relevo.notification_events").fetchall() == [("cancelled",)]
    page.context.close()
