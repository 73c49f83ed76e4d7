"""Where requests get at the database: so many at once, the others wait a moment for their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from relevo.connections.refusals import refusals
from relevo.connections.steps import Rows
from relevo.db import Connection, Database
from relevo.http.loans import Loan
from relevo.http.problems import busy
from relevo.remote import Question

P = ParamSpec("P")
T = TypeVar("T")
_OFTEN_S = 0.2


class Desk:
    """A few threads, as many as the HTTP server's own pool has connections: none of them waits for one in vain."""

    def __init__(self, database: Database, size: int, wait_s: float) -> None:
        self.database = database
        self._wait_s = wait_s
        self._turns = asyncio.Semaphore(size)
        self._threads = ThreadPoolExecutor(size, "relevo-http")
        self._loans: list[Loan] = []
        """Connections that the loop itself may ask; the others are the threads' alone."""
        self._most_loans = size - 1  # one is left for what takes a thread
        self._asked_at = float("-inf")

    async def ask_for(self, question: Question[T]) -> T:
        """Ask a single statement: on the loop itself where many are asked, else on a thread."""
        await self._lend_if_often()
        with refusals():
            loan = next((each for each in self._loans if each.is_free), None)
            rows = await (loan.ask(question) if loan else self._run(partial(self._outside, _rows, question)))
        return question.read(rows)

    async def ask(self, question: Callable[Concatenate[Database, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function with the database, and what else it takes, on a thread; 503 if no turn comes in time."""
        return await self._run(partial(question, self.database, *args, **kwargs))

    async def ask_door(
        self, question: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function of the door with a connection inside a transaction that is committed when it returns."""
        return await self._run(partial(self._in_transaction, question, *args, **kwargs))

    async def ask_once(
        self, question: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function of a single statement with a connection, without the ceremony of a transaction."""
        return await self._run(partial(self._outside, question, *args, **kwargs))

    def _outside(self, question: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        with self.database.connection() as connection:
            return question(connection, *args, **kwargs)

    def _in_transaction(self, question: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        with self.database.transaction() as connection:
            return question(connection, *args, **kwargs)

    async def _run(self, call: Callable[[], T]) -> T:
        """Have a thread do it. By hand: the futures of `run_in_executor` cost more than many a statement."""
        await self._take_turn()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        try:
            self._threads.submit(self._work, loop, answer, copy_context(), call)
        except BaseException:
            self._turns.release()
            raise
        return await answer

    async def _take_turn(self) -> None:
        if self._turns.locked():
            self._want_back()
            try:
                async with asyncio.timeout(self._wait_s):
                    await self._turns.acquire()
            except TimeoutError:
                raise busy("All connections to the database are in use.") from None
        else:
            await self._turns.acquire()  # at once

    def _work(
        self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], context: Context, call: Callable[[], T]
    ) -> None:
        try:
            give = partial(answer.set_result, context.run(call))
        except BaseException as error:  # noqa: BLE001 whatever it is, it belongs to whoever asked
            give = partial(answer.set_exception, error)
        loop.call_soon_threadsafe(self._end_turn, answer, give)

    def _end_turn(self, answer: asyncio.Future[T], give: Callable[[], None]) -> None:
        self._turns.release()
        if not answer.done():  # whoever asked may have left by then
            give()

    async def _lend_if_often(self) -> None:
        """Have the loop lent a connection if statements come often, none is to be had, and a turn is free."""
        loop = asyncio.get_running_loop()
        before, self._asked_at = self._asked_at, loop.time()
        if self._asked_at - before > _OFTEN_S or len(self._loans) >= self._most_loans or self._turns.locked():
            return
        if all(each.is_busy for each in self._loans):
            await self._turns.acquire()  # at once
            self._loans.append(loan := Loan(loop))
            self._threads.submit(self._hold, loop, loan)

    def _hold(self, loop: asyncio.AbstractEventLoop, loan: Loan) -> None:
        """Hold a connection open for the loop, on a thread: if it is lost, that is told as by any thread."""
        end = partial(self._end_loan, loan)
        try:
            with self.database.connection() as connection:
                if connection.is_bounded:
                    loan.lend(connection)
                else:
                    self._most_loans = 0  # through a pooler nothing is asked outside a transaction
        except BaseException as error:  # noqa: BLE001 it belongs to whoever asked
            end = partial(self._end_loan, loan, error)
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(end)

    def _end_loan(self, loan: Loan, error: BaseException | None = None) -> None:
        self._loans.remove(loan)
        self._turns.release()
        if error is not None:
            loan.fail(error)

    def _want_back(self) -> None:
        for loan in self._loans:
            loan.want_back()

    def close(self) -> None:
        """Take no more questions."""
        self._want_back()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _rows(connection: Connection, question: Question[Any]) -> Rows:
    return connection.execute(question.statement, question.parameters).fetchall()
