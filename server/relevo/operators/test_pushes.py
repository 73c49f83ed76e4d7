"""Test pushes: to a few chosen phones, and then what became of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from relevo.client import verbs
from relevo.client.values import Event, EventStatus, Explanation
from relevo.core.errors import NotFoundError
from relevo.database.pool import Connection, Database
from relevo.operators import audience, audit, deliveries, events

TYPE = "test.push"
MOST_PHONES = 20
_TTL_S = 600


def make(key: str, phones: Sequence[UUID], title: str, body: str, data: Mapping[str, Any]) -> Event:
    """Make the event of a test push: urgent, and pointless after ten minutes."""
    return Event(TYPE, key, title, body, data, audience=list(phones), lane="urgent", ttl_s=_TTL_S)


def judge(connection: Connection, event: Event, phones: Sequence[UUID]) -> list[tuple[UUID, Explanation]]:
    """Return of each phone whether it would get the event, and why."""
    return [(phone, verbs.explain(connection, event, phone)) for phone in phones]


def send(database: Database, event: Event, phones: Sequence[UUID]) -> int:
    """Send a test push, and have that recorded without its text; the same key again is the same one. Return its id."""
    with audit.recorded(database, "send_test", phones=len(phones)) as result:
        with database.transaction() as connection:
            done = verbs.enqueue(connection, event)
        result["event_id"] = done.event_id
    return done.event_id


@dataclass(frozen=True)
class PhoneResult:
    """The outcome of a test push at one phone."""

    phone: UUID
    explanation: Explanation
    delivery: Mapping[str, Any] | None
    """None if the phone got none."""


@dataclass(frozen=True)
class Trial:
    """How far a test push is."""

    event: EventStatus
    answers: list[PhoneResult]
    waits: list[str]
    """Why what is open of it waits."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be sent or confirmed."""
        return not self.event.left_to_confirm

    def count(self, *statuses: str) -> int:
        """Count the phones at which it stands so."""
        return sum(each.delivery is not None and each.delivery["status"] in statuses for each in self.answers)


def follow(database: Database, event_id: int) -> Trial:
    """Look at how far a test push is."""
    story = events.story(database, event_id)
    if story is None or story.event["event_type"] != TYPE:
        raise NotFoundError(f"There is no test push {event_id}.", hint="This page shows only test pushes.")
    made = {row["installation_id"]: row for row in deliveries.of_event(database, event_id, limit=MOST_PHONES)}
    named = audience.named_phones(database, event_id, limit=MOST_PHONES)
    with database.connection() as connection:
        whys = {each: verbs.explain(connection, event_id, each) for each in named}
    return Trial(story.status, [PhoneResult(each, whys[each], made.get(each)) for each in named], story.why_it_waits)
