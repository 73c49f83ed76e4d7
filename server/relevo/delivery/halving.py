"""Batches with a row that cannot be written: smaller ones up to that row, which goes to the end of the line."""

from __future__ import annotations

import math
from collections.abc import Callable

import psycopg

from relevo.delivery.settling import is_of_rows
from relevo.runtime.runs import Run
from relevo.runtime.troubles import Thing

_MOST_PUT_OFF = 20  # in one round; the next round goes on behind them


def in_batches(
    run: Run,
    part: str,
    do: Callable[[int], int],
    put_off: bytes,
    *,
    limit: int,
    most: float = math.inf,
) -> int:
    """Repeat a batch of up to so many rows until one finds fewer; return how many were found.

    An error of a row halves the batch until the first row is met alone. The statement `put_off` then puts that row
    behind the others, and returns its number before and after; the round ends once it comes to such a row again.
    """
    total, size, put_behind = 0, limit, list[int]()
    while run.may_go_on() and total < most and len(put_behind) < _MOST_PUT_OFF:
        try:
            found = do(size)
        except psycopg.Error as error:
            if not is_of_rows(error):
                raise
            if size > 1:
                size //= 2
                continue
            before, after = run.execute(put_off).fetchone() or (0, 0)
            if put_behind and before >= put_behind[0]:
                break
            put_behind.append(after)
            run.leave_alone(Thing("part", f"reaper {part}, a row that cannot be written"), error)
        else:
            total += found
            if found < size:
                break
        size = limit
    return total
