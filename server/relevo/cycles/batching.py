"""Batching: personal events that were gathered are told by one push once their time has come."""

from __future__ import annotations

import psycopg

from relevo.core import queries
from relevo.core.logs import normalise_error
from relevo.core.model import Step
from relevo.database.outages import is_unavailable
from relevo.runtime.runs import Run

_SQL = queries.load("fanout")
_TOGETHER = 100


def close_due(run: Run) -> Step | None:
    """Close batches whose time has come; None if there is none. If that fails, each by itself."""
    try:
        return _close(run)
    except psycopg.Error as error:
        if is_unavailable(error):
            raise
    with run.transaction("bound_relaxed") as connection:
        due = connection.execute(_SQL["list_due_batches"], {"most": _TOGETHER, "now": run.now}).fetchall()
    return Step(problems=tuple(problem for (batch,) in due if (problem := _close_alone(run, batch))), more=True)


def _close_alone(run: Run, batch: int) -> str | None:
    """Close one batch, or put it off and say why: it must not hold up the others."""
    try:
        _close(run, batch)
    except psycopg.Error as error:
        if is_unavailable(error):
            raise
        with run.transaction("bound_relaxed") as connection:
            connection.execute(_SQL["put_off_batch"], {"batch": batch, "now": run.now})
        return f"batch {batch}: {normalise_error(error, 200)}"
    return None


def _close(run: Run, batch: int | None = None) -> Step | None:
    with run.transaction("bound_relaxed") as connection:
        asked = {"most": _TOGETHER, "alone": batch, "now": run.now}
        closed, told = connection.execute(_SQL["close_batches"], asked).fetchone() or (0, 0)
    return Step({"batches_closed": closed, "events_batched": told}, items=closed, more=True) if closed else None
