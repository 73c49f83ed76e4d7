"""What operators read: runs, workers, cycles, claims, health."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib import import_module
from itertools import groupby
from types import ModuleType
from typing import Any
from uuid import UUID

from psycopg import errors as pg
from psycopg.rows import dict_row

from relevo.client.progress import progress_of
from relevo.config import CYCLES, REJECT_ATTEMPTS, Settings
from relevo.core import queries
from relevo.core.errors import MigrationError, UsageError
from relevo.database import instance, migrate
from relevo.database.instance import Standing
from relevo.database.pool import Database
from relevo.operators import history
from relevo.operators.health import (
    HARMLESS,
    MISPLACED,
    MOST_COUNTED,
    TOLD_APART,
    Problem,
    Seen,
    find_problems,
    in_words,
    next_round,
    say_misplaced,
    stopped,
    tried_again,
    why_it_waits,
    why_off,
)

_SQL = queries.load("insights", "doctor", "subscriptions", "tenders")
MAX_LIMIT = 1_000
MOST_DUE = 20_000
"""Beyond this what is due in a lane is not counted for `queue`: more is more."""
_DELIVERIES_AT_ONCE = 5_000
_DEAD_AT_ONCE = 2_000
_EVENTS_AT_ONCE = 100
_CHUNKS_AT_ONCE = 200
_TENDERS_AT_ONCE = 1_000
_OWNERS_AT_ONCE = 100
_YOUNG_MS = 120_000
_EXAMPLES = 3
_LOOKED_AT = 5_000
_ABOUT_PAGE = ("looked_at", "last_day", "last_place")
_PLACES = {True: re.compile(r"(\d{4}-\d\d-\d\d):([0-9a-f-]{36})"), False: re.compile(r"(\d{4}-\d\d-\d\d):(\d{1,18})")}
_DURATIONS = 24
MOST_EVENTS = 200
"""So many of the newest events are summed up by their types."""
_MOST_TYPES = 12
_TROUBLES = 20

CURSORS = {
    "complete": "complete up to",
    "failed": "failed, to be asked again",
    "missing": "days missing",
    "given_up": "days given up",
    "files": "files read",
    "passed": "passed the file",
    "passed_count": "files passed",
    "next": "next page",
    "at": "place in it",
    "from": "begins again at",
}
"""How far a source was read, by the names of its cursor."""

Row = dict[str, Any]


def _verbs() -> ModuleType:
    """Load the app's verbs when an event is looked up; `relevo status` does without them."""
    return import_module("relevo.client.verbs")


def _rows(database: Database, statement: str, **parameters: object) -> list[Row]:
    with _of_this_version(), database.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_SQL[statement], parameters).fetchall()


def _rows_by_key(database: Database, statement: str, **parameters: object) -> list[Row]:
    """Read as `_rows` does, by keys and in their order: where few rows are expected, all of them would be sorted."""
    with (
        _of_this_version(),
        database.transaction("bound_by_key") as connection,
        connection.cursor(row_factory=dict_row) as cursor,
    ):
        return cursor.execute(_SQL[statement], parameters).fetchall()


@contextmanager
def _of_this_version() -> Iterator[None]:
    try:
        yield
    except (pg.UndefinedTable, pg.InvalidSchemaName, pg.UndefinedColumn, pg.UndefinedFunction) as error:
        raise MigrationError(
            "This database has no relevo schema of this version.", hint="Run `relevo migrate`."
        ) from error


def runs(database: Database, *, cycle: str | None = None, outcome: str | None = None, limit: int = 20) -> list[Row]:
    """Return runs, newest first."""
    return _rows(database, "list_runs", cycle=cycle, outcome=outcome, limit=min(limit, MAX_LIMIT))


def known_cycles(database: Database) -> list[str]:
    """Return the names of all cycles: Relevo's own, and others that have run here."""
    return sorted({*CYCLES, *(row["cycle"] for row in _rows(database, "list_cycles"))})


def known_sources(database: Database) -> list[str]:
    """Return the names of all sources that were asked, or of which something was rejected."""
    return [row["source"] for row in _rows(database, "list_source_names")]


