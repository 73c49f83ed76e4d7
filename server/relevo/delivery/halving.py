"""Batches with a row that cannot be written: smaller ones up to that row, which is put off."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import psycopg

from relevo.delivery.settling import is_of_rows
from relevo.runtime.runs import Run
from relevo.runtime.troubles import Thing

_MOST_PUT_OFF = 20  # in one round; the next round goes on behind them


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
