"""The app's verbs: enqueue, cancel, complete, wait, register; in the caller's transaction, committing nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Literal, TypeVar
from uuid import UUID

from relevo.client.audiences import as_audience, id_of_installation, plain_number, plain_numbers
from relevo.client.checks import (
    check_between,
    check_event,
    check_installation,
    check_name,
    check_preference,
    check_storable,
    given_fields,
    id_of,
    is_plain_event,
    quoted,
    time_of,
    weight,
)
from relevo.client.connections import verb
from relevo.client.connections.steps import (
    Call,
    IsInside,
    Leave,
    Pause,
    Plan,
    as_json,
    as_uuid,
    each,
    from_json,
    one,
)
from relevo.client.values import (
    REMOVE,
    Enqueued,
    Event,
    EventRef,
    EventStatus,
    Explanation,
    Installation,
    InstallationStatus,
    OnConflict,
    Preference,
    Preview,
)
from relevo.core import push_fields, traceparents
from relevo.core.errors import InvalidInputError

T = TypeVar("T")
_ENQUEUED = "enqueue() returns its id."
_LENGTHS = (2, 3)
_LONGEST_OWNER = 200
_MOST_LISTED = 1000
_MOST_SAMPLED = 100
_FIRST_YEAR, _LAST_YEAR = 2000, 2200
_FIRST_LOOK_S, _LAST_LOOK_S, _MAX_WAIT_S = 0.05, 1.0, 300.0


@verb
def enqueue(event: Event, *, on_conflict: OnConflict = "refuse") -> Call[Enqueued]:
    """Enqueue an event; it counts once the caller commits, and never if the caller rolls back.

    Where its type and key are known and it says something else, EventConflictError names what differs; with
    on_conflict="keep" what is there stays, and `same_content` says whether it is the same.
    """
    return Call("enqueue_event", {"event": as_json("event", event_json(event, on_conflict))}, one(enqueued))


@verb
def enqueue_many(events: Sequence[Event], *, on_conflict: OnConflict = "refuse") -> Call[list[Enqueued]]:
    """Enqueue many events in one statement, in order, with one notification; if one is refused, none is enqueued."""
    given, wish = _in_trace(_numbered("events", _event, events)), _wish(on_conflict)
    return Call(
        "enqueue_many",
        {"events": as_json("events", [each | wish for each in given] if wish else given)},
        each(enqueued),
    )


@verb
def enqueue_json(events: Sequence[Mapping[str, Any]]) -> Call[list[Enqueued]]:
    """Enqueue events that are given as the JSON objects the SQL functions take, as `enqueue_many` does."""
    for number, event in enumerate(events):
        for name, value in event.items():
            check_storable(name if len(events) == 1 else f"events.{number}.{name}", value)
    return Call("enqueue_many", {"events": as_json("events", list(events))}, each(enqueued))


@verb
def cancel(event: EventRef, reason: str = "") -> Call[bool]:
    """End an event: nothing of it is sent any more. False if there is none, or it has ended or was finished before."""
    return Call("cancel_event", {**_ref(event), "reason": _reason(reason)}, one(bool))


@verb
def complete(what: EventRef | UUID | None = None, reason: str = "", *, owner: str | None = None) -> Call[bool]:
    """Complete an event, or everything for one installation (by UUID), as handled elsewhere: the rest ends unsent.

    With an owner: that they handled the event, or everything until now, on one phone; the others get no more of it.
    """
    _reason(reason)
    if isinstance(what, UUID) and owner is None:
        return Call("complete_installation", {"installation_id": str(what), "reason": reason}, one(bool))
    if owner is None:
        if what is None:
            raise InvalidInputError(
                "complete needs an event, an installation or an owner.", hint="complete(conn, owner='user-7')"
            )
        return Call("complete_event", {**_ref(what), "reason": reason}, one(bool))
    if what is None:
        return Call("complete_owner", {"owner": _owner(owner), "reason": reason}, one(bool))
    return Call("complete_event_of_owner", {**_ref(what), "owner": _owner(owner), "reason": reason}, one(bool))


@verb
def delete(event_ids: Sequence[int]) -> Call[int]:
    """Delete events with their deliveries; return how many events there were.

    Up to 5,000 deliveries go at once, more within the next rounds of a worker; none of them is sent.
    """
    return Call("delete_events", {"event_ids": [id_of("event_id", each, _ENQUEUED) for each in event_ids]}, one(int))


@verb
def get(event: EventRef) -> Call[EventStatus | None]:
    """Read an event and how far it is, or None if there is none."""
    return _look(event)


@verb
def wait(
    event: EventRef, *, timeout_s: float = 15.0, until: Literal["sent", "confirmed"] = "sent"
) -> Plan[EventStatus | None]:
    """Wait until nothing of an event is left to send (or to confirm); return how far it is when the time is over.

    The event must have been committed, so the connection must not be inside a transaction.
    """
    if (yield IsInside()):
        raise InvalidInputError("wait needs a connection outside a transaction.", hint="Commit first, then wait.")
    if not timeout_s >= 0:  # not a number is not
        raise InvalidInputError("timeout_s must be a number of seconds, 0 or more.", hint="Leave it out to wait 15 s.")
    if until not in ("sent", "confirmed"):
        raise InvalidInputError(f"until must be sent or confirmed, got {quoted(until)}.", hint="The default is sent.")
    deadline = time.monotonic() + min(timeout_s, _MAX_WAIT_S)
    pause = _FIRST_LOOK_S
    while True:
        status = yield from _look(event)
        yield Leave()
        left = status is not None and (status.left_to_send if until == "sent" else status.left_to_confirm)
        if not left or time.monotonic() + pause > deadline:
            return status
        yield Pause(pause)
        pause = min(pause * 1.5, _LAST_LOOK_S)


@verb
def change(event: Event) -> Call[bool]:
    """Change an event that has not started yet, found by its type and key, into this one; it keeps its id.

    False if there is none, or it has started or ended.
    """
    return Call("change_event", {"event": as_json("event", _event(event))}, one(bool))


@verb
def preview(event: Event, *, sample: int = 10) -> Call[Preview]:
    """Return how many installations an event would reach, and some of them; nothing is enqueued."""
    check_between("sample", sample, 0, _MOST_SAMPLED, "Leave it out for 10.")
    return _preview(_event(event), sample)


@verb
def preview_json(event: Mapping[str, Any], *, sample: int = 10) -> Call[Preview]:
    """Preview an event that is given as the JSON object the SQL functions take."""
    for name, value in event.items():
        check_storable(name, value)
    return _preview(dict(event), sample)


def _preview(event: Mapping[str, Any], sample: int) -> Call[Preview]:
    read = one(lambda told: as_preview(told, event))
    return Call("preview_event", {"event": as_json("event", event), "sample": sample}, read)


@verb
def explain(event: Event | EventRef, installation_id: UUID) -> Call[Explanation]:
    """Return why an installation gets an event, or not; of an Event that was not enqueued, whether it would."""
    phone = {"installation_id": id_of_installation(installation_id)}
    if isinstance(event, Event):
        return Call("explain_new_event", {**phone, "event": as_json("event", _event(event))}, one(_explanation))
    return Call("explain_event", {**phone, **_ref(event)}, one(_explanation))


@verb
def register(installation: Installation) -> Call[UUID]:
    """Register an installation: its token moves here from wherever it was, and pushes are on again.

    The same token and owner without an installation_id is the same installation.
    """
    given = as_json("installation", registration(installation))
    return Call("register_installation", {"installation": given}, one(as_uuid))


@verb
def register_many(installations: Sequence[Installation]) -> Call[list[UUID]]:
    """Register many installations in one statement, each as if it came alone; return their ids in order."""
    given = as_json("installations", _numbered("installations", registration, installations))
    return Call("register_many", {"installations": given}, each(as_uuid))


@verb
def list_installations(*, owner: str, limit: int = 100) -> Call[list[InstallationStatus]]:
    """List the installations of an owner, newest first, and whether each may receive pushes."""
    check_between("limit", limit, 1, _MOST_LISTED, "Leave it out for 100.")
    return Call("list_installations", {"owner": _owner(owner), "limit": limit}, one(_installations))


@verb
def unregister(installation_id: UUID | None = None, *, owner: str | None = None) -> Call[int]:
    """Unregister an installation, or all of an owner, as at a log-out; return how many were registered.

    Nothing is sent to them until they register again.
    """
    whose = _whose("unregister", installation_id, owner)
    return Call("unregister_owner" if owner is not None else "unregister_installation", whose, one(int))


@verb
def forget(installation_id: UUID | None = None, *, owner: str | None = None) -> Call[int]:
    """Forget an installation, or an owner with all installations, and what was said to them alone.

    Return how many installations there were. A hash of the events' keys stays, for it dedups.
    """
    whose = _whose("forget", installation_id, owner)
    return Call("forget_owner" if owner is not None else "forget_installation", whose, one(int))


@verb
def set_preference(installation_id: UUID, name: str, preference: Preference | None) -> Call[bool]:
    """Set one named preference of an installation; None removes it. Any one that matches is enough.

    A new installation has one named default, which asks for all that names no topic: set or remove it to ask for less.
    """
    phone = id_of_installation(installation_id)
    check_storable("name", name)
    check_name(name)
    given = None
    if preference is not None:
        plain = given_fields(vars(preference))
        check_preference(plain)
        given = as_json("preference", {key: plain_number(value) for key, value in plain.items()})
    parameters = {"installation_id": phone, "name": name, "preference": given}
    return Call("set_preference", parameters, one(bool))


def _look(event: EventRef) -> Call[EventStatus | None]:
    return Call("get_event", _ref(event), one(as_status))


def as_status(told: Any) -> EventStatus | None:
    """Read how far an event is as the SQL functions return it; None if there is none."""
    raw = from_json(told)
    if raw is None:
        return None
    return EventStatus(raw["id"], raw["type"], raw["key"], raw["state"], raw["deliveries"], raw)


def _installations(told: Any) -> list[InstallationStatus]:
    return [
        InstallationStatus(UUID(raw["installation_id"]), raw["owner"], raw["receives"], raw["why_not"], raw)
        for raw in from_json(told)
    ]


def as_preview(told: Any, event: Mapping[str, Any]) -> Preview:
    """Read a preview of an event as the SQL functions return it."""
    raw = from_json(told)
    return Preview(
        **{name: raw[name] for name in ("count", "exact", "at_least", "at_most")},
        **{name: raw.get(name, 0) for name in ("digested", "waiting", "capped", "to_digest", "batched")},
        sample=tuple(UUID(one["installation_id"]) for one in raw["sample"]),
        unknown_installations=tuple(UUID(one) for one in raw["unknown_installations"]),
        warnings=field_warnings(event, raw),
        raw=raw,
    )


def field_warnings(event: Mapping[str, Any], preview: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what of an event would not reach phones of the kinds that a preview found as it is, in sentences."""
    kinds = [(kind["provider"], kind["platform"]) for kind in preview.get("kinds", ())]
    return tuple(push_fields.warnings(event, kinds) + push_fields.size_warnings(event, kinds, weight))