def events(
    database: Database,
    *,
    event_type: str | None = None,
    state: str | None = None,
    before: int | None = None,
    limit: int = 20,
) -> Page:
    """Return events, newest first, each with how far it is in a word, which `state` may be as well.

    For such a word a bounded number of events is looked at, so that a page may have fewer than there is room for.
    """
    told_apart = state in TOLD_APART
    most = min(limit, MAX_LIMIT)
    look = MAX_LIMIT if told_apart else most
    stored = "fanned" if told_apart else state
    rows = _rows(database, "list_events", event_type=event_type, state=stored, before=before, limit=look)
    told = [{**row, "progress": progress_of(row["state"], row["deliveries"])} for row in rows]
    fit = [row for row in told if not told_apart or row["progress"] == state]
    last = fit[most - 1] if len(fit) > most else rows[-1] if len(rows) == look else None
    return Page(fit[:most], str(last["id"]) if last else "", look if last and len(fit) < most else 0)


@dataclass(frozen=True)
class Story:
    """The saga of one event: what happened when, how far its deliveries are, what went wrong."""

    event: Mapping[str, Any]
    moments: list[Row]
    errors: list[Row]
    waits: list[str]
    """Why what is open of it waits, and until when."""
    again: list[str]
    """When what went wrong is tried again, for each of `errors`, as the end of a sentence."""

    @property
    def progress(self) -> str:
        """How far it is, in a word."""
        return progress_of(self.event["state"], self.event["deliveries"])


def story(database: Database, event_id: int) -> Story | None:
    """Return the saga of one event, or None if there is none."""
    moments = _rows(database, "read_story", event_id=event_id)
    with database.connection() as connection:
        status = _verbs().get(connection, event_id)
    if status is None:
        return None
    incidents = _rows(database, "list_event_incidents", event_id=event_id)
    told = ({**row, "what": row["what"].replace("_", " ")} for row in incidents)
    moments_and_incidents = [*moments, *told, *tell_pauses(history.event_pauses(database, event_id))]
    moments_and_incidents.sort(key=lambda row: row["at"])
    if not status.left_to_send and not status.deliveries.get("expired"):
        moments_and_incidents = [row for row in moments_and_incidents if row["what"] != "deadline"]
    errors = _rows_by_key(database, "list_event_errors", event_id=event_id)
    now = _rows(database, "read_health", most=MOST_COUNTED)[0]["now"]
    paused = {row["cycle"]: row["paused_reason"] for row in _rows(database, "list_cycles") if row["paused_reason"]}
    waits = _rows(database, "list_event_waits", event_id=event_id)
    again = [tried_again(row["next_attempt_at"], now, stopped(waits)) for row in errors]
    failing = _rows(database, "list_failing_events", event_id=event_id, limit=1)
    whys = why_it_waits(status.raw, waits, paused, now, failing)
    return Story(status.raw, moments_and_incidents, errors, whys, again)


def tell_pauses(rows: Sequence[Row]) -> Iterator[Row]:
    """Tell of pauses that are over as moments: that it began, and that it ended."""
    for row in rows:
        reason = f": {row['reason']}" if row["reason"] else ""
        after = in_words((row["resumed_at"] - row["paused_at"]).total_seconds())
        yield {"at": row["paused_at"], "what": f"{row['cycle']} paused", "detail": f"by {row['paused_by']}{reason}"}
        yield {
            "at": row["resumed_at"],
            "what": f"{row['cycle']} resumed",
            "detail": f"by {row['resumed_by']}, after {after}",
        }


def is_event(database: Database, event_id: int) -> bool:
    """Tell whether there is an event of this number."""
    with _of_this_version(), database.connection() as connection:
        return _verbs().get(connection, event_id) is not None


def unknown_owners(database: Database, owners: Sequence[str]) -> list[str]:
    """Return those of these owners, of the first hundred, that no installation has; nothing to who may not look."""
    try:
        rows = _rows(database, "list_unknown_owners", owners=list(owners[:_OWNERS_AT_ONCE]))
    except pg.InsufficientPrivilege:
        return []
    return [row["owner"] for row in rows]


