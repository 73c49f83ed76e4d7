"""Sending: a pool of requests per project, one thread and one connection each, and the middlewares around a request."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import structlog

from relevo.core.errors import OwnershipLostError, Reschedule
from relevo.core.logs import normalise_error
from relevo.core.messages import Message
from relevo.core.model import Lane, Reply, Ticket
from relevo.core.ports import PushProvider
from relevo.delivery.reply_checks import checked_reply
from relevo.runtime import threads

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
    event_ids: tuple[int, ...] = ()
    """The events that its messages tell, each once."""
    event_types: tuple[str, ...] = ()
    """Their types, each once."""


PushMiddleware = Callable[[PushContext, Callable[[], Reply]], Reply]
"""Wraps a push request: does something, calls `next()` once, does something, returns its reply."""


class PoolCall(Future[T]):
    """A request that waits for a thread of its pool, or is on its way."""

    def __init__(self, lane: Lane, work: Callable[[], T]) -> None:
        super().__init__()
        self.lane = lane
        self.work = work
        self.taken_at: float | None = None
        """Since when a thread is at it."""
        self.left = False
        """Whether nobody counts on its thread any more."""
        self.connected_until = 0.0
        """Until when its connection counts, though its thread does not."""

    def answer(self) -> float | None:
        """Do the work and return how many milliseconds it took; None if it raised."""
        started = time.monotonic()
        threads.carry_out(self.work, self)
        return (time.monotonic() - started) * 1000 if self.exception() is None else None


class RequestPool:
    """Up to so many requests at once for one project. Urgent ones go first, but after each a bulk one has its turn."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._capacity = 1
        self._threads = 0
        self._idle = 0
        self._urgent_was_last = False
        self._waiting: dict[Lane, deque[PoolCall[Any]]] = {"urgent": deque(), "bulk": deque()}
        self._under_way: dict[Lane, int] = {"urgent": 0, "bulk": 0}
        self._left: set[PoolCall[Any]] = set()
        self._active: set[PoolCall[Any]] = set()
        self._entered: dict[Lane, int] = {"urgent": 0, "bulk": 0}
        self._at_the_door: dict[Lane, int] = {"urgent": 0, "bulk": 0}
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
        """How many requests are being sent or wait for that, without those that nobody counts on any more."""
        lanes: Sequence[Lane] = ("urgent", "bulk") if lane is None else (lane,)
        return sum(self._under_way[each] + self._entered[each] + self._at_the_door[each] for each in lanes)

    def in_flight(self) -> int:
        """How many requests are being sent right now, and how many connections may still be open beside them."""
        with self._changed:
            return sum(self._under_way.values()) - self._queued() + self._connected()

    def is_full_of_hung(self) -> bool:
        """Return whether no connection is left, because requests that hang may still have theirs."""
        with self._changed:
            return self._connected() >= self._capacity

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

    def exit(self, lane: Lane, count: int) -> None:
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
        now = time.monotonic()
        slow = any(now - (call.taken_at or now) > _SOON_S for call in self._active)
        behind = 0 if slow else min(_MOST_BEHIND, int(_SOON_S * 1000 / max(self.latency_ms, 1.0)))
        return threads + behind * self._capacity - self._under_way[lane] - self._entered[lane]

    def submit(self, lane: Lane, work: Callable[[], T]) -> PoolCall[T]:
        """Send a request as soon as a thread is free."""
        call = PoolCall(lane, work)
        self.add(call)
        return call

    def add(self, call: PoolCall[Any]) -> None:
        """Let a request have the next thread that is free; raises RuntimeError if there is none and none can be."""
        with self._changed:
            self._waiting[call.lane].append(call)
            try:
                self._staff()
            except RuntimeError:  # the system has no more threads for us; those that are there are enough
                if not self._threads:
                    self._waiting[call.lane].remove(call)
                    raise
            self._under_way[call.lane] += 1

    def leave(self, call: PoolCall[Any], *, connected_s: float = 0.0) -> None:
        """Count on a request's thread no longer: another takes its place. Its connection may count for a while."""
        with self._changed:
            if call.left or call.done():
                return
            call.left, call.connected_until = True, time.monotonic() + connected_s
            self._under_way[call.lane] -= 1
            if call.taken_at is None:
                self._waiting[call.lane].remove(call)
                self._freed.notify_all()
                return
            self._left.add(call)
            self._active.discard(call)
            self._threads -= 1
            self._freed.notify_all()
            self._staff_if_possible()

    def may_connect(self, call: PoolCall[Any]) -> bool:
        """Return whether a request that was left behind, and goes on after all, finds a connection that is free."""
        with self._changed:
            if not call.left or call.connected_until > time.monotonic():
                return True
            if self._threads + self._connected() >= self._capacity:
                return False
            call.connected_until = math.inf
            return True

    def staff(self) -> None:
        """Start a thread if requests wait for one and there is room: a connection that counted may count no longer."""
        with self._changed:
            self._staff_if_possible()

    def close(self) -> None:
        """Let the threads end once nothing waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _queued(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _connected(self) -> int:
        now = time.monotonic()
        return sum(call.connected_until > now for call in self._left)

    def _staff(self) -> None:
        if self._idle < self._queued() and self._threads + self._connected() < self._capacity:
            threading.Thread(target=self._serve, name=f"relevo-requests-{self._name}", daemon=True).start()
            self._threads += 1  # only now: one that could not be started serves nobody
        else:
            self._changed.notify()

    def _staff_if_possible(self) -> None:
        try:
            self._staff()
        except RuntimeError:
            _log.warning("thread_not_started", project=self._name)

    def _serve(self) -> None:
        while (call := self._next()) is not None:
            took_ms = call.answer()
            with self._changed:
                self._active.discard(call)
                self._freed.notify_all()
                if call.left:  # another thread has its place
                    self._left.discard(call)
                    self._changed.notify_all()
                    return
                self._under_way[call.lane] -= 1
                if took_ms is not None:
                    self.latency_ms += (took_ms - self.latency_ms) / 5

    def _next(self) -> PoolCall[Any] | None:
        """Wait for a request; None ends this thread."""
        with self._changed:
            while self._threads + self._connected() <= self._capacity:
                if any(self._waiting.values()):
                    return self._take()
                self._idle += 1
                heard = self._changed.wait(_IDLE_S)
                self._idle -= 1
                if not any(self._waiting.values()) and (self._closed or not heard):
                    break
            self._threads -= 1
            return None

    def _take(self) -> PoolCall[Any]:
        urgent, bulk = bool(self._waiting["urgent"]), bool(self._waiting["bulk"])
        self._urgent_was_last = urgent and not (bulk and self._urgent_was_last)
        call = self._waiting["urgent" if self._urgent_was_last else "bulk"].popleft()
        call.taken_at = time.monotonic()
        self._active.add(call)
        return call


class RequestPools(dict[str, RequestPool]):
    """The request pools of all projects, by their names, shared by dispatch and receipt."""

    def __missing__(self, project: str) -> RequestPool:
        return self.setdefault(project, RequestPool(project))

    def close(self) -> None:
        """Let all threads end once nothing waits."""
        for pool in list(self.values()):
            pool.close()


class Sending:
    """How far one push request is, for whoever waits for it; it can be withdrawn until it is begun.

    `may_send` is called last of all; if it raises OwnershipLostError, so does whoever sends.
    """

    def __init__(self, may_send: Callable[[], bool] = lambda: True) -> None:
        self._may_send = may_send
        self._guard = threading.Lock()
        self._asked = False
        self._withdrawn = False
        self._hand_in: Callable[[Reply], None] | None = None
        self.begun_at: float | None = None
        self.answered_at: float | None = None
        self.reply: Reply | None = None
        """What the push service said, even while a middleware has not returned."""
        self._accepted: dict[int, Ticket] = {}

    def begin(self) -> bool:
        """Return, in the last moment, whether the request may be sent; raises the second time."""
        with self._guard:
            if self._asked:
                raise RuntimeError("a middleware called next() twice; the request was sent once")
            self._asked = True
        allowed = self._may_send()
        with self._guard:
            if self._withdrawn:
                raise OwnershipLostError("error", "The request was given up before it was begun.")
            self.begun_at = time.monotonic() if allowed else None
        return allowed

    def withdraw(self) -> bool:
        """Keep the request from being sent; False if it was begun already."""
        with self._guard:
            self._withdrawn = self.begun_at is None
            return self._withdrawn

    def answer(self, reply: Reply) -> None:
        """Take the push service's word, and hand it in if nobody waits for it any more."""
        with self._guard:
            self.reply, self.answered_at = reply, time.monotonic()
            hand_in = self._hand_in
        if hand_in is not None:
            hand_in(reply)

    def accept(self, place: int, ticket: Ticket) -> None:
        """Take the ticket of one message that the push service accepted, while it has not answered others."""
        self._accepted[place] = ticket

    def take_accepted(self) -> dict[int, Ticket]:
        """Return the tickets that came since the last call, by place; one that is missed stands in the reply."""
        taken, self._accepted = self._accepted, {}
        return taken

    def give_up(self, hand_in: Callable[[Reply], None]) -> Reply | None:
        """Wait no longer: return the answer if it is there after all; what comes later is handed in."""
        with self._guard:
            if self.reply is None:
                self._hand_in = hand_in
            return self.reply


