"""Verbs about events: enqueue, change, cancel and complete them, and see how far they are and who gets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from relevo.client import verbs as client
from relevo.client.checks import check_storable
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, as_json, from_json, one
from relevo.client.values import Enqueued, EventStatus, Preview
from relevo.core import queries
from relevo.core.errors import NotFoundError, RelevoError
from relevo.database.pool import Connection
from relevo.verbs.callers import Caller

_SQL = queries.load("verbs")
_MOST_NAMED = 10


class StartedError(RelevoError):
    """An event is no longer to be changed."""


def is_over(event: EventStatus, until: str) -> bool:
    """Return whether nothing of an event is left to send, or, until `confirmed`, to confirm."""
    return not (event.left_to_confirm if until == "confirmed" else event.left_to_send)


def in_project(event: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
    """Return an event as this caller gives it: one of a project's caller names that project."""
    return event if caller.project is None else {**event, "project": caller.own_project(event.get("project"))}


def enqueue(
    caller: Caller, events: Sequence[Mapping[str, Any]], /, *, recorded: bool | None = None, **noted: object
) -> list[Enqueued]:
    """Enqueue events, all or none; a caller of one project makes them for its phones alone.

    What an operator enqueues is recorded, unless `recorded` decides; `noted` is what else the record gets to know.
    """
    given = [in_project(event, caller) for event in events]
    if not (caller.is_recorded("enqueue_event") if recorded is None else recorded):
        with caller.database.connection() as connection:  # one statement is a transaction by itself
            return client.enqueue_json(connection, given)
    with caller.acting("enqueue_event", recorded=True, **{**_in_record(given), **noted}) as act:
        done = client.enqueue_json(act.connection, given)
        if len(done) == 1:
            act.result.update(event_id=done[0].event_id, created=done[0].created)
        else:
            act.result.update(created=sum(each.created for each in done))
        return done


def _in_record(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the types and audiences of events, with counts in place of names, which a person may have forgotten."""
    if len(events) != 1:
        return {"events": len(events), "event_types": sorted({event["type"] for event in events})[:_MOST_NAMED]}
    [event] = events
    audience = "topics" if event.get("topics") else event["audience"]
    named = {name: list(event[name]) for name in ("topics", "where") if event.get(name)}
    counted = {"owners": event.get("owners"), "phones": event.get("installations")}
    return {
        "event_type": event["type"],
        "audience": audience,
        **named,
        **{name: len(each) for name, each in counted.items() if each is not None},
    }


def preview(caller: Caller, event: Mapping[str, Any], *, sample: int) -> Preview:
    """Return whom an event would reach; a caller of one project, which of its phones."""
    event = in_project(event, caller)
    with caller.database.transaction() as connection:
        return client.preview_json(connection, event, sample=sample)


def look(connection: Connection, ids: Sequence[int]) -> dict[int, EventStatus]:
    """Look at some events in one statement, for callers that found them before; those that are gone are left out."""
    rows = connection.execute(_SQL["look_at_events"], {"ids": list(ids)}).fetchall()
    return {event_id: found for event_id, event in rows if (found := client.as_status(event))}


def find(caller: Caller, event_id: int) -> EventStatus:
    """Look at one event; for a caller of one project, another's is not there."""
    with caller.database.connection() as connection:
        return _find(connection, caller, event_id)


def _find(connection: Connection, caller: Caller, event_id: int) -> EventStatus:
    found = look(connection, [event_id]).get(event_id)
    if found is None or caller.project not in (None, found.raw.get("project")):
        raise NotFoundError(f"There is no event {event_id}.")
    return found


def find_by_key(caller: Caller, event_type: str, key: str, project: str | None = None) -> EventStatus:
    """Look at the event of a type and key; for a caller of one project, another's is not there."""
    project = caller.own_project(project)
    with caller.database.connection() as connection:
        return _find_by_key(connection, event_type, key, project)


def _find_by_key(connection: Connection, event_type: str, key: str, project: str | None) -> EventStatus:
    found = client.get(connection, (event_type, key) if project is None else (event_type, key, project))
    if found is None:
        raise NotFoundError(f"There is no event of type {event_type[:100]} with this key.")
    return found


def explain(caller: Caller, event_id: int, installation_id: UUID) -> Mapping[str, Any]:
    """Return why a phone gets an event, or not; for a caller of one project, other phones are not there."""
    with caller.database.transaction() as connection:
        _find(connection, caller, event_id)
        _find_phone(connection, caller, installation_id)
        return client.explain(connection, event_id, installation_id).raw


def explain_new(caller: Caller, event: Mapping[str, Any], installation_id: UUID) -> Mapping[str, Any]:
    """Return why a phone would get an event that is not enqueued, or not."""
    event = in_project(event, caller)
    with caller.database.transaction() as connection:
        _find_phone(connection, caller, installation_id)
        return _explain_new_event(connection, event, installation_id)


@verb
def _explain_new_event(event: Mapping[str, Any], installation_id: UUID) -> Call[Mapping[str, Any]]:
    given = {"event": _json_of(event), "installation_id": str(installation_id)}
    return Call("explain_new_event", given, one(from_json))


def _find_phone(connection: Connection, caller: Caller, installation_id: UUID) -> None:
    asked = {"installation_id": installation_id, "project": caller.project}
    if connection.execute(_SQL["find_installation"], asked).fetchone() is None:
        raise NotFoundError(f"There is no installation {installation_id}.")


class Cancelled(NamedTuple):
    """The result of a cancellation."""

    cancelled: bool
    """Whether the event was ended just now."""
    withdrawn: bool
    """Whether anything of it was left to send, and is not sent any more."""
    found: EventStatus
    """How far it is."""


def cancel(caller: Caller, event_id: int, reason: str = "") -> Cancelled:
    """End an event, and return whether it had not ended before, whether that withdrew anything, and how far it is."""
    with caller.acting("cancel_event", event_id=event_id, reason=reason) as act:
        before = _find(act.connection, caller, event_id)
        cancelled = act.answer(client.cancel(act.connection, event_id, reason))
        act.result["withdrawn"] = withdrawn = cancelled and before.left_to_send
        return Cancelled(cancelled, withdrawn, _find(act.connection, caller, event_id))


def change(caller: Caller, event: Mapping[str, Any]) -> EventStatus:
    """Put this in the place of what the event of the same type and key says, if it has not begun yet."""
    event = in_project(event, caller)
    named = event["type"], event["key"], event.get("project")
    with caller.acting("change_event", event=event["key"]) as act:
        if not _change_event(act.connection, event):
            _find_by_key(act.connection, *named)
            raise StartedError(
                "This event has begun, or has ended, and stays as it is.", hint="Cancel it, and enqueue another."
            )
        return _find_by_key(act.connection, *named)


@verb
def _change_event(event: Mapping[str, Any]) -> Call[bool]:
    return Call("change_event", {"event": _json_of(event)}, one(bool))


def _json_of(event: Mapping[str, Any]) -> str:
    for name, value in event.items():
        check_storable(name, value)
    return as_json("event", dict(event))


def complete(caller: Caller, event_id: int, owner: str | None = None, reason: str = "") -> tuple[bool, EventStatus]:
    """Complete an event, or one owner's part of it, as handled elsewhere; return whether that was news, and it."""
    with caller.acting("complete_event", event=str(event_id)) as act:
        _find(act.connection, caller, event_id)
        completed = act.answer(client.complete(act.connection, event_id, reason, owner=owner))
        return completed, _find(act.connection, caller, event_id)
