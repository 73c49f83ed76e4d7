"""Cleanup: keep partitions ahead of time, and forget runs, workers and incidents past their retention."""

from __future__ import annotations

from relevo import queries
from relevo.config import Settings
from relevo.model import Step
from relevo.runs import Cycle, Run
from relevo.triggers import Cron

_SQL = queries.load("cleanup")
_BATCH = 1_000


def cycle(settings: Settings) -> Cycle:
    """Return cleanup for the registry: once a night in the whole fleet."""
    return Cycle("cleanup", Cron(settings.cleanup_cron, settings.worker_timezone), step, singleton=True)


def step(run: Run) -> Step:
    """Make missing partitions and prune one batch, each in its own fenced transaction."""
    settings = run.settings
    with run.transaction() as connection:
        months = settings.partitions_ahead_months + 2  # the last one, this one, and those ahead
        row = connection.execute(_SQL["keep_partitions_ahead"], {"months": months, "now": None}).fetchone()
        made = int(row[0]) if row else 0
    retention = {"retention_days": settings.runs_retention_days, "limit": _BATCH, "now": None}
    with run.transaction() as connection:
        runs = connection.execute(_SQL["prune_runs"], retention).rowcount
    with run.transaction() as connection:
        workers = connection.execute(_SQL["prune_workers"], retention).rowcount
    with run.transaction() as connection:
        tickets = connection.execute(_SQL["prune_late_tickets"], retention).rowcount
    with run.transaction() as connection:
        incidents = connection.execute(_SQL["prune_incidents"], retention).rowcount
    counts = {
        "partitions_made": made,
        "runs_pruned": runs,
        "workers_pruned": workers,
        "late_tickets_pruned": tickets,
        "incidents_pruned": incidents,
    }
    return Step(counts, items=sum(counts.values()), more=_BATCH in (runs, workers, tickets, incidents))
