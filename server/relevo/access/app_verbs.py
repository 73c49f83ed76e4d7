"""The app's verbs for callers outside the database: events as the SQL functions' JSON, and whose they are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from relevo.access.phones import NotAllowedError
from relevo.client import consent, news, verbs
from relevo.client.checks import check_storable
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, as_json, from_json, one
from relevo.client.values import Enqueued, Preview
from relevo.core import queries
from relevo.core.errors import NotFoundError, RelevoError
from relevo.core.statuses import SENT
from relevo.database.pool import Connection, Database
from relevo.operators import audit

_SQL = queries.load("app_verbs")
T = TypeVar("T")
_OPEN = ("pending", "retryable")


class StartedError(RelevoError):
    """An event is no longer to be changed."""


@dataclass(frozen=True)
class EventLook:
    """An event as it was seen a moment ago."""

    event: Mapping[str, Any]
    """As `relevo.get_event` returns it."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many deliveries there are of each status."""
        found: Mapping[str, int] = self.event["deliveries"]
        return found

    def is_over(self, until: str) -> bool:
        """Return whether nothing is left to send, or, until `confirmed`, to confirm."""
        waits_for = (*_OPEN, "sent") if until == "confirmed" else _OPEN
        return self.event["state"] not in ("waiting", "held", "fanning") and not any(map(self.counts.get, waits_for))

    @property
    def failed(self) -> bool:
        """Whether, once it is over, nothing was sent although it should have been."""
        if any(map(self.counts.get, SENT)):
            return False
        return bool(sum(self.counts.values())) or self.event["state"] == "cancelled"


def enqueue(connection: Connection, events: Sequence[Mapping[str, Any]], project: str | None) -> list[Enqueued]:
    """Enqueue events, all or none; a caller of one project makes them for its phones alone."""
    return verbs.enqueue_json(connection, [in_project(event, project) for event in events])


def in_project(event: Mapping[str, Any], project: str | None) -> Mapping[str, Any]:
    """Return an event as this caller gives it: one of a project's caller names that project."""
    return event if project is None else {**event, "project": own_project(project, event.get("project"))}


def own_project(caller: str | None, asked: str | None) -> str | None:
    """Return the project a call is about: the caller's own, if it has one, and it may name no other."""
    if caller is not None and asked not in (None, caller):
        raise NotAllowedError("This token is for another project.", hint="Leave project out.")
    return caller or asked


def preview(connection: Connection, event: Mapping[str, Any], project: str | None, *, sample: int) -> Preview:
    """Return whom an event would reach; a caller of one project, which of its phones."""
    return verbs.preview_json(connection, in_project(event, project), sample=sample)


def look(connection: Connection, ids: Sequence[int]) -> dict[int, EventLook]:
    """Look at some events in one statement; those that are not there are left out."""
    rows = connection.execute(_SQL["look_at_events"], {"ids": list(ids)}).fetchall()
    return {event_id: EventLook(event) for event_id, event in rows if event is not None}


def find(connection: Connection, event_id: int, project: str | None) -> EventLook:
    """Look at one event; for a caller of one project, another's is not there."""
    (event,) = connection.execute(_SQL["look_at_event"], {"id": event_id, "project": project}).fetchone() or (None,)
    if event is None:
        raise NotFoundError(f"There is no event {event_id}.")
    return EventLook(event)


def explain(connection: Connection, event_id: int, installation_id: UUID, project: str | None) -> Mapping[str, Any]:
    """Return why a phone gets an event, or not; for a caller of one project, other phones are not there."""
    find(connection, event_id, project)
    _find_phone(connection, installation_id, project)
    return verbs.explain(connection, event_id, installation_id).raw


def explain_new(
    connection: Connection, event: Mapping[str, Any], installation_id: UUID, project: str | None
) -> Mapping[str, Any]:
    """Return why a phone would get an event that is not enqueued, or not."""
    event = in_project(event, project)
    _find_phone(connection, installation_id, project)
    return _explain_new_event(connection, event, installation_id)


@verb
def _explain_new_event(event: Mapping[str, Any], installation_id: UUID) -> Call[Mapping[str, Any]]:
    for name, value in event.items():
        check_storable(name, value)
    given = {"event": as_json("event", dict(event)), "installation_id": str(installation_id)}
    return Call("explain_new_event", given, one(from_json))


def _find_phone(connection: Connection, installation_id: UUID, project: str | None) -> None:
    asked = {"installation_id": installation_id, "project": project}
    if connection.execute(_SQL["find_installation"], asked).fetchone() is None:
        raise NotFoundError(f"There is no installation {installation_id}.")


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
    target = {"event_id": event_id, "reason": reason}
    return do_recorded(database, "cancel_event", target, lambda c: cancel(c, event_id, reason, project))


def cancel(connection: Connection, event_id: int, reason: str, project: str | None) -> Cancelled:
    """End an event, and return whether it had not ended before, whether that withdrew anything, and how far it is."""
    before = find(connection, event_id, project)
    cancelled = verbs.cancel(connection, event_id, reason)
    return Cancelled(cancelled, cancelled and not before.is_over("sent"), find(connection, event_id, project))


def find_by_key(connection: Connection, event_type: str, key: str, project: str | None) -> EventLook:
    """Look at the event of a type and key; for a caller of one project, another's is not there."""
    found = verbs.get(connection, (event_type, key) if project is None else (event_type, key, project))
    if found is None:
        raise NotFoundError(f"There is no event of type {event_type[:100]} with this key.")
    return EventLook(found.raw)


