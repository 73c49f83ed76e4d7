"""Sending: a pool of requests per project, one thread and one connection each, and the middlewares around a request."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

import structlog

from relevo.errors import OwnershipLostError, Reschedule
from relevo.logs import normalise_error
from relevo.model import Lane, Message, Reply
from relevo.ports import PushProvider

_log = structlog.get_logger("relevo.sending")
_IDLE_S = 10.0
_FIRST_GUESS_MS = 250.0
_SOON_S = 0.3  # within which a journalled request should be sent: a phone may change its mind meanwhile
_MOST_BEHIND = 4  # requests per thread that wait, so that quick ones are not held up by the journal
_LOOK_EVERY_S = 0.1

T = TypeVar("T")


@dataclass(frozen=True)
class PushContext:
    """What a middleware may know of the push request it wraps."""

    request_id: UUID
    project: str
    lane: Lane
    messages: int
    worker_id: str


PushMiddleware = Callable[[PushContext, Callable[[], Reply]], Reply]
"""Wraps a push request: does something, calls `next()` once, does something, returns its reply."""


class RequestPool:
    """Up to so many requests at once for one project. Urgent ones go first, but after each a bulk one has its turn."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._capacity = 1
        self._threads = 0
        self._idle = 0
        self._urgent_was_last = False
        self._waiting: dict[Lane, deque[Callable[[], None]]] = {"urgent": deque(), "bulk": deque()}
        self._under_way: dict[Lane, int] = {"urgent": 0, "bulk": 0}
        self._entered: dict[Lane, int] = {"urgent": 0, "bulk": 0}
        self._at_the_door: dict[Lane, int] = {"urgent": 0, "bulk": 0}
        self._sending: dict[int, float] = {}
        """When each thread began the request it is sending."""
        lock = threading.RLock()
        self._changed, self._freed = threading.Condition(lock), threading.Condition(lock)
        self._closed = False
        self.latency_ms = _FIRST_GUESS_MS
        self.halted = False
        """Whether the project may not send for now; what waits goes back unsent."""

    @property
    def capacity(self) -> int:
        """How many requests may be under way at once."""
        return self._capacity

    def resize(self, capacity: int) -> None:
        """Let more or fewer requests be under way at once, from the next one on."""
        with self._changed:
            self._capacity = max(1, capacity)
            self._changed.notify_all()
            self._freed.notify_all()

    def under_way(self, lane: Lane | None = None) -> int:
        """How many requests are being sent, wait to be sent, or wait to be let in."""
        lanes: Sequence[Lane] = ("urgent", "bulk") if lane is None else (lane,)
        return sum(self._under_way[each] + self._entered[each] + self._at_the_door[each] for each in lanes)

    def in_flight(self) -> int:
        """How many requests are being sent right now."""
        with self._changed:
            return sum(self._under_way.values()) - sum(map(len, self._waiting.values()))

    def enter(self, lane: Lane, most: int, give_up: Callable[[], bool]) -> int:
        """Wait until requests would be sent soon after they are journalled; return how many, or 0 if that was given up.

        Whoever was let in submits them, or not, and leaves.
        """
        with self._changed:
            self._at_the_door[lane] += most
            try:
                while (places := self._places(lane)) <= 0:
                    if give_up():
                        return 0
                    self._freed.wait(_LOOK_EVERY_S)
            finally:
                self._at_the_door[lane] -= most
            self._entered[lane] += min(most, places)
            return min(most, places)

    def leave(self, lane: Lane, count: int) -> None:
        """Give back the places of requests that were submitted, or will not be."""
        with self._changed:
            self._entered[lane] -= count
            self._freed.notify_all()

    def _places(self, lane: Lane) -> int:
        """Return how many more requests of a lane would be sent soon.

        So many as there are threads, half of which the other lane may need; while they are quick, a few more for each.
        """
        other: Lane = "bulk" if lane == "urgent" else "urgent"
        threads = self._capacity - min(self._capacity // 2, self.under_way(other))
        slow = any(time.monotonic() - began > _SOON_S for began in self._sending.values())
        behind = 0 if slow else min(_MOST_BEHIND, int(_SOON_S * 1000 / max(self.latency_ms, 1.0)))
        return threads + behind * self._capacity - self._under_way[lane] - self._entered[lane]

    def submit(self, lane: Lane, work: Callable[[], T]) -> Future[T]:
        """Send a request as soon as a thread is free."""
        future: Future[T] = Future()

        def task() -> None:
            started = time.monotonic()
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 whatever it is, it belongs to whoever waits for it
                future.set_exception(error)
            else:
                took_ms = (time.monotonic() - started) * 1000
                self.latency_ms += (took_ms - self.latency_ms) / 5
                future.set_result(result)

        with self._changed:
            self._waiting[lane].append(task)
            self._under_way[lane] += 1
            if self._idle < sum(map(len, self._waiting.values())) and self._threads < self._capacity:
                self._threads += 1
                threading.Thread(target=self._serve, name=f"relevo-requests-{self._name}", daemon=True).start()
            else:
                self._changed.notify()
        return future

    def close(self) -> None:
        """Let the threads end once nothing waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _serve(self) -> None:
        while (taken := self._next()) is not None:
            lane, task = taken
            self._sending[threading.get_ident()] = time.monotonic()
            try:
                task()
            finally:
                with self._changed:
                    del self._sending[threading.get_ident()]
                    self._under_way[lane] -= 1
                    self._freed.notify_all()

    def _next(self) -> tuple[Lane, Callable[[], None]] | None:
        """Wait for a request; None ends this thread."""
        with self._changed:
            while self._threads <= self._capacity:
                if any(self._waiting.values()):
                    return self._take()
                self._idle += 1
                heard = self._changed.wait(_IDLE_S)
                self._idle -= 1
                if not any(self._waiting.values()) and (self._closed or not heard):
                    break
            self._threads -= 1
            return None

    def _take(self) -> tuple[Lane, Callable[[], None]]:
        urgent, bulk = bool(self._waiting["urgent"]), bool(self._waiting["bulk"])
        self._urgent_was_last = urgent and not (bulk and self._urgent_was_last)
        lane: Lane = "urgent" if self._urgent_was_last else "bulk"
        return lane, self._waiting[lane].popleft()


class RequestPools:
    """The request pools of all projects, shared by dispatch and receipt."""

    def __init__(self) -> None:
        self._pools: dict[str, RequestPool] = {}

    def of(self, project: str) -> RequestPool:
        """Return the request pool of a project."""
        return self._pools.setdefault(project, RequestPool(project))

    def close(self) -> None:
        """Let all threads end once nothing waits."""
        for pool in list(self._pools.values()):
            pool.close()


def send(
    provider: PushProvider,
    messages: Sequence[Message],
    context: PushContext,
    middlewares: Sequence[PushMiddleware] = (),
    may_send: Callable[[], bool] = lambda: True,
) -> Reply:
    """Send one request through the middlewares: raising before it holds it back, raising after it loses no answer.

    `may_send` is asked last of all; if it raises OwnershipLostError, so does this.
    """
    answers: list[Reply] = []
    lost: list[OwnershipLostError] = []

    def post() -> Reply:
        if answers:
            raise RuntimeError("a middleware called next() twice; the request was sent once")
        try:
            allowed = may_send()
        except OwnershipLostError as error:
            lost.append(error)
            raise
        answers.append(_post(provider, messages, context.project) if allowed else Reply("held_back"))
        return answers[0]

    call: Callable[[], Reply] = post
    for middleware in reversed(middlewares):
        call = _wrapped(middleware, context, call)
    try:
        call()
    except Reschedule as wish:
        return answers[0] if answers else _rescheduled(wish)
    except (Exception, SystemExit) as error:  # a middleware may raise anything
        if lost:
            raise lost[0] from error
        why = normalise_error(error)
        _log.error("push_middleware_failed", request=str(context.request_id), sent=bool(answers), error=why)
        if not answers:
            return Reply("held_back", code="middleware_failed", message=why)
    if lost:
        raise lost[0]
    return answers[0] if answers else Reply("held_back", code="middleware_failed", message="next() was not called")


def _wrapped(middleware: PushMiddleware, context: PushContext, call: Callable[[], Reply]) -> Callable[[], Reply]:
    return lambda: middleware(context, call)


def _post(provider: PushProvider, messages: Sequence[Message], project: str) -> Reply:
    """Send; a provider that raises what is no wish may have sent."""
    try:
        return provider.send(messages, project)
    except Reschedule as wish:
        return _rescheduled(wish)
    except Exception as error:  # noqa: BLE001 nobody knows how far it came
        _log.exception("provider_failed", provider=provider.name)
        return Reply("unclear", code="provider_failed", message=normalise_error(error))


def _rescheduled(wish: Reschedule) -> Reply:
    return Reply("held_back", code="rescheduled", message=str(wish)[:300], not_before=wish.at)
