"""What an operator finds: something in every list, dead letters, phones that fare as their names say."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from support.http_server import EVENT, Served, fan_out

KILL = """
with dead as (
  update relevo.notification_deliveries set status = 'failed', completed_at = now(), attempt_count = 9, last_error_code = %(code)s,
         last_error_message = %(message)s where notification_event_id = %(event)s
  returning event_day, id, notification_event_id, project)
, queue as (delete from relevo.due_chunks where event_id = %(event)s)
, counted as (insert into relevo.event_progress_deltas (event_id, status, deliveries)
              select %(event)s, s.status, s.sign * count(*)::int from dead cross join (values ('pending', -1), ('failed', 1)) s(status, sign) group by 2, s.sign)
insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
select event_day, id, notification_event_id, project, %(code)s, now() from dead
"""
FILL = """
insert into relevo.worker_runs (cycle, source, trigger, worker_id, started_at, finished_at, outcome, error_message, counts)
select 'dispatch', '', 'schedule', 'one@host', now() - n * interval '1 minute', now() - n * interval '59 seconds',
       case when n % 40 = 0 then 'failed' else 'ok' end, case when n % 40 = 0 then %(nasty)s end, '{"notifications_sent": 7}'
  from generate_series(1, 120) n;
insert into relevo.worker_runs (cycle, source, trigger, worker_id, started_at, finished_at, outcome, counts)
values ('reaper', '', 'manual', 'two@host', now(), now(), 'ok', '{"claims_expired": 0}');
insert into relevo.cycle_state (cycle, source) values ('dispatch', ''), ('reaper', '') on conflict do nothing;
insert into relevo.source_state (source, cursor, last_outcome, last_detail, last_asked_at, last_ok_at, problems)
values ('folder', jsonb_build_object('passed', %(nasty)s::text), 'rejected', %(nasty)s, now(), now() - interval '3 hours', array[%(nasty)s::text]);
insert into relevo.source_lanes (lane, day, requests, pace_ms, not_before) values ('chilecompra-0011', (now() at time zone 'America/Santiago')::date, 120, 2000, now() + interval '1 minute');
insert into relevo.ingest_rejects (source, place, external_id, reason, attempts, retry_at)
select 'folder', 'file ' || n || %(nasty)s, 'X-' || n, %(nasty)s, n %% 6 + 1, case when n %% 2 = 0 then now() end from generate_series(1, 70) n;
insert into relevo.archive_exports (entity, month, state, relation, part_rows, parts, rows, bytes, manifest_sha256, sealed_at, retired_at, exported_at,
  verified_at, drop_eligible_at, last_error)
values ('notification_deliveries', '2026-05-01', 'verified', 'x', 1000, 3, 2500000, 91000000, repeat('a', 64), now(), now(), now(), now(), now() + interval '5 days', null);
insert into relevo.archive_exports (entity, month, state, relation, part_rows, sealed_at, last_error) values ('push_requests', '2026-05-01', 'sealed', 'y', 1000, now(), %(nasty)s);
insert into relevo.audit_log (actor, face, action, target, outcome, finished_at, error_message)
select 'somebody ' || n || %(nasty)s, 'http', case when n %% 3 = 0 then 'redrive' else 'pause' end, jsonb_build_object('reason', %(nasty)s::text),
       case when n %% 5 = 0 then 'failed' else 'ok' end, now(), case when n %% 5 = 0 then %(nasty)s end
  from generate_series(1, 120) n
"""


def fill(conn: psycopg.Connection[Any], nasty: str = "x") -> None:
    """Have something in every list, all of its text as nasty as wished."""
    for statement in FILL.replace("n % 40", "n %% 40").split(";\n"):
        conn.execute(statement.encode(), {"nasty": nasty[:150]})


def kill(
    served: Served,
    conn: psycopg.Connection[Any],
    *,
    code: str = "MessageTooBig",
    message: str = "too big",
    **event: Any,
) -> int:
    """Enqueue an event, fan it out, and have all its deliveries fail for good."""
    event_id: int = served.client("app").post("/v1/events", EVENT | event).json()["event_id"]
    fan_out(served)
    conn.execute(KILL, {"event": event_id, "code": code, "message": message[:400]})
    return event_id


def register(conn: psycopg.Connection[Any], name: str) -> UUID:
    """Register a phone whose token says what befalls it in the sandbox."""
    given = Jsonb({"token": f"ExponentPushToken[{name}]"})
    row = conn.execute("select relevo.register_installation(%s)", [given]).fetchone()
    assert row is not None
    return UUID(str(row[0]))


def run(served: Served, cycle: str) -> None:
    """Run a cycle once."""
    served.app.runner.run(served.app.registry[cycle], "manual")
