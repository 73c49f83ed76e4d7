"""Enqueues the events of requests that wait at the same moment by one statement, each with its own answer.

A request that finds no write under way is written at once. Requests that arrive during a write gather for the next
one, so nobody waits for a timer. A shared write waits only a moment for locks. If it fails, each of its requests is
written by itself, and only the request with the error is refused. A request that meets a lock then waits for it as
long as a statement may; meanwhile every other request of its caller is written by itself, too.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from typing import Any

import psycopg
from psycopg import errors as pg

from relevo.access.api_tokens import Token
from relevo.access.phones import Proof
from relevo.client import event_texts
from relevo.client.values import Enqueued
from relevo.core.errors import DatabaseUnavailableError, RelevoError
from relevo.database.outages import is_unavailable
from relevo.database.pool import Connection
from relevo.http.database_threads import DatabaseThreads, Turns
from relevo.verbs.callers import Caller
from relevo.verbs.events import in_project

_MOST_EVENTS, _MOST_BYTES = 100, 262_144
"""How much one write takes."""
_MOST_BYTES_EACH = 32_768
"""How large the body of a request may be that shares its write."""
_LOCK_MS = 50
_OVERDUE_S = 1.0
"""How long a write keeps those who wait from beginning the next one, whatever it waits for."""


class _SharedWriteFailedError(Exception):
    """A write that several requests shared failed; which of them it was for is not known."""


Enqueuing = asyncio.Future[Enqueued]


def _write(connection: Connection, event: Mapping[str, Any], lock_ms: int) -> Enqueued:
    [done] = event_texts.enqueue_texts(connection, [event_texts.event_text(event)], lock_ms=lock_ms)
    return done


class SharedWrites:
    """Writes the events of one process's requests; callers take turns, so that none fills the next write."""

    def __init__(self, threads: DatabaseThreads, *, lock_ms: int = _LOCK_MS, overdue_s: float = _OVERDUE_S) -> None:
        self._threads = threads
        self._lock_ms = min(lock_ms, threads.database.lock_ms)
        self._overdue_s = overdue_s
        turns = threads.turns
        self._patient = Turns(max(1, threads.size - 1), turns.wait_s, "Other events wait for locks in the database.")
        """Of those who wait for locks; one connection is left to all others."""
        self._waiting: OrderedDict[str, dict[Enqueuing, str]] = OrderedDict()
        """By caller, in the order in which they are served: the answers that requests wait for, and their events."""
        self._writer: asyncio.Task[None] | None = None
        self._writers: set[asyncio.Task[None]] = set()
        """The one that goes on with those who wait, and those that are overdue."""
        self._locked: Counter[str] = Counter()
        """How many requests of a caller wait for locks."""
        self._refused: set[str] = set()
        """Callers whose last event was refused."""

    async def enqueue(self, caller: Token, event: Mapping[str, Any], size: int) -> Enqueued:
        """Enqueue an event of a caller, whose request's body has so many bytes."""
        whose = Caller(self._threads.database, Proof(caller))
        event = in_project(event, whose)  # each caller's own, before any is written
        is_apart = size > _MOST_BYTES_EACH or caller.id in self._locked or caller.id in self._refused
        with self._noted(caller.id):
            try:
                return await (self._write(event) if is_apart else self._write_shared(caller.id, event))
            except pg.LockNotAvailable:
                with self._lock_met(caller.id):
                    return await self._write_patiently(event)

    async def _write_shared(self, caller: str, event: Mapping[str, Any]) -> Enqueued:
        """Write an event together with others or, if that fails, by itself."""
        try:
            return await self._join(caller, event_texts.event_text(event))
        except _SharedWriteFailedError:
            return await self._write(event)

    async def _write(self, event: Mapping[str, Any]) -> Enqueued:
        """Write an event by itself, and wait for a lock only a moment."""
        return await self._threads.run_statement(_write, event, self._lock_ms)

    async def _write_patiently(self, event: Mapping[str, Any]) -> Enqueued:
        """Write an event by itself, and wait for a lock as long as any statement does."""
        await self._patient.take()
        try:
            return await self._threads.run_statement(_write, event, self._threads.database.lock_ms)
        finally:
            self._patient.release()

    @contextmanager
    def _noted(self, caller: str) -> Iterator[None]:
        """Note whether a caller's event is refused: the next ones keep nobody else's from a shared write."""
        try:
            yield
        except (RelevoError, psycopg.Error) as error:
            if not is_unavailable(error):
                self._refused.add(caller)
            raise
        self._refused.discard(caller)

    @contextmanager
    def _lock_met(self, caller: str) -> Iterator[None]:
        self._locked[caller] += 1
        try:
            yield
        finally:
            self._locked[caller] -= 1
            if not self._locked[caller]:
                del self._locked[caller]

    async def _join(self, caller: str, text: str) -> Enqueued:
        """Wait for the next write and return its answer; 503 if none begins in time."""
        loop = asyncio.get_running_loop()
        answer: Enqueuing = loop.create_future()
        patience = loop.call_later(self._threads.turns.wait_s, self._give_up, caller, answer)
        self._waiting.setdefault(caller, {})[answer] = text
        if self._writer is None:
            self._begin()
        try:
            return await answer
        finally:
            patience.cancel()
            self._take(caller, answer)

    def _give_up(self, caller: str, answer: Enqueuing) -> None:
        """Fail a request that no write has begun in time; a request that is being written is waited for."""
        if self._take(caller, answer) and not answer.done():
            answer.set_exception(self._threads.turns.busy())

    def _take(self, caller: str, answer: Enqueuing) -> str:
        """Take a request out of those that wait; return its event, nothing if it does not wait any more."""
        line = self._waiting.get(caller, {})
        text = line.pop(answer, "")
        if not line:
            self._waiting.pop(caller, None)
        return text

    def _begin(self) -> None:
        """Write on, in a context of no request's: what is logged meanwhile is nobody's own."""
        self._writer = asyncio.create_task(self._write_on(), context=Context())
        self._writers.add(self._writer)
        self._writer.add_done_callback(self._writers.discard)

    async def _write_on(self) -> None:
        """Write those who wait, until nobody does, or until a write was overdue and another task goes on."""
        mine = asyncio.current_task()
        while self._writer is mine:
            await self._threads.turns.acquire()  # who waits leaves by itself when it has waited too long
            chosen = self._choose()
            if not chosen:
                self._threads.turns.release()
                self._writer = None
                return
            overdue = asyncio.get_running_loop().call_later(self._overdue_s, self._pass_on, mine)
            try:
                await self._write_chosen(chosen)
            finally:
                overdue.cancel()
            if not self._waiting and self._writer is mine:
                self._writer = None

    def _pass_on(self, writer: object) -> None:
        """Start another task for the waiting requests: this write takes too long."""
        if self._writer is writer:
            self._writer = None
            if self._waiting:
                self._begin()

    def _choose(self) -> dict[Enqueuing, str]:
        """Take those who wait, one of each caller in turn, up to the most events and bytes of a write."""
        chosen, size = dict[Enqueuing, str](), 0
        while self._waiting and len(chosen) < _MOST_EVENTS:
            caller = next(iter(self._waiting))
            answer, text = next(iter(self._waiting[caller].items()))
            size += len(text)
            if chosen and size > _MOST_BYTES:
                break
            chosen[answer] = self._take(caller, answer)
            if caller in self._waiting:
                self._waiting.move_to_end(caller)
        return chosen

    async def _write_chosen(self, chosen: Mapping[Enqueuing, str]) -> None:
        """Write by a turn that was taken, and tell each what became of it; who has left hears nothing."""
        try:
            written = self._threads.statement(event_texts.enqueue_texts, list(chosen.values()), lock_ms=self._lock_ms)
            done = await self._threads.call_in_turn(written)
        except Exception as error:  # noqa: BLE001 whatever it is, it is told to those whose write it was
            is_told = len(chosen) == 1 or self._is_everyones(error)
            for answer in chosen:
                if not answer.done():
                    answer.set_exception(error if is_told else _SharedWriteFailedError())
        else:
            for answer, enqueued in zip(chosen, done, strict=True):
                if not answer.done():
                    answer.set_result(enqueued)

    def _is_everyones(self, error: Exception) -> bool:
        """Return whether each would meet the same by itself: the database cannot be reached at all."""
        return isinstance(error, DatabaseUnavailableError) and not self._threads.database.is_reachable