def too_late_to_stop(database: Database, event_id: int) -> Row:
    """Return how many pushes of an event were sent, and how many are being sent: what a cancellation cannot stop."""
    with database.connection() as connection:
        status = _verbs().get(connection, event_id)
    sent = sum(status.deliveries.get(name, 0) for name in ("sent", "ok", "unconfirmed")) if status else 0
    claimed = _rows(database, "count_event_claimed", event_id=event_id)[0]["claimed"]
    return {"sent": sent, "claimed": claimed}


def installations(
    database: Database,
    *,
    project: str | None = None,
    token: str | None = None,
    owner: str | None = None,
    installation_id: UUID | None = None,
    limit: int = 20,
) -> list[Row]:
    """Return installations, newest first, their tokens shortened; by project, token, owner or id if asked."""
    wanted = {"project": project, "token": token, "owner": owner, "installation_id": installation_id}
    return _rows(database, "list_installations", **wanted, limit=min(limit, MAX_LIMIT))


def rejects(database: Database, *, source: str | None = None, limit: int = 20) -> list[Row]:
    """Return what sources offered and could not be used."""
    return _rows(database, "list_rejects", source=source, limit=min(limit, MAX_LIMIT))


def audit(database: Database, *, before: int | None = None, action: str | None = None, limit: int = 20) -> list[Row]:
    """Return what operators did, newest first; before a given entry, or of one kind, if asked."""
    return _rows(database, "list_audit", before=before, action=action, limit=min(limit, MAX_LIMIT))


def has_scheduler(database: Database) -> bool:
    """Tell whether any worker that runs cycles is alive in the fleet."""
    return bool(_rows(database, "find_scheduler"))


_STATUSES = {
    "sent": ("sent", "ok", "unconfirmed"),
    "failed": ("failed",),
    "expired": ("expired",),
    "invalid": ("invalid",),
    "skipped": ("skipped",),
    "cancelled": ("cancelled",),
    "unknown": ("unknown",),
}


def queue(database: Database) -> Row:
    """Return how many deliveries there are in all and of each kind, told without counting them; kinds add up to all.

    `pending` waits, `processing` is held by a claim that lives, `stuck_processing` by one that has expired.
    """
    return _queue(database, _rows(database, "count_queue")[0])


def _queue(database: Database, row: Row) -> Row:
    counts = {name: int(count) for name, count in row["statuses"].items()}
    left = max(0, counts.get("pending", 0) + counts.get("retryable", 0))
    processing = min(row["claimed"], left)
    stuck = min(row["expired"], left - processing)
    kinds = {"pending": left - processing - stuck, "processing": processing, "stuck_processing": stuck}
    kinds |= {kind: sum(max(0, counts.get(name, 0)) for name in names) for kind, names in _STATUSES.items()}
    due = _rows(database, "list_due", most=MOST_DUE, limit=MAX_LIMIT)
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
    row = _rows(database, "count_queue")[0]
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
    rows = _rows(database, "sum_runs")
    totals: dict[str, Counter[str]] = {row["cycle"]: Counter() for row in rows}
    for row in rows:
        for each in row["totals"]:
            totals[row["cycle"]].update({name: int(count) for name, count in each.items()})
    sending, reaper = (
        sum((totals.get(name, Counter()) for name in ("dispatch", "receipt")), Counter()),
        totals.get("reaper", Counter()),
    )
    error = next(iter(_rows(database, "read_last_error")), None)
    return {
        "is_running": has_scheduler(database),
        "ticks_total": sum(row["rounds"] for row in rows),
        "processed_total": sum(
            count for name, count in totals.get("dispatch", Counter()).items() if name.startswith("notifications_")
        ),
        "retried_total": sending["notifications_retryable"],
        "dead_letter_total": sending["notifications_failed"] + reaper["deliveries_dead"],
        "recovered_stuck_total": reaper["deliveries_recovered"],
        "last_error": error
        and {"cycle": error["cycle"], "at": error["finished_at"], "message": error["error_message"]},
        "totals": {cycle: dict(counts) for cycle, counts in totals.items()},
    }


