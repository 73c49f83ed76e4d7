"""Digests: a day of tenders for phones that hear of a quarter of them, told once a day, beside each told at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from bench.environment import statements
from bench.measuring import Cost, Goal, Meter, Row
from bench.sizes import Sizes
from benching import fresh_database, say
from relevo import app
from relevo.client import values, verbs
from relevo.core.model import Budget

_SQL = statements(__file__)
_KINDS = 4


def rows(sizes: Sizes) -> Iterator[Row]:
    """Measure what it costs to make a phone's deliveries of a day, each at once and as one digest."""
    with fresh_database(sources="none") as (dsn, settings), psycopg.connect(dsn, autocommit=True) as conn:
        say(f"  loading {sizes.digest_phones:,} installations …")
        conn.execute(_SQL["load_phones"], {"phones": sizes.digest_phones})
        with app.build(settings, role="run-cycle") as built:
            _prepare(conn, None)
            each = _fan_out(built, conn, "each", min(sizes.tenders, 5 * _KINDS))
            made = _count(conn, digests=False)
            _prepare(conn, "daily 08:00")
            gathered = _fan_out(built, conn, "gathered", sizes.tenders)
            conn.execute(_SQL["come_due"])
            closed = Meter(conn).measure(lambda: _run(built, "digest"))
            told = _count(conn, digests=True)
    yield _row(sizes.tenders, (each, made), gathered, (closed, told))


def _row(tenders: int, at_once: tuple[Cost, int], gathered: Cost, at_last: tuple[Cost, int]) -> Row:
    """Compare a phone's day: many deliveries that are queued, or as many that are gathered, and one digest."""
    (each, made), (closed, told), heard = at_once, at_last, tenders / _KINDS
    each_us, each_bytes = _cpu_us(each) / made * heard, each.wal_bytes / made * heard
    digest_us = (_cpu_us(closed) + _cpu_us(gathered)) / told
    digest_bytes = (closed.wal_bytes + gathered.wal_bytes) / told
    more = {
        "cpu_us_per_phone": digest_us,
        "wal_bytes_per_phone": digest_bytes,
        "each_cpu_us_per_phone": each_us,
        "each_wal_bytes_per_phone": each_bytes,
        "cpu_times_each": digest_us / each_us,
        "wal_times_each": digest_bytes / each_bytes,
    }
    what = f"a day of {tenders:,} tenders in a digest, a quarter of them for each phone"
    said = (
        f"{digest_us:,.0f} µs, {digest_bytes:,.0f} bytes of WAL a phone: "
        f"{digest_us / each_us:,.1f} and {digest_bytes / each_bytes:,.1f} times the making of each at once"
    )
    return Row(
        "digest", what, said, closed, more, [Goal("cpu_times_each", 5, "times"), Goal("wal_times_each", 5, "times")]
    )


def _prepare(conn: psycopg.Connection[Any], delivery: str | None) -> None:
    conn.execute(_SQL["ask_for_a_quarter"], {"delivery": delivery})
    conn.execute(_SQL["refresh"])
    conn.execute(_SQL["settle_down"])


def _fan_out(built: app.App, conn: psycopg.Connection[Any], name: str, tenders: int) -> Cost:
    """Enqueue tenders and measure their fan-out."""
    for n in range(tenders):
        audience = values.TenderMatching(
            tipo=f"T{n % _KINDS}", region="Maule", text=f"Tender {n} of a bridge over a river"
        )
        verbs.enqueue(conn, values.Event("tender", f"{name} {n}", f"Tender {n}", audience=audience))
    return Meter(conn).measure(lambda: _run(built, "fanout"))


def _run(built: app.App, cycle: str) -> int:
    report = built.runner.run(built.registry[cycle], "manual", budget=Budget(3_600_000, 1_000_000_000))
    assert report.outcome == "ok", report
    return max(1, report.counts.get("deliveries_created", 0))


def _count(conn: psycopg.Connection[Any], *, digests: bool) -> int:
    row = conn.execute(_SQL["count_deliveries"], {"digests": digests}).fetchone()
    assert row is not None
    return int(row[0])


def _cpu_us(cost: Cost) -> float:
    return (cost.worker_ms + cost.postgres_ms) * 1_000
