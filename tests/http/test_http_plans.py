"""What the statements behind routes and pages read: as much as they answer, or are bound to look at, not as much as there is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from relevo.config import Settings
from relevo.core import queries
from relevo.database.pool import Database
from relevo.operators import events
from support.deliveries import TODAY
from support.query_plans import rows_read_by_table, rows_read_so_far

OPERATORS = queries.load("events", "deliveries", "phones", "runs", "sources", "archive", "fleet", "audit", "tenders")
PAGES = queries.load("events", "deliveries", "phones", "tenders")
"""Statements whose plans are kept while pages are looked at."""
MANY = 20_000
FILL = """
insert into relevo.notification_events (id, event_type, event_key, title, audience, content_hash, state, event_day, fanout_started_at,
  fanout_finished_at, fanout_upto)
overriding system value
select n, 't', n::text, 'Hello', 'everyone', '', 'fanned', current_date, now(), now(), 0 from generate_series(1, %(many)s) n;
select setval('relevo.notification_events_id_seq', %(many)s);
insert into relevo.event_progress (event_id, status, deliveries) select n, 'ok', 1 from generate_series(1, %(many)s) n;
select relevo.ensure_partitions(current_date, 1);
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type)
select current_date, 7, gen_random_uuid(), 't' from generate_series(1, %(many)s) n;
insert into relevo.api_tokens (id, name, role, secret_hash)
select lpad(to_hex(n), 12, '0'), 'x', 'app', decode(repeat('00', 32), 'hex') from generate_series(1, %(many)s) n;
insert into relevo.audit_log (actor, face, action) select 'x', 'cli', 'pause' from generate_series(1, %(many)s) n;
insert into relevo.cycle_state (cycle, source) values ('dispatch', '');
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, status, completed_at, last_error_code)
select current_date, 8, lpad(to_hex(n), 32, '0')::uuid, 't', 'failed', now(), 'MessageTooBig' from generate_series(1, %(many)s) n;
insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
select event_day, id, notification_event_id, project, last_error_code, now() from relevo.notification_deliveries where status = 'failed';
insert into relevo.failed_attempts (event_day, delivery_id, n, at, attempt, found_by, became)
select l.event_day, l.delivery_id, 1, now(), 1, 'dispatch', 'failed' from relevo.dead_letters l;
insert into relevo.device_installations (installation_id, token, owner)
select lpad(to_hex(n), 32, '0')::uuid, 'ExponentPushToken[' || n || ']', 'user-' || n from generate_series(1, %(many)s) n;
insert into relevo.notification_preferences (installation_id, name, topics)
select lpad(to_hex(n), 32, '0')::uuid, 'default', array['team-' || n] from generate_series(1, %(many)s) n;
insert into relevo.event_streams (event_type, origin, known_since, held_at, held_reason) select 'held', n::text, now(), now(), 'x' from generate_series(1, 3) n;
insert into relevo.held_events (event_id, stream_id, held_at, reason) select n, (select min(s.id) from relevo.event_streams s), now(), 'x' from generate_series(1, %(many)s) n;
insert into relevo.event_repeats (event_id, since, repeats) select n, now(), 1 from generate_series(1, %(many)s) n;
insert into relevo.projects (project, filled_at) values ('p', now());
insert into relevo.worker_runs (id, cycle, source, trigger, worker_id, started_at, finished_at, outcome, error_message)
overriding system value
select n, 'dispatch', '', 'schedule', 'x', now() - n * interval '10 seconds', now(), case n when 5 then 'failed' else 'ok' end, case n when 5 then 'x' end
  from generate_series(1, %(many)s) n;
