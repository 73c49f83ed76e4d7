"""Actions of operators: pause and resume cycles, send, redrive or release, forget phones, grant rights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg import errors as pg

from relevo.core import queries
from relevo.core.errors import NotFoundError, UsageError
from relevo.database import instance
from relevo.database.outages import BUSY
from relevo.database.pool import Database
from relevo.operators import audit, consistency
from relevo.operators.formats import MOST_COUNTED
from relevo.operators.reading import fetch

_SQL = queries.load("actions", "consistency")
_REDRIVE_BATCH = 500
_MOST_EVENTS = 1_000
"""Of so many events of a project a redrive notes that it opened dead letters of theirs."""
_REDRIVE_LOOK = 2_000
"""Of how many dead letters a redrive that is only tried looks at the phones."""
MOST_TRIED = 50_000
"""How many dead letters a redrive that is only tried counts: more is more."""
_RELEASE_BATCH = 1_000
_MOST_NAMED = 20
"""So many events, and origins, a release names of those it let go."""
_REPAIR_BATCH = 1_000
_REPAIRS = {
    "not_queued": ("lock_deliveries", "queue_lost"),
    "queued_twice": ("lock_chunks", "clean_chunks"),
    "queued_but_ended": ("lock_chunks", "clean_chunks"),
    "not_awaited": ("lock_deliveries", "await_lost"),
    "awaited_but_ended": ("lock_awaited", "clean_awaited"),
    "no_dead_letter": ("lock_deliveries", "add_dead_letters"),
    "wrong_dead_letter": ("lock_dead_letters", "remove_dead_letters"),
}
"""Per kind of what is misplaced: what is locked, and what is then looked at again and written."""


@audit.audited
def pause(database: Database, cycle: str, reason: str, *, source: str = "") -> dict[str, str]:
    """Switch a cycle, or one source of it, off in the whole fleet; runs in progress come to their end.

    A fan-out or dispatch under way takes nothing new from then on. One that is off already keeps its time and reason;
    they are returned as `paused_since` and `paused_because`.
    """
    reason = " ".join(reason.split())[:300]
    if not reason:
        raise UsageError(
            "A pause needs a reason.", hint="Give --reason: it is shown to everybody who finds the cycle paused."
        )
    row = database.execute(_SQL["pause_cycle"], {"cycle": cycle, "source": source, "reason": reason}).fetchone()
    return {"paused_since": f"{row[0].astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", "paused_because": row[1]} if row else {}


@audit.audited
def resume(database: Database, cycle: str, *, source: str = "") -> bool:
    """Switch a cycle, or one source of it, on again; return whether it was paused."""
    return database.execute(_SQL["resume_cycle"], {"cycle": cycle, "source": source}).fetchone() is not None


adopt = audit.audited(instance.adopt)


@dataclass(frozen=True)
class DeadLetters:
    """Which dead letters are meant: all that is given must hold. The error code `none` means those without one."""

    ids: Sequence[int] = ()
    error_code: str | None = None
    event_id: int | None = None
    project: str | None = None
    event_type: str | None = None

    def parameters(self, *, everything: bool = False) -> dict[str, Any]:
        """Return them as statements take them; nothing given would mean everything, and is refused unless asked for."""
        asked = vars(self) | {"ids": list(self.ids) or None}
        if not everything and all(value is None for value in asked.values()):
            raise UsageError(
                "No dead letters are selected.",
                hint="Select them with --id, --error-code, --event, --project or --type.",
            )
        return asked


def dead_letters(database: Database, which: DeadLetters, *, everything: bool = False) -> list[dict[str, Any]]:
    """Count the dead letters that are meant, by error code; of many so many."""
    return fetch(database, _SQL["count_dead"], **which.parameters(everything=everything), most=MOST_COUNTED)


def try_redrive(database: Database, which: DeadLetters) -> dict[str, int]:
    """Return what a redrive would do, without doing it: how many it finds, up to a bound, and how many not, and why."""
    return fetch(database, _SQL["try_redrive"], **which.parameters(), look=_REDRIVE_LOOK, most=MOST_TRIED)[0]


@audit.audited
def redrive(
    database: Database,
    which: DeadLetters,
    *,
    tell: Callable[[int], None] = lambda _: None,
    now: datetime | None = None,
) -> int:
    """Open dead letters again, in batches, and yield each; return how many. Those past their deadline stay."""
    row = database.execute(_SQL["ask_time"], {"now": now}).fetchone()
    parameters = which.parameters() | {"limit": _REDRIVE_BATCH, "began": row[0] if row else None, "now": now}
    by_project: Counter[str] = Counter()
    events: dict[str, set[int]] = {}
    looked_at, last = _REDRIVE_BATCH, 0
    while looked_at == _REDRIVE_BATCH:
        opened, looked_at, last = _redrive(database, parameters | {"after": last}, events)
        by_project += opened
        tell(opened.total())
    with database.transaction() as connection:
        for project, count in by_project.items():
            detail = f"{count} dead letters were opened again" if count > 1 else "1 dead letter was opened again"
            incident = {"project": project, "detail": detail, "events": sorted(events[project])[:_MOST_EVENTS]}
            by = {"began": parameters["began"], "actor": audit.actor()}
            connection.execute(_SQL["tell_redriven"], incident | by)
    return by_project.total()


def _redrive(
    database: Database, parameters: dict[str, Any], events: dict[str, set[int]]
) -> tuple[Counter[str], int, int]:
    """Open one batch, noting its events; return how many by project, how many were looked at, and the last of those."""
    opened: Counter[str] = Counter()
    with database.transaction() as connection:
        # planned anew each time: what was found at first tells nothing of how many there are now
        rows = connection.execute(_SQL["redrive_dead"], parameters, prepare=False).fetchall()
        for _, _, project, of_events, days, ids in rows:
            if project is not None:
                opened[project] += len(ids)
                if len(noted := events.setdefault(project, set())) < _MOST_EVENTS:
                    noted.update(of_events)
                connection.execute(_SQL["queue_deliveries"], {"days": days, "ids": ids, "now": parameters["now"]})
        if opened:
            connection.execute(_SQL["wake_dispatch"])
    return opened, rows[0][0], rows[0][1] or 0


@audit.audited
def repair(database: Database, *, now: datetime | None = None) -> Counter[str]:
    """Put deliveries where they must stand, and count them anew; return how many per kind.

    In batches; what is locked is left for later.
    """
    done: Counter[str] = Counter()
    for found in consistency.find_misplaced(database, now=now):
        for start in range(0, len(found.ids), _REPAIR_BATCH):
            with suppress(*BUSY):
                done[found.kind] += _repair(database, found, slice(start, start + _REPAIR_BATCH), now)
    if done["not_queued"]:
        database.execute(_SQL["wake_dispatch"])
    return +(done + _recount(database))


def _recount(database: Database) -> Counter[str]:
    """Add to counts what they lack of what is there, one process at a time; what is under way keeps its own count."""
    done: Counter[str] = Counter()
    for events in consistency.find_miscounted(database):
        with database.transaction() as connection:
            connection.execute(_SQL["lock_repairs"])
            row = connection.execute(_SQL["mend_counts"], {"ids": events}).fetchone()
            done["counts_wrong"] += row[0] if row else 0
    with database.transaction() as connection:
        connection.execute(_SQL["lock_repairs"])
        done["totals_wrong"] += connection.execute(_SQL["mend_totals"]).rowcount
    return done


def _repair(database: Database, found: consistency.Misplaced, batch: slice, now: datetime | None) -> int:
    lock, write = _REPAIRS[found.kind]
    places = sorted({place for each in found.places[batch] for place in each})
    with database.transaction() as connection:
        connection.execute(_SQL["lock_repairs"])
        wanted = {"days": found.days[batch], "ids": found.ids[batch], "places": places}
        locked = connection.execute(_SQL[lock], wanted).fetchall()
        keys = {"days": [row[0] for row in locked], "ids": [row[-1] for row in locked], "now": now}
        row = connection.execute(_SQL[write], keys).fetchone()
    return int(row[0]) if row else 0


@audit.audited
def release_project(database: Database, project: str) -> list[str]:
    """Release a project: its breaker is probed, its brakes are off and judge anew.

    Return what was on: its `breaker`, its `brake` on disabling tokens, or a bound on its `rate`.
    """
    with database.transaction() as connection:
        row = connection.execute(_SQL["release_project"], {"project": project}).fetchone()
        if row is None:
            raise NotFoundError(f"There is no project {project}.", hint="`relevo status` lists them.")
        connection.execute(_SQL["wake_dispatch"])
    return list(row[0])


@audit.audited
def release_events(
    database: Database, event_type: str, origin: str | None = None, *, drop: bool = False
) -> dict[str, Any]:
    """Send what the runaway brake holds of an event type, or end it; it judges anew.

    Return how many `events` it held, the `first_ids` of them, and the `origins` they came from.
    """
    asked: dict[str, Any] = {"event_type": event_type, "origin": origin, "drop": drop, "limit": _RELEASE_BATCH}
    asked["named"] = _MOST_NAMED
    asked["detail"] = f"what was held of {event_type} was {'dropped' if drop else 'released'}"
    with database.transaction() as connection:
        streams = connection.execute(_SQL["release_streams"], asked).fetchall()
        repeats = connection.execute(_SQL["release_repeats"], asked).fetchone()
        released, ids = (repeats[0], repeats[1] or []) if repeats else (0, [])
        if not streams and not released:
            known = f"{event_type} from {origin}" if origin else event_type
            raise NotFoundError(f"Nothing of {known} was ever sent.", hint="`relevo status` shows what is held.")
    last = max((row[1] for row in streams if row[1] is not None), default=None)
    more = last is not None
    while more:
        with database.transaction() as connection:
            row = connection.execute(_SQL["release_events"], asked | {"last_event": last}).fetchone()
            found, opened, first = row or (0, 0, [])
        released += opened
        ids = [*ids, *first][:_MOST_NAMED]
        more = found == _RELEASE_BATCH
    database.execute(_SQL["wake_fanout"])
    database.execute(_SQL["wake_dispatch"])
    origins = [row[0] for row in streams if row[1] is not None][:_MOST_NAMED]
    return {"events": int(released), "first_ids": ids, "origins": origins}


@audit.audited
def retry_rejects(database: Database, *, source: str | None = None, reject_id: int | None = None) -> int:
    """Make rejects due at once; return how many."""
    return database.execute(_SQL["retry_rejects"], {"source": source, "reject_id": reject_id}).rowcount


@audit.audited
def grant(database: Database, role: str, *, worker: bool = False) -> None:
    """Grant a role of the database the right to call an app's functions and nothing else, or to run Relevo."""
    try:
        database.execute(_SQL["grant_worker" if worker else "grant_app"], {"role": role})
    except pg.UndefinedObject as error:
        raise UsageError(f"There is no role {role} in this database.", hint="Create it first: CREATE ROLE …") from error
