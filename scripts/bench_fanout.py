"""Fan-out over a million installations: a narrow event against a scan, a broad one against COPY, a day of ingest."""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg

from benching import fresh_database, publish, rss_mb, say, timed
from relevo import app, config, door, queries
from relevo.cycles import fanout
from relevo.runtime.runs import BUDGET, Run, RunContext

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fakes.chilecompra import TICKET, FakeChileCompra

_SQL = queries.Statements(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
_NARROW = door.Matching(rubros=["10007919"], region="Comuna 17", text="palabra31 y nada más")
_BROAD = door.Matching(tipo="LE", text="puente")
_PACE_MS = 25
ROUNDS = 3
NARROW_ROUNDS = 9


def load(conn: psycopg.Connection[Any], installations: int) -> None:
    """Make installations with preferences."""
    say(f"Loading {installations:,} installations with preferences …")
    conn.execute(_SQL["load_installations"], {"installations": installations})
    conn.execute(_SQL["load_preferences"], {})
    conn.execute(_SQL["refresh"])


def fan_out(built: app.App, conn: psycopg.Connection[Any], event: door.Event) -> tuple[int, int, float, float]:
    """Enqueue an event and take the real cycle's steps until it is through: id, deliveries, seconds, MB grown."""
    event_id = door.enqueue(conn, event).event_id
    context = RunContext(0, "fanout", "", "manual", "bench", None, datetime.now(UTC))
    run = Run(context, built.settings, built.database, BUDGET, None, None, threading.Event())
    before, started, done = rss_mb(), time.perf_counter(), 0
    while not done:
        done = fanout.step(run).counts.get("events_fanned_out", 0)
    took, growth = time.perf_counter() - started, rss_mb() - before
    status = door.get(conn, event_id)
    assert status is not None
    return event_id, status.raw["deliveries_created"], took, growth


def narrow(built: app.App, conn: psycopg.Connection[Any]) -> tuple[int, float, float]:
    """Return matches and seconds of a narrow event, and of scanning all preferences for it."""
    took, scans, matches = [], [], 0
    for round_ in range(NARROW_ROUNDS):
        event_id, matches, seconds, _ = fan_out(built, conn, door.Event("narrow", str(round_), "x", audience=_NARROW))
        took.append(seconds)
        scans.append(timed(lambda event_id=event_id: conn.execute(_SQL["scan_all"], {"event_id": event_id}).fetchone()))  # type: ignore[misc]
    return matches, statistics.median(took), statistics.median(scans)


def broad(built: app.App, conn: psycopg.Connection[Any]) -> tuple[int, float, float, float]:
    """Return deliveries and rate of a broad event, the rate of COPY of the same rows, and the memory growth."""
    rates, copies, made, growth = [], [], 0, 0.0
    for round_ in range(ROUNDS):
        conn.execute(_SQL["forget_deliveries"])
        conn.execute(_SQL["settle_down"])
        _, made, seconds, grown = fan_out(built, conn, door.Event("broad", str(round_), "x", audience=_BROAD))
        rates.append(made / seconds)
        growth = max(growth, grown)
        with conn.cursor() as cursor, cursor.copy(_SQL["copy_out"]) as out:
            rows = [bytes(block) for block in out]
        conn.execute(_SQL["forget_deliveries"])
        conn.execute(_SQL["settle_down"])
        copies.append(made / timed(lambda rows=rows: copy_in(conn, rows)))  # type: ignore[misc]
    return made, statistics.median(rates), statistics.median(copies), growth


def copy_in(conn: psycopg.Connection[Any], rows: list[bytes]) -> None:
    """COPY rows into the deliveries."""
    with conn.cursor() as cursor, cursor.copy(_SQL["copy_in"]) as into:
        for start in range(0, len(rows), 1000):
            into.write(b"".join(rows[start : start + 1000]))


def ingest_day(dsn: str, summaries: int, published: int) -> tuple[int, float, float]:
    """Read a full day from a fake ChileCompra; return requests, seconds, and the seconds its pace alone asks for."""
    today = datetime.now(ZoneInfo("America/Santiago")).date()
    with FakeChileCompra() as fake:
        fake.fill(today, summaries, published=published)
        environ = {
            "DATABASE_URL": dsn,
            "SOURCES": "chilecompra",
            "CHILECOMPRA_TICKET": TICKET,
            "CHILECOMPRA_BASE_URL": fake.base_url,
            "CHILECOMPRA_PACE_MS": str(_PACE_MS),
            "HTTP_ALLOW_PRIVATE": "true",
            "INGEST_NOTIFY_FIRST_RUN": "true",
        }
        with app.build(config.load(environ, None), role="run-cycle") as built:
            built.worker.record_start("run-cycle", ["ingest"])
            cycle = built.cycles(["ingest"])[0]
            took = timed(lambda: built.runner.run(cycle, "manual"))
        return len(fake.asked), took, (len(fake.asked) - 1) * _PACE_MS / 1000


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--installations", type=int, default=1_000_000)
    asked = parser.parse_args()
    started = time.monotonic()
    with fresh_database(sources="none") as (dsn, settings), psycopg.connect(dsn, autocommit=True) as conn:
        load(conn, asked.installations)
        with app.build(settings, role="run-cycle") as built:
            fan_out(built, conn, door.Event("narrow", "warm", "x", audience=_NARROW))
            matches, narrow_s, scan_s = narrow(built, conn)
            made, rate, copy_rate, growth = broad(built, conn)
        say("Reading a day of 1,500 tenders, 411 of them open, from a fake ChileCompra …")
        requests, ingest_s, pace_s = ingest_day(dsn, 1_500, 411)
    publish(
        "fanout",
        [
            (f"narrow event, {matches} matches", f"{narrow_s * 1000:.1f} ms", ""),
            ("scanning all preferences for it", f"{scan_s * 1000:.0f} ms, {scan_s / narrow_s:.0f} x", ">= 100 x"),
            (f"broad event, {made:,} deliveries in slices", f"{rate:,.0f}/s", ""),
            ("COPY of the same rows", f"{copy_rate:,.0f}/s, ours is {rate / copy_rate:.2f} x", ">= 0.4 x"),
            ("memory growth during the broad event", f"{growth:.0f} MB", "flat"),
            (f"a day of ingest, {requests} requests", f"{ingest_s:.1f} s", ""),
            ("its pace alone", f"{pace_s:.1f} s, ours is {ingest_s / pace_s:.2f} x", "bound by the pace"),
            ("all of this", f"{time.monotonic() - started:.0f} s", ""),
        ],
        {
            "ratio_scan": scan_s / narrow_s,
            "ratio_copy": rate / copy_rate,
            "deliveries_per_s": rate,
            "narrow_ms": narrow_s * 1000,
            "rss_growth_mb": growth,
            "ratio_ingest_pace": ingest_s / pace_s,
        },
    )


if __name__ == "__main__":
    main()
