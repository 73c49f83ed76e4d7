"""Waiting for events, and for something new in inboxes: however many callers wait, one query serves all of them.

How many may wait in one process, and how they share its places, is the same for both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import structlog
from fastapi import Request

from relevo.access import app_verbs, inboxes
from relevo.access.app_verbs import EventLook
from relevo.access.inboxes import Numbering, Whose
from relevo.http.database_threads import DatabaseThreads
from relevo.http.problems import Problem, busy

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


@dataclass(frozen=True, eq=False)
class Place:
    """One caller that waits."""

    caller: str
    give_up: Callable[[], None]
    """Answers it with what is known, so that another one has its place."""


class Places:
    """All places of one process.

    A token has half of them at most. Once all are taken, the caller that has most of them gives one up: whoever has
    waited there the longest is told what was last seen, and may ask again.
    """

    def __init__(self, most: int = MOST_WAITERS) -> None:
        self.most = most
        self.count = 0
        """How many callers wait."""
        self._of_caller: dict[str, dict[Place, None]] = {}
        """By caller, the longest waiting first."""

    def take(self, caller: str, give_up: Callable[[], None], share: int | None = None) -> Place:
        """Take a place; refuse a caller that has its share, or where none is left and nobody has many more."""
        own = self._of_caller.get(caller, {})
        if len(own) >= (share or max(1, self.most // 2)):
            raise busy("Too many requests of this caller wait here.")
        if self.count >= self.most:
            self._make_room(len(own))
        place = Place(caller, give_up)
        self._of_caller.setdefault(caller, {})[place] = None
        self.count += 1
        return place

    def _make_room(self, own: int) -> None:
        greediest = max(self._of_caller.values(), key=len, default={})
        if len(greediest) <= own + 1:
            raise busy("Too many callers wait here.")
        first = next(iter(greediest))
        del greediest[first]
        first.give_up()

    def give_back(self, place: Place) -> None:
        """Have one place more for others."""
        self.count -= 1
        here = self._of_caller.get(place.caller, {})
        here.pop(place, None)
        if not here:
            self._of_caller.pop(place.caller, None)


@dataclass
class _Waited:
    """An event somebody waits for: when it is looked at next, and who waits until when it is over."""

    seen: EventLook
    next_look: float
    pause: float = _FIRST_LOOK_S
    waiters: dict[asyncio.Future[EventLook], str] = field(default_factory=dict)


class Waiters:
    """All callers that wait for events in this process, and the one task that looks for them."""

    def __init__(self, threads: DatabaseThreads, places: Places) -> None:
        self._threads = threads
        self.places = places
        self._waited: dict[int, _Waited] = {}
        self._nudge = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, request: Request, first: EventLook, until: str, timeout_s: float) -> EventLook | None:
        """Wait until an event is over or the time is; return it as it was last seen, or None if the caller left."""
        if first.is_over(until) or timeout_s <= 0 or self._closed:
            return first
        over: asyncio.Future[EventLook] = asyncio.get_running_loop().create_future()
        event_id = first.event["id"]
        place = self.places.take(request.state.caller.id, lambda: _resolve(over, self._waited[event_id].seen))
        waited = self._enter(first, until, over)
        left = asyncio.ensure_future(gone(request))
        try:
            either: set[asyncio.Future[Any]] = {over, left}
            done, _ = await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if over in done:
                return over.result()
            return None if left in done else waited.seen
        finally:
            left.cancel()
            self.places.give_back(place)
            self._leave(event_id, over)

    def close(self) -> None:
        """Let everybody go with what was last seen: the process is about to end."""
        self._closed = True
        for waited in self._waited.values():
            for over in waited.waiters:
                _resolve(over, waited.seen)
        if self._task is not None:
            self._task.cancel()

    def _enter(self, first: EventLook, until: str, over: asyncio.Future[EventLook]) -> _Waited:
        loop = asyncio.get_running_loop()
        waited = self._waited.setdefault(first.event["id"], _Waited(first, 0.0))
        waited.pause, waited.next_look = _FIRST_LOOK_S, loop.time() + _FIRST_LOOK_S
        waited.waiters[over] = until
        self._nudge.set()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._look_on())
        return waited

    def _leave(self, event_id: int, over: asyncio.Future[EventLook]) -> None:
        over.cancel()
        if (waited := self._waited.get(event_id)) is not None:
            waited.waiters.pop(over, None)
            if not waited.waiters:
                del self._waited[event_id]

    async def _look_on(self) -> None:
        """Look at what is due to be looked at, in one statement, as long as anybody waits."""
        loop = asyncio.get_running_loop()
        while self._waited:
            self._nudge.clear()
            due = [event_id for event_id, each in self._waited.items() if each.next_look <= loop.time()][:_AT_ONCE]
            if due:
                await self._look(due)
            next_look = min((each.next_look for each in self._waited.values()), default=0.0)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(_FIRST_LOOK_S, next_look - loop.time())):
                    await self._nudge.wait()

    async def _look(self, ids: list[int]) -> None:
        try:
            found = await self._threads.run_statement(app_verbs.look, ids)
        except Problem:
            found = {}  # no turn was to be had: the next look comes
        except Exception as error:  # noqa: BLE001 whoever waits is told what was last seen, and may ask again
            _log.warning("http_look_failed", error=error)
            found = {}
        now = asyncio.get_running_loop().time()
        for event_id in ids:
            if (waited := self._waited.get(event_id)) is None:
                continue
            waited.seen = found.get(event_id, waited.seen)
            waited.pause = min(waited.pause * _SLOWER, _LAST_LOOK_S)
            waited.next_look = now + waited.pause
            for over, until in waited.waiters.items():
                if waited.seen.is_over(until):
                    _resolve(over, waited.seen)


def _resolve(over: asyncio.Future[EventLook], seen: EventLook) -> None:
    if not over.done():
        over.set_result(seen)


async def gone(request: Request) -> None:
    """Wait until the caller has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Waiting:
    """One caller that waits for something behind a place of one inbox."""

    def __init__(self, whose: Whose, behind: int) -> None:
        self.whose = whose
        self.behind = behind
        """What came up to here is known, or was found to be nothing the caller asks for."""
        self.came = asyncio.Event()
        self.gave_up = False
        self.was_asked = False
        """Whether a look has asked for it yet; until then it is asked for whether or not anything went on."""

    def note(self, place: int) -> None:
        """Wake the caller if this is new to it."""
        if place > self.behind:
            self.behind = place
            self.came.set()

    def give_up(self) -> None:
        """Let the caller go with the page it would have had at once."""
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