def send(
    provider: PushProvider,
    messages: Sequence[Message],
    context: PushContext,
    middlewares: Sequence[PushMiddleware],
    sending: Sending,
) -> Reply:
    """Send one request through the middlewares: raising before it holds it back, raising after it loses no answer."""
    lost: list[OwnershipLostError] = []

    def post() -> Reply:
        try:
            allowed = sending.begin()
        except OwnershipLostError as error:
            lost.append(error)
            raise
        reply = _post(provider, messages, context.project, sending) if allowed else Reply("held_back")
        sending.answer(reply)
        return reply

    call: Callable[[], Reply] = post
    for middleware in reversed(middlewares):
        call = partial(middleware, context, call)
    reply = Reply("held_back", code="middleware_failed", message="next() was not called")
    try:
        call()
    except (Exception, SystemExit) as error:  # noqa: BLE001 a middleware may raise anything
        if not lost:
            reply = _held_back(error, context, sent=sending.reply is not None)
    if lost:  # whatever became of that on its way out
        raise lost[0]
    if sending.reply is None and not sending.withdraw():  # a thread of a middleware's own is still at it
        reply = Reply("unclear", code="middleware_failed", message="A push middleware did not wait for the answer.")
    return sending.reply or reply


def _held_back(error: BaseException, context: PushContext, *, sent: bool) -> Reply:
    """Return what a middleware that raised means for a request that was not sent."""
    if isinstance(error, Reschedule):
        return _rescheduled(error)
    why = normalise_error(error)
    _log.error("push_middleware_failed", request=str(context.request_id), sent=sent, error=why)
    return Reply("held_back", code="middleware_failed", message=why)


def _post(provider: PushProvider, messages: Sequence[Message], project: str, sending: Sending) -> Reply:
    """Send; a provider that raises what is no wish, or does not return a reply, may have sent."""
    try:
        accept = (sending.accept,) if getattr(provider, "answers_in_parts", False) else ()
        call: Callable[..., object] = provider.send
        said = call(messages, project, *accept)
        reply = checked_reply(said)
    except Reschedule as wish:
        return _rescheduled(wish)
    except BaseException as error:  # noqa: BLE001 nobody knows how far it came
        _log.exception("provider_failed", provider=provider.name)
        return Reply("unclear", code="provider_failed", message=normalise_error(error))
    if reply is not None:
        return reply
    _log.error("provider_failed", provider=provider.name, returned=type(said).__name__)
    return Reply("unclear", code="provider_failed", message="The push service's adapter returned no reply.")


def _rescheduled(wish: Reschedule) -> Reply:
    return Reply("held_back", code="rescheduled", message=str(wish)[:300], not_before=wish.at)
