"""What looks read: as much as they find, however much there is. The cost at larger sizes: make bench ARGS='--only growth'."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from relevo.core import queries
from relevo.database.pool import Manner, bounds
from support.query_plans import rows_read_by_table

MANY = 20_000
PROJECTS = 50
TABLES = "select oid::regclass::text from pg_class where relnamespace = 'relevo'::regnamespace and relkind = 'r'"
LOAD = {
    "due_chunks": """
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count,
  had_error, ids, installations)
select 'p' || n %% %(projects)s, 'bulk', now(), now()::date, 1, 'personal', now(), 0, 0, false, array[n::bigint], array[gen_random_uuid()]
  from generate_series(1, %(many)s) n""",
    "awaited_receipts": """
insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
select 'p' || n %% %(projects)s, now(), now(), array[now()::date], array[n::bigint], array[gen_random_uuid()], array['t'], array[1],
       array[1::smallint]
  from generate_series(1, %(many)s) n""",
    "events": """
with made as (
  insert into relevo.notification_events (event_type, event_key, title, audience, content_hash, state, event_day, fanout_started_at,
    fanout_finished_at, fanout_upto)
  select 'personal', n::text, 'Hello', 'installations', '', 'fanned', now()::date, now(), now(), 0 from generate_series(1, %(many)s) n
  returning id, event_key
)
insert into relevo.event_audience (event_id, installation_id) select m.id, lpad(m.event_key, 32, '0')::uuid from made m""",
    "items": """
insert into relevo.licitaciones (namespace, external_id, nombre, sources, fingerprint)
select 'n', n::text, 'An item', array['s'], n::text from generate_series(1, %(many)s) n""",
    "runs": """
insert into relevo.worker_runs (cycle, slot_at, trigger, worker_id, started_at, finished_at, outcome, error_message)
select 'cleanup', now() - n * interval '1 minute', 'schedule', 'gone-1', now() - n * interval '1 minute', now(),
       case n %% 20 when 0 then 'failed' else 'ok' end, case n %% 20 when 0 then 'no reason' end
  from generate_series(1, %(many)s) n""",
    "streams": """
with stream as (
  insert into relevo.event_streams (event_type, origin, known_since)
  select 't' || n, 'app', now() - interval '90 days' from generate_series(1, 5) n returning id
)
insert into relevo.event_counts (stream_id, installation_id, hour_at, day, in_hour, hour_before, passed_today, busiest_day, releases)
select s.id, lpad(n::text, 32, '0')::uuid, now(), now()::date - 30, 0, 0, 1, 1, 0 from stream s cross join generate_series(1, %(many)s / 5) n""",
    "requests": """
insert into relevo.push_requests (request_day, id, claim_token, worker_id, journalled_at, days, ids)
select (now() at time zone 'UTC')::date, gen_random_uuid(), gen_random_uuid(), 'gone', (now() at time zone 'UTC')::date + n * interval '1 day' / %(many)s,
       array[now()::date], array[n] from generate_series(1, %(many)s) n""",
    "deltas": """
insert into relevo.event_progress_deltas (event_id, status, deliveries) select n, 'sent', 1 from generate_series(1, %(many)s) n""",
    "workers": """
insert into relevo.workers (worker_id, hostname, pid, version, role, cycles, started_at, last_seen_at, lease_ms, stopped_at)
select 'gone-' || n, 'host', 1, '0.2.0', 'run', array['dispatch'], now(), now(), 60000, now() from generate_series(1, %(many)s) n""",
}
UNMOVABLE = """
insert into relevo.notification_events (event_type, event_key, title, audience, content_hash, state, event_day, fanout_started_at,
  fanout_finished_at, fanout_upto)
