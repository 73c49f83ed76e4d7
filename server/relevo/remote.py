"""The app's verbs for callers outside the database: events as the SQL door's JSON, and whose they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from relevo import audit, door, queries
from relevo.checking import check_storable
from relevo.connections import verb
from relevo.connections.steps import Call, as_json, one
from relevo.db import Connection, Database
from relevo.door import Enqueued, Preview
from relevo.errors import NotFoundError, RelevoError

_SQL = queries.load("remote")
Told = TypeVar("Told", Enqueued, Preview)
_SENT = ("sent", "ok", "unconfirmed")
_OPEN = ("pending", "retryable")


class KeyTakenError(RelevoError):
    """An event of this type and key belongs to somebody else."""


@dataclass(frozen=True)
class EventLook:
    """An event as it was seen a moment ago."""

    event: Mapping[str, Any]
    """As the SQL door tells it."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many deliveries there are of each status."""
        found: Mapping[str, int] = self.event["deliveries"]
        return found

    def is_over(self, until: str) -> bool:
        """Tell whether nothing is left to send, or, until `confirmed`, to confirm."""
        waits_for = (*_OPEN, "sent") if until == "confirmed" else _OPEN
        return self.event["state"] not in ("waiting", "held", "fanning") and not any(map(self.counts.get, waits_for))

    @property
    def failed(self) -> bool:
        """Whether, once it is over, nothing was sent although it should have been."""
        if any(map(self.counts.get, _SENT)):
            return False
        return bool(sum(self.counts.values())) or self.event["state"] == "cancelled"


def enqueue(connection: Connection, events: Sequence[Mapping[str, Any]], project: str | None) -> list[Enqueued]:
    """Enqueue events, all or none; a caller of one project makes them for its phones alone."""
    done = door.enqueue_json(connection, events)
    if project is not None:
        made = [each.event_id for each in done if each.created]
        before = {"ids": [each.event_id for each in done if not each.created], "project": project}
        connection.execute(_SQL["own_events"], {"ids": made, "project": project})
        if connection.execute(_SQL["find_foreign"], before).fetchone() is not None:
            raise KeyTakenError("An event of this type and key is there, and not of this project.")
        others = _others_phones(connection, [each for event in events for each in _named(event)], project)
        return [_hide(each, _named(event) & others) for each, event in zip(done, events, strict=True)]
    return done


def _others_phones(connection: Connection, named: Sequence[UUID], project: str) -> set[UUID]:
    """Return which phones are of other projects: to a caller of one project nobody registered those."""
    if not named:
        return set()
    rows = connection.execute(_SQL["list_others_phones"], {"ids": list(named), "project": project}).fetchall()
    return {row[0] for row in rows}


def _named(event: Mapping[str, Any]) -> set[UUID]:
    """Return the installations that an event names; the door has checked that they are ids."""
    return {UUID(str(each)) for each in event.get("installations") or ()}


def _hide(told: Told, others: set[UUID]) -> Told:
    unknown = dict.fromkeys((*told.unknown_installations, *sorted(others)))
    return replace(told, unknown_installations=tuple(unknown))


def preview(connection: Connection, event: Mapping[str, Any], project: str | None, *, sample: int) -> Preview:
    """Tell whom an event would reach; a caller of one project, which of its phones."""
    if project is None:
        return door.preview_json(connection, event, sample=sample)
    seen = _preview_in_project(connection, event, project, sample)
    return _hide(seen, _others_phones(connection, sorted(_named(event)), project))


@verb
def _preview_in_project(event: Mapping[str, Any], project: str, sample: int) -> Call[Preview]:
    for name, value in event.items():
        check_storable(name, value)
    told = as_json("event", dict(event))
    return Call("preview_in_project", {"event": told, "sample": sample, "project": project}, one(door.as_preview))


def look(connection: Connection, ids: Sequence[int]) -> dict[int, EventLook]:
    """Look at some events in one statement; those that are not there are left out."""
    rows = connection.execute(_SQL["look_at_events"], {"ids": list(ids)}).fetchall()
    return {event_id: EventLook(event) for event_id, event in rows if event is not None}


def find(connection: Connection, event_id: int, project: str | None) -> EventLook:
    """Look at one event; for a caller of one project, another's is not there."""
    row = connection.execute(_SQL["look_at_event"], {"id": event_id, "project": project}).fetchone()
    if row is None or row[0] is None:
        raise NotFoundError(f"There is no event {event_id}.")
    return EventLook(row[0])


class Cancelled(NamedTuple):
    """What came of a cancellation."""

    cancelled: bool
    """Whether the event was ended just now."""
    withdrawn: bool
    """Whether anything of it was left to send, and is not sent any more."""
    found: EventLook
    """How far it is."""


def cancel_as_operator(database: Database, event_id: int, reason: str, project: str | None) -> Cancelled:
    """End an event, and have it recorded, as everything an operator does."""
    with (
        audit.recorded(database, "cancel_event", event_id=event_id, reason=reason) as result,
        database.transaction() as connection,
    ):
        done = cancel(connection, event_id, reason, project)
        result.update(answer=done.cancelled, withdrawn=done.withdrawn)
    return done


def cancel(connection: Connection, event_id: int, reason: str, project: str | None) -> Cancelled:
    """End an event, and tell whether it had not ended before, whether that withdrew anything, and how far it is."""
    before = find(connection, event_id, project)
    cancelled = door.cancel(connection, event_id, reason)
    return Cancelled(cancelled, cancelled and not before.is_over("sent"), find(connection, event_id, project))
