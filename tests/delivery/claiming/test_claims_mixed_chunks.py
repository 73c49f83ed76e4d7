"""Deliveries of several small events share a chunk of the queue; each is cancelled, deleted, deferred and claimed as if it stood alone."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg

from relevo.client import consent, quiet, verbs
from relevo.client.values import Event
from relevo.core import queries
from relevo.delivery.claiming.columns import Chunk, deliveries_of
from support.phones import add_phones, fan_out_to_the_end

CLAIM = queries.load("claims")
CONSISTENCY = queries.load("consistency")
NOW = datetime.now(UTC)
THESE_HOURS = [f"{NOW - timedelta(hours=6):%H:%M}-{NOW + timedelta(hours=12):%H:%M}"]
NO_LIMITS = {
    "worker_id": "w",
    "cycle": "dispatch",
    "now": None,
    "shard_index": None,
    "shard_count": None,
    "only_types": None,
    "not_types": None,
    "not_worded": None,
    "suspect_lapses": 2,
    "lease_ms": 60_000,
    "since": None,
    "in_shadow": False,
    "look_at": 1_000,
}


def enqueue(conn: psycopg.Connection[Any], phones: list[UUID], kind: str = "order", **fields: Any) -> list[int]:
    """Enqueue an event for each phone."""
    events = [Event(kind, str(uuid4()), "Hello", audience=[phone], **fields) for phone in phones]
    return [each.event_id for each in verbs.enqueue_many(conn, events)]


def chunks(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """Return type, project, lane, event and number of deliveries of each chunk."""
    ask = "select event_type, project, lane, event_id, cardinality(ids), cardinality(events) from relevo.due_chunks order by id"
    return conn.execute(ask).fetchall()


def claim(conn: psycopg.Connection[Any], limit: int, name: str = "claim_due", **more: Any) -> list[Any]:
    """Claim deliveries of the default project, and return them."""
    asked = NO_LIMITS | {"token": uuid4(), "project": "default", "lane": "bulk", "limit": limit} | more
    rows = [Chunk(*row) for row in conn.execute(CLAIM[name], asked).fetchall()]
    return list(deliveries_of("default", "bulk", rows))


def queued(conn: psycopg.Connection[Any]) -> list[int]:
    """Return the events of all deliveries in the queue, in its order."""
    ask = """
    select coalesce(u.event_id, q.event_id) from relevo.due_chunks q cross join lateral unnest(q.ids, q.events) as u(id, event_id)
     order by q.due_at, q.id, u.id
    """
    return [row[0] for row in conn.execute(ask).fetchall()]


def faults(conn: psycopg.Connection[Any]) -> list[Any]:
    """Return what `relevo doctor` would find in the queue."""
    asked = {"month": datetime.now(UTC).date().replace(day=1), "after_day": "1900-01-01", "after_id": 0, "limit": 5_000}
    asked |= {"young_ms": 0, "now": datetime.now(UTC) + timedelta(hours=1)}
    found = conn.execute(CONSISTENCY["look_at_deliveries"], asked).fetchall()
    found += conn.execute(CONSISTENCY["look_at_chunks"], {"after_id": 0, "limit": 5_000}).fetchall()
    return [row for row in found if row[0] != "end"]


def test_small_events_share_chunks(build, conn) -> None:
    """A chunk has up to 100 deliveries of one project, lane and type, whatever their events; an event by itself is told apart as before."""
    ours, theirs = add_phones(conn, 130), add_phones(conn, 30, project="other")
    enqueue(conn, ours), enqueue(conn, theirs), enqueue(conn, ours[:20], "chat"), enqueue(conn, ours[:5], lane="urgent")
    enqueue(conn, ours[:1], "lone")
    fan_out_to_the_end(build())
    assert sorted(each for each in chunks(conn)) == [
        ("chat", "default", "bulk", 0, 20, 20),
        ("lone", "default", "bulk", max(event for *_, event, _, _ in chunks(conn)), 1, None),
        ("order", "default", "bulk", 0, 30, 30),
        ("order", "default", "bulk", 0, 100, 100),
        ("order", "default", "urgent", 0, 5, 5),
        ("order", "other", "bulk", 0, 30, 30),
    ]
    wrong = """
    select e.id from relevo.notification_events e
     where not exists (select from relevo.chunks_of(e)) or exists (select from relevo.due_chunks q where e.id = any (q.events) and q.id <> all (e.queued_in))
    """
    assert conn.execute(wrong).fetchall() == []
    assert faults(conn) == []


def test_claimed_in_parts(build, conn) -> None:
    """A claim takes as many as it may, in order; the rest keeps its place, and its events still know where it is."""
    phones = add_phones(conn, 50)
    events = enqueue(conn, phones)
    fan_out_to_the_end(build())
    [(before,)] = conn.execute("select id from relevo.due_chunks").fetchall()
    taken = claim(conn, 20)
    assert [each.notification_event_id for each in taken] == events[:20]
    assert [each.installation_id for each in taken] == phones[:20]
    assert conn.execute("select id from relevo.due_chunks").fetchall() == [(before,)]
    assert queued(conn) == events[20:]
    assert conn.execute("select cardinality(events) from relevo.claims").fetchone() == (20,)
    [probed] = claim(conn, 1, "claim_probe")
    assert probed.notification_event_id == events[20]
    assert queued(conn) == events[21:]
    assert faults(conn) == []


def test_one_of_them_is_cancelled(build, conn) -> None:
    """Cancelling an event takes its delivery alone out of a shared chunk; the others are sent."""
    events = enqueue(conn, add_phones(conn, 10))
    app = build()
    fan_out_to_the_end(app)
    assert verbs.cancel(conn, events[3])
    fan_out_to_the_end(app)
    status = "select d.status from relevo.notification_deliveries d where d.notification_event_id = %s"
    assert conn.execute(status, [events[3]]).fetchall() == [("cancelled",)]
    assert conn.execute(
        "select swept_at is not null from relevo.notification_events where id = %s", [events[3]]
    ).fetchone() == (True,)
    assert queued(conn) == events[:3] + events[4:]
    assert faults(conn) == []


def test_one_of_them_is_deleted(build, conn, dsn) -> None:
    """An app that deletes an event and does not commit keeps no other event's push waiting; of the deleted one nothing is sent."""
    events = enqueue(conn, add_phones(conn, 10))
    app = build()
    fan_out_to_the_end(app)
    with psycopg.connect(dsn) as deleting:
        deleting.execute("select relevo.delete_events(%s)", [[events[6]]])
        assert [each.notification_event_id for each in claim(conn, 5)] == events[:5]
    assert faults(conn) == []
    taken = claim(conn, 10)
    assert [(each.notification_event_id, each.obstacle) for each in taken] == [
        (event, "event_gone" if event == events[6] else None) for event in events[5:]
    ]


