"""Waiting for events, and for something new in inboxes: however many callers wait, one query serves all of them.

How many may wait in one process, and how they share its places, is the same for both.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import Any, Generic, Literal, TypeVar

import structlog
from fastapi import Request

from relevo.client.values import EventStatus
from relevo.http.database_threads import DatabaseThreads
from relevo.http.problems import Problem, busy
from relevo.verbs import events, inboxes
from relevo.verbs.inboxes import Numbering, Whose

_log = structlog.get_logger("relevo.http")
_FIRST_LOOK_S, _LAST_LOOK_S = 0.05, 1.0
_SLOWER = 1.5
_AT_ONCE = 500
MOST_WAITERS = 5_000
LOOK_S = 1.0
_REST = 20
"""After a look comes a pause of so many times what the look took, so that looks never take more than a twentieth."""
_READERS = 2
"""How many that were woken together read at once: an event for everyone leaves connections to others."""

Woken = Literal["something came", "time is over", "was let go", "caller left"]


class Waiting:
    """One caller that waits, until it is woken by what came, or let go with what is known."""

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.came = asyncio.Event()
        self.gave_up = False

    def give_up(self) -> None:
        """End the caller's wait: another one has its place, or the process is about to end."""
        self.gave_up = True
        self.came.set()

    async def next(self, left: asyncio.Future[None], timeout_s: float) -> Woken:
        """Wait for the next thing that may be new."""
        came: asyncio.Future[Any] = asyncio.ensure_future(self.came.wait())
        either: set[asyncio.Future[Any]] = {came, left}
        try:
            done, _ = await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            came.cancel()
        if left in done:
            return "caller left"
        if self.gave_up:
            return "was let go"
        if came not in done:
            return "time is over"
        self.came.clear()
        return "something came"


W = TypeVar("W", bound=Waiting)


