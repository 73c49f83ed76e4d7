"""The fleet: its workers, cycles, queue and projects, and whether all is well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from relevo.config import Settings
from relevo.core import queries
from relevo.core.errors import MigrationError
from relevo.core.phrases import Phrase
from relevo.core.statuses import SENT
from relevo.database import instance
from relevo.database.instance import Standing
from relevo.database.pool import Database
from relevo.operators import archive, shadow, sources
from relevo.operators.formats import MOST_COUNTED
from relevo.operators.health import Facts, find_problems
from relevo.operators.health.problem import Observed, Problem
from relevo.operators.health.workers import next_round
from relevo.operators.reading import MAX_LIMIT, Row, fetch, of_this_version

_SQL = queries.load("fleet", "runs", "subscriptions")

MOST_DUE = 20_000
"""Beyond this what is due in a lane is not counted for `queue`: more is more."""
_DURATIONS = 24
MOST_EVENTS = 200
"""So many of the newest events are summed up by their types."""
_MOST_TYPES = 12
_TROUBLES = 20
_WORKERS = 50


@dataclass(frozen=True, kw_only=True)
class Status(Observed):
    """The fleet at a glance: what was seen, and all that is wrong."""

    problems: tuple[Problem, ...]
    claims: Row
    dead_letters: int
    """How many deliveries failed for good, up to a bound, and lie there until somebody sends them again."""
    shadow: Sequence[Row] = ()
    """The projects of which nothing is sent, because they are in shadow mode; an empty name means all."""


def has_scheduler(database: Database) -> bool:
    """Return whether a worker that runs cycles is alive in the fleet, or cron ran them lately."""
    return bool(fetch(database, _SQL["find_scheduler"]))


def workers(database: Database) -> list[Row]:
    """Return the workers that live, and those that ended within the last day."""
    return fetch(database, _SQL["list_workers"], limit=_WORKERS)


def running_beside(database: Database, hostname: str) -> list[Row]:
    """Return the workers that run on this machine already; none in a database that has no tables yet."""
    with suppress(MigrationError):
        return [
            row
            for row in workers(database)
            if (row["state"], row["role"], row["hostname"]) == ("alive", "run", hostname)
        ]
    return []


def _phrase(told: str) -> str:
    """Return what a worker wrote as a phrase, so that pages translate it if they know it; one with braces as it is."""
    return told if "{" in told or "}" in told else Phrase(told)


def status(database: Database, settings: Settings, facts: Facts = dict) -> Status:
    """Return the fleet at a glance; `facts` says of cycles what waits while they are paused."""
    stands = standing(database, settings)
    seen = Observed(
        workers=workers(database),
        cycles=[row | {"off": _phrase(row["off"])} for row in fetch(database, _SQL["list_cycles"])],
        due=fetch(database, _SQL["list_due"], most=MOST_COUNTED, limit=MAX_LIMIT),
        sources=sources.listed(database),
        projects=projects(database),
        archive=archive.months(database),
        held=held(database),
        copied=stands.trouble(),
        misnamed=stands.misnamed(),
        news=subscriptions(database),
        failing=failing_events(database),
        troubles=fetch(database, _SQL["list_troubles"], limit=_TROUBLES),
        **fetch(database, _SQL["read_health"], most=MOST_COUNTED)[0],
    )
    return Status(
        **vars(seen),
        problems=tuple(find_problems(seen, settings, facts)),
        claims=fetch(database, _SQL["sum_claims"])[0],
        dead_letters=fetch(database, _SQL["count_dead_letters"], most=MOST_COUNTED)[0]["dead_letters"],
        shadow=shadow.modes(database),
    )


_UNSENT = ("failed", "expired", "invalid", "skipped", "cancelled", "unknown")


def queue(database: Database) -> Row:
    """Return how many deliveries there are in all and of each kind, told without counting them; kinds add up to all.

    `pending` waits, `processing` is held by a claim that lives, `stuck_processing` by one that has expired.
    """
    return _queue(database, fetch(database, _SQL["count_queue"])[0])


def _queue(database: Database, row: Row) -> Row:
    counts = {name: int(count) for name, count in row["statuses"].items()}
    left = max(0, counts.get("pending", 0) + counts.get("retryable", 0))
    processing = min(row["claimed"], left)
    stuck = min(row["expired"], left - processing)
    kinds = {"pending": left - processing - stuck, "processing": processing, "stuck_processing": stuck}
    kinds["sent"] = sum(max(0, counts.get(name, 0)) for name in SENT)
    kinds |= {name: max(0, counts.get(name, 0)) for name in _UNSENT}
    due = fetch(database, _SQL["list_due"], most=MOST_DUE, limit=MAX_LIMIT)
    return {
        "total": sum(kinds.values()),
        **kinds,
        "due_now": sum(each["due"] for each in due),
        "due_now_is_at_least": any(each["due"] >= MOST_DUE for each in due),
        "oldest_pending_age_seconds": max((each["oldest_s"] for each in due), default=None),
        "statuses": {name: count for name, count in counts.items() if count > 0},
    }


def stats(database: Database, settings: Settings) -> Row:
    """Return what a monitor asks for: the queue and the runtime of the whole fleet, and this process's settings."""
    row = fetch(database, _SQL["count_queue"])[0]
    return {
        "generated_at": row["now"],
        "queue": _queue(database, row),
        "runtime": runtime(database),
        "config": {
            "poll_ms": settings.dispatch_interval_minutes * 60_000,
            "batch_size": settings.outbox_batch_size,
            "max_attempts": settings.outbox_max_attempts,
            "processing_timeout_ms": settings.outbox_lease_duration_ms,
            "retry_base_ms": settings.outbox_retry_base_ms,
            "retry_max_ms": settings.outbox_retry_max_ms,
            "retry_jitter_ms": settings.outbox_retry_jitter_ms,
            "concurrency": settings.outbox_concurrency,
            "rate_per_second": settings.push_rate_per_second,
        },
    }