def _explanation(told: Any) -> Explanation:
    raw = from_json(told)
    return Explanation(raw["gets_it"], raw["rule"], raw["reason"], raw)


_REMOVABLE = ("locale", "timezone")


def registration(installation: Installation) -> dict[str, Any]:
    """Return an installation as the SQL functions take it; refuse one with which anything is wrong."""
    if not isinstance(installation, Installation):
        raise InvalidInputError(
            f"an installation must be a relevo.Installation, got {type(installation).__name__}.",
            hint="Write relevo.Installation(token, owner=…).",
        )
    removed = {name: None for name in _REMOVABLE if getattr(installation, name) is REMOVE}
    given = given_fields(vars(installation) | removed)
    if installation.installation_id is not None:
        given["installation_id"] = str(installation.installation_id)
    if isinstance(installation.attributes, Mapping):
        given["attributes"] = plain_numbers(installation.attributes)
    if isinstance(installation.opt_outs, tuple):
        given["opt_outs"] = list(installation.opt_outs)
    check_installation(given)
    return given | removed


def _whose(name: str, installation_id: UUID | None, owner: str | None) -> dict[str, str]:
    """Return the one that was named."""
    if (installation_id is None) == (owner is None):
        raise InvalidInputError(
            f"{name} needs an installation or an owner.", hint=f"{name}(conn, installation_id) or {name}(conn, owner=…)"
        )
    return {"owner": _owner(owner)} if owner is not None else {"installation_id": id_of_installation(installation_id)}


