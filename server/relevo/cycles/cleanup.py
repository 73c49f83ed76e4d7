"""Cleanup: keep partitions ahead of time, retire months past their retention, forget what is old."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from psycopg import errors as pg

from relevo.archive.retire import retire
from relevo.core import queries
from relevo.core.logs import normalise_error
from relevo.core.model import Step
from relevo.cycles import Assembled
from relevo.runtime.cycle_facts import CycleFacts
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Cron
from relevo.runtime.troubles import Thing

T = TypeVar("T")

FACTS = CycleFacts(
    "cleanup",
    does="makes partitions ahead, retires old months, deletes what is old",
    counts={
        "partitions_made": "partitions made ahead",
        "deliveries_ended": "deliveries of an old month that were still open, and ended",
        "months_retired": "months moved out of the hot tables",
        "archived_licitaciones": "tenders moved out of the hot tables",
        "archived_events": "events moved out of the hot tables",
        "archived_deliveries": "deliveries in retired months",
        "archived_requests": "requests in retired months",
        "runs_pruned": "runs deleted",
        "workers_pruned": "workers deleted",
        "late_tickets_pruned": "late tickets deleted",
        "attempts_pruned": "records of failed attempts deleted",
        "cap_uses_pruned": "uses of caps deleted",
        "incidents_pruned": "incidents deleted",
        "minutes_pruned": "counts by the minute deleted",
        "rejects_pruned": "rejected items deleted",
        "projects_pruned": "unused projects deleted",
        "audit_pruned": "entries of the audit log deleted",
        "dead_phones_pruned": "installations deleted that have been dead for long",
        "token_moves_pruned": "records of moved tokens deleted",
        "signatures_pruned": "used signatures deleted",
        "inbox_items_pruned": "kept inbox items deleted",
        "inbox_marks_pruned": "marks of inbox items deleted",
        "digest_contents_pruned": "contents of digests deleted",
        "digests_pruned": "digests deleted",
        "batches_pruned": "batches deleted",
        "sends_pruned": "reported sends of another system deleted",
    },
    after="receipt",
    singleton=True,
)
_SQL = queries.load("cleanup", "troubles", "runaway")
_BATCH = 1_000
_AHEAD = "the partitions ahead"
_MONTHS_AHEAD = 2
_PRUNED = {
    "prune_runs": "runs_pruned",
    "prune_workers": "workers_pruned",
    "prune_late_tickets": "late_tickets_pruned",
    "prune_failed_attempts": "attempts_pruned",
    "prune_cap_uses": "cap_uses_pruned",
    "prune_incidents": "incidents_pruned",
    "prune_push_minutes": "minutes_pruned",
    "prune_rejects": "rejects_pruned",
    "prune_projects": "projects_pruned",
    "prune_audit": "audit_pruned",
    "prune_dead_phones": "dead_phones_pruned",
    "prune_moved_tokens": "token_moves_pruned",
    "prune_signatures": "signatures_pruned",
    "prune_kept_inbox_items": "inbox_items_pruned",
    "prune_inbox_marks": "inbox_marks_pruned",
    "prune_digest_contents": "digest_contents_pruned",
    "prune_digests": "digests_pruned",
    "prune_batches": "batches_pruned",
    "prune_sends": "sends_pruned",
}
"""The statements that delete what is old, and as what it is counted."""
_UNCOUNTED = (
    *("prune_connections", "prune_troubles", "prune_silent_pushes", "prune_profiles", "prune_former_phones"),
    "prune_digest_slots",
    *("prune_repeats", "prune_counts", "prune_streams"),
)
_A_NIGHT_S = 25 * 3_600.0  # so long it is told, for the next night tries again


def cycles(given: Assembled) -> list[Cycle]:
    """Return cleanup for the schedule: once a night in the whole fleet."""
    return [Cycle.of(FACTS, Cron(given.settings.cleanup_cron, given.settings.worker_timezone), step)]


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
    pruned = {each: _do(run, each, partial(_delete, run, each, retention), 0) for each in (*_PRUNED, *_UNCOUNTED)}
    return {name: pruned[each] for each, name in _PRUNED.items()}, _BATCH in pruned.values()


def _delete(run: Run, statement: str, retention: dict[str, Any]) -> int:
    return run.execute(_SQL[statement], retention).rowcount


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
        row = run.execute(_SQL["keep_partitions_ahead"], {"months": months, "now": run.now}).fetchone()
    except pg.CheckViolation as error:
        run.given_up.months.add(_AHEAD)
        return 0, (f"{_AHEAD} could not be made: {normalise_error(error, 300)}",)
    return (int(row[0]) if row else 0), ()
