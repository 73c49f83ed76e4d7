"""What operators read of an event."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest

from relevo.app import App
from relevo.operators import events


def test_requests_go_on_behind_the_last_one_that_was_looked_at(
    build: Callable[..., App], conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of an event's requests ends with the last of those it looked at, by their time and then by their id."""
    monkeypatch.setattr(events, "_REQUESTS_LOOKED_AT", {False: 2, True: 2})
    now = datetime.now(UTC)
    event = {"id": 1, "event_day": now.date(), "deliveries_created": 1, "fanout_started_at": now, "first_sent_at": None}
    for n in (1, 2):
        conn.execute(
            """insert into relevo.push_requests (request_day, id, claim_token, worker_id, journalled_at, days, ids)
               values (%(day)s, %(id)s, %(id)s, 'w', %(at)s, array[%(day)s], array[%(n)s])""",
            {"day": now.date(), "id": UUID(int=n), "at": now + timedelta(seconds=n), "n": n},
        )
    found = events._requests_of_event(build().database, event, now + timedelta(minutes=1), "")
    assert (found.is_all, found.next.endswith(f"-{UUID(int=2)}")) == (False, True)
