"""The app's own door: enqueue, cancel, complete, wait, register; in the caller's transaction, committing nothing."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from relevo.connections import verb
from relevo.connections.steps import (
    Call,
    Leave,
    Outside,
    Pause,
    Plan,
    as_json,
    as_uuid,
    each,
    from_json,
    one,
)
from relevo.errors import InvalidInputError

_MOST_IDS = 2**63
_MAX_DEPTH = 100
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_FIRST_LOOK_S, _LAST_LOOK_S, _MAX_WAIT_S = 0.05, 1.0, 300.0


@dataclass(frozen=True)
class Matching:
    """What an event is about, for an audience of installations whose preferences match."""

    rubros: Sequence[str] = ()
    region: str | None = None
    tipo: str | None = None
    monto: Decimal | int | float | None = None
    moneda: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class Event:
    """One thing worth telling. The same type and key again is the same event."""

    type: str
    key: str
    title: str
    body: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    push: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the push message: sound, badge, channelId, …"""
    audience: Literal["everyone"] | Sequence[UUID] | Matching = "everyone"
    category: str | None = None
    """Installations that opted out of it are left out."""
    lane: Literal["urgent", "bulk"] | None = None
    at_most_once: bool | None = None
    scheduled_at: datetime | None = None
    deadline_at: datetime | None = None
    ttl_s: int | None = None


@dataclass(frozen=True)
class Enqueued:
    """The event's id, whether it is new, and, if not, whether the one that is there says the same.

    What a personal event said is not known any more once it was archived or forgotten: then that is None.
    """

    event_id: int
    created: bool
    same_content: bool | None = True


@dataclass(frozen=True)
class EventStatus:
    """An event and how far it is, told without counting deliveries."""

    id: int
    type: str
    key: str
    state: Literal["waiting", "held", "fanning", "fanned", "cancelled", "completed"]
    deliveries: Mapping[str, int]
    raw: Mapping[str, Any]

    @property
    def left_to_send(self) -> bool:
        """Whether anything may still be sent."""
        open_ones = self.deliveries.get("pending", 0) + self.deliveries.get("retryable", 0)
        return self.state in ("waiting", "held", "fanning") or open_ones > 0

    @property
    def left_to_confirm(self) -> bool:
        """Whether anything may still be sent or confirmed."""
        return self.left_to_send or self.deliveries.get("sent", 0) > 0


@dataclass(frozen=True)
class Installation:
    """An app on a phone; None leaves what is stored as it is."""

    token: str | None
    installation_id: UUID | None = None
    project: str | None = None
    provider: str | None = None
    """The push service it is reached by: expo unless something else is said; webhook, or one of your own."""
    platform: Literal["ios", "android", "unknown"] | None = None
    locale: str | None = None
    owner: str | None = None
    push_capable: bool = True
    permission: Literal["granted", "denied", "undetermined"] = "granted"
    opt_outs: Sequence[str] | None = None


@dataclass(frozen=True)
class Preference:
    """What an installation asks for; None is a wildcard."""

    enabled: bool = True
    rubro_prefix: str | None = None
    tipo: str | None = None
    region: str | None = None
    monto_min: Decimal | int | None = None
    monto_max: Decimal | int | None = None
    moneda: str | None = None
    keywords: Sequence[str] | None = None


@verb
def enqueue(event: Event) -> Call[Enqueued]:
    """Enqueue an event; it counts once the caller commits, and never if the caller rolls back."""
    return Call("enqueue_event", {"event": as_json("event", _event(event))}, one(Enqueued))


@verb
def enqueue_many(events: Sequence[Event]) -> Call[list[Enqueued]]:
    """Enqueue many events in one statement, in order, with one notification."""
    payload = as_json("events", [_event(event) for event in events])
    return Call("enqueue_many", {"events": payload}, each(Enqueued))


@verb
def cancel(event_id: int, reason: str = "") -> Call[bool]:
    """End an event: nothing of it is sent any more. False if there is none, or it has ended before."""
    _check("reason", reason)
    return Call("cancel_event", {"event_id": _event_id(event_id), "reason": reason}, one(bool))


@verb
def complete(what: int | UUID, reason: str = "") -> Call[bool]:
    """Say that an event (by id), or all for one installation (by UUID), was handled elsewhere: the rest ends unsent."""
    _check("reason", reason)
    if isinstance(what, UUID):
        return Call("complete_installation", {"installation_id": str(what)}, one(bool))
    return Call("complete_event", {"event_id": _event_id(what), "reason": reason}, one(bool))


@verb
def delete(event_ids: Sequence[int]) -> Call[int]:
    """Delete events with their deliveries; return how many events there were."""
    return Call("delete_events", {"event_ids": [_event_id(each) for each in event_ids]}, one(int))


@verb
def get(event_id: int) -> Call[EventStatus | None]:
    """Read an event and how far it is, or None if there is none."""
    return _look(event_id)


