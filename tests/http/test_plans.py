"""What the statements behind routes read: as much as they answer, not as much as there is."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from plans import rows_read_by_table
from relevo import queries

INSIGHTS = queries.load("insights")
MANY = 20_000
FILL = """
insert into relevo.notification_events (id, event_type, event_key, title, audience, content_hash, state, event_day, fanout_started_at,
  fanout_finished_at, fanout_upto)
overriding system value
select n, 't', n::text, 'Hello', 'everyone', '', 'fanned', current_date, now(), now(), 0 from generate_series(1, %(many)s) n;
insert into relevo.event_progress (event_id, status, deliveries) select n, 'ok', 1 from generate_series(1, %(many)s) n;
select relevo.ensure_partitions(current_date, 1);
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type)
select current_date, 7, gen_random_uuid(), 't' from generate_series(1, %(many)s) n;
insert into relevo.api_tokens (id, name, role, secret_hash)
select lpad(to_hex(n), 12, '0'), 'x', 'app', decode(repeat('00', 32), 'hex') from generate_series(1, %(many)s) n;
insert into relevo.audit_log (actor, face, action) select 'x', 'cli', 'pause' from generate_series(1, %(many)s) n;
insert into relevo.cycle_state (cycle, source) values ('dispatch', '');
insert into relevo.worker_runs (id, cycle, source, trigger, worker_id, started_at, finished_at, outcome, error_message)
overriding system value
select n, 'dispatch', '', 'schedule', 'x', now() - n * interval '10 seconds', now(), case n when 5 then 'failed' else 'ok' end, case n when 5 then 'x' end
  from generate_series(1, %(many)s) n;
analyze;
"""
PAGE = 50
STATEMENTS = [
    (queries.load("tokens"), "read_token", {"id": "00000000000a"}, 5),
    (queries.load("tokens"), "note_use", {"id": "00000000000a"}, 10),
    (queries.load("remote"), "look_at_events", {"ids": [7, 8, 9]}, 60),
    (queries.load("remote"), "own_events", {"ids": [7], "project": "x"}, 10),
    (queries.load("remote"), "find_foreign", {"ids": [7], "project": "x"}, 10),
    (INSIGHTS, "list_event_deliveries", {"event_id": 7, "after": None, "limit": PAGE}, 3 * PAGE),
    (INSIGHTS, "list_audit", {"before": 9_000, "action": None, "limit": PAGE}, 3 * PAGE),
    (INSIGHTS, "count_queue", {}, 200),
    (INSIGHTS, "list_due", {"most": 1_000, "limit": 10}, 200),
    (INSIGHTS, "sum_runs", {}, 50),
    (INSIGHTS, "read_last_error", {}, 250),
    (INSIGHTS, "find_scheduler", {}, 50),
]


@pytest.fixture
def full(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """Tables with many rows each."""
    for statement in FILL.replace("%(many)s", str(MANY)).split(";\n"):
        if statement.strip():
            conn.execute(statement.encode())
    return conn


def test_no_route_reads_a_whole_table(full: psycopg.Connection[Any]) -> None:
    """With 20,000 rows in every large table, each statement reads a page's worth."""
    read = {
        name: sum(rows_read_by_table(full, statements[name], parameters).values())
        for statements, name, parameters, _ in STATEMENTS
    }
    assert {name: read[name] for _, name, _, most in STATEMENTS if read[name] > most} == {}