select 'old', n::text, 'Hello', 'everyone', '', 'fanned', '2020-01-01'::date + n % 60, now(), now(), 0 from generate_series(1, 5000) n
"""


@pytest.fixture(scope="module")
def grown(server, admin, template) -> Iterator[psycopg.Connection[Any]]:
    """A database with much of everything."""
    admin.execute(f"create database growth template {template}".encode())
    with psycopg.connect(server.dsn, dbname="growth", autocommit=True, prepare_threshold=None) as conn:
        for (table,) in conn.execute(TABLES).fetchall():  # nobody mends the statistics behind our back
            conn.execute(f"alter table {table} set (autovacuum_enabled = off)".encode())
        for statement in LOAD.values():
            conn.execute(statement, {"many": MANY, "projects": PROJECTS})
        yield conn
    admin.execute("drop database growth with (force)")


@pytest.fixture(scope="module", params=["without statistics", "with statistics"])
def many(request, grown) -> psycopg.Connection[Any]:
    """The same, never analyzed and analyzed."""
    if request.param == "with statistics":
        grown.execute("analyze")
    return grown


def read(
    conn: psycopg.Connection[Any], step: str, name: str, manner: Manner = "bound_transaction", **asked: Any
) -> int:
    """Return how many rows a statement of a step read, bounded as workers bound it."""
    with conn.transaction(force_rollback=True):
        conn.execute(bounds(manner, statement_ms=60_000, lock_ms=60_000, idle_ms=60_000))
        return sum(rows_read_by_table(conn, queries.load(step)[name], {"now": None, **asked}).values())


def looking(**more: Any) -> dict[str, Any]:
    """Return what a look asks for: by default along the whole queue."""
    return {
        "after_id": 0, "most_new": 0, "again_projects": [], "again_lanes": [], "again_since": [], "after_project": "", "after_lane": "",
        "limit": 1_000,
    } | more  # fmt: skip


@pytest.mark.parametrize(
    ("name", "asked"), [("list_due_lanes", looking()), ("list_due_receipts", {"after": "", "limit": 1_000})]
)
def test_a_look_for_what_is_due_reads_a_row_of_each_project(many, name, asked) -> None:
    """Which lanes are due, and which receipts, is known from the first row of each, whatever stands behind it."""
    assert read(many, "projects", name, "bound_by_key", **asked) <= 4 * PROJECTS + 2


def test_a_look_at_what_is_new_reads_no_more_than_that(many) -> None:
    """Beside all that waits, it reads what came behind the last look, and a row of each lane that it looks at again."""
    ((last,),) = many.execute("select max(id) from relevo.due_chunks").fetchall()
    again = {"again_projects": ["p0", "p1"], "again_lanes": ["bulk", "bulk"], "again_since": [None, None]}
    asked = looking(after_id=last - 10, most_new=1_000, limit=0) | again
    assert read(many, "projects", "list_due_lanes", "bound_by_key", **asked) <= 10 + 2 * 2 + 12


def test_old_events_and_items_are_found_without_reading_the_others(many) -> None:
    """As long as none is old, none is read; of an old month that cannot be moved yet, one."""
    asked = {"retention_days": 60, "hot_months": 12, "hot_days": None, "given_up": []}
    assert read(many, "retire", "find_old_events", **asked) <= 3
    assert read(many, "retire", "find_old_items", **asked) <= 3
    with many.transaction(force_rollback=True):
        many.execute(UNMOVABLE)
        months = many.execute("select array['2020-01-01', '2020-02-01']::date[]").fetchone()
        assert read(many, "retire", "find_old_events", **asked | {"given_up": months[0]}) <= 10


OLD_COUNTS = "update relevo.event_counts set day = day - 60 where installation_id = lpad('7', 32, '0')::uuid"


def test_old_counts_and_streams_are_found_without_reading_the_others(many) -> None:
    """The nightly prune reads what is too old, and deletes that: not every count there is, nor those of a stream that lives."""
    pruning = {"limit": 1_000}
    assert read(many, "runaway", "prune_counts", **pruning) <= 2
    assert read(many, "runaway", "prune_streams", **pruning) <= 5 * 3
    with many.transaction(force_rollback=True):
        assert many.execute(OLD_COUNTS).rowcount == 5
        assert read(many, "runaway", "prune_counts", **pruning) <= 5 * 4
        assert many.execute(queries.load("runaway")["prune_counts"], {"now": None, **pruning}).rowcount == 5


def slot(conn: psycopg.Connection[Any], **more: Any) -> dict[str, Any]:
    """Return what the runner says of a run that is about to take a slot."""
    row = conn.execute("select now() + interval '1 hour', now()").fetchone()
    assert row is not None
    return {
        "cycle": "cleanup", "source": "", "slot_at": row[0], "started_at": row[1], "run_id": 10**9, "trigger": "schedule",
        "worker_id": "a", "error_base_ms": 1_000, "error_max_ms": 60_000, "slot_ms": 60_000, "always": False, "reason": "paused",
        "instance": None,
    } | more  # fmt: skip


STATEMENTS = ["begin_slot_run", "read_slot_wait", "free_repeated_slots", "abandon_running", "tell_skip", "open_round"]


@pytest.mark.parametrize("name", STATEMENTS)
def test_slots_are_looked_up_by_their_key(many, name) -> None:
    """After a year of runs a slot is taken, found closed and freed by looking at its own runs alone."""
    assert read(many, "runner", name, **slot(many)) <= 5


@pytest.mark.parametrize(
    ("step", "name", "manner"),
    [
        ("reaper", "mark_lost_workers", "bound_transaction"),
        ("reaper", "abandon_runs", "bound_transaction"),
        ("claims", "list_composed_types", "bound_by_key"),
        ("projects", "lease_connections", "bound_by_key"),
        ("cleanup", "prune_workers", "bound_transaction"),
        ("cleanup", "prune_runs", "bound_transaction"),
    ],
)
def test_who_lives_is_known_without_reading_who_is_gone(many, step, name, manner) -> None:
    """Among 20,000 workers that stopped, and their runs, the few that live are found, and none is old enough to go."""
    asked = {
        "worker_id": "a",
        "project": "p1",
        "most": 6,
        "lease_ms": 60_000,
        "retention_days": 365,
        "limit": 1_000,
        "under_way": 1,
    }
    assert read(many, step, name, manner, **asked) <= 10


def test_a_phone_is_forgotten_by_its_key(many) -> None:
    """What was said to one phone alone is found without reading what was said to others."""
    phone = UUID(str(MANY - 7).rjust(32, "0"))
    assert read(many, "client", "forget_installation", installation_id=phone) <= 40


def test_a_batch_of_an_ended_event_is_found_without_sorting_the_rest(many) -> None:
    """A step that ends some chunks of a large event reads those, however many are left."""
    assert read(many, "fanout", "cancel_deliveries", event_id=1, limit=1_000) <= 3 * 10
    assert read(many, "fanout", "mark_swept", event_id=1) <= 5


def test_claims_take_what_shares_a_lease(many) -> None:
    """A claim that meets one type with a short lease before 20,000 others looks at no more than a few of them."""
    with many.transaction(force_rollback=True):
        many.execute("insert into relevo.event_types (event_type, lease_ms) values ('short', 15000)")
        many.execute(
            "update relevo.due_chunks set event_type = 'short', due_at = due_at - interval '1 hour' where id = 50"
        )
        asked = {
            "token": uuid4(), "worker_id": "a", "cycle": "dispatch", "project": "p0", "lane": "bulk", "limit": 1_000,
            "shard_index": None, "shard_count": None, "only_types": None, "not_types": None, "not_worded": None, "suspect_lapses": 2, "since": None, "in_shadow": False,
            "lease_ms": 60_000,
        }  # fmt: skip
        assert read(many, "claims", "claim_due", "bound_by_key", **asked) <= 40


def test_a_deliverys_page_reads_the_requests_of_its_time(many) -> None:
    """Of a day's journal the page of a delivery reads what was written between its making and its last attempt."""
    row = many.execute(
        "select (now() at time zone 'UTC')::date, (now() at time zone 'UTC')::date + interval '1 hour'"
    ).fetchone()
    assert row is not None
    today, since = row
    asked = {
        "id": MANY // 24 + 5, "first_day": today, "last_day": today, "since": since.replace(tzinfo=UTC),
        "until": since.replace(tzinfo=UTC) + timedelta(minutes=1),
    }  # fmt: skip
    assert 1 <= read(many, "deliveries", "list_delivery_requests", **asked) <= MANY / 1_440 + 5
    assert many.execute(queries.load("deliveries")["list_delivery_requests"], asked).rowcount == 1


