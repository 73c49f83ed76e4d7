"""Rows that cannot be written together: smaller batches, down to the row at fault, which is left or put off."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

import psycopg

from relevo.database.outages import is_passing
from relevo.runtime.runs import Run
from relevo.runtime.troubles import Thing, is_own

_MOST_PUT_OFF = 20  # in one round; the next round goes on behind them
_MOST_LEFT = 10  # of the rows that cannot be written; the others are not looked for one by one

T = TypeVar("T", bound=Hashable)


def is_of_rows(error: BaseException) -> bool:
    """Return whether an error is that of what was to be written: no outage, nothing that passes by itself."""
    return is_own(error) and not is_passing(error)


def write_in_halves(
    rows: Sequence[T], write: Callable[[Sequence[T]], None], error: Exception, left: dict[T, Exception] | None = None
) -> dict[T, Exception]:
    """Write rows that met an error together, down to single ones; return those left, each with its error."""
    left = {} if left is None else left
    if len(rows) <= 1 or len(left) >= _MOST_LEFT:
        left |= dict.fromkeys(rows, error)
        return left
    for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        try:
            write(half)
        except Exception as met:
            if not is_of_rows(met):
                raise
            write_in_halves(half, write, met, left)
    return left


class PutOff(NamedTuple):
    """The row that was first: its number before, its number now, and what it is of."""

    before: float
    after: float = math.inf
    """None of this round if it is left out of it."""
    name: str = "a row"


def in_batches(
    run: Run,
    part: str,
    do: Callable[[int], int],
    put_off: Callable[[], PutOff | None],
    *,
    limit: int,
    most: float = math.inf,
) -> int:
    """Repeat a batch of up to so many rows until one finds fewer; return how many were found.

    An error of a row halves the batch until the first row is met alone. `put_off` then puts that row behind the others
    or leaves it out; the round ends once it comes to such a row again.
    """
    total, size, put_behind = 0, limit, list[float]()
    while run.may_go_on() and total < most and len(put_behind) < _MOST_PUT_OFF:
        try:
            found = do(size)
        except psycopg.Error as error:
            if not is_of_rows(error):
                raise
            if size > 1:
                size //= 2
                continue
            first = put_off()
            if first is None or (put_behind and first.before >= put_behind[0]):
                break
            put_behind.append(first.after)
            run.leave_alone(Thing("part", f"reaper {part}, {first.name} that cannot be written"), error)
            size = limit
        else:
            total += found
            if found < size:
                break
            size = min(2 * size, limit)
    return total


def put_behind(run: Run, statement: bytes) -> PutOff | None:
    """Put the first row behind the others by a statement that returns its number before, and its number now."""
    row = run.execute(statement).fetchone()
    return PutOff(*row) if row else None
