"""Deleting events: bounded work in the app's transaction, the rest batch by batch, and nothing stays."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import relevo
from relevo import Event
from support.deliveries import TODAY, add_event

MANY = 12_000
AT_ONCE = 5_000
FILL = """
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, status, completed_at, last_error_code)
select %(day)s, %(event)s, gen_random_uuid(), 't', 'failed', now(), 'MessageTooBig' from generate_series(1, %(many)s);
insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
select d.event_day, d.id, d.notification_event_id, d.project, 'x', now() from relevo.notification_deliveries d where d.notification_event_id = %(event)s;
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids, installations)
select 'default', 'bulk', now() + interval '1 hour', d.event_day, d.notification_event_id, 't', now(), 0, 0, false, array[d.id], array[d.installation_id]
  from relevo.notification_deliveries d where d.notification_event_id = %(event)s limit 1500;
insert into relevo.event_progress_deltas (event_id, status, deliveries) values (%(event)s, 'failed', %(many)s);
"""
LEFT = """
select (select count(*) from relevo.notification_deliveries), (select count(*) from relevo.dead_letters),
       (select count(*) from relevo.due_chunks), (select count(*) from relevo.deleted_events)
"""
COUNTED = "select coalesce(sum(deliveries), 0) from relevo.delivery_counts"
PROGRESS = (
    "select count(*) from (select from relevo.event_progress union all select from relevo.event_progress_deltas) p"
)
DELETED = """
select relname, n_tup_del from pg_stat_xact_user_tables where schemaname = 'relevo' and n_tup_del > 0 and relname !~ 'progress|counts'
"""


def fill(conn: psycopg.Connection[Any], many: int = MANY) -> int:
    """Make an event with many deliveries that failed, some of them queued, and return its id."""
    event = add_event(conn, event_type=f"t{many}")
    for statement in FILL.split(";\n"):
        if statement.strip():
            conn.execute(statement, {"day": TODAY, "event": event, "many": many}, prepare=False)
    return event


def left(conn: psycopg.Connection[Any]) -> tuple[int, ...]:
    """Count what is left: deliveries, dead letters, chunks, events that are not deleted to the end."""
    return tuple(conn.execute(LEFT).fetchall()[0])


def most_deleted(conn: psycopg.Connection[Any], statement: str, parameters: list[Any]) -> int:
    """Run a statement in a transaction of its own, and return how many rows it deleted of any table, at most."""
    with conn.transaction():
        before = dict(conn.execute(DELETED).fetchall())
        conn.execute(statement.encode(), parameters)
        after = dict(conn.execute(DELETED).fetchall())
    return max((count - before.get(table, 0) for table, count in after.items()), default=0)


@pytest.fixture
def reap(build):
    """Run a round of the reaper: `reap()`."""
    app = build()
    return lambda: app.runner.run(app.registry["reaper"], "manual")


def test_a_large_event_is_deleted_in_parts(conn: psycopg.Connection[Any], reap: Any) -> None:
    """The event is gone at once and its key free, so much of it goes with it, and a reaper deletes the rest and its counts."""
    event = fill(conn)
    reap()
    counted = conn.execute(COUNTED).fetchone()
    assert counted == (MANY,)
    assert relevo.delete(conn, [event]) == 1
    assert relevo.get(conn, event) is None
    assert left(conn) == (MANY - AT_ONCE, MANY - AT_ONCE, 500, 1)
    assert relevo.delete(conn, [event]) == 0
    report = reap()
    assert report.counts["leftovers_deleted"] == 2 * (MANY - AT_ONCE) + 500
    assert left(conn) == (0, 0, 0, 0)
    reap()
    assert conn.execute(PROGRESS).fetchone() == (0,)
    assert conn.execute(COUNTED).fetchone() == (0,)
    assert "leftovers_deleted" not in reap().counts


def test_every_statement_deletes_a_bounded_number_of_rows(conn: psycopg.Connection[Any]) -> None:
    """However large events are, and however many are deleted in one call, so many rows of a table go and no more."""
    events = [fill(conn), fill(conn, 3_000), fill(conn, 10)]
    assert most_deleted(conn, "select relevo.delete_events(%s)", [events]) <= AT_ONCE
    batches = 0
    while left(conn) != (0, 0, 0, 0):
        assert most_deleted(conn, "select relevo.delete_leftovers_1(%s)", [2_000]) <= 2_000
        batches += 1
    assert 5 <= batches <= 20
    assert conn.execute(PROGRESS).fetchone() == (0,)


def test_a_small_event_is_gone_at_once(conn: psycopg.Connection[Any]) -> None:
    """What fits into one statement leaves nothing to a reaper, and what never fanned out has nothing to leave."""
    event = fill(conn, 900)
    waiting = relevo.enqueue(conn, Event("t", "1", "t", audience="everyone")).event_id
    assert relevo.delete(conn, [event, waiting]) == 2
    assert left(conn) == (0, 0, 0, 0)
    assert conn.execute(PROGRESS).fetchone() == (0,)


def test_a_month_with_leftovers_is_open(conn: psycopg.Connection[Any], reap: Any) -> None:
    """No month is sealed before its deleted events are gone; one that is sealed all the same is left alone, and forgotten."""
    month = TODAY.replace(day=1)
    conn.execute("insert into relevo.deleted_events (event_id, event_day) values (7, %s)", [TODAY])
    assert conn.execute("select relevo.is_open('notification_deliveries', %s)", [month]).fetchone() == (True,)
    conn.execute(
        "insert into relevo.archive_exports (entity, month, state, relation, part_rows, sealed_at)"
        " values ('notification_deliveries', %s, 'sealed', 'x', 1, now())",
        [month],
    )
    assert reap().outcome in ("ok", "idle")
    assert left(conn) == (0, 0, 0, 0)
    assert conn.execute("select relevo.is_open('notification_deliveries', %s)", [month]).fetchone() == (False,)


def test_a_sealed_month_is_left_alone(conn: psycopg.Connection[Any]) -> None:
    """Between its seal and its move to the archive a month's events stay, the app's transaction goes on, and others are deleted."""
    sealed = fill(conn, 3)
    conn.execute("delete from relevo.due_chunks")
    waiting = relevo.enqueue(conn, Event("t", "1", "t", audience="everyone")).event_id
    month = TODAY.replace(day=1)
    assert conn.execute("select relevo.seal_month('notification_deliveries', %s, 1)", [month]).fetchone() == (True,)
    assert relevo.delete(conn, [sealed, waiting]) == 1
    assert relevo.get(conn, sealed) is not None
    assert relevo.get(conn, waiting) is None
    assert left(conn)[0] == 3
