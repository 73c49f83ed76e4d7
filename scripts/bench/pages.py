"""The dashboard with very many deliveries: what each page takes in a real browser, and which is the slowest."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import Response, sync_playwright

from bench.environment import relevo_run, statements
from bench.http import await_port, free_port
from bench.measuring import Goal, Row
from bench.sizes import Sizes
from benching import fresh_database, say
from relevo.access import api_tokens
from relevo.config import Settings
from relevo.database.pool import Database

_SQL = statements(__file__)
_CHROMIUM = "chromium-headless-shell"
_MOST_MS = 500
_MOST_RUNS = 500_000
_NO_EXPO = "http://127.0.0.1:9"
_PATIENCE_S = 60.0
_NO_EVENT = 7
"""An event of old, for one phone."""
_TOOK = """() => { const [it] = performance.getEntriesByType('navigation');
  return [it.responseEnd, it.domContentLoadedEventEnd]; }"""
SEARCH = "search: "
"""How a page's name begins that is reached by the box; what stands behind it is put into it."""
PAGES = {
    "overview": "/dashboard",
    "events": "/dashboard/events",
    "events of a type": "/dashboard/events?type=payment.due",
    "events in a rare state": "/dashboard/events?status=cancelled",
    "events that are not there": "/dashboard/events?status=held",
    "events of long ago": "/dashboard/events?before={middle}",
    "an event for every phone": "/dashboard/events/{newest}",
    "· its failed deliveries": "/dashboard/events/{newest}?status=failed",
    "· its open deliveries": "/dashboard/events/{newest}?status=pending",
    "· deliveries of no state it has": "/dashboard/events/{newest}?status=expired",
    "an event for many phones, of old": "/dashboard/events/{broad}",
    "an event for one phone": "/dashboard/events/{single}",
    "a delivery that failed": "/dashboard/deliveries/{failed}",
    "a delivery that waits": "/dashboard/deliveries/{pending}",
    "a delivery of old": "/dashboard/deliveries/{confirmed}",
    "a phone": "/dashboard/installations/{phone}",
    "why it got an event": "/dashboard/installations/{phone}?event={newest}",
    "why it did not": "/dashboard/installations/{phone}?event={single}",
    "an owner": "/dashboard/owners/{owner}",
    "why they did not get an event": "/dashboard/owners/{owner}?event={single}",
    "search: an event's id": "{single}",
    "search: an event's key": "key-{single}",
    "search: an archived key": "old-77",
    "search: an owner": "{owner}",
    "search: a phone": "{phone}",
    "search: a push token": "ExponentPushToken[77]",
    "search: a tender's code": "1-1-LE26",
    "search: what is not there": "nothing at all",
    "runs": "/dashboard/runs",
    "runs of a cycle": "/dashboard/runs?cycle=cleanup",
    "runs that failed": "/dashboard/runs?ended=failed",
    "runs of a rare outcome": "/dashboard/runs?ended=abandoned",
    "runs under way, none": "/dashboard/runs?ended=running",
    "runs of a worker": "/dashboard/runs?worker=replica-7",
    "runs of an hour, by three filters": "/dashboard/runs?cycle=dispatch&ended=failed&worker=replica-3&hours=1",
    "a run": "/dashboard/runs/{run}",
    "sources": "/dashboard/sources",
    "one source's rejects": "/dashboard/sources?source=rss",
    "dead letters": "/dashboard/dead-letters",
    "a redrive, before it is done": "/dashboard/actions/redrive?code=MessageTooBig",
    "archive": "/dashboard/archive",
    "audit": "/dashboard/audit",
    "audit of an action that is not there": "/dashboard/audit?action=nothing",
    "compose": "/dashboard/compose",
    "compose: everyone": "/dashboard/compose?audience=everyone",
    "compose: a topic": "/dashboard/compose?audience=matching&topics=team-7",
    "compose: an owner": "/dashboard/compose?audience=owners&whom={owner}",
    "a test push, before it is sent": "/dashboard/actions/test?owner={owner}&phones=&title=Hello&body=There&data=",
    "guide": "/guide/runbook",
}
"""Every kind of page by its name; names in braces are those of `World`."""


@dataclass(frozen=True)
class World:
    """The requests of pages."""

    newest: int
    middle: int
    broad: int
    single: int
    failed: int
    pending: int
    confirmed: int
    phone: str
    owner: str
    run: int

    def address(self, page: str) -> str:
        """Return where a page is, or what is searched for to find it."""
        return PAGES[page].format_map(vars(self))


@dataclass
class Seen:
    """A page, and how many milliseconds each look at it took: until its last byte, and until it could be used."""

    name: str
    answers: list[float]
    shown: list[float]