insert into relevo.licitaciones (namespace, external_id, nombre, sources, fingerprint)
select 'mp', n || '-1-LE26', 'Agua', '{x}', 'x' from generate_series(1, %(many)s) n;
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, last_attempt_at)
select current_date, 9, lpad(to_hex(n), 32, '0')::uuid, 't', now() from generate_series(1, 3) n;
insert into relevo.push_requests (request_day, id, claim_token, worker_id, journalled_at, days, ids)
select current_date + n % 20, gen_random_uuid(), gen_random_uuid(), 'x', now() + n % 20 * interval '1 day', array[current_date], array[n] from generate_series(1, %(many)s) n;
analyze;
"""
FILL_FOR_PAGES = """
insert into relevo.api_tokens (id, name, role, secret_hash)
select lpad(to_hex(n), 12, '0'), 'x', 'viewer', decode(repeat('00', 32), 'hex') from generate_series(1, %(many)s) n;
insert into relevo.http_sessions (secret_hash, token_id, expires_at)
select decode(repeat('00', 28) || lpad(to_hex(n), 8, '0'), 'hex'), lpad(to_hex(n), 12, '0'), now() + interval '1 hour' from generate_series(1, %(many)s) n;
insert into relevo.cycle_state (cycle, source) values ('dispatch', ''), ('reaper', ''), ('ingest', 'folder');
insert into relevo.worker_runs (id, cycle, source, trigger, worker_id, started_at, finished_at, outcome)
overriding system value
select n, case when n % 3 = 0 then 'reaper' else 'dispatch' end, '', 'schedule', 'x', now() - n * interval '10 seconds', now(),
       case when n % 9999 = 0 then 'partial' else 'ok' end
  from generate_series(1, 4 * %(many)s) n;
insert into relevo.audit_log (actor, face, action, outcome, finished_at) select 'x', 'cli', 'pause', 'ok', now() from generate_series(1, %(many)s) n;
insert into relevo.source_state (source) values ('folder');
insert into relevo.audit_log (at, actor, face, action, target, outcome, result, finished_at)
select now() - n * interval '1 minute', 'x', 'cli', case when n % 2 = 0 then 'pause' else 'resume' end, '{"cycle": "dispatch", "reason": "x"}', 'ok',
       '{"answer": true}', now() from generate_series(1, %(many)s) n;
insert into relevo.ingest_rejects (source, place, reason) select 'folder', n::text, 'x' from generate_series(1, %(many)s) n;
insert into relevo.notification_events (id, event_type, event_key, title, audience, content_hash, state, event_day, fanout_started_at,
  fanout_finished_at, fanout_upto)
