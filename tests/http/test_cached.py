"""What requests share or remember for a second, and no longer; and the turns they take at the database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
import pytest
from fastapi import Request
from psycopg import sql

from relevo.access import api_tokens, sessions
from relevo.app import App
from relevo.database.pool import Database
from relevo.http.cached import FRESH_S, Cached
from relevo.http.database_threads import DatabaseThreads
from relevo.http.guard import COOKIE, Callers
from relevo.http.problems import Problem
from relevo.http.rules import READ, VIEW_PAGE
from support.http_server import EVENT, Served, phone


class Finder:
    """Finds 1, then 2, … once it is let; or fails."""

    def __init__(self) -> None:
        self.found = 0
        self.fails = False
        self.may_go = asyncio.Event()
        self.may_go.set()

    async def find(self) -> int:
        """Find the next one."""
        self.found += 1
        found = self.found
        await self.may_go.wait()
        if self.fails:
            raise LookupError
        return found


def run(story: Coroutine[Any, Any, None]) -> None:
    """Run a test's story in an event loop."""
    asyncio.run(asyncio.wait_for(story, 60))


def test_an_answer_is_shared_for_a_second() -> None:
    """What was found is told for a second since it was begun, then found anew; and at once if it is to be forgotten."""

    async def story() -> None:
        now, finder = [100.0], Finder()
        cached = Cached(finder.find, clock=lambda: now[0])
        assert [await cached.get() for _ in range(3)] == [1, 1, 1]
        now[0] += FRESH_S
        assert await cached.get() == 1
        now[0] += 0.001
        assert await cached.get() == 2
        cached.forget()
        assert await cached.get() == 3

    run(story())


def test_those_who_come_together_are_answered_together() -> None:
    """Whoever asks while an answer is being found waits for that one, and does not lose it when another leaves."""

    async def story() -> None:
        finder = Finder()
        finder.may_go.clear()
        cached = Cached(finder.find)
        asking = [asyncio.create_task(cached.get()) for _ in range(5)]
        await asyncio.sleep(0)
        asking[0].cancel()
        await asyncio.sleep(0)
        finder.may_go.set()
        assert await asyncio.gather(*asking[1:]) == [1] * 4

    run(story())


def test_a_failure_is_not_kept() -> None:
    """Whoever waited for an answer that failed is told so; the next one has it tried again."""

    async def story() -> None:
        finder = Finder()
        cached = Cached(finder.find)
        finder.fails = True
        told = await asyncio.gather(cached.get(), cached.get(), return_exceptions=True)
        assert [type(each) for each in told] == [LookupError, LookupError]
        finder.fails = False
        assert await cached.get() == 2

    run(story())


def test_a_turn_ends_with_its_work() -> None:
    """Who leaves keeps its turn until its work has ended; nobody else gets two into the room of one."""

    async def story() -> None:
        let, begun = threading.Event(), threading.Event()

        def work(_: Any) -> str:
            begun.set()
            return "done" if let.wait(60) else "never let"

        threads = DatabaseThreads(None, 1, 0.01)  # type: ignore[arg-type]  # no question here is one for the database
        leaving = asyncio.create_task(threads.run(work))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        leaving.cancel()
        with pytest.raises(Problem, match="in use"):
            await threads.run(work)
        let.set()
        while True:
            try:
                assert await threads.run(work) == "done"
                break
            except Problem:  # its thread is about to end
                await asyncio.sleep(0.001)
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda _: 1 // 0)
        threads.close()

    run(story())


def request_with(name: str, value: str) -> Request:
    """Return a request that has nothing but one header."""
    return Request(
        {"type": "http", "headers": [(name.encode(), value.encode())], "client": ("127.0.0.1", 1), "state": {}}
    )