def event_deliveries(database: Database, event_id: int, *, after: UUID | None = None, limit: int = 50) -> list[Row]:
    """Return deliveries of one event, by installation."""
    return _rows(database, "list_event_deliveries", event_id=event_id, after=after, limit=min(limit, MAX_LIMIT))


def archive(database: Database) -> list[Row]:
    """Return the months that left the hot tables, oldest first."""
    return _rows(database, "list_archive")


@dataclass(frozen=True)
class Health:
    """Whether the fleet is well, and if not, why."""

    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Tell whether nothing is wrong."""
        return not self.problems


@dataclass(frozen=True)
class Status:
    """The fleet at a glance."""

    workers: list[Row]
    cycles: list[Row]
    claims: Row
    sources: list[Row]
    projects: list[Row]
    due: list[Row]
    """What is due now per project and lane, and how long the oldest has been."""
    held: list[Row]
    """What the runaway brake holds, by type and origin."""
    health: Health
    dead_letters: int = 0
    """How many deliveries failed for good, up to a bound, and lie there until somebody sends them again."""


def running_beside(database: Database, hostname: str) -> list[Row]:
    """Return the workers that run on this machine already; none in a database that has no tables yet."""
    with suppress(MigrationError):
        rows = _rows(database, "list_workers", limit=50)
        return [row for row in rows if (row["state"], row["role"], row["hostname"]) == ("alive", "run", hostname)]
    return []


def status(database: Database, settings: Settings) -> Status:
    """Return the fleet at a glance."""
    workers = _rows(database, "list_workers", limit=50)
    cycles = [row | {"off": why_off(row, settings)} for row in _rows(database, "list_cycles")]
    found, sending, due = (
        sources(database),
        projects(database),
        _rows(database, "list_due", most=MOST_COUNTED, limit=MAX_LIMIT),
    )
    waiting = _rows(database, "read_health", most=MOST_COUNTED)[0]
    stopped = held(database)
    stands = standing(database, settings)
    waiting |= {"copied": stands.trouble(), "misnamed": stands.misnamed()}
    waiting["news"] = subscriptions(database)
    waiting["failing"] = failing_events(database)
    waiting["troubles"] = _rows(database, "list_troubles", limit=_TROUBLES)
    seen = Seen(waiting.pop("now"), workers, cycles, due, found, sending, archive(database), stopped, **waiting)
    problems = Health(tuple(find_problems(seen, settings)))
    claims, dead = _rows(database, "sum_claims")[0], _rows(database, "count_dead_letters", most=MOST_COUNTED)[0]
    return Status(workers, cycles, claims, found, sending, due, stopped, problems, dead["dead_letters"])


@dataclass(frozen=True)
class Overview:
    """What people ask first: is all well, who can be reached, what arrives, of which kinds."""

    now: datetime
    status: Status
    queue: Row
    hour: list[Row]
    """What was sent, confirmed and failed, by five minutes."""
    day: list[Row]
    """The same, by the hour."""
    phones: list[Row]
    """How many phones there are, and how many may get pushes, by platform, out of a bounded number of the newest."""
    types: list[Row]
    """The types of the newest events, with how far their deliveries are."""


def overview(database: Database, settings: Settings) -> Overview:
    """Return what the dashboard's first page shows."""
    row = _rows(database, "count_queue")[0]
    return Overview(
        row["now"],
        status(database, settings),
        _queue(database, row),
        pushes(database, row["now"], bins=12, every_s=300),
        pushes(database, row["now"], bins=24, every_s=3_600),
        _rows(database, "count_phones", most=MOST_COUNTED),
        _rows(database, "sum_event_types", look_at=MOST_EVENTS, limit=_MOST_TYPES),
    )


