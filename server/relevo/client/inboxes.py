"""Inboxes: what an owner, or a phone without owner, was sent or would have been sent, and what they touched of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, get_args
from uuid import UUID

from relevo.client.checks import check_between, check_one_of, check_storable, id_of, quoted, time_of, uuid_of
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, as_json, from_json, one
from relevo.core.errors import InvalidInputError

Status = Literal["current", "unread", "unseen", "read", "archived", "all"]
STATUSES: tuple[Status, ...] = get_args(Status)
Mark = Literal["read", "unread", "seen", "unseen", "archive", "unarchive"]
MARKS: tuple[Mark, ...] = get_args(Mark)
Count = int | Literal["99+"]
MOST_AT_ONCE = 200
_TIMES = ("at", "seen_at", "read_at", "archived_at")


@dataclass(frozen=True)
class InboxItem:
    """An event in an inbox, and what was marked of it."""

    event_id: int
    type: str
    category: str | None
    title: str
    body: str
    data: Mapping[str, Any]
    at: datetime
    """When it came."""
    seen_at: datetime | None
    read_at: datetime | None
    archived_at: datetime | None
    cursor: str
    """The item's position: pass it as `before` to continue from here."""


@dataclass(frozen=True)
class InboxPage:
    """Items, newest first."""

    items: tuple[InboxItem, ...]
    next: str | None
    """The value of `before` for the next page; None if this is the last. A page may be short and have a next one."""
    raw: Mapping[str, Any]


@dataclass(frozen=True)
class InboxCounts:
    """How many items are unread, and unseen: exactly up to 99, then "99+"; what is archived counts in neither."""

    unread: Count
    unseen: Count


@verb
def inbox(
    *,
    owner: str | None = None,
    installation_id: UUID | None = None,
    project: str | None = None,
    status: Status = "current",
    category: str | None = None,
    event_type: str | None = None,
    before: str | None = None,
    limit: int = 50,
    locale: str | None = None,
    digest: int | None = None,
) -> Call[InboxPage]:
    """Read a page of the inbox of an owner, or of an installation without owner, newest first.

    The project is needed where the owner has phones in several. `current` is all that was not archived.
    What is told by the texts of its type is in `locale`, or else in that of the newest phone that said one.
    With `digest`, the `notificationEventId` of a push of type `relevo.digest`, it is what that told, the best first.
    """
    check_one_of("status", status, STATUSES)
    check_between("limit", limit, 1, MOST_AT_ONCE, "Leave it out for 50.")
    if digest is not None and (isinstance(digest, bool) or not isinstance(digest, int) or digest < 0):
        raise InvalidInputError(
            f"digest must be the id of an event, got {quoted(digest)}.", hint="The data of the push has it."
        )
    told_by = None if digest is None else str(digest)
    more = {"category": category, "type": event_type, "before": before, "locale": locale, "digest": told_by}
    asked = _asked(owner, installation_id, project, more) | {"status": status, "limit": limit}
    return Call("read_inbox", {"asked": as_json("inbox", asked)}, one(_page))


@verb
def inbox_counts(
    *, owner: str | None = None, installation_id: UUID | None = None, project: str | None = None
) -> Call[InboxCounts]:
    """Count what is unread and unseen in an inbox: exactly up to 99, then "99+"."""
    asked = as_json("inbox", _asked(owner, installation_id, project))
    return Call("count_inbox", {"asked": asked}, one(lambda told: InboxCounts(**from_json(told))))


@verb
def mark_inbox(
    event_id: int,
    mark: Mark,
    *,
    owner: str | None = None,
    installation_id: UUID | None = None,
    project: str | None = None,
) -> Call[bool]:
    """Mark one item of an inbox, or take a mark back; False if the event is no item of it.

    What is read was seen, and what is unseen was not read. The same mark again changes nothing.
    """
    number = id_of("event_id", event_id, "inbox() returns it.")
    check_one_of("mark", mark, MARKS)
    asked = as_json("inbox", _asked(owner, installation_id, project))
    return Call("mark_inbox", {"asked": asked, "event_id": number, "mark": mark}, one(bool))


@verb
def mark_inbox_before(
    before: datetime | None = None,
    mark: Literal["read", "seen"] = "read",
    *,
    owner: str | None = None,
    installation_id: UUID | None = None,
    project: str | None = None,
) -> Call[bool]:
    """Mark everything that came until an instant, or until now, as read or seen; False if there is no such inbox."""
    until = None if before is None else time_of("before", before, "Leave it out for now.")
    check_one_of("mark", mark, ("read", "seen"))
    asked = as_json("inbox", _asked(owner, installation_id, project))
    return Call("mark_inbox_before", {"asked": asked, "before": until, "mark": mark}, one(bool))


def _asked(
    owner: str | None, installation_id: UUID | None, project: str | None, more: Mapping[str, str | None] | None = None
) -> dict[str, Any]:
    """Return the owner of an inbox and the items asked for, as the SQL functions read them."""
    if (installation_id is None) == (owner is None):
        raise InvalidInputError(
            "An inbox is an owner's, or that of an installation without owner.", hint="inbox(conn, owner='user-7')"
        )
    phone = None if installation_id is None else uuid_of("installation_id", installation_id, "register() returns it.")
    given = {"owner": owner, "installation_id": phone, "project": project, **(more or {})}
    told = {name: value for name, value in given.items() if value is not None}
    for name, value in told.items():
        if not isinstance(value, str):
            raise InvalidInputError(f"{name} must be text, got {quoted(value)}.", hint="Correct it and try again.")
        check_storable(name, value)
    return told


def _page(told: Any) -> InboxPage:
    raw = from_json(told)
    return InboxPage(tuple(_item(each) for each in raw["items"]), raw["next"], raw)


def _item(raw: Mapping[str, Any]) -> InboxItem:
    times = {name: raw[name] and datetime.fromisoformat(raw[name]) for name in _TIMES}
    return InboxItem(**{each.name: raw[each.name] for each in fields(InboxItem)} | times)
