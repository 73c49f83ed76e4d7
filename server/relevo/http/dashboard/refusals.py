"""Records in the audit log who was refused at the dashboard, in a bounded number of entries that count every refusal.

The first refusal of a kind and caller is an entry at once. Further refusals are counted, and written ten minutes later:
one entry for each caller that has room, and one summary for all others. Nobody can use up the room of somebody else:
a token has its own room, and strangers share the room of their network alone.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
import structlog
from fastapi import Request
from starlette.datastructures import State

from relevo.access.api_tokens import Token
from relevo.core.addresses import subscriber_of, without_mapping
from relevo.core.errors import RelevoError
from relevo.http.guard import address_of
from relevo.http.problems import Problem
from relevo.operators import audit

_log = structlog.get_logger("relevo.dashboard")
WINDOW_S = 600.0
MOST_OF_GROUP = 10
"""How many entries an hour the callers of one group may cause: a token, or the strangers of one network."""
MOST_OF_STRANGERS = 100
"""How many entries an hour all strangers together may cause, beside the summaries."""
_HOUR_S = 3_600.0
_LAST_S = 2.0
_MOST_KNOWN = 1_000
_MOST_NAMED = 10
_NETWORK = {4: 24, 6: 48}
_WHY = {
    "refused_login": "a token or a link that is not good",
    "refused_form": "a form that is not of this session, or from another site",
    "refused_session": "a session that has ended, or never began",
    "refused_role": "a role that is not enough for it",
    "refused_proof": "a token that is not the one of this session",
}
SUMMARY = "refused_others"


@dataclass(frozen=True)
class Caller:
    """The refused caller, and the group with which they share the room for entries."""

    name: str
    group: str
    is_stranger: bool


@dataclass(frozen=True)
class Entry:
    """An entry that is due: whom it names, and how many refusals it counts."""

    who: str
    action: str
    times: int
    target: Mapping[str, Any] = field(default_factory=dict)


class Refusals:
    """Decides which refusals are entries of their own, and counts all others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, Caller], int] = {}
        """How many refusals of a kind and caller of this window were not written yet."""
        self._others: Counter[tuple[str, str]] = Counter()
        """Refusals of callers without room, by kind and group."""
        self._beyond: Counter[str] = Counter()
        """Refusals of groups that are too many to be remembered, by kind."""
        self._hour = clock()
        self._written: Counter[str] = Counter()

    def take(self, action: str, caller: Caller) -> bool:
        """Count a refusal; return whether it is an entry at once."""
        if (action, caller) in self._seen:
            self._seen[action, caller] += 1
            return False
        if len(self._seen) < _MOST_KNOWN and self._has_room(caller):
            self._seen[action, caller] = 0
            return True
        if (action, caller.group) in self._others or len(self._others) < _MOST_KNOWN:
            self._others[action, caller.group] += 1
        else:
            self._beyond[action] += 1
        return False

    def _has_room(self, caller: Caller) -> bool:
        if self._clock() - self._hour >= _HOUR_S:
            self._hour, self._written = self._clock(), Counter()
        if self._written[caller.group] >= MOST_OF_GROUP:
            return False
        if caller.is_stranger and self._written[""] >= MOST_OF_STRANGERS:
            return False
        self._written[caller.group] += 1
        self._written[""] += caller.is_stranger
        return True

    def flush(self) -> list[Entry]:
        """End the window: return the entries for what it counted, and begin another."""
        entries = list[Entry]()
        for (action, caller), untold in self._seen.items():
            if untold and self._has_room(caller):
                entries.append(Entry(caller.name, action, untold))
            elif untold:
                self._others[action, caller.group] += untold
        if total := self._others.total() + self._beyond.total():
            entries.append(Entry("several callers", SUMMARY, total, self._summary()))
        self._seen, self._others, self._beyond = {}, Counter(), Counter()
        return entries

    def _summary(self) -> dict[str, Any]:
        """Return how many refusals of each kind there were, and the groups with the most."""
        kinds, groups = Counter(self._beyond), Counter[str]()
        for (action, group), times in self._others.items():
            kinds[action] += times
            groups[group] += times
        most = [f"{group}: {times}" for group, times in groups.most_common(_MOST_NAMED)]
        return {**kinds, "from": most, "callers": len(groups)}


async def note(request: Request, action: str, why: str = "", caller: Token | None = None, hint: str = "") -> None:
    """Record that somebody was refused, and log what becomes an entry of its own.

    A database that is away keeps nobody from being refused.
    """
    state: State = request.app.state
    refusals: Refusals = state.refusals
    who = _who(request, caller)
    _flush_later(state)
    if refusals.take(action, who):
        _log.warning(action, why=why or _WHY[action], who=who.name, path=request.url.path[:200], hint=hint or None)
        told = {"path": request.url.path[:200], "method": request.method}
        await _write(state, Entry(who.name, action, 1, told), why or _WHY[action])


def _flush_later(state: State) -> None:
    """End the window ten minutes after its first refusal, whether or not another one comes."""
    if state.refusals_flush is None:
        state.refusals_flush = asyncio.create_task(_flush_after(state, WINDOW_S))


async def _flush_after(state: State, seconds: float) -> None:
    await asyncio.sleep(seconds)
    state.refusals_flush = None
    await flush(state)


async def close(state: State) -> None:
    """Write what is left before the server stops, if the database answers in time."""
    if state.refusals_flush is not None:
        state.refusals_flush.cancel()
    with suppress(TimeoutError):
        await asyncio.wait_for(flush(state), _LAST_S)


async def flush(state: State) -> None:
    """Write what was counted and not written yet."""
    for each in state.refusals.flush():
        _log.warning(each.action, who=each.who, times=each.times)
        await _write(state, each, _WHY.get(each.action, "more refusals than entries are kept for"))


async def _write(state: State, entry: Entry, why: str) -> None:
    try:
        with audit.acting_as(entry.who, "http"):
            await state.threads.run(audit.note_refusal, entry.action, why, times=entry.times, **entry.target)
    except (Problem, RelevoError, psycopg.Error):
        _log.warning("refusal_not_recorded", action=entry.action, who=entry.who)


def action_of(problem: Problem, *, had_session: bool) -> str:
    """Name the refusal that a problem is; nothing if it is none, such as a page asked for before the login."""
    if problem.kind == FORM:
        return "refused_form"
    if problem.status == 401:  # noqa: PLR2004
        return "refused_session" if had_session else ""
    return "refused_role" if problem.status == 403 else ""  # noqa: PLR2004


FORM = "form-refused"
"""The kind of problem that a form is which is not of its session."""


def _who(request: Request, caller: Token | None) -> Caller:
    caller = caller or getattr(request.state, "caller", None)
    if caller is not None:
        return Caller(f"{caller.name} ({caller.id})", f"token {caller.id}", is_stranger=False)
    return stranger(address_of(request))


def stranger(address: str) -> Caller:
    """Return who calls from an address: of IPv6 the network of one subscriber, whose addresses are without number."""
    met = without_mapping(address)
    if met is None:
        return Caller(f"nobody, from {address[:100]}", "nowhere", is_stranger=True)
    group = str(ipaddress.ip_network((met, _NETWORK[met.version]), strict=False))
    return Caller(f"nobody, from {subscriber_of(address)}", group, is_stranger=True)
