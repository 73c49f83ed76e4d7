"""The dashboard in a real browser: it tells the truth, fits narrow and wide windows, light and dark, and runs nothing of others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playwright.sync_api import sync_playwright

from relevo.client import values, verbs
from relevo.operators import actions, fleet
from support.dashboard_person import COLOURS, WIDTHS, Person, enter, fits
from support.http_server import Served
from support.optional_parts import find_part
from support.phones import add_phones, fan_out

pytestmark = pytest.mark.needs("chromium-headless-shell")
WAIT_MS = 60_000


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium."""
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=find_part("chromium-headless-shell"), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """A browser without memory, which must not complain of anything in its console."""
    context = chromium.new_context(timezone_id="America/Santiago")
    context.set_default_timeout(WAIT_MS)
    said: list[str] = []
    context.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    context.on("weberror", lambda error: said.append(str(error.error)))
    yield context
    context.close()
    assert [each for each in said if "401" not in each] == []


def tally(conn: psycopg.Connection[Any]) -> None:
    """Have some pushes sent, confirmed and failed: hours ago, minutes ago, and just now."""
    conn.execute("insert into relevo.projects (project, filled_at) values ('default', now()) on conflict do nothing")
    conn.execute(
        "insert into relevo.push_minutes (project, minute, sent, answers, unregistered, confirmed, failed) "
        "select 'default', date_trunc('minute', now()) - n * interval '1 minute', 40 + n % 17, 40, 0, 35 + n % 11, n % 29 / 25 "
        "from generate_series(20, 1200, 1) n"
    )
    conn.execute(
        "insert into relevo.push_tallies (project, at, sent, answers, unregistered, confirmed, failed) "
        "values ('default', now(), 7, 7, 0, 5, 1)"
    )


def look(page: Any, name: str = "") -> None:
    """Nothing sticks out in any width and theme; `name` keeps pictures."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for colours in COLOURS:
            page.emulate_media(color_scheme=colours)
            assert fits(page), (name, width, colours)


def test_an_empty_database_says_what_to_do(served: Served, browser: Any) -> None:
    """Where nothing has run yet the first line says so, and every part says in words that it is empty."""
    page = enter(browser, served, served.client("viewer"))
    assert "Not healthy" in page.inner_text("h1")
    assert "relevo run" in page.inner_text("section.verdict")
    assert page.get_attribute("section.verdict a >> nth=0", "href") == "/guide/runbook#no-reaper-has-ever-run"
    assert "There are no events yet" in page.inner_text("main")
    look(page, "empty")
    page.click("nav >> text=System")
    page.wait_for_url("**/dashboard/system")
    for words in ("Nothing is due.", "No cycle has run yet"):
        assert words in page.inner_text("main")
    look(page, "empty system")


def test_the_overview(serve: Callable[..., Served], conn: psycopg.Connection[Any], browser: Any) -> None:
    """Health with its next step first, charts of what was sent, cycles with their pauses, in the viewer's own time; it renews itself."""
    served = serve()
    tally(conn)
    for cycle in ("reaper", "fanout", "dispatch"):
        served.app.runner.run(served.app.registry[cycle], "manual")
    actions.pause(served.app.database, "dispatch", "a drill " + "y" * 290)
    page = enter(browser, served, served.client("viewer"))
    assert page.locator("svg.chart").count() == 2
    assert page.get_attribute("svg.chart >> nth=0", "aria-label").startswith("The last hour, by 5 minutes: ")
    assert "UTC" not in page.inner_text("section.verdict time")
    assert page.get_attribute("section.verdict time", "title").endswith("Z")
    assert page.inner_text("footer [data-zone]").strip(" ()")
    look(page, "overview")
    page.click("nav >> text=System")
    page.get_by_text("a drill").first.wait_for()
    look(page, "system")
    actions.resume(served.app.database, "dispatch")
    page.wait_for_selector("main[data-renewed]")
    page.get_by_text("a drill").first.wait_for(state="detached")


