"""Statements of requests: an error, a lost connection or a caller who leaves costs nobody else anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
import pytest

from relevo.app import App
from relevo.core.errors import DatabaseUnavailableError
from relevo.database.pool import Connection
from relevo.http.database_threads import DatabaseThreads

Story = Callable[[DatabaseThreads], Coroutine[Any, Any, None]]


@pytest.fixture
def tell(build: Callable[..., App]) -> Callable[[Story], None]:
    """Tell a story with a threads of one connection, which all have to share."""

    def told(story: Story) -> None:
        database = build().database.beside("relevo test", 1)

        async def whole() -> None:
            threads = DatabaseThreads(database, 1, 60)
            try:
                async with asyncio.timeout(60):
                    await story(threads)
            finally:
                threads.close()

        try:
            asyncio.run(whole())
        finally:
            database.close()

    return told


def value(connection: Connection, statement: str) -> Any:
    """Return the one value a statement finds."""
    row = connection.execute(statement.encode()).fetchone()
    return row[0] if row else None


def backend(connection: Connection) -> int:
    """Return which of the server's processes answers."""
    return int(value(connection, "select pg_backend_pid()"))


async def until_waiting(conn: psycopg.Connection[Any], pid: int, what: str) -> None:
    """Wait until one of the server's processes waits for something of a kind."""
    asked = "select wait_event_type from pg_stat_activity where pid = %s"
    while conn.execute(asked, [pid]).fetchone() != (what,):
        await asyncio.sleep(0.001)


def test_a_refusal_ends_nothing(tell: Callable[[Story], None]) -> None:
    """What PostgreSQL refuses, inside a transaction or outside, is told to whoever asked; the next one is answered."""

    async def story(threads: DatabaseThreads) -> None:
        before = await threads.run_statement(backend)
        for ask in (threads.run_statement, threads.run_in_transaction) * 3:
            assert await ask(value, "select 7") == 7
            with pytest.raises(psycopg.errors.DivisionByZero):
                await ask(value, "select 1 / 0")
            with pytest.raises(psycopg.errors.UndefinedColumn):
                await ask(value, "select nothing")
        assert await threads.run_statement(backend) == before

    tell(story)


def test_who_leaves_harms_nobody(tell: Callable[[Story], None], conn: psycopg.Connection[Any]) -> None:
    """A caller who leaves while its statement runs, and fails, leaves the connection as it should be."""
    fails = "do $$ begin perform pg_advisory_xact_lock(7); raise exception 'nobody hears this'; end $$"

    async def story(threads: DatabaseThreads) -> None:
        before = await threads.run_statement(backend)
        conn.execute("select pg_advisory_lock(7)")
        leaving = asyncio.create_task(threads.run_in_transaction(value, fails))
        await until_waiting(conn, before, "Lock")
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        conn.execute("select pg_advisory_unlock(7)")
        assert await threads.run_statement(backend) == before

    tell(story)


def test_a_lost_connection_is_told_and_replaced(tell: Callable[[Story], None], conn: psycopg.Connection[Any]) -> None:
    """Whoever asks while the connection is lost is told so; the next question finds another."""

    async def story(threads: DatabaseThreads) -> None:
        before = await threads.run_statement(backend)
        asking = asyncio.create_task(threads.run_statement(value, "select pg_sleep(60)"))
        await until_waiting(conn, before, "Timeout")
        conn.execute("select pg_terminate_backend(%s)", [before])
        with pytest.raises(DatabaseUnavailableError, match="was lost"):
            await asking
        assert await threads.run_statement(backend) != before

    tell(story)


def test_a_silent_server_is_not_waited_for(tell: Callable[[Story], None]) -> None:
    """Whoever waits for longer than a statement may take is told that the database does not answer."""

    def impatiently(connection: Connection) -> None:
        connection.patience_s = 0.1
        value(connection, "select pg_sleep(4)")

    async def story(threads: DatabaseThreads) -> None:
        with pytest.raises(DatabaseUnavailableError, match="no answer"):
            await threads.run_statement(impatiently)
        assert await threads.run_statement(value, "select 7") == 7

    tell(story)