def runtime(database: Database) -> Row:
    """Return what all cycles of the fleet did since they first ran, and the last run that failed within a day."""
    rows = fetch(database, _SQL["sum_runs"])
    totals: dict[str, Counter[str]] = {row["cycle"]: Counter() for row in rows}
    for row in rows:
        for each in row["totals"]:
            totals[row["cycle"]].update({name: int(count) for name, count in each.items()})
    dispatch, receipt, reaper = (totals.get(name, Counter()) for name in ("dispatch", "receipt", "reaper"))
    sending = dispatch + receipt
    error = next(iter(fetch(database, _SQL["read_last_error"])), None)
    return {
        "is_running": has_scheduler(database),
        "ticks_total": sum(row["rounds"] for row in rows),
        "processed_total": sum(count for name, count in dispatch.items() if name.startswith("notifications_")),
        "retried_total": sending["notifications_retryable"],
        "dead_letter_total": sending["notifications_failed"] + reaper["deliveries_dead"],
        "recovered_stuck_total": reaper["deliveries_recovered"],
        "last_error": error
        and {"cycle": error["cycle"], "at": error["finished_at"], "message": error["error_message"]},
        "totals": {cycle: dict(counts) for cycle, counts in totals.items()},
    }


@dataclass(frozen=True)
class Overview:
    """The figures of the overview: health, reach, arrivals and event types."""

    status: Status
    queue: Row
    hour: list[Row]
    """Sent, confirmed and failed pushes, by five minutes."""
    day: list[Row]
    """The same, by the hour."""
    phones: list[Row]
    """How many phones there are, and how many may get pushes, by platform, out of a bounded number of the newest."""
    types: list[Row]
    """The types of the newest events, with how far their deliveries are."""


def overview(database: Database, settings: Settings, facts: Facts) -> Overview:
    """Return what the dashboard's first page shows."""
    seen = status(database, settings, facts)
    return Overview(
        seen,
        queue(database),
        pushes(database, seen.now, bins=12, every_s=300),
        pushes(database, seen.now, bins=24, every_s=3_600),
        fetch(database, _SQL["count_phones"], most=MOST_COUNTED),
        fetch(database, _SQL["sum_event_types"], look_at=MOST_EVENTS, limit=_MOST_TYPES),
    )


@dataclass(frozen=True)
class System:
    """The figures of the page System: the machinery behind the pushes."""

    status: Status
    queue: Row
    durations: dict[tuple[str, str], list[Row]]
    """How long the last runs of each cycle took, oldest first."""
    next_rounds: dict[tuple[str, str], datetime | None]


def system(database: Database, settings: Settings, facts: Facts) -> System:
    """Return the fleet as the dashboard's page of the system shows it."""
    seen = status(database, settings, facts)
    durations: dict[tuple[str, str], list[Row]] = {}
    for each in reversed(fetch(database, _SQL["list_durations"], limit=_DURATIONS)):
        durations.setdefault((each["cycle"], each["source"]), []).append(each)
    coming = {(each["cycle"], each["source"]): next_round(each, seen.now) for each in seen.cycles}
    return System(seen, queue(database), durations, coming)


def pushes(database: Database, now: datetime, *, bins: int, every_s: int) -> list[Row]:
    """Return what was sent, confirmed and failed in each of the last stretches of time, oldest first."""
    last = int(now.timestamp()) // every_s * every_s
    since = last - (bins - 1) * every_s
    found = fetch(database, _SQL["list_pushes"], since=datetime.fromtimestamp(since, UTC), every_s=every_s)
    by_start = {int(row["at"].timestamp()): row for row in found}
    nothing = {"sent": 0, "confirmed": 0, "failed": 0}
    return [
        {**nothing, **by_start.get(start, {}), "at": datetime.fromtimestamp(start, UTC)}
        for start in range(since, last + 1, every_s)
    ]


def standing(database: Database, settings: Settings) -> Standing:
    """Return where this database belongs, and where it is."""
    with of_this_version(), database.connection() as connection:
        return instance.read(connection, settings)


def queued(database: Database) -> dict[str, int]:
    """Count, up to a bound, what would begin to move if this database were adopted."""
    due = sum(row["due"] for row in fetch(database, _SQL["list_due"], most=MOST_COUNTED, limit=MAX_LIMIT))
    return {"deliveries_due": min(due, MOST_COUNTED)} | instance.count_queued(database, MOST_COUNTED)


def projects(database: Database) -> list[Row]:
    """Return the projects with what holds them up."""
    return fetch(database, _SQL["list_projects"], limit=MAX_LIMIT)


def failing_events(database: Database) -> list[Row]:
    """Return the events whose fan-out fails, those that failed most often first."""
    return fetch(database, _SQL["list_failing_events"], limit=MOST_COUNTED)


def held(database: Database) -> list[Row]:
    """Return what the runaway brake holds, by type and origin."""
    return fetch(database, _SQL["list_held"], limit=MOST_COUNTED)


def subscriptions(database: Database) -> list[Row]:
    """Return the subscriptions to news, with how much each has waiting and has lost."""
    return fetch(database, _SQL["list_subscriptions"], most=MOST_COUNTED)


def used(database: Database) -> Row:
    """Return whether a source was ever asked, and whether anything was ever archived."""
    return fetch(database, _SQL["find_used"])[0]