def enqueued(event_id: int, created: bool, same_content: bool | None, unknown: Iterable[object]) -> Enqueued:
    """Return what the SQL functions tell of an event that was enqueued."""
    return Enqueued(event_id, created, same_content, tuple([UUID(str(each)) for each in unknown]) if unknown else ())


_BESIDE = ("audience", "topics")


def _event(event: Event) -> dict[str, Any]:
    if not isinstance(event, Event):
        raise InvalidInputError(
            f"an event must be a relevo.Event, got {type(event).__name__}.",
            hint="Write relevo.Event(type, key, title, audience=…).",
        )
    given = {name: value for name, value in vars(event).items() if value is not None and name not in _BESIDE}
    check_storable("data", event.data)  # before anything is weighed: it may be nested without end
    unsaid = type(event.topics) is tuple and not event.topics
    if unsaid and is_plain_event(plain := given | as_audience(event.audience)):
        return plain
    return _checked(event, given)


def event_json(event: Event, on_conflict: OnConflict = "refuse") -> dict[str, Any]:
    """Return an event as the JSON object that the SQL functions take."""
    [given] = _in_trace([_event(event)])
    return given | _wish(on_conflict)


def _in_trace(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the events that name no trace into that of the active span, if there is one."""
    if traceparent := traceparents.current():
        for event in events:
            event.setdefault("traceparent", traceparent)
    return events


def _wish(on_conflict: object) -> dict[str, Any]:
    """Return the action for other content as the SQL functions read it; nothing for the default."""
    if on_conflict not in ("refuse", "keep"):
        raise InvalidInputError(
            f"on_conflict must be refuse or keep, got {quoted(on_conflict)}.", hint="The default is refuse."
        )
    return {"on_conflict": on_conflict} if on_conflict == "keep" else {}


def _checked(event: Event, given: dict[str, Any]) -> dict[str, Any]:
    check_storable("topics", event.topics)
    for name, value in given.items():
        check_storable(name, value)
    for name in ("scheduled_at", "deadline_at"):
        if name in given:
            given[name] = _time(name, given[name])
    if event.topics:
        given["topics"] = _listed(event.topics)
    if isinstance(event.arguments, Mapping):
        given["arguments"] = {name: _argument(name, value) for name, value in event.arguments.items()}
    audience = as_audience(event.audience)
    if event.topics and "topics" in audience:
        raise InvalidInputError("topics are given twice.", hint="Write audience=Topic(…) alone.")
    given |= audience
    check_event(given)
    return given


def _listed(value: object) -> object:
    """Return a list of what is one, in whatever form; one text is no list of letters."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else value


def _time(name: str, value: datetime) -> str:
    told = time_of(name, value, "Write datetime.now(UTC) + timedelta(hours=1), or give your datetime a tzinfo.")
    if not _FIRST_YEAR - 1 <= value.year <= _LAST_YEAR:  # whose hours decide, the SQL functions know
        raise InvalidInputError(
            f"{name} must lie between the years {_FIRST_YEAR} and {_LAST_YEAR}, got {value}.", hint="Mend it."
        )
    return told


def _argument(name: object, value: object) -> object:
    """Return an argument as JSON has it: a time with its zone as text."""
    if isinstance(value, datetime):
        return _time(f"arguments.{str(name)[:60]}", value)
    return value.isoformat() if isinstance(value, date) else value


def _reason(value: str) -> str:
    if not isinstance(value, str):
        raise InvalidInputError(f"reason must be text, got {quoted(value)}.", hint="Leave it out if there is none.")
    check_storable("reason", value)
    return value


def _numbered(name: str, plan: Callable[[T], dict[str, Any]], given: Iterable[T]) -> list[dict[str, Any]]:
    """Read some as the SQL functions take them; of one that is refused, say which it is, counted from 0."""
    read: list[dict[str, Any]] = []
    try:
        read.extend(map(plan, given))
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}.{len(read)}: {error.message}", hint=error.hint) from None
    return read


def _owner(value: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= _LONGEST_OWNER:
        raise InvalidInputError(
            f"owner must be text of 1 to {_LONGEST_OWNER} characters, got {quoted(value)}.",
            hint="It is the owner that register() was given.",
        )
    check_storable("owner", value)
    return value


def _ref(event: object) -> dict[str, int | str | None]:
    """Name an event by its id, or by its type and key, and its project if that is given."""
    if not isinstance(event, tuple | list):
        event_id = id_of("event_id", event, _ENQUEUED)
        return {"event_id": event_id, "event_type": None, "event_key": None, "project": None}
    if len(event) not in _LENGTHS or not all(isinstance(each, str) for each in event):
        raise InvalidInputError(
            f"An event is named by its id, by (type, key) or by (type, key, project), got {quoted(event)}.",
            hint=_ENQUEUED,
        )
    check_storable("(type, key)", event)
    named: list[str | None] = [*event, None]
    return {"event_id": None, "event_type": named[0], "event_key": named[1], "project": named[2]}
