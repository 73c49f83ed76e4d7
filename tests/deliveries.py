"""Deliveries for tests: rows made in SQL, as fan-out would."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any
from uuid import uuid4

import psycopg

TODAY = datetime.now(UTC).date()


EVENT = """
insert into relevo.notification_events (id, event_type, event_key, title, audience, content_hash, state, event_day, lane, deadline_at,
  at_most_once, scheduled_at, fanout_started_at, fanout_finished_at, fanout_upto)
select coalesce(%(id)s, nextval(pg_get_serial_sequence('relevo.notification_events', 'id'))), %(type)s, %(key)s, 'Hello', 'everyone', '',
       'fanned', %(day)s, %(lane)s, %(deadline)s, %(at_most_once)s, least(now(), %(deadline)s::timestamptz - interval '1 day'), now(), now(), 0
on conflict do nothing
"""
ROWS = """
with phone as (
  insert into relevo.device_installations (token) select t from unnest(%(tokens)s::text[]) t returning installation_id
)
insert into relevo.notification_deliveries (event_day, notification_event_id, event_type, installation_id, project, provider, lane,
  deadline_at, at_most_once, attempt_count, lapse_count, status)
select %(day)s, %(event)s, %(type)s, installation_id, %(project)s, relevo.provider_of(%(project)s), %(lane)s, %(deadline)s, %(at_most_once)s,
       %(attempts)s, %(lapses)s, case when %(attempts)s > 0 then 'retryable' else 'pending' end
  from phone returning id
"""
QUEUE = """
select relevo.queue_deliveries(array_fill(%(day)s::date, array[cardinality(%(ids)s::bigint[])]), %(ids)s,
                               array_fill(coalesce(%(due)s, now()), array[cardinality(%(ids)s::bigint[])]))
"""


def add_event(
    conn: psycopg.Connection[Any],
    *,
    event: int | None = None,
    event_type: str = "tender.new",
    day: date = TODAY,
    lane: str = "bulk",
    deadline: datetime | None = None,
    at_most_once: bool = False,
) -> int:
    """Insert an event that was fanned out, unless one like it is there, and return its id."""
    key = f"{event} {day} {lane} {deadline} {at_most_once}"
    values = {"id": event, "type": event_type, "key": key, "day": day, "lane": lane}
    conn.execute(EVENT, values | {"deadline": deadline, "at_most_once": at_most_once})
    found = conn.execute(
        "select id from relevo.notification_events where id = %s or (event_type = %s and event_key = %s)",
        [event, event_type, key],
    ).fetchone()
    assert found is not None
    return int(found[0])


def add_deliveries(
    conn: psycopg.Connection[Any],
    count: int,
    *,
    day: date = TODAY,
    project: str = "default",
    lane: str = "bulk",
    event_type: str = "tender.new",
    event: int | None = None,
    due: datetime | None = None,
    deadline: datetime | None = None,
    at_most_once: bool = False,
    attempts: int = 0,
    lapses: int = 0,
) -> list[int]:
    """Insert open deliveries of one event to new installations, queue them, and return their ids."""
    of_event = {"event_type": event_type, "day": day, "lane": lane, "deadline": deadline, "at_most_once": at_most_once}
    values = {
        "event": add_event(conn, event=event, **of_event),
        "tokens": [f"ExponentPushToken[{uuid4()}]" for _ in range(count)],
        "day": day,
        "type": event_type,
        "project": project,
        "lane": lane,
        "deadline": deadline,
        "at_most_once": at_most_once,
        "attempts": attempts,
        "lapses": lapses,
    }
    ids = sorted(row[0] for row in conn.execute(ROWS, values).fetchall())
    conn.execute(QUEUE, {"day": day, "ids": ids, "due": due})
    return ids


def states(conn: psycopg.Connection[Any]) -> dict[str, int]:
    """Count the deliveries per status."""
    return dict(conn.execute("select status, count(*) from relevo.notification_deliveries group by status").fetchall())


def one(conn: psycopg.Connection[Any], delivery_id: int) -> dict[str, Any]:
    """Read one delivery with its claim spelled out."""
    with conn.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        row = cursor.execute("select * from relevo.deliveries where id = %s", [delivery_id]).fetchone()
    assert row is not None
    return row