@dataclass(frozen=True)
class System:
    """What somebody at 3 a.m. looks at: the machinery behind the pushes."""

    now: datetime
    status: Status
    queue: Row
    durations: dict[tuple[str, str], list[Row]]
    """How long the last runs of each cycle took, oldest first."""
    next_rounds: dict[tuple[str, str], datetime | None]
    archive: list[Row]


def system(database: Database, settings: Settings) -> System:
    """Return the fleet as the dashboard's page of the system shows it."""
    row = _rows(database, "count_queue")[0]
    seen = status(database, settings)
    durations: dict[tuple[str, str], list[Row]] = {}
    for each in reversed(_rows(database, "list_durations", limit=_DURATIONS)):
        durations.setdefault((each["cycle"], each["source"]), []).append(each)
    coming = {(each["cycle"], each["source"]): next_round(each, settings, row["now"]) for each in seen.cycles}
    return System(row["now"], seen, _queue(database, row), durations, coming, archive(database))


def pushes(database: Database, now: datetime, *, bins: int, every_s: int) -> list[Row]:
    """Return what was sent, confirmed and failed in each of the last stretches of time, oldest first."""
    last = int(now.timestamp()) // every_s * every_s
    since = last - (bins - 1) * every_s
    found = _rows(database, "list_pushes", since=datetime.fromtimestamp(since, UTC), every_s=every_s)
    by_start = {int(row["at"].timestamp()): row for row in found}
    nothing = {"sent": 0, "confirmed": 0, "failed": 0}
    return [
        {**nothing, **by_start.get(start, {}), "at": datetime.fromtimestamp(start, UTC)}
        for start in range(since, last + 1, every_s)
    ]


def standing(database: Database, settings: Settings) -> Standing:
    """Return where this database belongs, and where it is."""
    with _of_this_version(), database.connection() as connection:
        return instance.read(connection, settings)


def queued(database: Database) -> dict[str, int]:
    """Count, up to a bound, what would begin to move if this database were adopted."""
    due = sum(row["due"] for row in _rows(database, "list_due", most=MOST_COUNTED, limit=MAX_LIMIT))
    return {"deliveries_due": min(due, MOST_COUNTED)} | instance.count_queued(database, MOST_COUNTED)


def sources(database: Database) -> list[Row]:
    """Return the sources with their last answer, and what stays wrong with them."""
    return _rows(database, "list_sources", given_up_attempts=REJECT_ATTEMPTS, most=MOST_COUNTED)


def source_details(database: Database) -> list[Row]:
    """Return the sources with how far they were read, their last answer, and how much could not be used."""
    return _rows(database, "describe_sources", given_up_attempts=REJECT_ATTEMPTS, most=MOST_COUNTED)


@dataclass(frozen=True)
class Page:
    """Some rows, and where the next page begins; nothing if there is none."""

    rows: list[Row]
    next: str = ""
    looked_at: int = 0
    """Of a page that ends early: among how many it looked for what fits."""


def deliveries(
    database: Database,
    *,
    event: int | None = None,
    installation: UUID | None = None,
    state: str | None = None,
    before: str | None = None,
    limit: int = 20,
) -> Page:
    """Return deliveries, newest first; those of one event by installation. A page of one state looks at so many rows.

    `before` is the `next` of the page before.
    """
    day, number = _place(before, by_phone=event is not None)
    asked = {"event_id": event, "installation_id": installation, "day": day, "number": number, "state": state}
    name = f"list_deliveries_of_{'event' if event else 'phone'}" if event or installation else "list_deliveries"
    limit = min(limit, MAX_LIMIT)
    look_at = _LOOKED_AT if state else limit + 1
    found = _rows(database, name, **asked, look_at=look_at, limit=limit + 1)
    looked_at, last = found[0]["looked_at"], f"{found[0]['last_day']}:{found[0]['last_place']}"
    fitting = [{key: value for key, value in row.items() if key not in _ABOUT_PAGE} for row in found if row["id"]]
    if len(fitting) > limit:
        last = f"{fitting[limit - 1]['event_day']}:{fitting[limit - 1]['place']}"
    if len(fitting) <= limit and looked_at < look_at:
        return Page(fitting)
    return Page(fitting[:limit], last, looked_at if len(fitting) < limit else 0)