@verb
def wait(
    event_id: int, *, timeout_s: float = 15.0, until: Literal["sent", "confirmed"] = "sent"
) -> Plan[EventStatus | None]:
    """Wait until nothing of an event is left to send (or to confirm); return how far it is when the time is over.

    The event must have been committed, so the connection must not be inside a transaction.
    """
    yield Outside()
    if not timeout_s >= 0:  # not a number is not
        raise InvalidInputError("timeout_s must be a number of seconds, 0 or more.", hint="Leave it out to wait 15 s.")
    deadline = time.monotonic() + min(timeout_s, _MAX_WAIT_S)
    pause = _FIRST_LOOK_S
    while True:
        status = yield from _look(event_id)
        yield Leave()
        left = status is not None and (status.left_to_send if until == "sent" else status.left_to_confirm)
        if not left or time.monotonic() + pause > deadline:
            return status
        yield Pause(pause)
        pause = min(pause * 1.5, _LAST_LOOK_S)


@verb
def register(installation: Installation) -> Call[UUID]:
    """Register an installation: its token moves here from wherever it was, and pushes are on again."""
    given = {name: value for name, value in vars(installation).items() if value is not None}
    for name, value in given.items():
        _check(name, value)
    if installation.installation_id is not None:
        given["installation_id"] = str(installation.installation_id)
    if installation.opt_outs is not None:
        given["opt_outs"] = list(installation.opt_outs)
    return Call("register_installation", {"installation": as_json("installation", given)}, one(as_uuid))


@verb
def set_preference(installation_id: UUID, name: str, preference: Preference | None) -> Call[bool]:
    """Set one named preference of an installation; None removes it. Any one that matches is enough.

    A new installation has one named default, which asks for everything: set or remove that to ask for less.
    """
    _check("name", name)
    given = None
    if preference is not None:
        plain = {key: value for key, value in vars(preference).items() if value is not None}
        for key, value in plain.items():
            _check(key, value)
        given = as_json("preference", {key: _number(value) for key, value in plain.items()})
    parameters = {"installation_id": str(installation_id), "name": name, "preference": given}
    return Call("set_preference", parameters, one(bool))


def _look(event_id: int) -> Call[EventStatus | None]:
    return Call("get_event", {"event_id": _event_id(event_id)}, one(_status))


def _status(told: Any) -> EventStatus | None:
    raw = from_json(told)
    if raw is None:
        return None
    return EventStatus(raw["id"], raw["type"], raw["key"], raw["state"], raw["deliveries"], raw)


def _event(event: Event) -> dict[str, Any]:
    for name, value in vars(event).items():
        _check(name, value)
    plain = {name: value for name, value in vars(event).items() if value is not None and name != "audience"}
    plain |= {name: plain[name].isoformat() for name in ("scheduled_at", "deadline_at") if name in plain}
    audience = event.audience
    if isinstance(audience, Matching):
        matching = {name: _number(value) for name, value in vars(audience).items() if value is not None}
        return plain | {"audience": "matching", "matching": matching}
    if isinstance(audience, str) or not isinstance(audience, Iterable):
        if audience != "everyone":
            raise InvalidInputError(
                f"audience must be everyone, installations or Matching, got {str(audience)[:50]!r}.",
                hint="Write audience='everyone', a list of installations' UUIDs, or relevo.Matching(…).",
            )
        return plain | {"audience": "everyone"}
    if strange := [each for each in audience if not isinstance(each, UUID)]:
        raise InvalidInputError(
            f"audience must hold UUIDs of installations, got {str(strange[0])[:50]!r}.", hint="register() returns them."
        )
    return plain | {"audience": "installations", "installations": [str(each) for each in audience]}


def _check(name: str, value: object, depth: int = 0) -> None:
    """Refuse, by its name, what PostgreSQL has no place for; no statement is sent, and the transaction survives."""
    match value:
        case str() if found := _UNSTORABLE.search(value):
            what = "a NUL character" if found[0] == "\0" else "half a character (a lone surrogate)"
            raise InvalidInputError(f"{name} holds {what}.", hint="Take it out and try again.")
        case float() | Decimal() if not math.isfinite(value):
            raise InvalidInputError(f"{name} must be a finite number.", hint="Leave it out if it is not known.")
        case Mapping() | list() | tuple() if depth >= _MAX_DEPTH:
            raise InvalidInputError(f"{name} is nested too deeply.", hint=f"At most {_MAX_DEPTH} levels are taken.")
        case Matching():
            for key, inner in vars(value).items():
                _check(f"matching.{key}", inner, depth)
        case Mapping():
            for key, inner in value.items():
                _check(f"{name}.{str(key)[:50]}", key, depth)
                _check(f"{name}.{str(key)[:50]}"[:200], inner, depth + 1)
        case list() | tuple():
            for inner in value:
                _check(name, inner, depth + 1)


def _event_id(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _MOST_IDS:
        raise InvalidInputError(
            f"event_id must be a whole number above 0, got {str(value)[:50]!r}.", hint="enqueue() returns it."
        )
    return value


def _number(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value) if value % 1 else int(value)
    return list(value) if isinstance(value, tuple | list) else value
