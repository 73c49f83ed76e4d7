"""Calls that do not come back: who waits for one gives it up, and this worker reports it for as long as it hangs."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog

_log = structlog.get_logger("relevo.hung")

MOST_CALLS = 16
"""While so many calls of one kind hang, no more are made: each keeps a thread, and only a restart gets rid of it."""


@dataclass(eq=False)
class HungCall:
    """A call that has taken longer than a moment."""

    what: str
    """The called code, for people: `the composer of notice`."""
    project: str
    since: float
    give_up_at: float
    reported: bool = field(default=False, init=False)

    @property
    def given_up(self) -> bool:
        """Whether nobody waits for it any more."""
        return time.monotonic() >= self.give_up_at

    @property
    def seconds(self) -> int:
        """How long it has taken by now."""
        return round(time.monotonic() - self.since)

    def __str__(self) -> str:
        """Return what hangs, where, and for how long."""
        where = f" (project {self.project})" if self.project else ""
        return f"{self.what}{where} has not come back for {self.seconds} s and was given up"


class Hanging(NamedTuple):
    """Calls of one kind that were given up and have not come back."""

    what: str
    project: str
    calls: int
    seconds: float
    """Since the first of them was made."""


class HungCalls:
    """The calls of this process that are not back after more than a moment."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._calls: set[HungCall] = set()

    def add(self, what: str, project: str, since: float, lasts_s: float, future: Future[Any]) -> HungCall:
        """Remember a call until its future is done; it counts as given up once it has lasted so long."""
        call = HungCall(what, project, since, since + lasts_s)
        with self._guard:
            self._calls.add(call)
        future.add_done_callback(lambda _: self._forget(call))
        return call

    def give_up(self, call: HungCall) -> str:
        """Wait for a call no longer, and return the sentence that says so."""
        call.give_up_at = time.monotonic()
        return _report(call)

    @property
    def none(self) -> bool:
        """Whether no call hangs."""
        return not self._calls

    def count(self, what: str, project: str | None = None) -> int:
        """Return how many calls of a kind hang."""
        with self._guard:
            return sum(call.what == what and project in (None, call.project) for call in self._calls)

    def unreported(self) -> list[str]:
        """Return a sentence for each call that lasted too long by now and was not reported yet."""
        with self._guard:
            overdue = [call for call in self._calls if call.given_up and not call.reported]
        return sorted(map(_report, overdue))

    def given_up(self) -> list[Hanging]:
        """Return what was given up and has not come back, by kind."""
        since: dict[tuple[str, str], list[float]] = defaultdict(list)
        with self._guard:
            for call in self._calls:
                if call.given_up:
                    since[call.what, call.project].append(call.since)
        now = time.monotonic()
        return [Hanging(*key, len(each), now - min(each)) for key, each in sorted(since.items())]

    def _forget(self, call: HungCall) -> None:
        with self._guard:
            self._calls.discard(call)
        if call.reported:
            _log.info("hung_call_returned", what=call.what, project=call.project, seconds=call.seconds)


def _report(call: HungCall) -> str:
    call.reported = True
    _log.warning("hung_call_given_up", what=call.what, project=call.project, seconds=call.seconds)
    return str(call)
