"""Who gets and who may read what across projects, in plain Python, from server/docs/security-and-privacy.md#projects alone.

The numbers are those of the rules there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

SEVERAL = "several"
"""What a caller is told that names no project where several have an event."""


@dataclass(frozen=True)
class Phone:
    """A phone belongs to one project (1)."""

    id: UUID
    project: str
    owner: str | None


@dataclass(frozen=True)
class Told:
    """An event as it was fanned out: the phones it reached, and the owners it is for that it reached on no phone."""

    id: int
    project: str | None
    key: str
    title: str
    reached: frozenset[UUID]
    missed: frozenset[str]


@dataclass
class World:
    """All that the rules speak of."""

    shared: bool = False
    phones: list[Phone] = field(default_factory=list)
    events: list[Told] = field(default_factory=list)

    def reaches(self, project: str | None, everyone: bool, owners: set[str], named: set[UUID]) -> set[UUID]:
        """Return the phones that an event gets to now (7 to 9)."""
        found = set()
        for phone in self.phones:
            if project is not None and phone.project != project:
                continue
            is_owned = phone.owner in owners and (project is not None or self.shared or phone.project == "default")
            if everyone or phone.id in named or is_owned:
                found.add(phone.id)
        return found

    def add(
        self,
        event_id: int,
        project: str | None,
        key: str,
        title: str,
        everyone: bool,
        owners: set[str],
        named: set[UUID],
    ) -> None:
        """Note an event that is new."""
        reached = self.reaches(project, everyone, owners, named)
        met = {phone.owner for phone in self.phones if phone.id in reached}
        self.events.append(Told(event_id, project, key, title, frozenset(reached), frozenset(owners - met)))

    def known(self, project: str | None, key: str) -> int | None:
        """Return the event that has this key in this project, or without one (4)."""
        return next((event.id for event in self.events if (event.project, event.key) == (project, key)), None)

    def by_key(self, caller: str | None, project: str | None, key: str) -> int | str | None:
        """Return what a caller finds by a key (5, 6)."""
        if caller is not None or project is not None:
            return self.known(caller or project, key)
        if (plain := self.known(None, key)) is not None:
            return plain
        found = [event.id for event in self.events if event.key == key]
        return SEVERAL if len(found) > 1 else next(iter(found), None)

    def sees(self, caller: str | None) -> set[int]:
        """Return the events that are there for a caller (5)."""
        return {event.id for event in self.events if caller in (None, event.project)}

    def inbox(self, project: str, owner: str) -> set[str]:
        """Return the titles in an inbox (10, 11)."""
        mine = {phone.id for phone in self.phones if (phone.project, phone.owner) == (project, owner)}
        return {
            event.title
            for event in self.events
            if event.reached & mine or (owner in event.missed and self._holds_missed(event, project, owner))
        }

    def _holds_missed(self, event: Told, project: str, owner: str) -> bool:
        if event.project is not None:
            return event.project == project
        if not self.shared:
            return project == "default"
        lives_in = {phone.project for phone in self.phones if phone.owner == owner} or {"default"}
        return project in lives_in

    def owned(self, caller: str | None, owner: str) -> set[UUID]:
        """Return the phones of an owner that a caller is told of (12)."""
        return {phone.id for phone in self.phones if phone.owner == owner and caller in (None, phone.project)}

    def inbox_of_phone(self, phone: Phone) -> set[str]:
        """Return what is in the inbox of a phone without owner."""
        return {event.title for event in self.events if phone.id in event.reached}
