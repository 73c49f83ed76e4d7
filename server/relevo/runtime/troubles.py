"""Errors of one thing alone: not an outage, left alone for longer each time, and reported to operators.

An error that is not an outage belongs to the lane, claim, delivery, webhook or part of a cycle that it was met on: that
is left alone for a while, and the rest goes on. How long is kept by each process; what operators read is in a table.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import psycopg
import structlog

from relevo.core import queries
from relevo.core.errors import (
    CopiedDatabaseError,
    DatabaseUnavailableError,
    LostLeaseError,
    RunGivenUpError,
    StoppedError,
)
from relevo.core.logs import normalise_error
from relevo.database.outages import BUSY, is_unavailable
from relevo.database.pool import Database
from relevo.runtime.timing import doubled

_SQL = queries.load("troubles")
_log = structlog.get_logger("relevo.troubles")
_STOPS_ALL = (CopiedDatabaseError, LostLeaseError, RunGivenUpError, StoppedError)
_BUSY_MS, _LONGEST_BUSY_MS = 250, 8_000
_PAUSE_MS, _LONGEST_PAUSE_MS = 5_000, 60_000
_REPORTED_FROM = 3  # what is locked or slow once or twice is tried again, and nobody need know
_MOST_KEPT = 10_000

Kind = Literal["lane", "claim", "delivery", "receipts", "subscription", "part"]
_SAID: dict[Kind, str] = {
    "lane": "the {} lane of {}",
    "claim": "claim {}",
    "delivery": "delivery {}",
    "receipts": "receipts of {}",
    "subscription": "news for subscription {}",
    "part": "{}: {}",
}


class Thing(NamedTuple):
    """The thing that an error was met on, and its owner."""

    kind: Kind
    name: str

    @property
    def said(self) -> str:
        """Return it in words, for the row of a run."""
        return _SAID[self.kind].format(*self.words)

    @property
    def words(self) -> list[str]:
        """Return its name in two where it has two: of a lane and its project, of a cycle and a part of it."""
        return self.name.split(" ", 1) if self.kind in ("lane", "part") else [self.name]


@dataclass
class _Trouble:
    failures: int = 0
    not_before: float = 0.0
    reported: bool = False


def is_own(error: BaseException) -> bool:
    """Return whether an error belongs to the one thing it was met on: no outage, nothing that ends the whole run."""
    return isinstance(error, Exception | SystemExit) and not is_unavailable(error) and not isinstance(error, _STOPS_ALL)


@dataclass
class Troubles:
    """The errors that this process met, and until when it leaves their things alone."""

    database: Database | None = None
    """Where it is reported to operators; without it nothing is."""
    _met: dict[Thing, _Trouble] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def met(self, thing: Thing, error: BaseException, *, rests_s: float | None = None) -> float:
        """Note an error that was met on a thing and report it; return how many seconds to leave it alone.

        That grows with each in a row, unless `rests_s` is given. An outage is nobody's own: it is raised again.
        """
        if not is_own(error):
            raise error
        is_busy = isinstance(error, BUSY)
        with self._guard:
            if len(self._met) >= _MOST_KEPT:
                self._met.clear()
            trouble = self._met.setdefault(thing, _Trouble())
            trouble.failures += 1
            bounds = (_BUSY_MS, _LONGEST_BUSY_MS) if is_busy else (_PAUSE_MS, _LONGEST_PAUSE_MS)
            pause_s = doubled(bounds[0], trouble.failures, bounds[1]) / 1000 if rests_s is None else rests_s
            trouble.not_before = time.monotonic() + pause_s
            reports = trouble.reported = trouble.reported or not is_busy or trouble.failures >= _REPORTED_FROM
        if reports:
            why = normalise_error(error, 300)
            _log.warning("left_alone", kind=thing.kind, name=thing.name, for_s=round(pause_s, 1), error=why)
            told = {"kind": thing.kind, "name": thing.name[:300], "error": why, "pause_ms": int(pause_s * 1000)}
            self._write("tell_trouble", told)
        return pause_s

    def went_well(self, thing: Thing) -> None:
        """Forget what this process met on a thing."""
        if thing not in self._met:
            return
        with self._guard:
            trouble = self._met.pop(thing, None)
        if trouble is not None and trouble.reported:
            self._write("forget_trouble", {"kind": thing.kind, "name": thing.name})

    def is_known(self, thing: Thing) -> bool:
        """Return whether something was met on a thing and has not gone well since."""
        return thing in self._met

    def resting(self, kind: Kind) -> dict[str, float]:
        """Return the things of a kind that are left alone for now, until when by the monotonic clock."""
        now = time.monotonic()
        with self._guard:
            return {
                thing.name: each.not_before
                for thing, each in self._met.items()
                if thing.kind == kind and each.not_before > now
            }

    def _write(self, statement: str, parameters: dict[str, object]) -> None:
        """Write what operators read; if that cannot be, the log and the run's row have it."""
        if self.database is None:
            return
        try:
            self.database.execute(_SQL[statement], parameters, "bound_unflushed")
        except (DatabaseUnavailableError, psycopg.Error) as failed:
            _log.warning("trouble_not_recorded", error=normalise_error(failed, 200))