class Places:
    """All places of one process.

    A token has half of them at most. Once all are taken, the caller that has most of them gives one up: whoever has
    waited there the longest is told what was last seen, and may ask again.
    """

    def __init__(self, most: int = MOST_WAITERS) -> None:
        self.most = most
        self.count = 0
        """How many callers wait."""
        self._of_caller: dict[str, dict[Waiting, None]] = {}
        """By caller, the longest waiting first."""

    def take(self, waiting: Waiting, share: int | None = None) -> None:
        """Take a place; refuse a caller that has its share, or where none is left and nobody has many more."""
        own = self._of_caller.get(waiting.caller, {})
        if len(own) >= (share or max(1, self.most // 2)):
            raise busy("Too many requests of this caller wait here.")
        if self.count >= self.most:
            self._make_room(len(own))
        self._of_caller.setdefault(waiting.caller, {})[waiting] = None
        self.count += 1

    def _make_room(self, own: int) -> None:
        greediest = max(self._of_caller.values(), key=len, default={})
        if len(greediest) <= own + 1:
            raise busy("Too many callers wait here.")
        first = next(iter(greediest))
        del greediest[first]
        first.give_up()

    def give_back(self, waiting: Waiting) -> None:
        """Add one place for others."""
        self.count -= 1
        here = self._of_caller.get(waiting.caller, {})
        here.pop(waiting, None)
        if not here:
            self._of_caller.pop(waiting.caller, None)


class Waiters(ABC, Generic[W]):
    """All callers that wait for one kind of thing in this process, and the one task that looks for them."""

    def __init__(self, threads: DatabaseThreads, places: Places) -> None:
        self._threads = threads
        self.places = places
        self._waiting: dict[W, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def enter(
        self, request: Request, waiting: W, share: int | None = None
    ) -> AsyncIterator[asyncio.Future[None]]:
        """Wait beside a task that ends when the caller hangs up; nothing is missed from here on."""
        self.places.take(waiting, share)
        self._waiting[waiting] = None
        if self._closed:
            waiting.give_up()
        elif self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look_on())
        left = asyncio.ensure_future(_gone(request))
        try:
            yield left
        finally:
            left.cancel()
            self._waiting.pop(waiting, None)
            self.places.give_back(waiting)

    def close(self) -> None:
        """End all waits with the last state seen: the process is about to end."""
        self._closed = True
        for waiting in self._waiting:
            waiting.give_up()
        if self._task is not None:
            self._task.cancel()

    async def _look_on(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            started = loop.time()
            try:
                await self._look()
            except Problem:
                pass  # no turn was to be had: the next look comes
            except Exception as error:  # noqa: BLE001 whoever waits is told what was last seen, and may ask again
                _log.warning("http_inbox_wait_failed", error=error)
            await self._rest(loop.time() - started)

    @abstractmethod
    async def _look(self) -> None:
        """Look in one statement for all of them, and wake those for whom something came."""

    @abstractmethod
    async def _rest(self, took_s: float) -> None:
        """Pause until the next look is due."""


async def _gone(request: Request) -> None:
    """Wait until the caller has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class EventWaiting(Waiting):
    """One caller that waits until an event is over; the longer it waits, the more seldom it is looked for."""

    def __init__(self, caller: str, seen: EventStatus, until: str) -> None:
        super().__init__(caller)
        self.seen = seen
        self.until = until
        self._pause = _FIRST_LOOK_S
        self.next_look = asyncio.get_running_loop().time() + self._pause

    def put_off(self) -> None:
        """Schedule the next look after a longer pause."""
        self._pause = min(self._pause * _SLOWER, _LAST_LOOK_S)
        self.next_look = asyncio.get_running_loop().time() + self._pause


class EventWaiters(Waiters[EventWaiting]):
    """All callers that wait for events."""

    def __init__(self, threads: DatabaseThreads, places: Places) -> None:
        super().__init__(threads, places)
        self._nudge = asyncio.Event()
        self._rests_until = 0.0
        """The next time to look for newcomers; only an own look that is due before it wakes waiting callers."""

    async def wait(self, request: Request, first: EventStatus, until: str, timeout_s: float) -> EventStatus | None:
        """Wait until an event is over or the time is; return it as it was last seen, or None if the caller left."""
        if events.is_over(first, until) or timeout_s <= 0 or self._closed:
            return first
        waiting = EventWaiting(request.state.caller.id, first, until)
        async with self.enter(request, waiting) as left:
            if waiting.next_look < self._rests_until:
                self._nudge.set()
            woken = await waiting.next(left, timeout_s)
        return None if woken == "caller left" else waiting.seen

    async def _look(self) -> None:
        self._nudge.clear()
        now = asyncio.get_running_loop().time()
        due = {each.seen.id: None for each in self._waiting if each.next_look <= now}
        if not (ids := set(islice(due, _AT_ONCE))):
            return
        asked = [each for each in self._waiting if each.seen.id in ids]
        try:
            found = await self._threads.run_statement(events.look, list(ids))
        finally:
            for each in asked:
                each.put_off()
        for each in asked:
            each.seen = found.get(each.seen.id, each.seen)
            if events.is_over(each.seen, each.until):
                each.came.set()

    async def _rest(self, took_s: float) -> None:  # noqa: ARG002 each has its own pause
        soonest = asyncio.get_running_loop().time() + _FIRST_LOOK_S
        self._rests_until = max(soonest, min((each.next_look for each in self._waiting), default=0.0))
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._rests_until):
                await self._nudge.wait()


class InboxWaiting(Waiting):
    """One caller that waits for something behind a place of one inbox."""

    def __init__(self, caller: str, whose: Whose, behind: int) -> None:
        super().__init__(caller)
        self.whose = whose
        self.behind = behind
        """The position up to which everything is known, or not for the caller."""
        self.was_asked = False
        """Whether the last look for it was answered; until then it is asked for whether or not anything went on."""


class Progress:
    """Returns whether something may have come since the last look, from the numbers of deliveries alone.

    A number is taken before its delivery can be seen. So after the numbers went on inboxes are asked for until every
    transaction has ended that was under way a look later.
    """

    def __init__(self) -> None:
        self.settled = -1
        """Up to which number all is known to be seen."""
        self._seen: int | None = None
        self._until: int | None = None

    def went_on(self, now: Numbering) -> bool:
        """Return whether inboxes have to be asked for, given what was just found."""
        if now.last == self.settled:
            return False
        if self._seen is None:
            self._seen = now.last
        elif self._until is None:
            self._until = now.next
        elif now.oldest >= self._until:
            self.settled, self._seen, self._until = self._seen, None, None
        return True


class InboxWaiters(Waiters[InboxWaiting]):
    """All callers that wait for something new in an inbox."""

    def __init__(self, threads: DatabaseThreads, places: Places) -> None:
        super().__init__(threads, places)
        self._progress = Progress()
        self.reading = asyncio.Semaphore(_READERS)
        """Held while somebody who was woken reads."""

    async def _look(self) -> None:
        """Ask for those who came since the last look, and for all if the numbers of deliveries went on."""
        now = await self._threads.run_statement(inboxes.numbering, self._progress.settled)
        went_on = self._progress.went_on(now)
        asked = [each for each in self._waiting if went_on or not each.was_asked]
        for each in asked:
            each.was_asked = False
        for start in range(0, len(asked), _AT_ONCE):
            await self._ask(asked[start : start + _AT_ONCE])

    async def _ask(self, asked: Sequence[InboxWaiting]) -> None:
        found = await self._threads.run_statement(inboxes.newer_places, [(each.whose, each.behind) for each in asked])
        for number, waiting in enumerate(asked):
            waiting.was_asked = True
            if (place := found.get(number, 0)) > waiting.behind:
                waiting.behind = place
                waiting.came.set()

    async def _rest(self, took_s: float) -> None:
        await asyncio.sleep(max(LOOK_S, _REST * took_s))
