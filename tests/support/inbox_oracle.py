"""Whose inbox holds what, in plain Python, from server/docs/inbox.md and the rules of projects it links to alone.

The numbers are those of the rules there: W of "Whose inbox it is", I of "What is in it", H of "When a phone changes
hands", P of security-and-privacy.md#projects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

Key = tuple[str, str] | UUID
"""An inbox: that of a project and an owner, or of a phone without owner (W1, W2)."""
Status = Literal["current", "unread", "unseen", "read", "archived", "all"]


@dataclass
class Phone:
    """A phone as it is now."""

    project: str
    owner: str | None
    is_registered: bool = True
    ended_at: datetime | None = None
    opt_outs: frozenset[str] = frozenset()
    region: str | None = None
    """What its only preference asks for; everything if None."""


@dataclass
class Event:
    """An event that was fanned out."""

    id: int
    at: datetime
    days: int | None
    """For how long it is in inboxes; None: never."""
    category: str | None = None
    project: str | None = None
    owners: frozenset[str] = frozenset()
    phones: frozenset[UUID] = frozenset()
    everyone: bool = False
    region: str | None = None
    """Of an event for whoever matches."""
    shows: bool = True
    is_gone: bool = False
    """It was cancelled or deleted."""
    forgotten: set[UUID] = field(default_factory=set, repr=False)
    """The phones that were forgotten since it was enqueued."""


@dataclass
class Item:
    """What an inbox knows of an event: by which phones it came, and whether it names the owner; its marks."""

    event: Event
    phones: set[UUID] = field(default_factory=set)
    came: bool = False
    """It came by a phone, which may be forgotten by now."""
    is_named: bool = False
    seen: bool = False
    read: bool = False
    archived: bool = False


@dataclass
class Inboxes:
    """All inboxes."""

    rules: dict[str, str] = field(default_factory=dict)
    phones: dict[UUID, Phone] = field(default_factory=dict)
    choices: dict[tuple[str, str, str], bool] = field(default_factory=dict)
    """What an owner chose: by project, owner and category."""
    items: dict[Key, dict[int, Item]] = field(default_factory=dict)

    # People and phones

    def register(self, phone: UUID, project: str, owner: str | None) -> None:
        """A phone registers; if it changes hands its preferences and opt-outs go with the former owner (H8).

        Its own inbox ends when it gets an owner (W6) or moves: if it has none again, the inbox begins anew (W2).
        """
        known = self.phones.get(phone)
        if owner is not None or (known is not None and known.project != project):
            self.items.pop(phone, None)
        if known is None or known.owner not in (None, owner):
            self.phones[phone] = Phone(project, owner)
        else:
            known.project, known.owner, known.is_registered, known.ended_at = project, owner, True, None

    def unregister(self, phone: UUID, at: datetime) -> None:
        """A phone logs out; inboxes keep what they have (W4)."""
        known = self.phones[phone]
        if known.is_registered:
            known.is_registered, known.ended_at = False, at

    def clean_up(self, at: datetime) -> None:
        """Phones that ended 90 days ago are deleted; the inbox of an owner keeps its items (W4)."""
        for phone, known in list(self.phones.items()):
            if known.ended_at is not None and known.ended_at < at - timedelta(days=90):
                del self.phones[phone]
                self.items.pop(phone, None)

    def forget_phone(self, phone: UUID) -> None:
        """Items of its owner that came by that phone alone go; of former owners events that named forgotten phones alone (W9)."""
        known = self.phones.pop(phone)
        self.items.pop(phone, None)
        told = {item.event.id: item.event for found in self.items.values() for item in found.values()}
        gone = {number for number, event in told.items() if event.phones - event.forgotten == {phone}}
        for event in told.values():
            event.forgotten.add(phone)
        for key, found in self.items.items():
            is_owners = key == (known.project, known.owner)
            for number, item in list(found.items()):
                if is_owners:
                    item.phones.discard(phone)
                if number in gone or (is_owners and item.came and not item.phones):
                    del found[number]

    def forget_owner(self, owner: str) -> None:
        """The owner's inboxes go with their marks (W8), and the phones; in all projects (P12)."""
        for phone, known in list(self.phones.items()):
            if known.owner == owner:
                self.forget_phone(phone)
        for key in list(self.items):
            if isinstance(key, tuple) and key[1] == owner:
                del self.items[key]
        for choice in [each for each in self.choices if each[1] == owner]:
            del self.choices[choice]

    # Events

    def wants(self, phone: Phone, category: str | None) -> bool:
        """Tell whether neither the phone nor its owner refuses a category."""
        rule = self.rules.get(category or "", "on")
        if category is None or rule == "mandatory":
            return True
        chosen = None if phone.owner is None else self.choices.get((phone.project, phone.owner, category))
        accepted = chosen if chosen is not None else rule == "on"
        return accepted and category not in phone.opt_outs

    def reaches(self, event: Event, number: UUID, phone: Phone) -> bool:
        """Tell whether an event is for a phone (P7 to P9)."""
        if event.project not in (None, phone.project):
            return False
        if event.owners:
            return phone.owner in event.owners and phone.project == (event.project or "default")
        if event.phones:
            return number in event.phones
        return event.everyone or phone.region in (None, event.region)

    def fan_out(self, event: Event) -> None:
        """The event becomes an item of whom it is made for (W3, I1, I3), and of owners whom it names (I2, P11)."""
        for number, phone in self.phones.items():
            if self.reaches(event, number, phone) and phone.is_registered and self.wants(phone, event.category):
                key: Key = number if phone.owner is None else (phone.project, phone.owner)
                item = self._item(key, event)
                item.phones.add(number)
                item.came = True
        for owner in event.owners:
            self._item((event.project or "default", owner), event).is_named = True

    def _item(self, key: Key, event: Event) -> Item:
        return self.items.setdefault(key, {}).setdefault(event.id, Item(event))

    # Reading and marking

    def read(self, key: Key, status: Status, now: datetime) -> list[Item]:
        """Return the items of an inbox, newest first (I4, I5)."""
        found = [item for item in self.items.get(key, {}).values() if _is_there(item.event, now)]
        keep = {
            "current": lambda item: not item.archived,
            "unread": lambda item: not item.archived and not item.read,
            "unseen": lambda item: not item.archived and not item.seen,
            "read": lambda item: not item.archived and item.read,
            "archived": lambda item: item.archived,
            "all": lambda _item: True,
        }[status]
        return sorted(filter(keep, found), key=lambda item: (item.event.at, item.event.id), reverse=True)

    def mark(self, key: Key, event: int, mark: str, now: datetime) -> bool:
        """Mark one item; a read item is also seen, an unseen item is also unread. False if there is none."""
        item = self.items.get(key, {}).get(event)
        if item is None or not _is_there(item.event, now):
            return False
        match mark:
            case "read":
                item.read = item.seen = True
            case "unread":
                item.read = False
            case "seen":
                item.seen = True
            case "unseen":
                item.read = item.seen = False
            case "archive" | "unarchive":
                item.archived = mark == "archive"
        return True

    def mark_before(self, key: Key, before: datetime, mark: str) -> None:
        """Mark everything until an instant as read or seen, but archived items."""
        for item in self.items.get(key, {}).values():
            if item.event.at <= before and not item.archived:
                item.seen, item.read = True, item.read or mark == "read"


def _is_there(event: Event, now: datetime) -> bool:
    """Tell whether an event is an item: not gone, with words, of a type that is in inboxes, and not too old (I4, I5)."""
    return not event.is_gone and event.shows and event.days is not None and now - event.at < timedelta(days=event.days)
