"""Threads that nobody has to wait for: a hung one must keep neither its caller nor the process from going on."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeVar

from relevo.core.errors import RelevoError

T = TypeVar("T")
R = TypeVar("R")

_IDLE = "relevo-idle"
_WAITS_S = 10.0

Left = Callable[[T, float, "Future[R]"], None]
"""Learns of an item that was left behind: since when it is worked at, and what will be its result."""


class NoThreadError(RelevoError):
    """The system has no more threads for this process."""


def start(name: str, work: Callable[[], T]) -> Future[T]:
    """Do something on a daemon thread of its own, and return what will be its result; raises NoThreadError.

    A thread that has done its work waits a while for the next: it is at it after 25 µs, and a new one after 200, some
    of which are on each event's way to its POST, 10 ms in all.
    """
    future: Future[T] = Future()
    context = contextvars.copy_context()  # so that what it logs is known to be of this run
    call = _Call(name, partial(context.run, carry_out, work, future))
    try:
        _free.pop().calls.put(call)
    except IndexError:
        _begin(call)
    return future


class _Call(NamedTuple):
    """The next call of a thread, and the thread's name meanwhile."""

    name: str
    work: Callable[[], None]


class _Thread(threading.Thread):
    """A thread that does one thing after the other, as long as there is something to do."""

    def __init__(self, first: _Call) -> None:
        super().__init__(name=first.name, daemon=True)
        self.calls: SimpleQueue[_Call] = SimpleQueue()
        self.calls.put(first)

    def run(self) -> None:
        """Work until there was nothing to do for a while."""
        call: _Call | None = self.calls.get()
        while call is not None:
            self.name = call.name
            call.work()
            self.name, call = _IDLE, None  # nothing of it is kept meanwhile
            _free.append(self)
            call = self._next()

    def _next(self) -> _Call | None:
        """Wait for the next thing to do; None if there is none for a while."""
        try:
            return self.calls.get(timeout=_WAITS_S)
        except Empty:
            pass
        try:
            _free.remove(self)
        except ValueError:  # somebody has just chosen it
            return self.calls.get()
        return None


_free: list[_Thread] = []
"""Those that wait for something to do; a list's own methods are whole steps."""


def _begin(call: _Call) -> None:
    try:
        _Thread(call).start()
    except RuntimeError as error:
        raise NoThreadError(
            "No thread could be started.", hint="Raise the limit of threads or processes, or run fewer replicas here."
        ) from error


def carry_out(work: Callable[[], T], future: Future[T]) -> None:
    """Do something on this thread, and hand its result or what it raised to whoever waits for it."""
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 whatever it is, it belongs to whoever waits for it
        future.set_exception(error)
    else:
        future.set_result(result)


def in_turn(
    name: str, items: Iterable[T], work: Callable[[T], R], *, patience_s: float, leave: Left[T, R]
) -> list[tuple[T, R]]:
    """Do the same with each item, one after the other; one that takes too long is left behind, and the rest go on.

    What is left behind goes on on its thread; another thread takes the next item.
    """
    remaining, done = iter(items), list[tuple[T, R]]()
    while True:
        line = _Line(remaining, done, work)
        ended = start(name, line.serve)
        while not line.over.wait(patience_s):
            left = line.leave(patience_s)
            if left is not None:
                leave(*left)
                break
        else:
            ended.result()  # raises what the work raised
            return done


class _Line(Generic[T, R]):
    """One thread's way through the items, until it is left behind with one of them."""

    def __init__(self, items: Iterator[T], done: list[tuple[T, R]], work: Callable[[T], R]) -> None:
        self._items = items
        self._done = done
        self._work = work
        self._guard = threading.Lock()
        self._at: tuple[T, float] | None = None
        self._late: Future[R] | None = None
        self.over = threading.Event()

    def serve(self) -> None:
        """Work at one item after the other."""
        try:
            for item in self._items:
                self._at = item, time.monotonic()
                result = self._work(item)
                with self._guard:
                    if self._late is not None:
                        self._late.set_result(result)
                        return
                    self._done.append((item, result))
                    self._at = None
        except BaseException as error:
            with self._guard:
                if self._late is not None:
                    self._late.set_exception(error)
                    return
            raise
        finally:
            self.over.set()

    def leave(self, patience_s: float) -> tuple[T, float, Future[R]] | None:
        """Leave this thread behind if it has been at its item for too long."""
        with self._guard:
            if self._at is None or time.monotonic() - self._at[1] < patience_s:
                return None
            self._late = Future()
            return *self._at, self._late