def change(connection: Connection, event: Mapping[str, Any], project: str | None) -> EventLook:
    """Put this in the place of what the event of the same type and key says, if it has not begun yet."""
    event = in_project(event, project)
    named = event["type"], event["key"], event.get("project")
    if not _change_event(connection, event):
        find_by_key(connection, *named)
        raise StartedError(
            "This event has begun, or has ended, and stays as it is.", hint="Cancel it, and enqueue another."
        )
    return find_by_key(connection, *named)


@verb
def _change_event(event: Mapping[str, Any]) -> Call[bool]:
    for name, value in event.items():
        check_storable(name, value)
    return Call("change_event", {"event": as_json("event", dict(event))}, one(bool))


def complete(
    connection: Connection, event_id: int, reason: str, owner: str | None, project: str | None
) -> tuple[bool, EventLook]:
    """Say that an event, or one owner's part of it, was handled elsewhere; return whether that was news, and it."""
    find(connection, event_id, project)
    completed = verbs.complete(connection, event_id, reason, owner=owner)
    return completed, find(connection, event_id, project)


def list_owned(connection: Connection, owner: str, project: str | None, limit: int) -> list[Mapping[str, Any]]:
    """List an owner's installations, newest first; for a caller of one project, those that are there."""
    if project is None:
        return [each.raw for each in verbs.list_installations(connection, owner=owner, limit=limit)]
    return _list_in_project(connection, owner, project, limit)


@verb
def _list_in_project(owner: str, project: str, limit: int) -> Call[list[Mapping[str, Any]]]:
    check_storable("owner", owner)
    return Call("list_installations_in_project", {"owner": owner, "project": project, "limit": limit}, one(from_json))


def log_out(connection: Connection, owner: str, project: str | None) -> int:
    """Unregister an owner's installations, those of the caller's project; return how many were registered."""
    if project is None:
        return verbs.unregister(connection, owner=owner)
    return _for_owner(connection, "unregister_owner_in_project", owner, project)


def forget(connection: Connection, owner: str, project: str | None) -> int:
    """Forget an owner, as far as the caller's project goes; return how many installations there were."""
    if project is None:
        return verbs.forget(connection, owner=owner)
    return _for_owner(connection, "forget_owner_in_project", owner, project)


def complete_owner(connection: Connection, owner: str, reason: str, project: str | None) -> bool:
    """Say that an owner has handled everything until now, on phones of the caller's project."""
    if project is None:
        return verbs.complete(connection, reason=reason, owner=owner)
    return bool(_for_owner(connection, "complete_owner_in_project", owner, project, reason=reason))


@verb
def _for_owner(statement: str, owner: str, project: str, **more: str) -> Call[int]:
    check_storable("owner", owner)
    return Call(statement, {"owner": owner, "project": project, **more}, one(int))


def subscribe(
    connection: Connection,
    name: str,
    caller: str | None,
    asked: Mapping[str, Any],
) -> bool:
    """Subscribe to news, or change a subscription; a caller of one project has the news of that project alone."""
    project = own_project(caller, asked.get("project"))
    stored = stored_name(connection, name, caller) or _new_name(name, caller)
    return news.subscribe_news(connection, stored, **dict(asked) | ({"project": project} if caller else {}))


def read_news(
    connection: Connection, name: str, after: int | None, limit: int, caller: str | None
) -> list[news.Outcome]:
    """Read a subscription's next news; for a caller of one project, another's is not there."""
    return news.read_news(connection, _find_subscription(connection, name, caller), after=after, limit=limit)


def acknowledge(connection: Connection, name: str, position: int, caller: str | None) -> bool:
    """Say that a subscription's news were dealt with up to a position; False if they had been before."""
    return news.acknowledge_news(connection, _find_subscription(connection, name, caller), position)


def _find_subscription(connection: Connection, name: str, caller: str | None) -> str:
    """Return under which name a caller's subscription is stored."""
    stored = stored_name(connection, name, caller)
    if stored is None:
        raise NotFoundError(f"There is no subscription {name[:50]}.", hint="Subscribe first: PUT /v1/news/NAME.")
    return stored


def stored_name(connection: Connection, name: str, caller: str | None) -> str | None:
    """Return the stored name of a subscription; a project has those it made, and those that were made for it."""
    asked = {"names": [_new_name(name, caller), name], "project": caller}
    found = connection.execute(_SQL["find_subscription"], asked).fetchone()
    return None if found is None else str(found[0])


def _new_name(name: str, caller: str | None) -> str:
    """Return under which name a subscription is stored: names that a project's caller chooses are its own."""
    if caller is None:
        return name
    mark = hashlib.sha256(f"{caller}\n{name}".encode()).hexdigest()[:16]
    return f"{name[: 50 - 1 - len(mark)]}.{mark}"


def shown_name(stored: str, project: str | None) -> str:
    """Return the name that a project's caller chose for the subscription that is stored under this one."""
    chosen = stored.rpartition(".")[0]
    return chosen if project is not None and chosen and _new_name(chosen, project) == stored else stored


def do_recorded(database: Database, action: str, target: Mapping[str, object], do: Callable[[Connection], T]) -> T:
    """Do something in one transaction, and record who did it and how much of what it concerned in the audit log."""
    with audit.recorded(database, action, **target) as result, database.transaction() as connection:
        done = do(connection)
        match done:
            case int():
                result["answer"] = done
            case Cancelled():
                result.update(answer=done.cancelled, withdrawn=done.withdrawn)
            case consent.OwnerPage():
                result["items"] = len(done.items)
    return done