def test_what_people_ask_first(serve: Callable[..., Served], conn: psycopg.Connection[Any]) -> None:
    """Reach, success rate, phones and event types lead; cycles are on the page of the system; bars stand side by side."""
    served = serve()
    conn.execute("insert into relevo.projects (project, filled_at) values ('fcm::shop::android', now())")
    conn.execute(
        "insert into relevo.push_tallies (project, at, sent, answers, unregistered) values ('fcm::shop::android', now(), 4, 4, 0)"
    )
    taken = fleet.pushes(served.app.database, datetime.now(UTC), bins=2, every_s=3600)
    assert sum(row["confirmed"] for row in taken) == 4, "FCM has no receipts: what it took is confirmed"
    tally(conn)
    add_phones(conn, 4)
    conn.execute(
        "update relevo.device_installations set active = false where seq = (select max(seq) from relevo.device_installations)"
    )
    verbs.enqueue(conn, values.Event("order.shipped", "1", "On its way", audience="everyone"))
    fan_out(served.app)
    person = Person(served, "viewer")
    person.log_in()
    page = person.get("/dashboard").text
    assert "75%" in page
    assert "3 of 4 phones may get pushes" in page
    assert "order.shipped" in page
    assert "<h2>Cycles</h2>" not in page
    assert "<h2>Cycles</h2>" in person.get("/dashboard/system").text
    group = re.findall(r'<rect width="([\d.]+)"[^>]*class="column (\w+)" x="([\d.]+)"', page)
    assert [name for _, name, _ in group[:3]] == ["sent", "confirmed", "failed"]
    ends = [(float(x), float(x) + float(width)) for width, _, x in group[:3]]
    assert ends[0][1] <= ends[1][0], "confirmed stands beside sent"
    assert re.search(r'class="left"><span>\d+</span><span>\d+</span><span>0</span>', page)
    assert "<span>45</span><span>30</span><span>15</span><span>now</span>" in page


def test_the_menu_has_what_is_used_alone(
    serve: Callable[..., Served], conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """Sources and the archive stand in the menu once a setting speaks of them, or there is something of them."""
    served = serve()
    person = Person(served, "viewer")
    person.log_in()
    assert 'href="/dashboard/sources"' not in person.get("/dashboard/events").text
    assert 'href="/dashboard/archive"' not in person.get("/dashboard/events").text
    assert 'href="/dashboard/archive"' in person.get("/dashboard/archive").text, "the page itself is there"
    conn.execute("insert into relevo.source_state (source) values ('folder')")
    person = Person(serve(archive_folder=tmp_path), "viewer")
    person.log_in()
    assert 'href="/dashboard/sources"' in person.get("/dashboard/events").text
    assert 'href="/dashboard/archive"' in person.get("/dashboard/events").text


def test_an_icon_of_our_own(served: Served) -> None:
    """Pages name an icon that is served here; a browser that asks at the usual address gets it too."""
    client = served.client()
    named = re.search(r'rel="icon" type="image/svg\+xml" href="([^"]+)"', client.get("/login").text)
    assert named is not None
    for path in (named[1], "/favicon.ico"):
        assert client.get(path).headers["content-type"].startswith("image/svg+xml")


def test_without_a_script_it_works_too(served: Served, chromium: Any, conn: psycopg.Connection[Any]) -> None:
    """Login, overview in UTC and logout need no JavaScript."""
    context = chromium.new_context(java_script_enabled=False)
    page = enter(context, served, served.client("operator"))
    assert "UTC" in page.inner_text("section.verdict time")
    page.click("text=Log out")
    page.wait_for_url("**/login")
    page.goto(served.server.url + "/dashboard")
    assert page.inner_text("h1") == "Log in"
    look(page, "login")
    conn.execute("select 1")
    context.close()


def test_from_the_box_to_the_reason(served: Served, conn: psycopg.Connection[Any], browser: Any) -> None:
    """A key in the box leads to the event's timeline, from there to one push, to its phone, and to why another got nothing."""
    one, other = add_phones(conn, 2)
    conn.execute("update relevo.device_installations set permission = 'denied' where installation_id = %s", [other])
    event = values.Event("order.shipped", "order-17", "On its way", audience=[one, other])
    number = verbs.enqueue(conn, event).event_id
    fan_out(served.app)
    page = enter(browser, served, served.client("viewer"))
    page.fill("input[type=search]", "order-17")
    page.press("input[type=search]", "Enter")
    page.wait_for_url(f"**/dashboard/events/{number}")
    timeline = page.inner_text(".moments")
    assert "Fan-out finished: 1 phone (named by the event), 1 delivery." in timeline
    assert "due, and waiting for its turn" in page.inner_text(".moments .now")
    assert page.get_attribute(".moments time >> nth=0", "title").endswith("Z")
    page.click("#deliveries tbody a >> nth=0")
    page.wait_for_url("**/dashboard/deliveries/*")
    assert "The event names this phone." in page.inner_text(".facts")
    page.click("text=Explain")
    page.wait_for_url(f"**/dashboard/installations/{one}*")
    assert "Not yet." in page.inner_text(".answer")
    page.goto(f"{served.server.url}/dashboard/installations/{other}")
    page.fill("#event", "order-17")
    page.press("#event", "Enter")
    page.wait_for_url("**event=order-17*")
    assert "No. Pushes may not go to this phone: the phone does not permit notifications." in page.inner_text(".answer")
    page.fill("input[type=search]", f"ExponentPushToken[{'z' * 22}]")
    page.press("input[type=search]", "Enter")
    page.get_by_text("No match.").wait_for()
    assert "zzz" not in page.url + page.content()
    look(page, "nothing")
