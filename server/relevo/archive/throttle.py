"""Throttle: work that nobody waits for takes a small share of the time while others write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from relevo.core import queries
from relevo.runtime.runs import Run

_SQL = queries.load("throttle")
_log = structlog.get_logger("relevo.throttle")
_LOOK_S = 1.0  # the server's counters are about a second behind
_BUSY = 20.0  # rows a second; a relay without work writes one or two
_OWN_ROWS = 3  # of a step
_LONGEST_S = 60.0


@dataclass
class Throttle:
    """Rests after each piece of work for as long as makes it the given share, while the database has other writers."""

    share_percent: int
    busy: bool = False
    clock: Callable[[], float] = time.monotonic
    _run: Run | None = None
    _looked: tuple[float, int] = (0.0, 0)
    _steps: int = 0
    _others: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self, run: Run) -> None:
        """See how many rows were written since the last look of this run, and so whether others are at work."""
        with self._lock:
            now = self.clock()
            since = now - self._looked[0]
            if run is self._run and since < _LOOK_S:
                return
            row = run.database.execute(_SQL["count_written"]).fetchone()
            written = int(row[0]) if row else 0
            others = (written - self._looked[1] - _OWN_ROWS * self._steps) / since if run is self._run else 0
            busy = min(others, self._others) > _BUSY  # once is no habit: a load long done may be counted late
            if busy != self.busy:
                self.busy = busy
                _log.info("throttle_changed", cycle=run.context.cycle, busy=busy)
            self._run, self._looked, self._steps, self._others = run, (now, written), 0, others

    def rest(self, run: Run, worked_s: float) -> None:
        """Rest after so much work, if others are at work; a process that stops rests no more."""
        with self._lock:
            self._steps += 1
        self.look(run)
        if self.busy:
            run.stopping.wait(min(_LONGEST_S, worked_s * (100 / self.share_percent - 1)))
            run.progress()
