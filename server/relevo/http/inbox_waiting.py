"""Waiting for something new in inboxes: however many callers wait, one query a second serves all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import structlog
from fastapi import Request

from relevo.access import inboxes
from relevo.access.inboxes import Numbering, Whose
from relevo.http.database_threads import DatabaseThreads
from relevo.http.problems import Problem
from relevo.http.waiting import Places, gone

_log = structlog.get_logger("relevo.http")
LOOK_S = 1.0
_REST = 20
"""After a look comes a pause of so many times what the look took, so that looks never take more than a twentieth."""
_AT_ONCE = 500
_READERS = 2
"""How many that were woken together read at once: an event for everyone leaves connections to others."""

Woken = Literal["something came", "time is over", "was let go", "caller left"]


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
