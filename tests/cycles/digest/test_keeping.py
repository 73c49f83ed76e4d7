"""What is kept of digests, for how long, and what is forgotten with a person."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

import relevo
from relevo.client import verbs
from relevo.client.values import Event, TenderMatching
from support.phones import add_phones, fan_out, prefer


def count(conn: psycopg.Connection[Any], table: str) -> int:
    """Count the rows of a table."""
    row = conn.execute(f"select count(*) from relevo.{table}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_what_is_over_is_pruned_and_a_person_is_forgotten(conn: psycopg.Connection[Any], build) -> None:
    """A forgotten phone leaves nothing in digests at once; contents stay as long as their events, and slots as long as something is gathered for them."""
    ana, bea = (add_phones(conn, 1, owner=owner)[0] for owner in ("ana", "bea"))
    prefer(conn, [ana, bea], delivery="daily 08:00")
    for key in ("told", "waits"):
        verbs.enqueue(conn, Event("tender.new", key, key, audience=TenderMatching(region="Maule")))
        fan_out(build())
        if key == "told":
            conn.execute("update relevo.digest_slots set closes_at = now()")
            worker = build()
            assert worker.runner.run(worker.registry["digest"], "manual").outcome == "ok"
    assert (count(conn, "digest_contents"), count(conn, "digest_items")) == (2, 2)
    verbs.forget(conn, owner="ana")
    assert (count(conn, "digest_contents"), count(conn, "digest_items")) == (1, 1)
    [(digest,)] = conn.execute("select event_id from relevo.digests").fetchall()
    month_later = build(now=datetime.now(UTC) + timedelta(days=50))
    month_later.runner.run(month_later.registry["cleanup"], "manual")
    assert (count(conn, "digest_contents"), count(conn, "digest_slots")) == (1, 1), "they are needed"
    assert [item.title for item in relevo.inbox(conn, owner="bea", digest=digest).items] == ["told"]
    verbs.set_preference(conn, bea, "default", None)
    assert count(conn, "digest_items") == 0
    much_later = build(now=datetime.now(UTC) + timedelta(days=200))
    for _ in range(2):  # what leaves with its month is pruned by the next night
        much_later.runner.run(much_later.registry["cleanup"], "manual")
    tables = ("digest_contents", "digests", "digest_slots", "digest_items")
    assert {table: count(conn, table) for table in tables} == dict.fromkeys(tables, 0)


def test_a_digest_stays_as_long_as_its_event(conn: psycopg.Connection[Any], build) -> None:
    """However old a digest is that told nobody anything, it goes only once its event is archived."""
    event = verbs.enqueue(conn, Event("tender.new", "told", "told", audience="everyone")).event_id
    made = "insert into relevo.digests (event_id, project, delivery, zone, closed_at, made_at) values (%s, 'default', 'hourly', 'UTC', now(), now() - interval '36 days')"
    for each in (event, event + 1):
        conn.execute(made, [each])
    worker = build()
    worker.runner.run(worker.registry["cleanup"], "manual")
    assert conn.execute("select event_id from relevo.digests").fetchall() == [(event,)]