def failed_attempts(database: Database, deliveries: Sequence[Row]) -> dict[int, list[Row]]:
    """Return what went wrong with these deliveries, attempt by attempt, by their numbers; those that went well lack."""
    asked = {"days": [row["event_day"] for row in deliveries], "ids": [row["id"] for row in deliveries]}
    return {row["id"]: row["failed_attempts"] for row in _rows(database, "list_failures_of", **asked)}


def _place(before: str | None, *, by_phone: bool) -> tuple[date | None, str | None]:
    """Read where a page begins, as its predecessor wrote it: a day, and a delivery's number or an installation."""
    if before is None:
        return None, None
    found = _PLACES[by_phone].fullmatch(before)
    with suppress(ValueError):
        if found:
            return date.fromisoformat(found[1]), str(UUID(found[2])) if by_phone else found[2]
    raise UsageError(f"{before[:60]} is no place in this list.", hint="Copy what the page before named.")


def projects(database: Database) -> list[Row]:
    """Return the projects with what holds them up."""
    return _rows(database, "list_projects", limit=MAX_LIMIT)


def failing_events(database: Database) -> list[Row]:
    """Return the events whose fan-out fails, those that failed most often first."""
    return _rows(database, "list_failing_events", event_id=None, limit=MOST_COUNTED)


def held(database: Database) -> list[Row]:
    """Return what the runaway brake holds, by type and origin."""
    return _rows(database, "list_held", limit=MOST_COUNTED)


def tenders(
    database: Database, /, *, before_at: datetime, before_id: int, limit: int = 50, **filters: object
) -> tuple[list[Row], tuple[datetime, int] | None]:
    """Return tenders that fit, newest first, and behind which the next page begins, if there is one.

    It looks at a bounded number of them, so a page may hold fewer than there are.
    """
    place = {"before_at": before_at, "before_id": before_id, "limit": limit, "look_at": max(limit, _TENDERS_AT_ONCE)}
    rows = _rows(database, "list_tenders", **place, **filters)
    end = rows.pop() if rows and rows[-1]["next_id"] is not None else None
    items = [{name: value for name, value in row.items() if name not in ("next_at", "next_id")} for row in rows]
    return items, None if end is None else (end["next_at"], end["next_id"])


def tender(database: Database, licitacion_id: int) -> Row | None:
    """Return one tender."""
    return next(iter(_rows(database, "read_tender", id=licitacion_id)), None)


def subscriptions(database: Database) -> list[Row]:
    """Return the subscriptions to news, with how much each has waiting and has lost."""
    return _rows(database, "list_subscriptions", most=MOST_COUNTED)


def health(database: Database, settings: Settings) -> Health:
    """Tell what is wrong."""
    return status(database, settings).health


@dataclass(frozen=True)
class Misplaced:
    """Deliveries that do not stand where they must, each with the chunks or awaited receipts that are wrong."""

    kind: str
    days: list[date]
    ids: list[int]
    places: list[list[int]]


def find_misplaced(
    database: Database, *, now: datetime | None = None, tell: Callable[[int], None] = lambda _: None
) -> Iterator[Misplaced]:
    """Look at all deliveries that are not sealed, piece by piece, and at all that says where they stand.

    What changed within the last two minutes is left alone. After each piece `tell` hears how many rows it had.
    """
    with _of_this_version(), database.connection() as connection:
        months = [row[0] for row in connection.execute(_SQL["list_open_months"])]
    for month in months:
        bounds = {"month": month, "now": now, "young_ms": _YOUNG_MS}
        yield from _walk(database, "look_at_deliveries", month, _DELIVERIES_AT_ONCE, tell=tell, bounds=bounds)
    yield from _walk(database, "look_at_chunks", None, _CHUNKS_AT_ONCE, tell=tell)
    yield from _walk(database, "look_at_awaited", None, _CHUNKS_AT_ONCE, tell=tell)
    yield from _walk(database, "look_at_dead_letters", date.min, _DEAD_AT_ONCE, tell=tell)


