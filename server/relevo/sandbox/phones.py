"""The messages that each phone received, and how often.

Bounded: at most 1,000,000 phones are remembered (the longest known are forgotten first), 100,000 messages in all (the
oldest first; a phone shows `keep_messages` of them at most), and between 1,000,000 and 2,000,000 fingerprints of
messages by which a repetition is known.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from relevo.sandbox import push_service
from relevo.sandbox.messages import Message
from relevo.sandbox.phone_apps import PhoneApp, Touch
from relevo.sandbox.waiting import Kept, Waiting

MAX_PHONES = 1_000_000
MAX_KEPT = 100_000
MAX_FINGERPRINTS = 1_000_000
MAX_TOUCHED = 1_000
_MOST_ACTIONS = 4

_Kept = tuple[float, Message]


@dataclass(slots=True)
class Phone:
    """One token's counters and last messages."""

    token: str
    kind: str = "expo"
    received: int = 0
    distinct: int = 0
    kept: list[_Kept] | None = None
    waiting: Waiting | None = None  # while it is switched off
    app: PhoneApp | None = None
    touched: dict[str, Touch] | None = None  # what somebody did with a push, by its delivery

    @property
    def last(self) -> _Kept | None:
        """When it received its last message, and that message, if it is still kept."""
        return self.kept[-1] if self.kept else None

    def as_json(self) -> dict[str, Any]:
        """Return it as the phones' endpoint shows it."""
        told = {"token": self.token, "received": self.received, "distinct": self.distinct}
        if self.kind != "expo":
            told["kind"] = self.kind
        return told if self.waiting is None else told | {"off": True, "waiting": len(self.waiting)}

    def data_of(self, delivery: str) -> dict[str, Any] | None:
        """Return the data of the message of a delivery, if that is kept."""
        found = (message["data"] for _, message in self.kept or () if delivery and delivery_of(message) == delivery)
        return next(found, None)

    def touch(self, delivery: str, how: Touch) -> None:
        """Note what somebody did with a push; the oldest note is forgotten first."""
        touched = self.touched = self.touched or {}
        touched[delivery] = how
        if len(touched) > MAX_TOUCHED:
            del touched[next(iter(touched))]

    def messages(self) -> list[dict[str, Any]]:
        """Return its last messages, oldest first."""
        return [{"receivedAt": at, "message": message} for at, message in self.kept or ()]


