"""Tables that nobody has analyzed yet: what a call reads does not grow with the events that are there, on no version of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from relevo import config, embedded
from relevo.database import migrate
from relevo.database.pool import Database
from relevo.embedded import binaries
from support import postgres_folder

MADE = {binaries.version(folder): folder for folder in binaries.candidates() if 15 <= binaries.version(folder) <= 18}
READ = """
select coalesce(sum(idx_tup_fetch + seq_tup_read), 0)::int
  from pg_stat_xact_user_tables where schemaname = 'relevo' and relname in ('notification_events', 'event_keys')
"""
ARCHIVED = """
insert into relevo.event_keys (event_type, event_key, event_id, content_hash, state, month)
select 'chat', 'old' || n, 1000000 + n, 'x', 'fanned', '2026-01-01' from generate_series(1, 300) as n
"""


@pytest.fixture(params=sorted({min(MADE), max(MADE)}))
def young(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection to a new database without statistics, of the oldest PostgreSQL that is here and of the newest."""
    quick = postgres_folder.QUICK | {"autovacuum": "off"}
    with embedded.acquire(tmp_path / "young", MADE[request.param], settings=quick, linger_s=0) as server:
        database = Database(server.dsn, server.dsn, config.load({}, None))
        migrate.migrate(database)
        database.close()
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            yield connection


def _event(key: str) -> dict[str, Any]:
    return {"type": "chat", "key": key, "title": "Ana", "audience": "owners", "owners": ["user-7"]}


def enqueue_one(conn: psycopg.Connection[Any], key: str) -> None:
    """Enqueue one event."""
    conn.execute("select * from relevo.enqueue(%s)", (Jsonb(_event(key)),))


def enqueue_several(conn: psycopg.Connection[Any], key: str) -> None:
    """Enqueue three together."""
    conn.execute("select * from relevo.enqueue_many(%s)", (Jsonb([_event(f"{key}-{n}") for n in range(3)]),))


def look_up(conn: psycopg.Connection[Any], key: str) -> None:
    """Look an event up by its key."""
    conn.execute("select relevo.event_id_in_project('chat', %s, null)", (key,))


def rows_read(conn: psycopg.Connection[Any], call: Callable[..., None], key: str) -> int:
    """Return how many events and archived keys a call reads."""
    with conn.transaction():
        before = conn.execute(READ).fetchone()
        call(conn, key)
        after = conn.execute(READ).fetchone()
    assert before is not None
    assert after is not None
    return int(after[0]) - int(before[0])


def test_a_call_reads_no_other_events(young: psycopg.Connection[Any]) -> None:
    """A connection that began with empty tables reads a few rows for a call, however many events of the type came since."""
    calls = (enqueue_one, enqueue_several, look_up)
    for n in range(12):  # so that the connection keeps its plans
        for call in calls:
            call(young, f"{call.__name__}-{n}")
    for n in range(300):
        enqueue_one(young, f"k{n}")
    young.execute(ARCHIVED)
    read = {call.__name__: rows_read(young, call, f"new-{call.__name__}") for call in calls}
    assert max(read.values()) <= 6, read
