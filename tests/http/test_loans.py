"""Statements asked on the event loop itself: as good as on a thread, and as safe."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from relevo.app import App
from relevo.errors import DatabaseUnavailableError, InvalidInputError
from relevo.http.desk import Desk
from relevo.http.loans import Loan
from relevo.remote import Question

Story = Callable[[Desk], Coroutine[Any, Any, None]]


@pytest.fixture
def tell(build: Callable[..., App]) -> Callable[..., None]:
    """Tell a story with a desk of some connections."""

    def told(story: Story, size: int = 4) -> None:
        database = build().database.beside("relevo test", size)

        async def whole() -> None:
            desk = Desk(database, size, 30)
            try:
                async with asyncio.timeout(60):
                    await story(desk)
            finally:
                desk.close()

        try:
            asyncio.run(whole())
        finally:
            database.close()

    return told


def of(statement: str, **parameters: Any) -> Question[Any]:
    """Return the question for one value."""
    return Question(statement.encode(), parameters, lambda rows: rows[0][0])


BACKEND = of("select pg_backend_pid()")


async def lent(desk: Desk) -> Loan:
    """Ask until the loop has a connection of its own."""
    while not (free := [each for each in desk._loans if each.is_free]):
        await desk.ask_for(BACKEND)
    return free[0]


async def ended(desk: Desk, loan: Loan) -> None:
    """Wait until a connection was given back."""
    while loan in desk._loans:
        await asyncio.sleep(0.01)


@contextmanager
def held(desk: Desk) -> Iterator[asyncio.Task[bool]]:
    """Hold one turn of a desk."""
    let = threading.Event()
    task = asyncio.create_task(desk.ask(lambda _: let.wait(60)))
    try:
        yield task
    finally:
        let.set()


def test_many_questions_share_a_connection(tell: Callable[..., None]) -> None:
    """Once questions come often, one connection answers them, with any parameters; idle, it is given back."""

    async def story(desk: Desk) -> None:
        loan = await lent(desk)
        assert len({await desk.ask_for(BACKEND) for _ in range(20)}) == 1
        both = of("select %(n)s::int || %(t)s::text || ' 5%% ' || coalesce(%(t)s::text, '') || %(n)s::text", n=7, t="ñ")
        assert [await desk.ask_for(both) for _ in range(2)] == ["7ñ 5% ñ7"] * 2
        assert await desk.ask_for(of("select %(none)s::text is null", none=None)) is True
        long = "x" * 8_000_000
        assert await desk.ask_for(of("select length(%(long)s::text)", long=long)) == len(long)
        assert desk._loans == [loan]
        await ended(desk, loan)

    tell(story)


def test_a_refusal_ends_nothing(tell: Callable[..., None]) -> None:
    """What PostgreSQL refuses is told to whoever asked; whoever asks next, and who left meanwhile, harms nobody."""

    async def story(desk: Desk) -> None:
        loan = await lent(desk)
        backend = await desk.ask_for(BACKEND)
        with pytest.raises(InvalidInputError, match="division by zero"):
            await desk.ask_for(of("select 1 / %(n)s::int", n=0))
        with pytest.raises(psycopg.errors.UndefinedColumn):
            await desk.ask_for(of("select nothing"))
        leaving = asyncio.create_task(desk.ask_for(of("select pg_sleep(0.05)")))
        await asyncio.sleep(0)
        assert loan.is_busy
        leaving.cancel()
        while loan.is_busy:
            await asyncio.sleep(0.01)
        assert await desk.ask_for(BACKEND) == backend

    tell(story)


def test_a_lost_connection_is_told_as_ever(tell: Callable[..., None], conn: psycopg.Connection[Any]) -> None:
    """Whoever asks while the connection is lost is told so, as by a thread; the next question finds another."""

    async def story(desk: Desk) -> None:
        loan = await lent(desk)
        backend = await desk.ask_for(BACKEND)
        asking = asyncio.create_task(desk.ask_for(of("select pg_sleep(60)")))
        await asyncio.sleep(0)
        conn.execute("select pg_terminate_backend(%s)", [backend])
        with pytest.raises(DatabaseUnavailableError, match="was lost"):
            await asking
        await ended(desk, loan)
        assert await desk.ask_for(BACKEND) != backend

    tell(story)


def test_a_connection_that_goes_unasked_is_noticed(tell: Callable[..., None], conn: psycopg.Connection[Any]) -> None:
    """A server that hangs up while nobody asks costs nobody an answer."""

    async def story(desk: Desk) -> None:
        loan = await lent(desk)
        backend = await desk.ask_for(BACKEND)
        conn.execute("select pg_terminate_backend(%s)", [backend])
        await ended(desk, loan)
        assert await desk.ask_for(BACKEND) != backend

    tell(story)


def test_a_silent_server_is_not_waited_for(tell: Callable[..., None]) -> None:
    """Whoever waits for longer than a statement may take is told that the database does not answer."""

    async def story(desk: Desk) -> None:
        loan = await lent(desk)
        loan._connection.patience_s = 0.1
        with pytest.raises(DatabaseUnavailableError, match="no answer"):
            await desk.ask_for(of("select pg_sleep(4)"))
        await ended(desk, loan)

    tell(story)


def test_others_get_their_turn(tell: Callable[..., None]) -> None:
    """A connection that the loop keeps is given back as soon as others wait for a turn."""

    async def story(desk: Desk) -> None:
        loan = await lent(desk)
        with held(desk) as holding:
            await asyncio.sleep(0)
            assert await desk.ask(lambda _: "mine") == "mine"
            assert loan not in desk._loans
        await holding

    tell(story, size=2)


def test_a_single_connection_is_never_kept(tell: Callable[..., None]) -> None:
    """Where there is one connection, it is everybody's."""

    async def story(desk: Desk) -> None:
        for _ in range(20):
            await desk.ask_for(BACKEND)
        assert not desk._loans

    tell(story, size=1)
