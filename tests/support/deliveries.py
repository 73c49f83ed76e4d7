"""Deliveries for tests: rows made in SQL, as fan-out would."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
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
select %(day)s, %(event)s, %(type)s, installation_id, %(project)s, case when %(project)s like '%%::%%' then split_part(%(project)s, '::', 1) else 'expo' end, %(lane)s, %(deadline)s, %(at_most_once)s,
       %(attempts)s, %(lapses)s, case when %(attempts)s > 0 then 'retryable' else 'pending' end
  from phone returning id
"""
# As every worker does it: by keys, whatever the statistics say. Without, many rows may take minutes.
BY_KEY = "set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off"
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
    with conn.transaction():
        conn.execute(BY_KEY)
        conn.execute(QUEUE, {"day": day, "ids": ids, "due": due})
    return ids


UNQUEUE = """
with gone as (
  delete from relevo.due_chunks q where q.ids && %(ids)s::bigint[] returning q.event_day, q.due_at, q.ids
), rest as (
  select array_agg(g.event_day) as days, array_agg(u.id) as ids, array_agg(g.due_at) as due
    from gone g cross join unnest(g.ids) as u(id) where u.id <> all (%(ids)s)
)
select relevo.queue_deliveries(r.days, r.ids, r.due) from rest r
"""
SENT = """
with sent as (
  update relevo.notification_deliveries d
     set status = 'sent', provider_ticket_id = %(ticket)s, attempt_count = greatest(attempt_count, 1), last_attempt_at = now()
   where d.id = any (%(ids)s)
  returning d.*
)
insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
select s.project, now() + interval '15 minutes', now(), array[s.event_day], array[s.id], array[s.installation_id], array[s.provider_ticket_id],
       array[s.token_version], array[s.attempt_count]
  from sent s
"""
FAILED = """
with failed as (
  update relevo.notification_deliveries d
     set status = 'failed', completed_at = now(), attempt_count = greatest(attempt_count, 1), last_error_code = %(code)s
   where d.id = any (%(ids)s)
  returning d.*
)
insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
select f.event_day, f.id, f.notification_event_id, f.project, f.last_error_code, now() from failed f
"""
PUT_OFF = """
with gone as (
  delete from relevo.awaited_receipts r where r.ids && %(ids)s::bigint[] returning r.*
)
insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
select g.project, g.look_at + case when u.id = any (%(ids)s) then %(by)s else interval '0' end, g.sent_at, array_agg(u.day), array_agg(u.id),
       array_agg(u.installation), array_agg(u.ticket), array_agg(u.version), array_agg(u.attempt)
  from gone g
  cross join unnest(g.days, g.ids, g.installations, g.tickets, g.versions, g.attempts) as u(day, id, installation, ticket, version, attempt)
 group by g.id, g.project, g.look_at, g.sent_at, u.id = any (%(ids)s)
"""


def take_out(conn: psycopg.Connection[Any], ids: Sequence[int]) -> None:
    """Take due deliveries out of the queue, and leave what was queued with them."""
    conn.execute(UNQUEUE, {"ids": list(ids)})


def mark_sent(conn: psycopg.Connection[Any], ids: Sequence[int], *, ticket: str = "t") -> None:
    """Take due deliveries out of the queue as sent; each awaits its receipt."""
    take_out(conn, ids)
    conn.execute(SENT, {"ids": list(ids), "ticket": ticket})


def mark_failed(conn: psycopg.Connection[Any], ids: Sequence[int], *, code: str) -> None:
    """Take due deliveries out of the queue as dead letters."""
    take_out(conn, ids)
    conn.execute(FAILED, {"ids": list(ids), "code": code})


def put_off_receipts(conn: psycopg.Connection[Any], ids: Sequence[int], by: timedelta) -> None:
    """Have receipts of some deliveries asked for later, or sooner, than those of what was sent with them."""
    conn.execute(PUT_OFF, {"ids": list(ids), "by": by})


def states(conn: psycopg.Connection[Any]) -> dict[str, int]:
    """Count the deliveries per status."""
    return dict(conn.execute("select status, count(*) from relevo.notification_deliveries group by status").fetchall())


def one(conn: psycopg.Connection[Any], delivery_id: int) -> dict[str, Any]:
    """Read one delivery with its claim spelled out."""
    with conn.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        row = cursor.execute("select * from relevo.deliveries where id = %s", [delivery_id]).fetchone()
    assert row is not None
    return row
