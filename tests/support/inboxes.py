"""Inboxes for tests: events that reached phones, made in SQL as fan-out would."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any
from uuid import UUID

import psycopg

import relevo
from support.deliveries import TODAY

MADE = """
with e as (
  insert into relevo.notification_events (event_type, event_key, title, body, data, audience, category, content_hash, state, event_day,
    fanout_started_at, fanout_finished_at, fanout_upto, ended_at, swept_at)
  values (%(type)s, gen_random_uuid()::text, %(title)s, %(body)s, '{"to": "screen"}', 'everyone', %(category)s, '', %(state)s, %(day)s,
    now(), now(), 0, case when %(state)s in ('cancelled', 'completed') then now() end, case when %(state)s in ('cancelled', 'completed') then now() end)
  returning id
), d as (
  insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, status, completed_at, created_at,
    provider_ticket_id, inbox_id)
  select %(day)s, e.id, p, %(type)s, %(status)s, case when %(status)s <> 'pending' then now() end, coalesce(%(at)s, clock_timestamp()),
         case %(status)s when 'ok' then 'ticket' end,
         case when %(with_inbox)s then (select i.inbox_id from relevo.device_installations i where i.installation_id = p) end
    from e, unnest(%(phones)s::uuid[]) p)
select id from e
"""


def sent(conn: psycopg.Connection[Any], phones: Sequence[UUID], title: str = "Hello", **told: Any) -> int:
    """Insert an event with a delivery to each phone, as of before 0.4.0 with `with_inbox=False`; return the event's id."""
    day: date = told.get("day", TODAY)
    conn.execute("select relevo.ensure_partitions(%s, 1)", [day])
    given = {
        "type": "t",
        "body": "",
        "category": None,
        "state": "fanned",
        "status": "ok",
        "at": None,
        "day": day,
        "with_inbox": True,
    }
    row = conn.execute(MADE, given | {"phones": list(phones), "title": title} | told).fetchone()
    assert row is not None
    return int(row[0])


def titles(conn: psycopg.Connection[Any], **asked: Any) -> list[str]:
    """Return the titles of a page, in its order."""
    return [item.title for item in relevo.inbox(conn, **asked).items]


def read_all(conn: psycopg.Connection[Any], **asked: Any) -> list[str]:
    """Return the titles of all pages."""
    found: list[str] = []
    before = None
    while True:
        page = relevo.inbox(conn, before=before, **asked)
        found += [item.title for item in page.items]
        if page.next is None:
            return found
        before = page.next


def counts(conn: psycopg.Connection[Any], **asked: Any) -> tuple[Any, Any]:
    """Return what is unread and unseen."""
    found = relevo.inbox_counts(conn, **asked)
    return found.unread, found.unseen
