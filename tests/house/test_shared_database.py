"""The database that tests share: whatever a test left in it, the next one finds it as good as new."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from relevo.config import Settings
from relevo.database.pool import Database
from support.phones import add_phones
from support.shared_database import SharedDatabase

IN_THE_WAY = """
create function public.in_the_way() returns trigger language plpgsql as 'begin return new; end';
create trigger in_the_way before update on relevo.notification_deliveries for each row execute function public.in_the_way()
"""
CHANGES = (
    "create table public.mine (id int)",
    IN_THE_WAY,
    "create function relevo.mine() returns int language sql return 1; drop function relevo.mine()",
    "create index on relevo.workers (version)",
    "grant select on relevo.workers to public",
    "delete from relevo.providers where provider = 'fcm'",
    "analyze relevo.workers",
    "alter database shared set timezone = 'America/Santiago'",
    "set session_replication_role = replica; alter table relevo.workers disable trigger all",
)


def identity(conn: psycopg.Connection[Any]) -> Any:
    """Return what tells a database from its successor."""
    return conn.execute("select oid from pg_database where datname = current_database()").fetchone()


def test_rows_are_removed_and_numbers_begin_again(shared_database: SharedDatabase) -> None:
    """Rows, settings of the session and other connections are gone, and the first phone has the number it had before."""
    conn = shared_database.renewed()
    same = identity(conn)
    add_phones(conn, 3)
    numbers = "select array_agg(seq order by seq) from relevo.device_installations"
    first = conn.execute(numbers).fetchone()
    conn.execute("set timezone = 'America/Santiago'; create temp table mine (id int); select pg_advisory_lock(7)")
    with psycopg.connect(shared_database.dsn) as other:
        other.execute("select from relevo.device_installations for update")
        conn = shared_database.renewed()
        with pytest.raises(psycopg.OperationalError):
            other.execute("select 1")
    assert identity(conn) == same
    assert conn.execute(numbers).fetchone() == (None,)
    assert conn.execute("show timezone").fetchone() == ("UTC",)
    assert conn.execute(
        "select to_regclass('mine'), count(*) from pg_locks where locktype = 'advisory'"
    ).fetchone() == (
        None,
        0,
    )
    add_phones(conn, 3)
    assert conn.execute(numbers).fetchone() == first


def test_a_trigger_that_is_dropped_again_leaves_nothing(shared_database: SharedDatabase) -> None:
    """A test may put a trigger in the way and take it back, also one on each partition of its table: no new database is made."""
    conn = shared_database.renewed()
    same = identity(conn)
    conn.execute(IN_THE_WAY)
    conn.execute("drop function public.in_the_way() cascade")
    assert identity(shared_database.renewed()) == same


def test_the_next_worker_gets_the_backend_of_the_last_one(settings: Settings) -> None:
    """A worker closes its connections, and the next worker continues with their backends: a new one costs 100 ms of CPU."""
    backends = set()
    for _ in range(2):
        database = Database(settings.database_url, settings.database_url, settings, "a worker")
        with database.connection() as pooled, database.single() as single:
            backends |= {pooled.info.backend_pid, single.info.backend_pid}
        database.close()
    assert len(backends) == 2


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_is_more_than_rows_makes_a_new_one(shared_database: SharedDatabase, change: str) -> None:
    """A change of the schema, of rights, of settings, of statistics or of the rows that every database has."""
    before = shared_database.renewed()
    old = identity(before)
    before.execute(change.encode())
    after = shared_database.renewed()
    assert identity(after) != old
    assert after.execute("select count(*) from relevo.providers").fetchone() == (5,)