def test_worded_events_apart(build, conn) -> None:
    """A worker that cannot render texts claims what its type's texts do not word, whatever was fanned out with it."""
    events = enqueue(conn, add_phones(conn, 6))
    worded = "update relevo.notification_events set wording = 1, arguments = '{}', texts = '{}' where id = any (%s)"
    conn.execute(worded, [events[1::2]])
    fan_out_to_the_end(build())
    assert [each.notification_event_id for each in claim(conn, 10, not_worded=["order"])] == events[::2]
    assert [each.notification_event_id for each in claim(conn, 10)] == events[1::2]


def test_quiet_hours_of_some(build, conn) -> None:
    """Of a shared chunk those wait whose phones have quiet hours now; the others go at once."""
    phones = add_phones(conn, 6)
    for phone in phones[1::2]:
        quiet.set_quiet(conn, THESE_HOURS, installation_id=phone, zone="UTC")
    events = enqueue(conn, phones)
    fan_out_to_the_end(build())
    due = "select coalesce(u.event_id, q.event_id) from relevo.due_chunks q cross join lateral unnest(q.ids, q.events) as u(id, event_id) where q.due_at > now()"
    assert sorted(row[0] for row in conn.execute(due)) == events[1::2]
    assert [each.notification_event_id for each in claim(conn, 10)] == events[::2]
    assert faults(conn) == []


