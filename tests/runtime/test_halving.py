"""What cannot be written together is written in halves: down to the rows at fault, but not for ever."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psycopg
import pytest

from relevo.runtime.halving import write_in_halves

ROWS = list(range(1_000))
Write = Callable[[Sequence[int]], None]


def writing(bad: Sequence[int], tried: list[Sequence[int]], error: Exception) -> Write:
    """Return what writes rows unless one of the bad ones is among them."""

    def write(rows: Sequence[int]) -> None:
        tried.append(rows)
        if not set(bad).isdisjoint(rows):
            raise error

    return write


def test_the_rows_at_fault_are_found() -> None:
    """All others are written, each once, and each that is left has its error."""
    tried: list[Sequence[int]] = []
    bad, error = [0, 499, 999], ValueError("odd")
    assert write_in_halves(ROWS, writing(bad, tried, error), ValueError("at first")) == dict.fromkeys(bad, error)
    written = [row for rows in tried if set(bad).isdisjoint(rows) for row in rows]
    assert sorted(written) == [row for row in ROWS if row not in bad]


def test_where_nothing_can_be_written_few_tries_are_made() -> None:
    """After some that cannot be written the others are not looked for one by one; every one is told as left."""
    tried: list[Sequence[int]] = []
    left = write_in_halves(ROWS, writing(ROWS, tried, ValueError("odd")), ValueError("at first"))
    assert sorted(left) == ROWS
    assert len(tried) < 50


def test_an_outage_ends_it() -> None:
    """What passes by itself is no row's fault: it is raised at once."""
    tried: list[Sequence[int]] = []
    with pytest.raises(psycopg.errors.DeadlockDetected):
        write_in_halves(ROWS, writing([0], tried, psycopg.errors.DeadlockDetected()), ValueError("at first"))
    assert len(tried) == 1


def test_one_row_is_not_tried_again() -> None:
    """What failed alone is left with what it met; nothing of no rows."""
    first, tried = ValueError("at first"), list[Sequence[int]]()
    assert write_in_halves([7], writing([7], tried, first), first) == {7: first}
    assert write_in_halves([], writing([], tried, first), first) == {}
    assert tried == []
