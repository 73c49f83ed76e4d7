"""Waiting for events: however many callers wait, one look after the other asks for all of them together."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
from fastapi import Request

from relevo.access import app_verbs
from relevo.access.app_verbs import EventLook
from relevo.http.database_threads import DatabaseThreads
from relevo.http.problems import Problem, busy

_log = structlog.get_logger("relevo.http")
_FIRST_LOOK_S, _LAST_LOOK_S = 0.05, 1.0
_SLOWER = 1.5
_AT_ONCE = 500
MOST_WAITERS = 5_000


@dataclass
class _Waited:
    """An event somebody waits for: when it is looked at next, and who waits until when it is over."""

    seen: EventLook
    next_look: float
    pause: float = _FIRST_LOOK_S
    waiters: dict[asyncio.Future[EventLook], str] = field(default_factory=dict)


class Waiters:
    """All callers that wait in this process, and the one task that looks for them.

    A token has half of all places at most. Once all are taken, the token that has most of them gives one up: whoever
    has waited there the longest is told what was last seen, and may ask again.
    """

    def __init__(self, threads: DatabaseThreads, most: int = MOST_WAITERS) -> None:
        self._threads = threads
        self._most = most
        self._of_token: dict[str, dict[asyncio.Future[EventLook], int]] = {}
        """Who waits for which event, by token, the longest waiting first."""
        self._waited: dict[int, _Waited] = {}
        self.count = 0
        """How many callers wait."""
        self._nudge = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, request: Request, first: EventLook, until: str, timeout_s: float) -> EventLook | None:
        """Wait until an event is over or the time is; return it as it was last seen, or None if the caller left."""
        if first.is_over(until) or timeout_s <= 0 or self._closed:
            return first
        token = request.state.caller.id
        self._make_room(token)
        waited, over = self._enter(first, until)
        self._of_token.setdefault(token, {})[over] = first.event["id"]
        gone = asyncio.ensure_future(_gone(request))
        try:
            either: set[asyncio.Future[Any]] = {over, gone}
            done, _ = await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if over in done:
                return over.result()
            return None if gone in done else waited.seen
        finally:
            gone.cancel()
            self._give_back(token, over)
            self._leave(first.event["id"], over)

    def _make_room(self, token: str) -> None:
        """Refuse a token that has its share; let another one give up a place if none is left."""
        own = len(self._of_token.get(token, ()))
        if own >= max(1, self._most // 2):
            raise busy("Too many callers wait here with this token.")
        if self.count < self._most:
            return
        greediest = max(self._of_token.values(), key=len)
        if len(greediest) <= own + 1:
            raise busy("Too many callers wait here.")
        over, event_id = next(iter(greediest.items()))
        del greediest[over]
        _resolve(over, self._waited[event_id].seen)

    def _give_back(self, token: str, over: asyncio.Future[EventLook]) -> None:
        here = self._of_token.get(token, {})
        here.pop(over, None)
        if not here:
            self._of_token.pop(token, None)

    def close(self) -> None:
        """Let everybody go with what was last seen: the process is about to end."""
        self._closed = True
        for waited in self._waited.values():
            for over in waited.waiters:
                _resolve(over, waited.seen)
        if self._task is not None:
            self._task.cancel()

    def _enter(self, first: EventLook, until: str) -> tuple[_Waited, asyncio.Future[EventLook]]:
        loop = asyncio.get_running_loop()
        over: asyncio.Future[EventLook] = loop.create_future()
        waited = self._waited.setdefault(first.event["id"], _Waited(first, 0.0))
        waited.pause, waited.next_look = _FIRST_LOOK_S, loop.time() + _FIRST_LOOK_S
        waited.waiters[over] = until
        self.count += 1
        self._nudge.set()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._look_on())
        return waited, over

    def _leave(self, event_id: int, over: asyncio.Future[EventLook]) -> None:
        self.count -= 1
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


async def _gone(request: Request) -> None:
    """Wait until the caller has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