def fill(conn: psycopg.Connection[Any], deliveries: int) -> World:
    """Fill an empty database with so many deliveries and all that belongs to them."""
    events, phones = deliveries * 2 // 5 // 20 * 20, deliveries // 5
    singles = events - 20 - events // 1000 - 1
    sizes = {
        "deliveries": deliveries,
        "events": events,
        "phones": phones,
        "broad": -(-(deliveries - phones - singles) // 19),
        "runs": min(deliveries, _MOST_RUNS),
    }
    for name in _SQL:
        if name.startswith(("make_", "fill_")):
            started = time.monotonic()
            conn.execute(_SQL[name], sizes)
            say(f"  {name}: {time.monotonic() - started:.1f} s")
    for name in ("take_stock", "write_out"):
        conn.execute(_SQL[name])
    [(made,)] = conn.execute(_SQL["count_deliveries"]).fetchall()
    assert made >= deliveries, f"{made:,} deliveries were made"
    return _world(conn, events)


def _world(conn: psycopg.Connection[Any], events: int) -> World:
    single = next(
        n for n in range(events // 2, events) if n % 1000 != 1 and n % 100 != _NO_EVENT and n % (events // 20)
    )
    failed, _ = _pick(conn, "pick_delivery", event=events, status="failed")
    pending, phone = _pick(conn, "pick_delivery", event=events, status="pending")
    confirmed, _ = _pick(conn, "pick_delivery", event=events // 20, status="ok")
    (run,) = _pick(conn, "pick_run")
    return World(events, events // 2, events // 20, single, failed, pending, confirmed, str(phone), "user-77", run)


def _pick(conn: psycopg.Connection[Any], name: str, **parameters: object) -> tuple[Any, ...]:
    row = conn.execute(_SQL[name], parameters).fetchone()
    assert row is not None, name
    return tuple(row)


def rows(sizes: Sizes) -> Iterator[Row]:
    """Fill a database, serve it, and look at every page with a browser."""
    chromium = shutil.which(_CHROMIUM)
    if chromium is None:
        raise RuntimeError(f"Pages are looked at with a browser; install {_CHROMIUM}.")
    with fresh_database() as (dsn, settings):
        with psycopg.connect(dsn, autocommit=True) as conn:
            say(f"  filling {sizes.deliveries:,} deliveries …")
            world = fill(conn, sizes.deliveries)
        with _served(dsn) as url, _browser(chromium, url, _token(dsn, settings)) as page:
            seen = [_look(page, url, name, world.address(name), sizes.looks) for name in [*PAGES][: sizes.pages]]
    yield _row(seen, sizes)


@contextmanager
def _served(dsn: str) -> Iterator[str]:
    """Serve HTTP alone, in a process of its own."""
    port = free_port()
    with relevo_run(dsn, _NO_EXPO, "serve", http_port=port, http_rate_per_second=0):
        await_port(port)
        yield f"http://127.0.0.1:{port}"


def _token(dsn: str, settings: Settings) -> str:
    database = Database(dsn, dsn, settings)
    token, _ = api_tokens.make(database, "bench", "operator")
    database.close()
    return token


@contextmanager
def _browser(chromium: str, url: str, token: str) -> Iterator[BrowserPage]:
    """Open a browser and log in."""
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = started.new_page(viewport={"width": 1280, "height": 900}, locale="en-US")
        page.set_default_timeout(_PATIENCE_S * 1000)
        page.goto(f"{url}/dashboard")
        page.fill("#token", token)
        page.click("button")
        page.wait_for_url("**/dashboard")
        yield page
        started.close()


def _look(page: BrowserPage, url: str, name: str, place: str, looks: int) -> Seen:
    """Look at a page several times; the first time counts like any other."""
    took = [_open(page, url, place, searched=name.startswith(SEARCH)) for _ in range(looks)]
    seen = Seen(name, [answer for answer, _ in took], [shown for _, shown in took])
    say(f"  {name}: {max(seen.answers):,.0f} ms at most, {statistics.median(seen.answers):,.0f} ms half of them")
    return seen


def _open(page: BrowserPage, url: str, place: str, *, searched: bool) -> tuple[float, float]:
    answer = _search(page, place) if searched else page.goto(url + place, wait_until="load")
    assert answer is not None
    assert answer.ok, f"{place} was answered with {answer.status}: {page.inner_text('main')[:300]}"
    ended, shown = page.evaluate(_TOOK)
    return float(ended), float(shown)


def _search(page: BrowserPage, asked: str) -> Response:
    """Put something into the box, as a person does; the first byte of a form may lead elsewhere, which counts."""
    page.fill("header input[name=q]", asked)
    with page.expect_navigation(wait_until="load") as going:
        page.press("header input[name=q]", "Enter")
    return going.value


def _row(seen: Sequence[Seen], sizes: Sizes) -> Row:
    slowest = max(seen, key=lambda each: max(each.answers))
    half = statistics.median(answer for each in seen for answer in each.answers)
    figures = {"slowest_ms": max(slowest.answers), "median_ms": half, "shown_ms": max(max(each.shown) for each in seen)}
    by_page = {f"ms: {each.name}": max(each.answers) for each in seen}
    said = (
        f"{figures['slowest_ms']:,.0f} ms ({slowest.name}), p50 {half:,.0f} ms; usable in {figures['shown_ms']:,.0f} ms"
    )
    what = f"the slowest answer of {len(seen)} pages, {sizes.looks} looks each, at {sizes.deliveries:,} deliveries"
    return Row("pages", what, said, None, figures | by_page, [Goal("slowest_ms", _MOST_MS, "ms")])
