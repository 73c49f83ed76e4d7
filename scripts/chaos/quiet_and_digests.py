"""Quiet hours and digests, as the app asks for them while faults happen."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from chaos.acknowledged import Acknowledged
from chaos.system import System, until
from relevo.client import quiet, verbs
from relevo.client.values import Event, Matching, Owners, Preference

QUIET_OWNERS = ("owner-10", "owner-11")
QUIET_MINUTES = 2
"""Always as many: so later hours never end sooner, and who was not told that they were set knows enough."""
TOPIC = "tenders"
_CLOSED = """
select now() > %(last)s
   and not exists (select from relevo.digest_items x join relevo.digest_slots s on s.id = x.slot_id
                    where s.closes_at <= %(last)s)
"""


class QuietAndDigests:
    """Some phones are told of tenders by digests, one at once; some people have quiet hours."""

    def __init__(self, system: System, acknowledged: Acknowledged, readers: list[UUID], at_once: UUID) -> None:
        self._system, self._acknowledged, self._readers = system, acknowledged, readers
        self._last: datetime | None = None
        for words in (("order", "--quiet", "ignore"), ("whisper", "--quiet", "wait", "--quiet-spread-s", "0")):
            assert system.run("event-type", *words).wait(120) == 0, f"relevo event-type failed: see {system.folder}"
        with system.connect() as conn:
            verbs.set_preference(conn, at_once, "tenders", Preference(topics=[TOPIC]))
            for phone in readers:
                self._follow(conn, phone)
                acknowledged.note("reads", installation=phone)

    def _follow(self, conn: psycopg.Connection[Any], phone: UUID) -> datetime:
        """Set a phone's digest of tenders to the beginning of the next minute but one, or the next."""
        at = (datetime.now(UTC) + timedelta(seconds=70)).replace(second=0, microsecond=0)
        verbs.set_preference(conn, phone, "tenders", Preference(topics=[TOPIC], delivery=f"daily {at:%H:%M}"))
        return at

    def tender(self, conn: psycopg.Connection[Any], key: str) -> int:
        """Enqueue something for whoever asked for it."""
        made = Event("tender", key, "Tender", f"Tender {key}", audience=Matching(), topics=[TOPIC])
        return verbs.enqueue(conn, made).event_id

    def whisper(self, conn: psycopg.Connection[Any], key: str, chance: random.Random) -> tuple[int, str]:
        """Enqueue something that waits for the end of quiet hours."""
        owner = chance.choice(QUIET_OWNERS)
        made = Event("whisper", key, "Whisper", "In your time", audience=Owners(owner), lane="bulk")
        return verbs.enqueue(conn, made).event_id, owner

    def reschedule(self, conn: psycopg.Connection[Any], chance: random.Random) -> None:
        """Set another time for a phone's next digest."""
        self._follow(conn, chance.choice(self._readers))

    def hush(self, conn: psycopg.Connection[Any], chance: random.Random) -> None:
        """Set quiet hours from now on, for minutes."""
        owner, begin = chance.choice(QUIET_OWNERS), datetime.now(UTC).replace(second=0, microsecond=0)
        end = begin + timedelta(minutes=QUIET_MINUTES)
        quiet.set_quiet(conn, [f"{begin:%H:%M}-{end:%H:%M}"], owner=owner, zone="UTC")
        self._acknowledged.note("quiet", owner=owner, until=end.timestamp())

    def end(self) -> None:
        """Take all quiet hours back, and let every phone have a last digest."""

        def did() -> bool:
            with self._system.connect() as conn:
                for owner in QUIET_OWNERS:
                    quiet.set_quiet(conn, None, owner=owner)
                    self._acknowledged.note("quiet", owner=owner, until=time.time())
                self._last = max(self._follow(conn, phone) for phone in self._readers)
            return True

        assert until(did, patience_s=120), "the database does not take the end of quiet hours"

    def is_over(self) -> bool:
        """Return whether the last digests are made."""
        return self._system.ask(_CLOSED, last=self._last) == [(True,)]
