"""A bounded transaction: begun in one message, gone without a trace, whatever happens in it."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from relevo.core.errors import DatabaseUnavailableError
from relevo.database.pool import Connection, Database

BOUNDS = """
select current_setting('statement_timeout') || ' ' || current_setting('lock_timeout') || ' ' || current_setting('plan_cache_mode')
       || ' ' || current_setting('synchronous_commit') || ' ' || current_setting('transaction_isolation')
"""


FLUSHING = "do $$ begin execute format('alter database %I set synchronous_commit = on', current_database()); end $$"


def test_its_bounds_end_with_it(build, conn) -> None:
    """Every manner sets its own bounds, of a single statement, too, and none is left on the connection afterwards."""
    conn.execute(FLUSHING)
    database = build(database_statement_timeout_ms=7_000, database_lock_timeout_ms=3_000).database
    with database.connection() as connection:
        before = connection.execute(BOUNDS).fetchone()
    usual = "7s 3s auto on read committed"
    bounds = {
        "bound_transaction": usual,
        "bound_unflushed": usual.replace("on", "off", 1),
        "bound_by_key": usual.replace("auto", "force_generic_plan"),
        "bound_relaxed": usual.replace("auto on", "force_generic_plan off"),
    }
    for manner, expected in bounds.items():
        with database.transaction(manner) as connection:
            assert connection.execute(BOUNDS).fetchone() == (expected,)
        assert database.execute(BOUNDS.encode(), manner=manner).fetchone() == (expected,)
        assert connection.execute(BOUNDS).fetchone() == before


def write(database: Database, number: int, *, then: Callable[[Connection], object]) -> None:
    """Write a number in a transaction, and do something more in it."""
    with database.transaction() as connection:
        connection.execute("insert into kept values (%s)", [number])
        then(connection)


def undo(_connection: Connection) -> None:
    """Wish the transaction undone."""
    raise psycopg.Rollback


def undo_more(connection: Connection) -> None:
    """Write something else inside, and wish that undone alone."""
    with connection.transaction() as inner:
        connection.execute("insert into kept values (99)")
        raise psycopg.Rollback(inner)


def test_what_fails_is_undone_and_its_connection_serves_on(build, conn) -> None:
    """An error of the server, one of ours and a wish to undo all leave nothing behind; what ends well stays."""
    conn.execute("create table kept (n int)")
    database = build().database
    with pytest.raises(psycopg.errors.DivisionByZero):
        write(database, 1, then=lambda connection: connection.execute("select 1 / 0"))
    with pytest.raises(KeyError):
        write(database, 2, then=lambda _: {}["nothing"])
    write(database, 3, then=undo)
    write(database, 4, then=undo_more)
    assert conn.execute("select n from kept").fetchall() == [(4,)]


def test_a_lost_connection_is_told_as_such(build, conn) -> None:
    """If the server process dies, the error that says so is what comes out, not that of undoing."""
    conn.execute("create table kept (n int)")

    def lose(connection: Connection) -> None:
        conn.execute("select pg_terminate_backend(%s)", [connection.info.backend_pid])
        connection.execute("select pg_sleep(30)")

    with pytest.raises(DatabaseUnavailableError, match="connection to PostgreSQL was lost"):
        write(build().database, 1, then=lose)
    assert conn.execute("select n from kept").fetchall() == []
