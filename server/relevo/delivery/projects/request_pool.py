"""The request pool of a project: so many requests at once, one thread and one connection each."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import structlog

from relevo.core.model import Lane
from relevo.runtime import threads

_log = structlog.get_logger("relevo.sending")
_IDLE_S = 10.0
_FIRST_GUESS_MS = 250.0
_SOON_S = 0.3  # within which a journalled request should be sent: a phone may change its mind meanwhile
_MOST_BEHIND = 4  # requests per thread that wait, so that quick ones are not held up by the journal
_LOOK_EVERY_S = 0.1

T = TypeVar("T")


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
        """Change how many requests may be under way at once, from the next one on."""
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
        """Give a request the next free thread; raises RuntimeError if there is none and none can be."""
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
        """End the threads once nothing waits."""
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
        """End all threads once nothing waits."""
        for pool in list(self.values()):
            pool.close()