overriding system value
select n, 't', n::text, 'Hello', 'everyone', '', 'fanned', current_date, now(), now(), 0 from generate_series(1, 20) n;
select relevo.ensure_partitions(current_date, 1);
insert into relevo.notification_deliveries (event_day, id, notification_event_id, installation_id, event_type, status, completed_at)
select current_date, n, n % 20 + 1, gen_random_uuid(), 't', 'failed', now() from generate_series(1, %(many)s) n;
insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
select current_date, n, n % 20 + 1, 'default', 'c' || n % 4, now() from generate_series(1, %(many)s) n;
insert into relevo.failed_attempts (event_day, delivery_id, n, at, attempt, found_by, became)
select current_date, n, 1, now(), 1, 'dispatch', 'failed' from generate_series(1, %(many)s) n;
insert into relevo.event_audience (event_id, installation_id) select 1, gen_random_uuid() from generate_series(1, %(many)s) n;
insert into relevo.device_installations (owner, token) select 'owner-' || n, 'token-' || n from generate_series(1, %(many)s) n;
insert into relevo.event_progress (event_id, status, deliveries) select n, 'failed', 1 from generate_series(1, %(many)s) n;
insert into relevo.projects (project, filled_at) values ('default', now());
insert into relevo.push_minutes (project, minute, sent, answers, unregistered, confirmed, failed)
select 'default', date_trunc('minute', now()) - n * interval '1 minute', 1, 1, 0, 1, 0 from generate_series(1, %(many)s) n;
insert into relevo.push_tallies (project, at, sent, answers, unregistered, confirmed, failed)
select 'default', now() - n * interval '1 minute', 1, 1, 0, 1, 0 from generate_series(1, %(many)s) n;
analyze;
"""
PAGE = 50
ACTIONS, DEVICES, DOOR = queries.load("actions"), queries.load("phone_access"), queries.load("client")
TOKENS, SESSIONS = queries.load("api_tokens"), queries.load("sessions")
BEGUN = {"secret_hash": b"\x01" * 32, "token_id": "00000000000a", "hours": 12, "idle_minutes": 480, "address": None}
HASH = b"\x00" * 28 + (77).to_bytes(4, "big")
DEAD: dict[str, Any] = {"ids": None, "error_code": None, "event_id": None, "project": None, "event_type": None}
REDRIVE = {**DEAD, "after": 0, "limit": PAGE, "began": "infinity", "now": None}
PHONE = {"installation_id": UUID(int=7), "token": "ExponentPushToken[7]"}
PREVIEWED = json.dumps({"type": "t", "key": "k", "title": "Hello", "audience": "matching", "topics": ["team-7"]})
EVENTS = {"event_type": None, "state": None, "project": None, "before": 9_000, "limit": PAGE}
DELIVERIES: dict[str, Any] = dict.fromkeys(("day", "number", "event_id", "installation_id", "state"))
DELIVERIES |= {"limit": 20, "look_at": 20}
PUSHES = {"event_id": 7, "event_day": TODAY, "after": None, "limit": PAGE}
REQUESTS: dict[str, Any] = {
    "event_day": TODAY,
    "since": datetime.now(UTC) - timedelta(hours=1),
    "until": datetime.now(UTC) + timedelta(hours=1),
    "after": UUID(int=0),
    "most": 5_000,
    "limit": 20,
}
LEFT_OUT: dict[str, Any] = {
    "installations": [],
    "owners": [],
    "everyone": False,
    "category": None,
    "project": None,
    "most": 5_000,
}
A_DAY = MANY // 20
"""How many requests there are of a day."""
STATEMENTS = [
    (PAGES, "list_recent_events", {**EVENTS, "look": PAGE}, 8 * PAGE),
    (PAGES, "list_recent_events", {**EVENTS, "state": "held", "look": 5_000}, 5_100),
    (PAGES, "list_event_types", {"limit": PAGE}, 10),
    (PAGES, "read_event", {"event_id": 7, "most": 100}, 20),
    (PAGES, "sum_event_sample", {"event_id": 7, "event_day": TODAY, "most": 5_000}, 5_100),
    (PAGES, "list_event_errors", {"event_id": 8, "event_day": TODAY, "most": 5_000}, 7_200),
    (PAGES, "list_event_requests", {**REQUESTS, "event_id": 9, "by_key": False, "look_at": 500}, 3 * A_DAY),
    (PAGES, "list_event_requests", {**REQUESTS, "event_id": 8, "by_key": False, "look_at": 500}, 3 * A_DAY + 5_000),
    (PAGES, "list_event_requests", {**REQUESTS, "event_id": 7, "by_key": True, "look_at": 150}, 3 * A_DAY + 150),
    (PAGES, "find_delivery", {"id": 17_000}, 50),
    (PAGES, "read_delivery_wait", {"id": 7, "event_id": 7, "project": "p", "open": True, "sent_at": None}, 20),
    (PAGES, "read_delivery_wait", {"id": 7, "event_id": 7, "project": "p", "open": False, "sent_at": None}, 20),
    (
        PAGES,
        "list_delivery_requests",
        {"id": 7, "first_day": TODAY, "last_day": TODAY, "since": "-infinity", "until": "infinity"},
        4 * A_DAY,
    ),
    (PAGES, "list_late_tickets", {"event_day": TODAY, "id": 7}, 5),
    (PAGES, "list_event_deliveries_by_status", {**PUSHES, "status": None, "look_at": PAGE}, 3 * PAGE),
    (PAGES, "list_event_deliveries_by_status", {**PUSHES, "status": "ok", "look_at": 5_000}, 5_100),
    (PAGES, "find_end_of_look", {**PUSHES, "look_at": 5_000}, 5_100),
    (PAGES, "list_failed_of_event", {**PUSHES, "event_id": 8}, 6 * PAGE),
    (PAGES, "list_phones", {"installations": [UUID(int=7)]}, 5),
    (PAGES, "list_phones_of_owner", {"owner": "user-7", "limit": 20}, 5),
    (PAGES, "list_preferences_of_phones", {"installations": [UUID(int=7)], "limit": PAGE}, 5),
    (PAGES, "count_left_out", {**LEFT_OUT, "installations": [UUID(int=7)]}, 5),
    (PAGES, "count_left_out", {**LEFT_OUT, "owners": ["user-7"]}, 5),
    (PAGES, "count_left_out", {**LEFT_OUT, "everyone": True}, 5_100),
    (PAGES, "list_changes_since", {"event_id": 7, "installations": [UUID(int=7)]}, 10),
    (
        PAGES,
        "list_history",
        {"installations": [UUID(int=1), UUID(int=2)], "owner": None, "before": None, "limit": PAGE},
        20,
    ),
    (OPERATORS, "list_unknown_owners", {"owners": [f"user-{n}" for n in range(100)]}, 100),
    (PAGES, "find_event", {"event_id": 7}, 5),
    (PAGES, "find_events_by_key", {"key": "17", "limit": 20}, 20),
    (PAGES, "find_phone", PHONE, 5),
    (PAGES, "find_owner", {"owner": "user-7"}, 5),
    (PAGES, "find_tenders", {"code": "17-1-LE26", "limit": 20}, 20),
    (TOKENS, "read_token", {"id": "00000000000a"}, 5),
    (TOKENS, "note_use", {"id": "00000000000a"}, 10),
    (queries.load("verbs"), "look_at_events", {"ids": [7, 8, 9]}, 60),
    (OPERATORS, "list_event_deliveries", {"event_id": 7, "after": None, "limit": PAGE}, 3 * PAGE),
    (OPERATORS, "list_deliveries", DELIVERIES, 60),
    (OPERATORS, "list_deliveries", {**DELIVERIES, "day": TODAY, "number": 30_000}, 60),
    (OPERATORS, "list_deliveries_of_event", {**DELIVERIES, "event_id": 7}, 60),
    (OPERATORS, "list_deliveries_of_phone", {**DELIVERIES, "installation_id": UUID(int=7)}, 60),
    (OPERATORS, "list_failures_of", {"days": [TODAY] * PAGE, "ids": [*range(MANY + 1, MANY + PAGE + 1)]}, 2 * PAGE),
    (OPERATORS, "list_audit", {"before": 9_000, "action": None, "limit": PAGE}, 3 * PAGE),
    (OPERATORS, "count_queue", {}, 200),
    (OPERATORS, "count_dead_letters", {"most": 1_000}, 1_100),
    (OPERATORS, "list_events", {"event_type": None, "state": None, "before": None, "limit": PAGE}, 3 * PAGE),
    (OPERATORS, "list_due", {"most": 1_000, "limit": 10}, 200),
    (OPERATORS, "sum_runs", {}, 50),
    (OPERATORS, "read_last_error", {}, 250),
    (OPERATORS, "find_scheduler", {}, 50),
    (OPERATORS, "list_runs", {"cycle": None, "outcome": "failed", "limit": PAGE}, 3 * PAGE),
    (ACTIONS, "count_dead", {**DEAD, "error_code": "MessageTooBig", "most": PAGE}, 6 * PAGE),
    (ACTIONS, "count_dead", {**DEAD, "event_id": 8, "most": PAGE}, 6 * PAGE),
    (ACTIONS, "redrive_dead", {**REDRIVE, "error_code": "MessageTooBig"}, 12 * PAGE),
    (ACTIONS, "redrive_dead", {**REDRIVE, "event_id": 8}, 12 * PAGE),
    (ACTIONS, "release_project", {"project": "p"}, 20),
    (ACTIONS, "release_streams", {"event_type": "held", "origin": None, "detail": "x"}, 60),
    (
        ACTIONS,
        "release_events",
        {"event_type": "held", "origin": None, "drop": False, "last_event": 10**9, "limit": PAGE, "named": 20},
        12 * PAGE,
    ),
    (ACTIONS, "release_repeats", {"event_type": "held", "origin": None, "drop": False, "named": 20}, 60),
    (DEVICES, "lock_device", PHONE, 10),
    (DEVICES, "lock_token", {**PHONE, "provider": "fcm", "environment": None}, 10),
    (DEVICES, "lock_phones", {**PHONE, "token_hash": hashlib.sha256(PHONE["token"].encode()).digest()}, 10),
    (DEVICES, "read_device", PHONE, 10),
    (DEVICES, "list_history", {**PHONE, "project": None, "own": True, "before": None, "limit": PAGE}, 3 * PAGE),
    (DEVICES, "list_preferences", {**PHONE, "name": None, "limit": PAGE}, 3 * PAGE),
    (DOOR, "list_installations", {"owner": "user-7", "limit": PAGE}, 10),
    (DOOR, "preview_event", {"event": PREVIEWED, "sample": 10}, 60),
    (DOOR, "explain_new_event", {"event": PREVIEWED, **PHONE}, 60),
]

LONG_AGO = datetime.now(UTC) - timedelta(days=5)
SPANS = {"cycles": ["dispatch"], "sources": [""], "sinces": [LONG_AGO - timedelta(days=1)]}
RUNS = {
    "cycle": None,
    "source": None,
    "outcome": None,
    "worker": None,
    "hours": None,
    "before_at": None,
    "before": None,
    "limit": PAGE + 1,
}
AUDIT = {"action": None, "outcome": None, "actor": None, "hours": None, "before": 9_000, "limit": PAGE + 1}
TRIED = {**DEAD, "error_code": "c1", "look": 500, "most": 1_000}
OF_PAGES = [
    (SESSIONS, "read_session", {"secret_hash": HASH}, 10),
    (SESSIONS, "add_session", BEGUN, MANY // 2 + 10),  # it deletes those that ended
    (OPERATORS, "list_durations", {"limit": 24}, 200),
    (OPERATORS, "count_phones", {"most": 500}, 2 * 500),
    (OPERATORS, "sum_event_types", {"look_at": 20, "limit": 12}, 6 * 20),
    (OPERATORS, "list_owners", {"first": "owner-7", "behind": True, "limit": 26, "most": 50}, 6 * 26),
    (OPERATORS, "list_owners_of", {"installations": [UUID(int=n) for n in range(20)]}, 50),
    (OPERATORS, "find_used", {}, 5),
    (OPERATORS, "list_cycles", {}, 50),
    (OPERATORS, "list_source_names", {}, 20),
    (OPERATORS, "list_sources", {"given_up_attempts": 5, "most": 500}, 550),
    (OPERATORS, "describe_sources", {"given_up_attempts": 5, "most": 500}, 550),
    (OPERATORS, "page_runs", RUNS | {"look": PAGE + 1}, 5 * PAGE),
    (OPERATORS, "page_runs", RUNS | {"look": 500, "outcome": "running"}, 5 * 500),
    (OPERATORS, "page_troubled_runs", RUNS | {"look": 500, "outcome": "failed"}, 10),
    (OPERATORS, "page_runs", RUNS | {"look": PAGE + 1, "cycle": "reaper"}, 4 * PAGE),
    (OPERATORS, "read_run", {"run_id": 7}, 10),
    (OPERATORS, "page_audit", AUDIT | {"look": PAGE + 1}, 2 * PAGE),
    (OPERATORS, "page_audit", AUDIT | {"look": 500, "action": "nothing"}, 2 * 500),
    (OPERATORS, "page_rejects", {"source": None, "before": None, "look": 500, "limit": PAGE + 1}, 2 * 500),
    (OPERATORS, "group_dead_letters", {"look": 500}, 3 * 500),
    (OPERATORS, "list_named_phones", {"event_id": 1, "limit": 20}, 50),
    (OPERATORS, "page_archive", {"before": None, "limit": 61}, 10),
    (OPERATORS, "find_event_spans", {"event_id": 7, "most": 200}, 250),
    (OPERATORS, "list_pauses", SPANS | {"untils": [datetime.now(UTC)], "look": 20}, 100),
    (OPERATORS, "list_pauses", SPANS | {"untils": [LONG_AGO], "look": 20}, 100),
    (OPERATORS, "list_failed_attempts", {"event_day": TODAY, "id": 77}, 5),
    (OPERATORS, "list_event_deliveries", {"event_id": 7, "after": None, "limit": PAGE}, 3 * PAGE),
    (ACTIONS, "try_redrive", TRIED, 3 * 1_000 + 4 * 500),
    (OPERATORS, "begin_audit", {"actor": "x", "face": "cli", "action": "x", "target": "{}"}, 5),
    (OPERATORS, "finish_audit", {"id": 7, "outcome": "failed", "result": "{}", "error_message": "x"}, 5),
]


@pytest.fixture(scope="module")
def full(module_settings: Callable[..., Settings]) -> Iterator[psycopg.Connection[Any]]:
    """Tables with many rows each, in the database that the tests of routes share."""
    with psycopg.connect(module_settings().database_url, autocommit=True) as conn:
        fill(conn, FILL)
        yield conn


def fill(conn: psycopg.Connection[Any], rows: str, many: int = MANY) -> None:
    """Insert so many rows of each kind."""
    for statement in rows.replace("%(many)s", str(many)).split(";\n"):
        conn.execute(statement.encode())


def beyond(conn: psycopg.Connection[Any], statements: Any, name: str, parameters: Any, most: int) -> Any:
    """Return what a statement read, by table, if that is more than it may."""
    tables = rows_read_by_table(conn, statements[name], parameters)
    return (name, tables) if sum(tables.values()) > most else None


def test_no_route_reads_a_whole_table(full: psycopg.Connection[Any]) -> None:
    """With 20,000 rows in every large table, each statement reads a page's worth; those of pages also when their plan is kept."""
    assert [found for each in STATEMENTS if (found := beyond(full, *each))] == []
    full.prepare_threshold = 0
    full.execute("set plan_cache_mode = force_generic_plan")
    try:
        assert [found for each in STATEMENTS if each[0] is PAGES and (found := beyond(full, *each))] == []
    finally:
        full.prepare_threshold = 5
        full.execute("reset plan_cache_mode")


