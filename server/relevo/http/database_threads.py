"""Threads on which requests call the database, and render texts: so many at once, the others wait for their turn.

psycopg's AsyncConnectionPool would take less of the worker's CPU (GET event 925 ms per 1,000 beside 985 to 1,045, POST
event no less), and a second way of noticing, bearing and reporting outages; from 15 % on it would be worth that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from fastapi import Request

from relevo.app import App
from relevo.database.pool import Connection, Database
from relevo.database.replica import Reader, ReadResult
from relevo.http.problems import Problem, busy

P = ParamSpec("P")
T = TypeVar("T")
_LONGEST_REST_S = 1.0


class Turns(asyncio.Semaphore):
    """So many at once, the others wait for their turn; who gets none in time is answered 503."""

    def __init__(self, size: int, wait_s: float, busy_because: str) -> None:
        super().__init__(size)
        self.wait_s = wait_s
        self._busy_because = busy_because

    async def take(self) -> None:
        """Wait for a turn; `release` gives it back."""
        try:
            async with asyncio.timeout(self.wait_s):
                await self.acquire()
        except TimeoutError:
            raise self.busy() from None

    def busy(self) -> Problem:
        """Return the problem of who got no turn."""
        return busy(self._busy_because)


class Threads:
    """A few threads; a request that gets no turn in time is answered 503.

    With `rest` a thread that worked pauses so many times as long before the next turn: work that keeps the interpreter
    busy leaves it to the others most of the time, however many requests ask for it.
    """

    def __init__(self, size: int, wait_s: float, busy_because: str, rest: float = 0.0) -> None:
        self._rest = rest
        self.turns = Turns(size, wait_s, busy_because)
        self._threads = ThreadPoolExecutor(size, "relevo-http")

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function on a thread; whoever leaves before it is done keeps its turn until then."""
        await self.turns.take()
        return await self.call_in_turn(function, *args, **kwargs)

    async def call_in_turn(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function on a thread by a turn that was taken, and that ends with it."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            called = partial(copy_context().run, function, *args, **kwargs)
            work = loop.run_in_executor(self._threads, called)
        except BaseException:
            self.turns.release()
            raise
        work.add_done_callback(partial(self._end_turn, begun))
        return await asyncio.shield(work)

    def _end_turn(self, begun: float, work: asyncio.Future[Any]) -> None:
        if self._rest:
            loop = work.get_loop()
            loop.call_later(min(_LONGEST_REST_S, (loop.time() - begun) * self._rest), self.turns.release)
        else:
            self.turns.release()
        if not work.cancelled():
            work.exception()  # whoever asked may have left: an error that nobody hears is no surprise

    def close(self) -> None:
        """Take no more functions."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class DatabaseThreads(Threads):
    """A few threads, as many as the HTTP server's own pool has connections: none of them waits for one in vain."""

    def __init__(
        self,
        database: Database,
        size: int,
        wait_s: float,
        reader: Reader | None = None,
        busy_because: str = "All connections to the database are in use.",
    ) -> None:
        super().__init__(size, wait_s, busy_because)
        self.size = size
        self.database = database
        self.reader = reader or Reader(database)

    async def run(self, function: Callable[Concatenate[Database, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function with the database, and what else it takes, on a thread; 503 if no turn comes in time."""
        return await self.call(function, self.database, *args, **kwargs)

    async def read(
        self, function: Callable[Concatenate[Database, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> ReadResult[T]:
        """Call a function that only reads with the replica, or where there is none with the database."""
        return await self.call(self.reader.read, function, *args, **kwargs)

    async def run_in_transaction(
        self, function: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function with a connection inside a transaction that is committed when it returns."""
        return await self.call(partial(_call_in, self.database.transaction, function, *args, **kwargs))

    async def run_statement(
        self, function: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function of a single statement with a connection, without the ceremony of a transaction."""
        return await self.call(self.statement(function, *args, **kwargs))

    def statement(
        self, function: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Callable[[], T]:
        """Return a call of a function of a single statement, for `call_in_turn`."""
        return partial(_call_in, self.database.connection, function, *args, **kwargs)

    def close(self) -> None:
        """Take no more functions."""
        super().close()
        self.reader.close()


def _call_in(
    opened: Callable[[], AbstractContextManager[Connection]], function: Callable[..., T], *args: Any, **kwargs: Any
) -> T:
    with opened() as connection:
        return function(connection, *args, **kwargs)


def threads_of(request: Request) -> DatabaseThreads:
    """Return the threads of the server that a request came to."""
    threads: DatabaseThreads = request.app.state.threads
    return threads


def long_work_of(request: Request) -> DatabaseThreads:
    """Return the threads for what may take a minute, so that it keeps nobody else from the database."""
    threads: DatabaseThreads = request.app.state.long_work
    return threads


def rendering_of(request: Request) -> Threads:
    """Return the thread that renders texts: it has no connection, so that it keeps nobody from the database."""
    threads: Threads = request.app.state.rendering
    return threads


def app_of(request: Request) -> App:
    """Return the process that a request came to."""
    app: App = request.app.state.relevo
    return app