class InboxWaiters:
    """All callers that wait for something new in an inbox, and the one task that looks for them."""

    def __init__(self, threads: DatabaseThreads, places: Places) -> None:
        self._threads = threads
        self.places = places
        self._waiting: dict[Waiting, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.reading = asyncio.Semaphore(_READERS)
        """Held while somebody who was woken reads."""

    @asynccontextmanager
    async def enter(
        self, request: Request, caller: str, whose: Whose, behind: int, share: int | None
    ) -> AsyncIterator[tuple[Waiting, asyncio.Future[None]]]:
        """Wait for an inbox, beside a task that ends when the caller hangs up; nothing is missed from here on."""
        waiting = Waiting(whose, behind)
        place = self.places.take(caller, waiting.give_up, share)
        self._waiting[waiting] = None
        if self._closed:
            waiting.give_up()
        elif self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look_on())
        left = asyncio.ensure_future(gone(request))
        try:
            yield waiting, left
        finally:
            left.cancel()
            self._waiting.pop(waiting, None)
            self.places.give_back(place)

    def close(self) -> None:
        """Let everybody go with what there is: the process is about to end."""
        self._closed = True
        for waiting in self._waiting:
            waiting.give_up()
        if self._task is not None:
            self._task.cancel()

    async def _look_on(self) -> None:
        loop, progress = asyncio.get_running_loop(), Progress()
        while self._waiting:
            started = loop.time()
            try:
                await self._look(progress)
            except Problem:
                pass  # no turn was to be had: the next look comes
            except Exception as error:  # noqa: BLE001 whoever waits is told what there is when the time is over
                _log.warning("http_look_failed", error=error)
            await asyncio.sleep(max(LOOK_S, _REST * (loop.time() - started)))

    async def _look(self, progress: Progress) -> None:
        """Ask for those who came since the last look, and for all if the numbers of deliveries went on."""
        went_on = progress.went_on(await self._threads.run_statement(inboxes.numbering, progress.settled))
        asked = [each for each in self._waiting if went_on or not each.was_asked]
        for start in range(0, len(asked), _AT_ONCE):
            await self._ask(asked[start : start + _AT_ONCE])

    async def _ask(self, asked: Sequence[Waiting]) -> None:
        found = await self._threads.run_statement(inboxes.newer_places, [(each.whose, each.behind) for each in asked])
        for number, waiting in enumerate(asked):
            waiting.was_asked = True
            if number in found:
                waiting.note(found[number])