def test_no_page_reads_a_whole_table(conn: psycopg.Connection[Any]) -> None:
    """Each statement reads no more than it shows, or looks at.

    There are more runs than of all else: where a page looks at a twentieth of them, to sort them all costs about as much
    as to follow the index, and two pages of rows that a test before this one deleted decide which is done.
    """
    fill(conn, FILL_FOR_PAGES, MANY // 2)
    since = datetime.now(UTC) - timedelta(hours=1)
    pushes = (OPERATORS, "list_pushes", {"since": since, "every_s": 60}, 2 * 60 + 10)
    assert [found for each in (*OF_PAGES, pushes) if (found := beyond(conn, *each))] == []


def test_an_events_errors_are_read_in_part_whatever_was_expected(
    full: psycopg.Connection[Any], module_settings: Callable[..., Settings]
) -> None:
    """Where statistics say that an event has few deliveries, and it has many, what went wrong is found in a part of them."""
    partition = f"relevo.notification_deliveries_{TODAY:%Y_%m}"
    full.execute(f"alter table {partition} alter notification_event_id set (n_distinct = 20000)".encode())
    full.execute(f"analyze {partition}".encode())
    before = rows_read_so_far(full, "notification_deliveries%")
    settings = module_settings()
    database = Database(settings.database_url, settings.database_url, settings)
    try:
        story = events.story(database, 8)
    finally:
        database.close()
    assert story is not None
    assert story.errors[0]["deliveries"] >= 2_000
    assert rows_read_so_far(full, "notification_deliveries%") - before < 7_000
