"""Inboxes: what a page and counts cost among many deliveries, and what callers cost that wait while nothing comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from bench import processes
from bench.environment import relevo_run, statements
from bench.http import Caller, await_port, free_port
from bench.measuring import Goal, Row
from bench.sizes import Sizes
from benching import fresh_database, say
from relevo.access import api_tokens
from relevo.config import Settings
from relevo.database.pool import Database

_SQL = statements(__file__)
_ITEMS = 10_000
_AT_ONCE = 500_000
_MOST_MS = 3.0
_MOST_PERCENT = 1.0
_NO_EXPO = "http://127.0.0.1:9"
_TOKENS = 4
_WAIT_S = 30
_ENTERED_MS = 60.0
"""A caller counts as waiting once a second costs less than this."""
_ASKED = {
    "page": ("read_page", "a page of 50 of an inbox"),
    "unread_page": ("read_unread", "a page of 50 unread items of an inbox"),
    "counts": ("count_items", "counts of an inbox"),
}


def rows(sizes: Sizes) -> Iterator[Row]:
    """Fill a database, read one inbox of it, and have callers wait for others."""
    with fresh_database() as (dsn, settings):
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=1) as conn:
            events = min(_ITEMS, sizes.inbox_deliveries // 10)
            fill(conn, events, sizes)
            among = f"{events:,} items among {sizes.inbox_deliveries:,} deliveries"
            for name, (statement, what) in _ASKED.items():
                yield _read(conn, f"inbox_{name}", statement, f"{what}, {among}", sizes.inbox_looks)
            conn.execute(_SQL["read_all_before"], {"events": events})
            what = f"counts of an inbox, all but the newest read, {among}"
            yield _read(conn, "inbox_counts_read", "count_items", what, sizes.inbox_looks)
            server = processes.parent_of(conn.info.backend_pid)
        yield _waiters(dsn, settings, server, sizes)


def fill(conn: psycopg.Connection[Any], events: int, sizes: Sizes) -> None:
    """Make deliveries, of which one owner has one or two of each event, and the others the rest."""
    each = max(3, sizes.inbox_deliveries // events)
    shape = {
        "events": events,
        "each": each,
        "phones": max(1_000, sizes.inbox_deliveries // 100, sizes.inbox_waiters + 3),
    }
    say(f"  filling {sizes.inbox_deliveries:,} deliveries …")
    for name in ("make_partitions", "fill_phones", "fill_events"):
        conn.execute(_SQL[name], shape)
    step = max(1, _AT_ONCE // each)
    for first in range(1, events + 1, step):
        conn.execute(_SQL["fill_deliveries"], shape | {"from": first, "to": min(events, first + step - 1)})
    for name in ("take_stock", "write_out"):
        conn.execute(_SQL[name])
    [(made,)] = conn.execute(_SQL["count_deliveries"]).fetchall()
    say(f"  {made:,} deliveries were made")
    conn.execute(_SQL["mark_some"], shape)


def _read(conn: psycopg.Connection[Any], name: str, statement: str, what: str, looks: int) -> Row:
    """Return the backend's cost of one look: the middle of several."""
    pid = conn.info.backend_pid
    spent = []
    for _ in range(looks + 5):  # at first plans are made, and pages are read from the disk
        before = processes.backend_us(pid)
        conn.execute(_SQL[statement]).fetchall()
        spent.append((processes.backend_us(pid) - before) / 1_000)
    least, half = min(spent[5:]), sorted(spent[5:])[looks // 2]
    figures = {"postgres_ms": half, "least_ms": least}
    said = f"{half:.2f} ms of PostgreSQL (at least {least:.2f})"
    return Row(name, what, said, None, figures, (Goal("postgres_ms", _MOST_MS, "ms"),))


def _waiters(dsn: str, settings: Settings, server: int, sizes: Sizes) -> Row:
    database = Database(dsn, dsn, settings)
    tokens = [api_tokens.make(database, f"bench {n}", "app")[0] for n in range(_TOKENS)]
    database.close()
    port = free_port()
    with relevo_run(dsn, _NO_EXPO, "serve", http_port=port, http_rate_per_second=0, http_pool_wait_ms=60_000) as worker:
        await_port(port)
        seconds, spent = asyncio.run(_rest(port, tokens, (worker.pid, server), sizes))
    percent = spent / seconds / 10
    what = f"{sizes.inbox_waiters:,} callers wait for their inboxes, nothing comes: share of a core"
    said = f"{percent:.2f} % (over {seconds:.0f} s)"
    figures = {"percent": percent, "seconds": seconds}
    return Row("inbox_waiters", what, said, None, figures, (Goal("percent", _MOST_PERCENT, "%"),))


async def _rest(port: int, tokens: Sequence[str], pids: tuple[int, int], sizes: Sizes) -> tuple[float, float]:
    """Start all callers; return for how long all of them waited and none was answered, and the CPU of it, in ms."""
    started = time.monotonic()
    callers = [Caller(port, tokens[n % len(tokens)]) for n in range(sizes.inbox_waiters)]
    path = "/v1/inbox?owner=user-{}&limit=1&wait_ms=" + str(_WAIT_S * 1_000)
    asked = [asyncio.ensure_future(each.ask("GET", path.format(n + 3))) for n, each in enumerate(callers)]
    before = _spent(pids)
    while True:
        await asyncio.sleep(1)
        now = _spent(pids)
        if now - before < _ENTERED_MS:
            break
        before = now
        assert time.monotonic() - started < _WAIT_S - 2, "they did not all get to wait in time"
    began, before = time.monotonic(), _spent(pids)
    while not any(each.done() for each in asked) and time.monotonic() - started < _WAIT_S - 1:
        await asyncio.sleep(0.2)
    seconds, spent = time.monotonic() - began, _spent(pids) - before
    assert not any(each.done() for each in asked), [each.result() for each in asked if each.done()][:3]
    for each in asked:
        each.cancel()
    return seconds, spent


def _spent(pids: tuple[int, int]) -> float:
    worker, server = pids
    return processes.spent_ms(worker) + processes.server_ms(server)