def test_a_batch_of_changes_is_folded_behind_those_before(many) -> None:
    """Behind the last number that was folded, a batch reads the changes that it folds."""
    last = many.execute("select max(id) - 10 from relevo.event_progress_deltas").fetchone()
    assert last is not None
    assert read(many, "reaper", "fold_progress", limit=1_000, after=last[0], left_out="{}") <= 10 * 4
    assert read(many, "reaper", "fold_progress", limit=5, after=0, left_out="{}") <= 5 * 4


ENDED = """
update relevo.notification_events set state = 'cancelled', ended_at = now(), swept_at = now(), updated_at = now() - interval '1 hour'
"""


def test_fan_outs_looks_read_nothing_of_what_is_over(many) -> None:
    """Among 20,000 events that fanned out, or ended and were swept, looks for what is due, ended or late read next to nothing."""
    asked = {
        "after_project": "", "given_up": [], "apart": [], "aside": [], "few": 100, "most_events": 1, "most": 10_000, "brake": True,
        "enough": 1, "at_once": False, "since": None, "due_since": None, "looks_since": None, "ended_since": None,
    }  # fmt: skip
    looks = ("fan_out_next", "look_beside", "find_first_turn", "find_first_ended", "pick_ended_event")
    with many.transaction(force_rollback=True):
        for _ in range(2):
            for name in looks:
                assert read(many, "fanout", name, "bound_relaxed", **asked) <= 3, name
            many.execute(ENDED)


COLLAPSING = """
with made as (
  insert into relevo.notification_events (event_type, event_key, title, audience, content_hash, state, event_day, fanout_started_at,
    fanout_finished_at, fanout_upto, collapse)
  select 'score', n::text, 'Hello', 'installations', '', 'fanned', now()::date, now(), now(), 0, 'match' from generate_series(1, 1000) n returning id
), given as (
  insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type)
  select now()::date, m.id, lpad('7', 32, '0')::uuid, 'score' from made m returning id, event_day, notification_event_id
)
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count,
  had_error, ids, installations)
select 'collapsing', 'bulk', now(), g.event_day, g.notification_event_id, 'score', now(), 0, 0, false, array[g.id], array[lpad('7', 32, '0')::uuid] from given g
"""


def test_a_claim_reads_what_a_phone_of_collapse_events_got_once(many) -> None:
    """Of one phone with 1,000 events of one collapse key a claim reads a few rows for each event, not all for each."""
    asked = {
        "token": uuid4(), "worker_id": "a", "cycle": "dispatch", "project": "collapsing", "lane": "bulk", "limit": 1_000,
        "shard_index": None, "shard_count": None, "only_types": None, "not_types": None, "not_worded": None, "suspect_lapses": 2,
        "since": None, "in_shadow": False, "lease_ms": 60_000,
    }  # fmt: skip
    with many.transaction(force_rollback=True):
        many.execute(COLLAPSING)
        assert read(many, "claims", "claim_due", "bound_by_key", **asked) <= 1_000 * 25