def _walk(
    database: Database,
    statement: str,
    after_day: date | None,
    limit: int,
    *,
    tell: Callable[[int], None],
    bounds: Mapping[str, object] | None = None,
) -> Iterator[Misplaced]:
    after_id, more = 0, True
    while more:
        piece = {"after_day": after_day, "after_id": after_id, "limit": limit} | dict(bounds or {})
        with _of_this_version(), database.transaction() as connection:
            rows = connection.execute(_SQL[statement], piece).fetchall()
        more = False
        for kind, found in groupby(rows, lambda row: row[0]):
            days, ids, places = zip(*((row[1], row[2], row[3] or []) for row in found), strict=True)
            if kind == "end":
                after_day, after_id, more = days[0], ids[0], places[0] == [limit]
                tell(sum(places[0]))
            else:
                yield Misplaced(kind, list(days), list(ids), list(places))


@dataclass(frozen=True)
class Finding:
    """Something that does not fit together: a sentence that names it, and the next step."""

    kind: str
    what: str
    hint: str
    deliveries: int = 0
    harmless: bool = False
    warning: bool = False
    """Whether nothing is wrong yet, and something will be if it stays so."""


def examine(
    database: Database, *, now: datetime | None = None, tell: Callable[[int], None] = lambda _: None
) -> list[Finding]:
    """Look for what does not fit together: schema and version, workers, and where deliveries stand."""
    if missing := migrate.plan(database):
        count = "A migration is" if len(missing) == 1 else f"{len(missing)} migrations are"
        return [Finding("migrations_missing", f"{count} missing, from {missing[0]} on.", "Run `relevo migrate`.")]
    workers = [_old_worker(row) for row in _rows(database, "list_old_workers", now=now)]
    return workers + _misplaced(database, now, tell) + _miscounted(database)


def find_miscounted(database: Database) -> Iterator[list[int]]:
    """Look at the counts of all events whose deliveries are not sealed, page by page; tell which are wrong."""
    upto: int | None = 0
    while upto is not None:
        with _of_this_version(), database.transaction() as connection:
            piece = {"after_id": upto, "limit": _EVENTS_AT_ONCE}
            row = connection.execute(_SQL["look_at_counts"], piece).fetchone()
        wrong, upto = row or ([], None)
        if wrong:
            yield wrong


def _miscounted(database: Database) -> list[Finding]:
    events = [event for page in find_miscounted(database) for event in page]
    hint = "Run `relevo doctor --repair`, which counts anew, and report it: it should not happen."
    found = []
    if events:
        count = "1 event differ" if len(events) == 1 else f"{len(events):,} events differ"
        named = ", ".join(map(str, events[:_EXAMPLES]))
        found.append(Finding("counts_wrong", f"The counts of {count} from their deliveries: {named}.", hint))
    with _of_this_version(), database.transaction() as connection:
        if connection.execute(_SQL["look_at_totals"]).fetchone() == (True,):
            found.append(Finding("totals_wrong", "The sums of all deliveries differ from those of the events.", hint))
    return found


def _old_worker(row: Row) -> Finding:
    name = f"{row['worker_id']} (on {row['hostname']}, process {row['pid']})"
    what = f"Worker {name} is of version {row['version']}, which can write no delivery any more."
    return Finding("old_worker", what, "Stop it, and start this version in its place.")


def _misplaced(database: Database, now: datetime | None, tell: Callable[[int], None]) -> list[Finding]:
    counts: dict[str, int] = dict.fromkeys(MISPLACED, 0)
    examples: dict[str, list[int]] = {kind: [] for kind in MISPLACED}
    for found in find_misplaced(database, now=now, tell=tell):
        counts[found.kind] += len(found.ids)
        examples[found.kind] = [*examples[found.kind], *found.ids][:_EXAMPLES]
    return [
        Finding(kind, say_misplaced(kind, count, examples[kind]), MISPLACED[kind][2], count, kind in HARMLESS)
        for kind, count in counts.items()
        if count
    ]
