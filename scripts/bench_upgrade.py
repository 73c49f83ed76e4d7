"""The upgrade from 0.1 with a large queue: how long the migration that makes chunks of it takes, beside its limit."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import psycopg

from benching import fresh_database, publish, say, timed
from relevo.config import Settings
from relevo.core import queries
from relevo.database import migrate
from relevo.database.pool import Database

_SQL = queries.Statements(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
_PHONES = 50_000
_BEFORE = [migration for migration in migrate.available() if str(migration) < "0019"]
_NOW = [migration for migration in migrate.available() if str(migration) < "0020"]


def load(conn: psycopg.Connection[Any], counts: dict[str, int]) -> None:
    """Make deliveries of every status by the number, in events for all phones."""
    conn.execute(_SQL["load_phones"], {"phones": _PHONES})
    first = 1
    for status, count in counts.items():
        last = first + count // _PHONES - 1
        conn.execute(_SQL["load_events"], {"first": first, "last": last})
        conn.execute(_SQL["load_deliveries"], {"first": first, "last": last, "status": status})
        first = last + 1
    conn.execute(_SQL["refresh"])


def upgrade(dsn: str, settings: Settings) -> float:
    """Run the migration as `relevo migrate` does; return the seconds it took."""
    database = Database(dsn, dsn, settings)
    try:
        return timed(lambda: migrate.migrate(database, _NOW))
    finally:
        database.close()


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--open", type=int, default=1_000_000, help="deliveries that wait to be sent")
    parser.add_argument("--sent", type=int, default=200_000, help="deliveries whose receipts are awaited")
    parser.add_argument("--done", type=int, default=1_000_000, help="deliveries that are final")
    given = parser.parse_args()
    counts = {"pending": given.open, "sent": given.sent, "ok": given.done}
    with fresh_database(_BEFORE) as (dsn, settings), psycopg.connect(dsn, autocommit=True) as conn:
        say(f"Loading {sum(counts.values()):,} deliveries as 0.1 kept them …")
        load(conn, counts)
        say("Migrating …")
        took = upgrade(dsn, settings)
        found = conn.execute(_SQL["count_queued"]).fetchone()
    assert found is not None
    chunks, queued, groups, awaited = found
    assert (queued, awaited) == tuple(counts[status] // _PHONES * _PHONES for status in ("pending", "sent")), found
    limit_s = settings.database_long_statement_timeout_ms / 1000
    rows = [
        (f"{queued:,} open, {awaited:,} sent, {given.done:,} done", f"{took:.1f} s", f"< {limit_s:,.0f} s"),
        ("chunks made", f"{chunks:,} with {queued / max(1, chunks):.0f} deliveries each", ""),
        ("awaited receipts made", f"{groups:,} with {awaited / max(1, groups):.0f} deliveries each", ""),
    ]
    publish("upgrade", rows, {"seconds": took, "chunks": chunks, "awaited": groups, "open": queued, "limit_s": limit_s})


if __name__ == "__main__":
    main()
