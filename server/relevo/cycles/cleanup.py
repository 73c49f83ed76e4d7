"""Cleanup: keep partitions ahead of time, retire months past their retention, forget what is old."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from psycopg import errors as pg

from relevo.archive.retire import retire
from relevo.config import Settings
from relevo.core import queries
from relevo.core.logs import normalise_error
from relevo.core.model import Step
from relevo.delivery import runaway
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Cron
from relevo.runtime.troubles import Thing

T = TypeVar("T")

_SQL = queries.load("cleanup", "troubles")
_BATCH = 1_000
_AHEAD = "the partitions ahead"
_MONTHS_AHEAD = 2
_PRUNED = {
    "runs_pruned": "prune_runs",
    "workers_pruned": "prune_workers",
    "late_tickets_pruned": "prune_late_tickets",
    "attempts_pruned": "prune_failed_attempts",
    "cap_uses_pruned": "prune_cap_uses",
    "incidents_pruned": "prune_incidents",
    "minutes_pruned": "prune_push_minutes",
    "rejects_pruned": "prune_rejects",
    "projects_pruned": "prune_projects",
    "audit_pruned": "prune_audit",
    "dead_phones_pruned": "prune_dead_phones",
    "token_moves_pruned": "prune_moved_tokens",
    "signatures_pruned": "prune_signatures",
    "inbox_items_pruned": "prune_kept_inbox_items",
    "inbox_marks_pruned": "prune_inbox_marks",
    "connections_pruned": "prune_connections",
    "troubles_pruned": "prune_troubles",
    "silent_pushes_pruned": "prune_silent_pushes",
    "digest_contents_pruned": "prune_digest_contents",
    "digests_pruned": "prune_digests",
    "digest_changes_pruned": "prune_digest_changes",
    "digest_slots_pruned": "prune_digest_slots",
    "digest_events_pruned": "prune_digest_events",
    "batches_pruned": "prune_batches",
    "quiet_profiles_pruned": "prune_profiles",
}
_UNTOLD = (
    "silent_pushes_pruned",
    "connections_pruned",
    "troubles_pruned",
    "digest_changes_pruned",
    "digest_slots_pruned",
    "digest_events_pruned",
    "quiet_profiles_pruned",
)
_A_NIGHT_S = 25 * 3_600.0  # so long it is told, for the next night tries again


def cycle(settings: Settings) -> Cycle:
    """Return cleanup for the schedule: once a night in the whole fleet."""
    return Cycle("cleanup", Cron(settings.cleanup_cron, settings.worker_timezone), step, singleton=True)


def step(run: Run) -> Step:
    """Make missing partitions, prune one batch and retire one thing, each in its own fenced transactions."""
    made, problems = _keep_ahead(run)
    pruned, more = _prune(run)
    retired = _do(run, "retire", partial(retire, run), Step())
    counts = {"partitions_made": made} | pruned
    return Step(
        counts | dict(retired.counts),
        items=sum(counts.values()) + retired.items,
        more=more or retired.more,
        problems=(*problems, *retired.problems),
    )


def _prune(run: Run) -> tuple[dict[str, int], bool]:
    """Delete a batch of each kind of what is old; return how many of each, and whether there may be more."""
    settings = run.settings
    days = {
        "retention_days": settings.runs_retention_days,
        "audit_days": settings.audit_retention_days,
        "dead_phones_days": settings.dead_phones_retention_days,
    }
    retention = days | {"limit": _BATCH, "now": run.now, "since": run.context.started_at}
    pruned = {
        name: _do(run, statement, partial(_delete, run, statement, retention), 0) for name, statement in _PRUNED.items()
    }
    counted = _do(run, "prune_runaway", partial(_forget_counts, run), 0)
    return {name: count for name, count in pruned.items() if name not in _UNTOLD}, _BATCH in (*pruned.values(), counted)


def _delete(run: Run, statement: str, retention: dict[str, Any]) -> int:
    with run.transaction() as connection:
        return connection.execute(_SQL[statement], retention).rowcount


def _forget_counts(run: Run) -> int:
    with run.transaction() as connection:
        return runaway.prune(connection, _BATCH, run.now)


def _do(run: Run, part: str, work: Callable[[], T], otherwise: T) -> T:
    """Do a part of the work by itself, unless it failed in this run before: that keeps no other from being done."""
    if part in run.given_up.parts:
        return otherwise
    try:
        return work()
    except (Exception, SystemExit) as error:  # noqa: BLE001 whatever it is, it belongs to this part
        run.leave_alone(Thing("part", f"cleanup {part}"), error, rests_s=_A_NIGHT_S)
        run.given_up.parts.add(part)
        return otherwise


def _keep_ahead(run: Run) -> tuple[int, tuple[str, ...]]:
    """Make missing partitions; return how many, and why not if rows of theirs lie in a DEFAULT partition already."""
    if _AHEAD in run.given_up.months:
        return 0, ()
    months = _MONTHS_AHEAD + 2  # the last one, this one, and those ahead
    try:
        with run.transaction() as connection:
            row = connection.execute(_SQL["keep_partitions_ahead"], {"months": months, "now": run.now}).fetchone()
    except pg.CheckViolation as error:
        run.given_up.months.add(_AHEAD)
        return 0, (f"{_AHEAD} could not be made: {normalise_error(error, 300)}",)
    return (int(row[0]) if row else 0), ()