class Phones:
    """All phones, in the order they were first reached."""

    def __init__(self) -> None:
        self._phones: dict[str, Phone] = {}
        self._forgotten = 0
        self._recent: deque[tuple[Phone, _Kept]] = deque()
        self._known: set[int] = set()
        self._known_before: set[int] = set()
        self.delivered = 0
        self.duplicates = 0

    def __len__(self) -> int:
        return len(self._phones)

    def deliver(
        self, token: str, message: Message, at: float, keep: int, *, kind: str = "expo", kept: Kept | None = None
    ) -> None:
        """Deliver a message to a phone, or keep it while the phone is switched off."""
        phone = self._phones.get(token) or self._meet(token, kind)
        if phone.waiting is not None:
            phone.waiting.add(message, kept or _as_expo_keeps(message), at)
        else:
            self._receive(phone, message, at, keep)

    def _receive(self, phone: Phone, message: Message, at: float, keep: int) -> None:
        phone.received += 1
        self.delivered += 1
        data = message.get("data")
        delivery_id = data.get("notificationDeliveryId") if isinstance(data, dict) else None
        if delivery_id is None:
            fingerprint = hash((phone.token, message.get("title"), message.get("body")))
        else:
            fingerprint = hash((phone.token, str(delivery_id)))
        if fingerprint not in self._known and fingerprint not in self._known_before:
            phone.distinct += 1
            self._remember(fingerprint)
        elif delivery_id is not None:
            self.duplicates += 1
        if keep:
            self._keep(phone, (at, message), keep)

    def switch(self, token: str, kind: str, at: float, keep: int, *, on: bool) -> Phone:
        """Switch a phone off, or on: then it receives what waited for it."""
        phone = self._phones.get(token) or self._meet(token, kind)
        waiting = phone.waiting
        if not on:
            phone.waiting = waiting or Waiting(push_service.keeping_of(phone.kind))
        elif waiting is not None:
            phone.waiting = None
            for message in waiting.take(at):
                self._receive(phone, message, at, keep)
        return phone

    def install(self, token: str, kind: str, app: PhoneApp) -> Phone:
        """Put an app on a phone."""
        phone = self._phones.get(token) or self._meet(token, kind)
        phone.app = app
        return phone

    def _meet(self, token: str, kind: str) -> Phone:
        if len(self._phones) >= MAX_PHONES:
            self._forget(MAX_PHONES // 100)
        phone = self._phones[token] = Phone(token, kind)
        return phone

    def _forget(self, count: int) -> None:
        for token in list(islice(self._phones, count)):
            del self._phones[token]
        self._forgotten += count

    def _remember(self, fingerprint: int) -> None:
        self._known.add(fingerprint)
        if len(self._known) >= MAX_FINGERPRINTS:
            self._known_before, self._known = self._known, set()

    def _keep(self, phone: Phone, kept: _Kept, keep: int) -> None:
        if phone.kept is None:
            phone.kept = []
        phone.kept.append(kept)
        del phone.kept[:-keep]
        self._recent.append((phone, kept))
        if len(self._recent) > MAX_KEPT:
            owner, oldest = self._recent.popleft()
            if owner.kept and owner.kept[0] is oldest:
                del owner.kept[0]

    def find(self, token: str) -> Phone | None:
        """Return a phone, if it was ever reached."""
        return self._phones.get(token)

    def messages_of(self, name: str, value: str, limit: int) -> list[tuple[Phone, _Kept]]:
        """Return the messages whose data says this under a name, the oldest first, of those that are kept."""
        found: list[tuple[Phone, _Kept]] = []
        for phone, kept in self._recent:
            data = kept[1].get("data")
            if isinstance(data, dict) and str(data.get(name)) == value:
                found.append((phone, kept))
                if len(found) == limit:
                    break
        return found

    def page(self, limit: int, after: int) -> tuple[list[Phone], int | None]:
        """Return up to `limit` phones behind a position, and the position to go on from, if there are more."""
        start = max(0, after - self._forgotten)
        found = list(islice(self._phones.values(), start, start + limit))
        end = start + len(found)
        return found, end + self._forgotten if end < len(self._phones) else None

    def latest(self, limit: int) -> list[Phone]:
        """Return the phones reached last, the latest first."""
        reached = (phone for phone, _ in islice(reversed(self._recent), 20 * limit))
        found: dict[str, Phone] = {}
        for phone in chain(reached, islice(reversed(self._phones.values()), limit)):
            found.setdefault(phone.token, phone)
        return list(islice(found.values(), limit))


def delivery_of(message: Message) -> str:
    """Return the delivery that a message is of; nothing if it says none."""
    data = message.get("data")
    return str(data.get("notificationDeliveryId", "")) if isinstance(data, dict) else ""


def actions_of(message: Message) -> list[tuple[str, str]]:
    """Return the buttons of a message, each with its id: of a browser's push, or as its data has them for the app."""
    data = message.get("data")
    given = message.get("actions") or (data.get("actions") if isinstance(data, dict) else None)
    if isinstance(given, str):  # FCM takes texts alone
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return []
    listed = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    found = [(each.get("id") or each.get("action"), each.get("title")) for each in listed[:_MOST_ACTIONS]]
    return [(name, title) for name, title in found if isinstance(name, str) and isinstance(title, str)]


def _as_expo_keeps(message: Message) -> Kept:
    ttl = message.get("ttl")
    return Kept(seconds=ttl) if isinstance(ttl, int | float) else Kept()
