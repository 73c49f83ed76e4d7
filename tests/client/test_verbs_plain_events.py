"""A usual event is written by one small insert: whatever it says, the same rows as by the statement for lists, and the same answer."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, Installation, Owners
from support import random_events
from support.soak import cases

SOON, LATER = ((datetime.now(UTC) + timedelta(hours=n)).isoformat() for n in (1, 2))
BY_CHANCE = cases(250, whole=5_000)
EVENT: dict[str, Any] = {"type": "chat", "key": "k", "title": "Ana"}
FIELDS: list[dict[str, Any]] = [
    {},
    {"body": "Hello", "data": {"chat": 7}, "push": {"sound": "default"}, "category": "chats"},
    {"body": None, "data": None, "push": None, "category": None, "lane": None, "ttl_s": None, "project": None},
    {"push": {"badge": "unread", "sound": "x"}},
    {"push": {"badge": 3}},
    {"lane": "urgent", "at_most_once": True, "ttl_s": 3600.0},
    {"lane": "bulk", "at_most_once": False},
    {"scheduled_at": SOON, "deadline_at": LATER},
    {"scheduled_at": None, "deadline_at": SOON, "ttl_s": 60},
    {"scheduled_at": LATER, "deadline_at": SOON},
    {"scheduled_at": "soon"},
    {"deadline_at": "2001-01-01T00:00:00Z"},
    {"project": "shop", "on_conflict": "keep"},
    {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
    {"traceparent": None, "lane": "urgent"},
    {"traceparent": "00-00000000000000000000000000000000-00f067aa0ba902b7-01"},
    {"type": "told"},
    {"type": "told", "lane": "bulk", "at_most_once": False, "ttl_s": 5},
    {"type": "completed"},
    {"key": "known"},
    {"key": "known", "project": "shop"},
    {"key": "known", "on_conflict": "keep"},
    {"key": "known", "title": "Somebody else"},
    {"key": "archived"},
    {"key": "forgotten"},
    {"type": "relevo.chat"},
    {"data": {"a": "x" * 3500}},
]
TYPES = """
insert into relevo.event_types (event_type, lane, at_most_once, ttl_s, opens, complete_on)
values ('told', 'urgent', true, 600, true, null), ('completed', null, null, null, null, 'opened');
insert into relevo.event_keys (event_type, event_key, event_id, content_hash, state, month)
values ('chat', 'archived', 1000001, 'x', 'fanned', '2026-01-01'), ('chat', relevo.hidden_key('chat', 'forgotten'), 1000002, '', 'fanned', '2026-01-01');
"""
WRITTEN = """
select to_jsonb(n) - array['id', 'created_at', 'updated_at'],
       array(select o.owner from relevo.event_owners o where o.event_id = n.id order by 1),
       array(select array[a.installation_id::text, a.inbox_id::text] from relevo.event_audience a where a.event_id = n.id order by 1)
  from relevo.notification_events n where n.id = %s
"""
PLAINLY = "select * from relevo.enqueue_plain(%s)"
CAREFULLY = "select * from relevo.enqueue_any_type(jsonb_build_array(%s::jsonb))"


@pytest.fixture
def phones(conn: psycopg.Connection[Any]) -> list[UUID]:
    """Return three phones, of two owners, one of them of a project of its own."""
    conn.execute(TYPES)
    relevo.enqueue(conn, Event("chat", "known", "Ana", audience=Owners("ana", "bea")))
    return relevo.register_many(
        conn,
        [
            Installation(f"ExponentPushToken[{n}]", owner=owner, project=project)
            for n, (owner, project) in enumerate([("ana", "default"), ("bea", "shop"), ("ana", "default")])
        ],
    )


def told(conn: psycopg.Connection[Any], statement: LiteralString, event: object) -> Any:
    """Write an event, and undo that; return the answer but for the id, and what was written; or the complaint."""
    try:
        with conn.transaction(force_rollback=True):
            row = conn.execute(statement, [Jsonb(event)]).fetchone()
            return row and (row[1:], conn.execute(WRITTEN, [row[0]]).fetchone() if row[1] else row[0])
    except psycopg.Error as error:
        return str(error.diag.message_primary)


def test_both_write_the_same(conn, phones) -> None:
    """Each field that a usual event may have, for owners and for phones, known ones, unknown ones and the same twice, gives the same rows."""
    stranger = "00000000-0000-4000-8000-000000000000"
    audiences = [
        {"audience": "owners", "owners": ["ana", "bea", "ana"]},
        {"audience": "installations", "installations": [str(phones[0])]},
        {
            "audience": "installations",
            "installations": [str(phones[1]), str(phones[0]).upper(), str(phones[0]), stranger],
        },
    ]
    taken = 0
    with conn.transaction():  # one transaction, so that now() is the same
        for fields in FIELDS:
            for audience in audiences:
                event = EVENT | fields | audience
                plainly = told(conn, PLAINLY, event)
                taken += plainly is not None
                if plainly is not None:
                    assert plainly == told(conn, CAREFULLY, event), event
    assert taken == 3 * 19, "usual events are written plainly"


def test_both_write_the_same_of_events_by_chance(conn, phones) -> None:
    """Whatever fields an event has: what is written plainly, refused words included, is what the statement for lists writes."""
    by_chance, taken = random.Random(3), 0
    with conn.transaction():
        for _ in range(BY_CHANCE):
            event = random_events.event(by_chance, phones, ["ana", "bea"])
            plainly = told(conn, PLAINLY, event)
            if plainly is not None:
                taken += 1
                assert plainly == told(conn, CAREFULLY, event), event
    assert BY_CHANCE / 3 < taken < BY_CHANCE


def test_other_events_are_left_to_the_statement_for_lists(conn, phones) -> None:
    """What is no usual event, or has a key that is known, archived or forgotten, is not written plainly, and enqueue answers as ever."""
    others: list[dict[str, Any]] = [
        {"audience": "everyone"},
        {"audience": "matching", "matching": {"rubros": ["43"]}},
        {"audience": "owners", "owners": ["ana"], "collapse": "x"},
        {"audience": "owners", "owners": ["ana"], "title": ""},
        {"audience": "owners", "owners": ["ana"], "type": "relevo.chat"},
        *({"audience": "owners", "owners": ["ana", "bea"], "key": key} for key in ("known", "archived", "forgotten")),
    ]
    for other in others:
        assert told(conn, PLAINLY, EVENT | other) is None, other
    for event in (EVENT | other for other in others[5:]):
        again = conn.execute(
            "select created from relevo.enqueue(%s)", [Jsonb(event | {"on_conflict": "keep"})]
        ).fetchone()
        assert again == (False,), event
    for nothing in ({}, [], "x", None):
        assert told(conn, PLAINLY, nothing) is None, nothing
