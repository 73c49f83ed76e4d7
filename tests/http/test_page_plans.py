"""What the statements behind pages read with many rows in every table: a page's worth, or as much as they are bound to look at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from plans import rows_read_by_table
from relevo.core import queries

MANY = 20_000
PAGE = 50
HASH = b"\x00" * 28 + (77).to_bytes(4, "big")
FILL = """
insert into relevo.api_tokens (id, name, role, secret_hash)
select lpad(to_hex(n), 12, '0'), 'x', 'viewer', decode(repeat('00', 32), 'hex') from generate_series(1, {many}) n;
insert into relevo.http_sessions (secret_hash, token_id, expires_at)
select decode(repeat('00', 28) || lpad(to_hex(n), 8, '0'), 'hex'), lpad(to_hex(n), 12, '0'), now() + interval '1 hour' from generate_series(1, {many}) n;
insert into relevo.cycle_state (cycle, source) values ('dispatch', ''), ('reaper', ''), ('ingest', 'folder');
insert into relevo.worker_runs (id, cycle, source, trigger, worker_id, started_at, finished_at, outcome)
overriding system value
select n, case when n % 3 = 0 then 'reaper' else 'dispatch' end, '', 'schedule', 'x', now() - n * interval '10 seconds', now(),
       case when n % 9999 = 0 then 'partial' else 'ok' end
  from generate_series(1, {many}) n;
insert into relevo.audit_log (actor, face, action, outcome, finished_at) select 'x', 'cli', 'pause', 'ok', now() from generate_series(1, {many}) n;
insert into relevo.source_state (source) values ('folder');
insert into relevo.audit_log (at, actor, face, action, target, outcome, result, finished_at)
select now() - n * interval '1 minute', 'x', 'cli', case when n % 2 = 0 then 'pause' else 'resume' end, '{"cycle": "dispatch", "reason": "x"}', 'ok',
       '{"answer": true}', now() from generate_series(1, {many}) n;
insert into relevo.ingest_rejects (source, place, reason) select 'folder', n::text, 'x' from generate_series(1, {many}) n;
insert into relevo.notification_events (id, event_type, event_key, title, audience, content_hash, state, event_day, fanout_started_at,
  fanout_finished_at, fanout_upto)
overriding system value
select n, 't', n::text, 'Hello', 'everyone', '', 'fanned', current_date, now(), now(), 0 from generate_series(1, 20) n;
select relevo.ensure_partitions(current_date, 1);
insert into relevo.notification_deliveries (event_day, id, notification_event_id, installation_id, event_type, status, completed_at)
select current_date, n, n % 20 + 1, gen_random_uuid(), 't', 'failed', now() from generate_series(1, {many}) n;
insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
select current_date, n, n % 20 + 1, 'default', 'c' || n % 4, now() from generate_series(1, {many}) n;
insert into relevo.failed_attempts (event_day, delivery_id, n, at, attempt, found_by, became)
select current_date, n, 1, now(), 1, 'dispatch', 'failed' from generate_series(1, {many}) n;
insert into relevo.event_audience (event_id, installation_id) select 1, gen_random_uuid() from generate_series(1, {many}) n;
insert into relevo.device_installations (owner, token) select 'owner-' || n, 'token-' || n from generate_series(1, {many}) n;
insert into relevo.event_progress (event_id, status, deliveries) select n, 'failed', 1 from generate_series(1, {many}) n;
insert into relevo.projects (project, filled_at) values ('default', now());
insert into relevo.push_minutes (project, minute, sent, answers, unregistered, confirmed, failed)
select 'default', date_trunc('minute', now()) - n * interval '1 minute', 1, 1, 0, 1, 0 from generate_series(1, {many}) n;
insert into relevo.push_tallies (project, at, sent, answers, unregistered, confirmed, failed)
select 'default', now() - n * interval '1 minute', 1, 1, 0, 1, 0 from generate_series(1, {many}) n;
analyze
"""
OPERATORS = queries.load("events", "deliveries", "phones", "runs", "sources", "archive", "fleet", "audit", "tenders")
ACTIONS, TOKENS = queries.load("actions"), queries.load("tokens")
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
DEAD = {
    "ids": None,
    "error_code": "c1",
    "event_id": None,
    "project": None,
    "event_type": None,
    "look": 500,
    "most": 1_000,
}
STATEMENTS = [
    (TOKENS, "read_session", {"secret_hash": HASH}, 10),
    (TOKENS, "add_session", {"secret_hash": b"\x01" * 32, "token_id": "00000000000a", "hours": 12}, 10),
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
    (OPERATORS, "list_failed_attempts", {"event_day": datetime.now(UTC).date(), "id": 77}, 5),
    (OPERATORS, "list_event_deliveries", {"event_id": 7, "after": None, "limit": PAGE}, 3 * PAGE),
    (ACTIONS, "try_redrive", DEAD, 3 * 1_000 + 4 * 500),
    (OPERATORS, "begin_audit", {"actor": "x", "face": "cli", "action": "x", "target": "{}"}, 5),
    (OPERATORS, "finish_audit", {"id": 7, "outcome": "failed", "result": "{}", "error_message": "x"}, 5),
]


@pytest.fixture
def full(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """Tables with many rows each."""
    for statement in FILL.replace("{many}", str(MANY)).split(";\n"):
        conn.execute(statement.encode())
    return conn


def test_no_page_reads_a_whole_table(full: psycopg.Connection[Any]) -> None:
    """Each statement reads no more than it shows, or looks at."""
    read = {
        f"{name} {number}": (sum(rows_read_by_table(full, statements[name], parameters).values()), most)
        for number, (statements, name, parameters, most) in enumerate(STATEMENTS)
    }
    assert {name: each for name, each in read.items() if each[0] > each[1]} == {}
    since = full.execute("select now() - interval '1 hour'").fetchone()
    assert since is not None
    pushes = rows_read_by_table(full, OPERATORS["list_pushes"], {"since": since[0], "every_s": 60})
    assert sum(pushes.values()) <= 2 * 60 + 10
