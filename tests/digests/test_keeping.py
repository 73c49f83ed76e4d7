"""What is kept of digests, for how long, and what is forgotten with a person."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from phones import add_phones, fan_out, prefer
from relevo.client import verbs
from relevo.client.values import Event, Matching


def count(conn: psycopg.Connection[Any], table: str) -> int:
    """Count the rows of a table."""
    row = conn.execute(f"select count(*) from relevo.{table}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_what_is_over_is_pruned_and_a_person_is_forgotten(conn: psycopg.Connection[Any], build) -> None:
    """A forgotten phone leaves nothing in digests at once; contents go after five weeks, slots and events once nobody needs them."""
    ana, bea = (add_phones(conn, 1, owner=owner)[0] for owner in ("ana", "bea"))
    prefer(conn, [ana, bea], delivery="daily 08:00")
    for key in ("told", "waits"):
        verbs.enqueue(conn, Event("tender.new", key, key, audience=Matching(region="Maule")))
        fan_out(build())
        if key == "told":
            conn.execute("update relevo.digest_slots set closes_at = now()")
            worker = build()
            assert worker.runner.run(worker.registry["digest"], "manual").outcome == "ok"
    assert (count(conn, "digest_contents"), count(conn, "digest_events")) == (2, 2)
    verbs.forget(conn, owner="ana")
    left = [count(conn, table) for table in ("digest_contents", "digest_followers", "digest_changes")]
    assert left == [1, 1, 1]
    worker = build()
    worker.runner.run(worker.registry["cleanup"], "manual")
    assert (count(conn, "digest_contents"), count(conn, "digest_slots")) == (1, 1), "it is needed"
    verbs.set_preference(conn, bea, "default", None)
    later = build(now=datetime.now(UTC) + timedelta(days=36))
    for _ in range(3):  # the notes of changes keep slots, and both keep events
        conn.execute("update relevo.digest_slots set after_number = 99")
        later.runner.run(later.registry["cleanup"], "manual")
    tables = ("digest_contents", "digests", "digest_changes", "digest_slots", "digest_events", "digest_followers")
    assert {table: count(conn, table) for table in tables} == dict.fromkeys(tables, 0)
