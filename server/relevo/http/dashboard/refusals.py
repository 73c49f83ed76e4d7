"""Who was refused at the dashboard goes into the record, too: bounded, so that a flood of tries is a few entries."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

import psycopg
import structlog
from fastapi import Request

from relevo.access.api_tokens import Token
from relevo.core.errors import RelevoError
from relevo.http.guard import address_of
from relevo.http.problems import Problem
from relevo.operators import audit

_log = structlog.get_logger("relevo.dashboard")
_EVERY_S = 600.0
_HOUR_S = 3_600.0
_MOST_AN_HOUR = 100
_MOST_KNOWN = 1_000
_WHY = {
    "refused_form": "a form that is not of this session, or from another site",
    "refused_session": "a session that has ended, or never began",
    "refused_role": "a role that is not enough for it",
}


class Refusals:
    """Decides which refusals are recorded: of one kind and caller one in ten minutes, and so many an hour in all."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        self._hour, self._written = clock(), 0

    def take(self, action: str, who: str) -> int:
        """Return for how many refusals an entry is due now, those before that were not written included; 0 for none."""
        now = self._clock()
        if now - self._hour >= _HOUR_S:
            self._hour, self._written = now, 0
        told_at, untold = self._known.pop((action, who), (now - _EVERY_S, 0))
        due = now - told_at >= _EVERY_S and self._written < _MOST_AN_HOUR
        self._known[action, who] = (now, 0) if due else (told_at, untold + 1)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        self._written += due
        return untold + 1 if due else 0


async def note(request: Request, action: str, why: str = "", caller: Token | None = None) -> None:
    """Write down that somebody was refused, if it is due; a database that is away keeps nobody from being refused."""
    refusals: Refusals = request.app.state.refusals
    who = _who(request, caller)
    if times := refusals.take(action, who):
        try:
            with audit.acting_as(who, "http"):
                told = {"path": request.url.path[:200], "method": request.method}
                await request.app.state.threads.run(
                    audit.note_refusal, action, why or _WHY[action], times=times, **told
                )
        except (Problem, RelevoError, psycopg.Error):
            _log.warning("refusal_not_recorded", action=action, who=who)


def action_of(problem: Problem, *, had_session: bool) -> str:
    """Name the refusal that a problem is; nothing if it is none, such as a page asked for before the login."""
    if problem.kind == FORM:
        return "refused_form"
    if problem.status == 401:  # noqa: PLR2004
        return "refused_session" if had_session else ""
    return "refused_role" if problem.status == 403 else ""  # noqa: PLR2004


FORM = "form-refused"
"""The kind of problem that a form is which is not of its session."""


def _who(request: Request, caller: Token | None) -> str:
    caller = caller or getattr(request.state, "caller", None)
    return f"{caller.name} ({caller.id})" if caller else f"nobody, from {address_of(request)}"
