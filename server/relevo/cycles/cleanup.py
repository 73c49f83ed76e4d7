"""Cleanup: keep partitions ahead of time, retire months past their retention, forget what is old."""

from __future__ import annotations

from psycopg import errors as pg

from relevo import queries
from relevo.archive.retire import retire
from relevo.config import Settings
from relevo.delivery import runaway
from relevo.logs import normalise_error
from relevo.model import Step
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Cron

_SQL = queries.load("cleanup")
_BATCH = 1_000
_AHEAD = "the partitions ahead"
_PRUNED = {
    "runs_pruned": "prune_runs",
    "workers_pruned": "prune_workers",
    "late_tickets_pruned": "prune_late_tickets",
    "attempts_pruned": "prune_failed_attempts",
    "incidents_pruned": "prune_incidents",
    "minutes_pruned": "prune_push_minutes",
    "rejects_pruned": "prune_rejects",
    "projects_pruned": "prune_projects",
    "audit_pruned": "prune_audit",
    "signatures_pruned": "prune_signatures",
}


def cycle(settings: Settings) -> Cycle:
    """Return cleanup for the schedule: once a night in the whole fleet."""
    return Cycle("cleanup", Cron(settings.cleanup_cron, settings.worker_timezone), step, singleton=True)


def step(run: Run) -> Step:
    """Make missing partitions, prune one batch and retire one thing, each in its own fenced transactions."""
    settings = run.settings
    made, problems = _keep_ahead(run)
    days = {"retention_days": settings.runs_retention_days, "audit_days": settings.audit_retention_days}
    retention = days | {"limit": _BATCH, "now": run.now}
    pruned = {}
    for name, statement in _PRUNED.items():
        with run.transaction() as connection:
            pruned[name] = connection.execute(_SQL[statement], retention).rowcount
    with run.transaction() as connection:
        connection.execute(_SQL["prune_connections"], retention)
    with run.transaction() as connection:
        counted = runaway.prune(connection, _BATCH, run.now)
    retired = retire(run)
    counts = {"partitions_made": made} | pruned
    return Step(
        counts | dict(retired.counts),
        items=sum(counts.values()) + retired.items,
        more=_BATCH in (*pruned.values(), counted) or retired.more,
        problems=(*problems, *retired.problems),
    )


def _keep_ahead(run: Run) -> tuple[int, tuple[str, ...]]:
    """Make missing partitions; return how many, and why not if rows of theirs lie in a DEFAULT partition already."""
    if _AHEAD in run.given_up.months:
        return 0, ()
    months = run.settings.partitions_ahead_months + 2  # the last one, this one, and those ahead
    try:
        with run.transaction() as connection:
            row = connection.execute(_SQL["keep_partitions_ahead"], {"months": months, "now": run.now}).fetchone()
    except pg.CheckViolation as error:
        run.given_up.months.add(_AHEAD)
        return 0, (f"{_AHEAD} could not be made: {normalise_error(error, 300)}",)
    return (int(row[0]) if row else 0), ()
