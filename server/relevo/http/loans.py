"""Connections lent to the event loop: a small statement asked there costs a third of what a thread's turn does."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult

from relevo.connections.steps import Rows
from relevo.db import Connection, NoAnswerError, is_unavailable
from relevo.remote import Question

_TICK_S = 0.5
_LOOK_S = 1.0
_LONGEST_S = 60.0
_GOOD = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
_PLACE = re.compile(rb"%\((\w+)\)s")
_prepared: WeakKeyDictionary[Connection, dict[bytes, bytes]] = WeakKeyDictionary()
"""The names of the statements that were prepared here, by connection and text."""


class Loan:
    """One connection, which a thread holds open meanwhile; it gets it back when nobody asks, or when it is lost.

    All of it but `lend` is called on the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._back = threading.Event()
        self._lost_by: BaseException | None = None
        self._answer: asyncio.Future[PGresult] | None = None
        self._sends: Iterator[Callable[[], None]] | None = None
        self._result: PGresult | None = None
        self._is_open = self._is_wanted_back = self._writes = False

    def lend(self, connection: Connection) -> None:
        """Let the loop have a connection until it gives it back; raises what it was lost by."""
        self._loop.call_soon_threadsafe(self._begin, connection)
        while not self._back.wait(_LOOK_S):
            if self._loop.is_closed():
                return
        if self._lost_by is not None:
            raise self._lost_by

    def _begin(self, connection: Connection) -> None:
        self._connection, self._pgconn, self._fd = connection, connection.pgconn, connection.fileno()
        self._began_at = self._heard_at = self._loop.time()
        self._pgconn.nonblocking = 1
        self._loop.add_reader(self._fd, self._safely, self._hear)
        self._ticking = self._loop.call_later(_TICK_S, self._tick)
        self._is_open = True
        self._rest()

    @property
    def is_free(self) -> bool:
        """Whether it can be asked right now."""
        return self._is_open and self._sends is None

    @property
    def is_busy(self) -> bool:
        """Whether something is being asked."""
        return self._sends is not None

    async def ask(self, question: Question[Any]) -> Rows:
        """Send a statement, and wait for its rows."""
        self._answer = answer = self._loop.create_future()
        self._heard_at = self._loop.time()
        self._sends = self._steps(question)
        self._safely(self._go_on)
        return _loaded(await answer, self._connection)

    def want_back(self) -> None:
        """End the loan as soon as nothing is being asked."""
        self._is_wanted_back = True
        self._rest()

    def fail(self, error: BaseException) -> None:
        """Tell whoever still waits for an answer why there is none."""
        if self._answer is not None and not self._answer.done():  # whoever asked may have left by then
            self._answer.set_exception(error)

    def _steps(self, question: Question[Any]) -> Iterator[Callable[[], None]]:
        """Return what is to be sent, each once the one before was answered: a statement is prepared the first time."""
        text, names = _numbered(question.statement)
        known = _prepared.setdefault(self._connection, {})
        if (name := known.get(text)) is None:
            name = b"relevo_loan_%d" % len(known)
            yield partial(self._pgconn.send_prepare, name, text)
            known[text] = name
        yield partial(self._pgconn.send_query_prepared, name, [_written(question.parameters[each]) for each in names])

    def _safely(self, do: Callable[[], None]) -> None:
        try:
            do()
        except psycopg.OperationalError as error:
            self._end(error)

    def _hear(self) -> None:
        """Read what has come, asked for or not: a server that goes says so, or just hangs up."""
        self._heard_at = self._loop.time()
        self._pgconn.consume_input()
        while self._sends is not None and not self._pgconn.is_busy():
            if (result := self._pgconn.get_result()) is not None:
                self._result = result
            else:
                self._go_on()
        if self._is_open and self._pgconn.status != ConnStatus.OK:
            self._end(psycopg.OperationalError("the server closed the connection"))

    def _go_on(self) -> None:
        """Send what is next; if that was all, or something was refused, the answer is there."""
        assert self._sends is not None
        is_good = self._result is None or self._result.status in _GOOD
        if is_good and (send := next(self._sends, None)) is not None:
            self._result = None
            send()
            self._flush()
        else:
            self._finish()

    def _flush(self) -> None:
        """Write as much as there is room for: a large statement is not sent at once."""
        is_left = bool(self._pgconn.flush())
        if is_left and not self._writes:
            self._loop.add_writer(self._fd, self._safely, self._flush)
        elif self._writes and not is_left:
            self._loop.remove_writer(self._fd)
        self._writes = is_left

    def _finish(self) -> None:
        result, self._result, self._sends = self._result, None, None
        assert result is not None
        if result.status not in _GOOD:
            error = error_from_result(result, encoding="utf-8")
            if is_unavailable(error):
                self._end(error)  # the thread finds the words for it
                return
            self.fail(error)
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(result)
        self._rest()

    def _rest(self) -> None:
        if self._is_wanted_back and self.is_free:
            self._end()

    def _tick(self) -> None:
        """End it if nobody asked for a while, if it has lasted long, or if the server is silent for too long."""
        now = self._loop.time()
        silent_s = now - self._heard_at
        self._ticking = self._loop.call_later(_TICK_S, self._tick)
        if self._sends is not None:
            if silent_s > self._connection.patience_s:
                self._end(NoAnswerError(f"no answer for {silent_s:.1f} s"))
        elif silent_s > _TICK_S or now - self._began_at > _LONGEST_S:
            self._end()

    def _end(self, error: BaseException | None = None) -> None:
        """Give the connection back, and say what it was lost by."""
        self._ticking.cancel()
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._is_open, self._sends, self._lost_by = False, None, error
        if isinstance(error, NoAnswerError):
            self._connection.close()
        self._back.set()


@cache
def _numbered(statement: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement with numbers in place of names, as PostgreSQL takes it, and the names in their order."""
    names = tuple(dict.fromkeys(name.decode() for name in _PLACE.findall(statement)))
    text = _PLACE.sub(lambda found: b"$%d" % (names.index(found[1].decode()) + 1), statement)
    return text.replace(b"%%", b"%"), names


def _written(value: int | str | None) -> bytes | None:
    return None if value is None else str(value).encode()


def _loaded(result: PGresult, connection: Connection) -> Rows:
    reading = Transformer(connection)
    reading.set_pgresult(result)
    return reading.load_rows(0, result.ntuples, tuple)