@pytest.mark.parametrize("end", [api_tokens.revoke, "expire"])
def test_a_token_that_ended_is_refused_within_a_second(
    build: Callable[..., App], conn: psycopg.Connection[Any], end: Callable[[Database, str], str] | str
) -> None:
    """A token that was good is taken for good for a second without asking; not a moment longer."""
    database = build().database
    written, token = api_tokens.make(database, "caller", "viewer", days=1)

    async def story() -> None:
        now, threads = [100.0], DatabaseThreads(database, 1, 60)
        callers = Callers(threads, clock=lambda: now[0])
        ask = request_with("authorization", f"Bearer {written}")
        assert await callers.admit(ask, READ) == token
        if callable(end):
            end(database, token.id)
        else:
            conn.execute("update relevo.api_tokens set created_at = now() - interval '9 days', expires_at = now()")
        now[0] += FRESH_S
        assert await callers.admit(ask, READ) == token
        now[0] += 0.001
        for _ in range(2):
            with pytest.raises(Problem, match="revoked"):
                await callers.admit(ask, READ)
        threads.close()

    run(story())


def test_a_token_is_asked_for_once_by_all_who_bring_it_at_once(build: Callable[..., App]) -> None:
    """Requests at once with one token share one question; who leaves takes it from nobody, and a bad token is nobody's."""
    database = build().database
    written, token = api_tokens.make(database, "caller", "viewer")

    async def story() -> None:
        threads = DatabaseThreads(database, 1, 60)
        callers, asked, run_one = Callers(threads), list[str](), threads.run

        async def counted(function: Any, *args: Any, **kwargs: Any) -> Any:
            asked.append(args[0])
            return await run_one(function, *args, **kwargs)

        threads.run = counted  # type: ignore[method-assign]
        ask = request_with("authorization", f"Bearer {written}")
        leaving, *others = [asyncio.create_task(callers.admit(ask, READ)) for _ in range(20)]
        bad = request_with("authorization", f"Bearer {written[:-1]}")
        refused = [asyncio.create_task(callers.admit(bad, READ)) for _ in range(20)]
        await asyncio.sleep(0)
        leaving.cancel()
        assert await asyncio.gather(*others) == [token] * 19
        for each in refused:
            with pytest.raises(Problem, match="unknown"):
                await each
        assert asked == [written, written[:-1]]
        threads.close()

    run(story())


def test_a_session_is_remembered_by_nobody(build: Callable[..., App]) -> None:
    """A session that was good is no token, and one that was ended is refused at once."""
    database = build().database
    written, token = api_tokens.make(database, "person", "viewer")
    session = sessions.begin(database, token)
    assert written != session

    async def story() -> None:
        threads = DatabaseThreads(database, 1, 60)
        callers = Callers(threads)
        looking = request_with("cookie", f"{COOKIE}={session}")
        assert await callers.admit(looking, VIEW_PAGE) == token
        with pytest.raises(Problem, match="unknown"):
            await callers.admit(request_with("authorization", f"Bearer {session}"), READ)
        sessions.end(database, session)
        with pytest.raises(Problem, match="logged out"):
            await callers.admit(looking, VIEW_PAGE)
        threads.close()

    run(story())


def test_an_operator_sees_what_they_did(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Statistics are found once for those who ask within a second, but anew after an operator did something here."""
    phone(conn)
    operator = served.client("operator")
    before = operator.get("/v1/ops/stats").json()
    assert operator.post("/v1/events", EVENT).status_code == 201
    operator.post("/v1/ops/cycles/fanout/run")
    after = operator.get("/v1/ops/stats").json()
    assert (before["queue"]["total"], after["queue"]["total"]) == (0, 1)
    assert after["generated_at"] > before["generated_at"]


def test_a_single_statement_looks_again_after_a_lock(build: Callable[..., App], conn: psycopg.Connection[Any]) -> None:
    """A statement over HTTP that is a transaction by itself is read committed, whatever the database's default is."""
    settled = "alter database {} set default_transaction_isolation = 'serializable'"
    conn.execute(sql.SQL(settled).format(sql.Identifier(conn.info.dbname)))
    database = build().database.beside("a test", 1)
    with database.connection() as connection:
        assert connection.execute("show transaction_isolation").fetchone() == ("read committed",)
    database.close()