def test_what_is_an_events_own(build, conn) -> None:
    """Deadline, at most once and whether it ended are each event's own, also for workers of 0.3.0, which know chunks of one event."""
    phones = add_phones(conn, 4)
    soon = datetime.now(UTC) + timedelta(hours=1)
    events = [
        *enqueue(conn, phones[:2]),
        *enqueue(conn, phones[2:3], at_most_once=True),
        *enqueue(conn, phones[3:], deadline_at=soon),
    ]
    fan_out_to_the_end(build())
    conn.execute(
        "update relevo.notification_events set state = 'cancelled', ended_at = now() where id = %s", [events[1]]
    )
    with conn.transaction(force_rollback=True):
        taken = claim(conn, 10)
    told = [(each.notification_event_id, each.at_most_once, each.deadline_at, each.obstacle) for each in taken]
    assert told == [
        (events[0], False, None, None),
        (events[1], False, None, "event_ended"),
        (events[2], True, None, None),
        (events[3], False, soon, None),
    ]
    assert 3_500 < taken[3].seconds_left <= 3_600
    old = """
    select c.event_id, c.at_most_once, c.deadline_at, c.ids, c.installations, c.obstacles
      from relevo.claim_due_4(gen_random_uuid(), 'w', 'dispatch', 'default', 'bulk', 10, null, null, null, null, null, 2, 60000, null) c order by 1
    """
    rows = conn.execute(old).fetchall()
    assert [(event, once, deadline) for event, once, deadline, *_ in rows] == [each[:3] for each in told]
    assert [phone for *_, phones_of, _ in rows for phone in phones_of] == phones
    assert [obstacle for *_, obstacles in rows for obstacle in obstacles][1] == "event_ended"
    assert all(len(each[3]) == 1 for each in rows)


def test_no_difference_to_chunks_of_one_event(build, conn) -> None:
    """Whatever became of phones and events, a chunk of several events says of each delivery what a chunk of its event alone says."""
    chance = random.Random(7)
    phones = [*add_phones(conn, 60), *add_phones(conn, 20, project="other"), *add_phones(conn, 20, opt_outs=["tips"])]
    consent.set_category(conn, "news", rule="off")
    quiet.set_quiet(conn, THESE_HOURS, project="other", zone="UTC")
    soon = datetime.now(UTC) + timedelta(hours=1)
    for _ in range(300):
        some = chance.sample(phones, chance.choice([1, 1, 1, 2, 3]))
        more = {"category": chance.choice([None, "tips", "news"]), "at_most_once": chance.random() < 0.2}
        more |= {"deadline_at": soon if chance.random() < 0.3 else None, "collapse": chance.choice([None, None, "a"])}
        verbs.enqueue(conn, Event("order", str(uuid4()), "Hello", audience=some, **more))
    fan_out_to_the_end(build())
    for change in (
        "update relevo.device_installations set permission = 'denied' where seq % 7 = 0",
        "update relevo.device_installations set handled_before = now() where seq % 13 = 0",
        "delete from relevo.device_installations where seq % 17 = 0",
        "update relevo.notification_events set state = 'cancelled', ended_at = now() where id % 5 = 0",
        "update relevo.notification_events set deadline_at = scheduled_at + interval '1 microsecond' where id % 9 = 0",
        "insert into relevo.event_repeats select id, now(), 9, now(), 'a storm' from relevo.notification_events where id % 8 = 0",
    ):
        conn.execute(change)
    mixed = "select array_agg(q order by q.id) from relevo.due_chunks q where q.events is not null"
    apart = """
    select array_agg(row(q.id, q.project, q.lane, q.due_at, q.event_day, u.event_id, q.event_type, q.created_at, q.attempt_count, q.lapse_count, q.had_error,
                         array[u.id], array[u.phone], case when q.inboxes is not null then array[u.inbox] end, null)::relevo.due_chunks order by q.id)
      from (select * from relevo.due_chunks where events is not null) q
      cross join lateral unnest(q.ids, q.installations, q.inboxes, q.events) as u(id, phone, inbox, event_id)
    """
    now = datetime.now(UTC)

    def told(chosen: str) -> dict[int, Any]:
        rows = conn.execute(f"select l.* from relevo.look_up_phones(({chosen}), %s, 1) l", [now]).fetchall()
        return {each.id: each for each in deliveries_of("default", "bulk", [Chunk(*row) for row in rows])}

    together, alone = told(mixed), told(apart)
    assert together == alone
    assert len(together) > 200
    assert len({each.obstacle for each in together.values()}) >= 6
