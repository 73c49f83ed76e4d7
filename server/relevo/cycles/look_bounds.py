"""Where a look along an index begins: behind what is over, while somebody's long snapshot keeps the rows of it there.

A bound is used only while looks from the very beginning take long, is read anew every few seconds, and lies two
seconds in the past at least. So a look may find late what got a place before the bound after it was read (a long
transaction's event, a released one, a clock that was set back), but finds it within those seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from relevo.runtime.runs import Run

_LONG_S = 0.01
_OFTEN = 10  # looks in a row that took long, before a bound is read: one alone may have waited for a processor
_SHARE = 0.02  # of the time, at most, is spent on reading bounds
_SHORTEST_S, _LONGEST_S = 1.0, 5.0


class LookBound:
    """One process's memory of the place where the next read begins."""

    def __init__(self, statement: bytes, names: Sequence[str]) -> None:
        self._statement = statement
        self._nowhere: dict[str, datetime | None] = dict.fromkeys(names)
        self._found = self._nowhere
        self._took_long = 0
        """How many looks in a row took long, while there was no bound."""
        self._read_again_at = 0.0

    def read(self, run: Run) -> dict[str, datetime | None]:
        """Return the parameters that say where a look begins: all None while it may begin at the very beginning."""
        if run.now is not None or self._took_long < _OFTEN:
            return self._nowhere
        if time.monotonic() >= self._read_again_at:
            began = time.monotonic()
            row = run.execute(self._statement, manner="bound_relaxed").fetchone()
            took = time.monotonic() - began
            is_long = row is not None and took >= _LONG_S
            self._found = dict(zip(self._nowhere, row or (), strict=True)) if is_long else self._nowhere
            self._took_long = self._took_long if is_long else 0
            self._read_again_at = time.monotonic() + min(max(took / _SHARE, _SHORTEST_S), _LONGEST_S)
        return self._found

    @property
    def looks_again_in_s(self) -> float | None:
        """In how many seconds a look finds what got a place before the bound meanwhile; None if there is no bound."""
        return None if self._found is self._nowhere else max(0.0, self._read_again_at - time.monotonic())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Measure a look."""
        began = time.monotonic()
        yield
        if self._found is self._nowhere:
            self._took_long = self._took_long + 1 if time.monotonic() - began >= _LONG_S else 0
