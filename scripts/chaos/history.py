"""The history of a run, as files that any program can read: what was told, what phones got, what the tables hold."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.rows import dict_row

from chaos import archive
from chaos.stage import Stage, write_lines

TABLES = {
    "events": """
        select id, event_type, event_key, state, at_most_once, targets_selected, deliveries_created
          from relevo.notification_events
    """,
    "deliveries": """
        select id, notification_event_id as event, installation_id as installation, provider, status,
               attempt_count as attempts
          from relevo.notification_deliveries where event_type <> 'old'
    """,
    "requests": """
        select id, claim_token as claim, worker_id as worker, project, extract(epoch from journalled_at)::float8 as at,
               journalled_at, answered_at, outcome, ids
          from relevo.push_requests
    """,
    "failed_attempts": """
        select delivery_id as delivery, n, attempt, found_by, became, error_code, request_id as request
          from relevo.failed_attempts
    """,
    "dead_letters": "select delivery_id as delivery, error_code from relevo.dead_letters",
    "queue": "select id, ids from relevo.due_chunks",
    "claims": "select token, cycle, ids from relevo.claims where cycle <> 'receipt'",
    "late_tickets": "select delivery_id as delivery, ticket_id as ticket from relevo.late_tickets",
    "counts": """
        select event_id as event, status, sum(deliveries)::int as deliveries
          from (select event_id, status, deliveries from relevo.event_progress
                union all
                select event_id, status, deliveries from relevo.event_progress_deltas) c
         group by 1, 2
    """,
    "runs": "select id, cycle, source, slot_at, outcome, counts from relevo.worker_runs",
    "phones": "select installation_id as installation, owner from relevo.device_installations",
    "marks": """
        select i.owner, m.event_id as event, m.read_at is not null as is_read
          from relevo.inbox_marks m join relevo.inboxes i on i.id = m.inbox_id
    """,
    "incidents": "select project, what, detail from relevo.project_incidents",
    "steps": """
        select s.delivery_id, s.at_most_once, coalesce(s.max_attempts, 50) as max_attempts, s.status, s.attempts,
               s.place, s.is_journalled, s.has_late
          from relevo_trace.steps s order by s.n
    """,
}
"""What is written of each table."""
_ALL_TABLES = """
select format('%I.%I', n.nspname, c.relname)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname in ('relevo', 'relevo_archive') and c.relkind = 'r'
"""
_NAMES = "select distinct m[1] from {table} t cross join regexp_matches(t::text, 'person-writer-[0-9]+-[0-9]+-', 'g') m"


def write(stage: Stage, told: list[dict[str, Any]]) -> dict[str, int]:
    """Write the files; return how many lines each has."""
    folder = stage.folder / "history"
    folder.mkdir(exist_ok=True)
    written = {"told": write_lines(folder / "told.jsonl", iter(told))}
    written["received"] = write_lines(folder / "received.jsonl", _received(stage))
    written["names"] = write_lines(folder / "names.jsonl", _names(stage))
    written["archived"] = write_lines(folder / "archived.jsonl", archive.read(stage))
    with psycopg.connect(stage.dsn, row_factory=dict_row) as conn:
        for name, query in TABLES.items():
            written[name] = write_lines(folder / f"{name}.jsonl", iter(conn.execute(query.encode())))
    return written


def _received(stage: Stage) -> Iterator[dict[str, Any]]:
    for token, counted in stage.sandbox.phones().items():
        with urllib.request.urlopen(
            f"{stage.sandbox.url}/sandbox/phones/{quote(token, safe='')}", timeout=30
        ) as answer:
            messages = json.load(answer)["messages"]
        assert len(messages) >= counted["received"], "the sandbox forgot messages: run for fewer minutes"
        for each in messages:
            yield {
                "phone": token,
                "delivery": int(each["message"]["data"]["notificationDeliveryId"]),
                "at": each["receivedAt"],
            }


def _names(stage: Stage) -> Iterator[dict[str, Any]]:
    """Yield each name of a person that is anywhere in a table."""
    with stage.connect() as conn:
        for (table,) in conn.execute(_ALL_TABLES).fetchall():
            for (name,) in conn.execute(_NAMES.format(table=table).encode()).fetchall():
                yield {"table": table, "name": name}
