"""Messages that a push service keeps for a phone that is switched off, and delivers when it is on again.

Each keeps its messages by a `Keeping` of its own, and each message only as long as the sender wants it kept.
"""

from __future__ import annotations

from typing import NamedTuple

from relevo.sandbox.messages import Message

MAX_KEPT = 100
_DEFAULT_S = 28 * 86_400.0


class Kept(NamedTuple):
    """Where a message waits (of two in one place the newer stays), and for how many seconds; 0 is not at all."""

    place: str | None = None
    seconds: float = _DEFAULT_S


class Keeping(NamedTuple):
    """Messages that a push service keeps: the newest of each collapse key, and 100 without one."""

    places: int = MAX_KEPT
    needs_place: bool = False
    """Whether all messages that name no place share one."""
    drops_all: bool = False
    """Whether one message more than 100 drops all of these; else the oldest makes room."""


class _Entry(NamedTuple):
    number: int
    until: float
    message: Message


class Waiting:
    """The messages that wait for one phone."""

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping
        self._places: dict[str, _Entry] = {}
        self._others: list[_Entry] = []
        self._count = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._places) + len(self._others)

    def add(self, message: Message, kept: Kept, now: float) -> None:
        """Keep a message, as the service would."""
        self._count += 1
        entry = _Entry(self._count, now + kept.seconds, message)
        if kept.seconds <= 0:
            self.dropped += 1
        elif kept.place is not None or self._keeping.needs_place:
            self._replace(kept.place or "", entry)
        else:
            self._append(entry)

    def take(self, now: float) -> list[Message]:
        """Hand over what is still worth it, the oldest first, and keep nothing."""
        found = sorted([*self._places.values(), *self._others])
        self._places, self._others = {}, []
        alive = [entry.message for entry in found if entry.until > now]
        self.dropped += len(found) - len(alive)
        return alive

    def _replace(self, place: str, entry: _Entry) -> None:
        self.dropped += self._places.pop(place, None) is not None
        self._places[place] = entry
        if len(self._places) > self._keeping.places:
            del self._places[next(iter(self._places))]
            self.dropped += 1

    def _append(self, entry: _Entry) -> None:
        if len(self._others) >= MAX_KEPT:
            lost = len(self._others) if self._keeping.drops_all else 1
            del self._others[:lost]
            self.dropped += lost
        self._others.append(entry)
