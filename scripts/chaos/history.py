"""The history of a run, as files that any program can read: what was told, what phones got, what the tables hold."""

from __future__ import annotations

import gzip
import json
import shutil
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.rows import dict_row

from chaos import archive
from chaos.system import System, write_lines

TABLES = {
    "events": """
        select id, event_type, event_key, state, at_most_once, targets_selected, deliveries_created
          from relevo.notification_events
    """,
    "deliveries": """
        select id, notification_event_id as event, installation_id as installation, provider, status,
               attempt_count as attempts, last_error_code as code
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
    "digests": """
        select g.event_id as digest, g.delivery, g.zone, g.closed_at, i.installation_id as installation,
               array(select g.event_id - o from unnest(c.offsets) o) as items
          from relevo.digests g
          join relevo.digest_contents c on c.event_id = g.event_id
          join relevo.device_installations i on i.seq = c.seq
    """,
    "incidents": "select project, what, detail from relevo.project_incidents",
    "steps": """
        select s.delivery_id, s.at_most_once, coalesce(s.max_attempts, 50) as max_attempts, s.status, s.attempts,
               s.place, s.is_journalled, s.has_late
          from relevo_trace.steps s order by s.n
    """,
}
"""The values written of each table."""
_ALL_TABLES = """
select format('%I.%I', n.nspname, c.relname)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname in ('relevo', 'relevo_archive') and c.relkind = 'r'
"""
_NAMES = "select distinct m[1] from {table} t cross join regexp_matches(t::text, 'person-writer-[0-9]+-[0-9]+-', 'g') m"


_KEPT = """The history of a run of `make chaos`, one JSON object a line: told.jsonl is what the app was told and when,
received.jsonl what phones got, the others are tables as they were in the end. To judge it, in a checkout of Relevo,
with Node.js alone:

    node scripts/chaos/check.mjs {folder}

To step the specification along it, after `npm ci` in scripts/model:

    node scripts/model/replay.mjs {folder}/history/steps.jsonl.gz
"""


class Received:
    """The messages that phones got, gathered while the sandbox still shows them."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._seen: Counter[str] = Counter()
        self.lines: list[dict[str, Any]] = []

    def gather(self, behind: int = 0) -> None:
        """Ask for the messages of phones that got more than so many since they were asked last."""
        for token, counted in self._system.sandbox.phones().items():
            if counted["received"] - self._seen[token] > behind:
                self._ask(token)

    def _ask(self, token: str) -> None:
        address = f"{self._system.sandbox.url}/sandbox/phones/{quote(token, safe='')}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            phone = json.load(answer)
        new = phone["received"] - self._seen[token]
        assert new <= len(phone["messages"]), f"the sandbox forgot messages of {token}"
        for each in phone["messages"][len(phone["messages"]) - new :]:
            delivery = int(each["message"]["data"]["notificationDeliveryId"])
            self.lines.append({"phone": token, "delivery": delivery, "at": each["receivedAt"]})
        self._seen[token] += new


def write(system: System, told: list[dict[str, Any]], received: Received) -> dict[str, int]:
    """Write the files; return how many lines each has."""
    folder = system.folder / "history"
    folder.mkdir(exist_ok=True)
    received.gather()
    written = {"told": write_lines(folder / "told.jsonl", iter(told))}
    written["received"] = write_lines(folder / "received.jsonl", iter(received.lines))
    written["names"] = write_lines(folder / "names.jsonl", _names(system))
    written["archived"] = write_lines(folder / "archived.jsonl", archive.read(system))
    with psycopg.connect(system.dsn, row_factory=dict_row) as conn:
        for name, query in TABLES.items():
            written[name] = write_lines(folder / f"{name}.jsonl", iter(conn.execute(query.encode())))
    return written


def keep(run: Path, into: Path) -> None:
    """Keep what the checker reads of a run, compressed, for whoever wants to check it."""
    shutil.rmtree(into, ignore_errors=True)
    (into / "history").mkdir(parents=True)
    for path in (*run.glob("*.log"), *(run / "history").glob("*.jsonl")):
        with (
            path.open("rb") as plain,
            gzip.open(into / path.relative_to(run).with_name(f"{path.name}.gz"), "wb") as zipped,
        ):
            shutil.copyfileobj(plain, zipped)
    for path in (run / "history").glob("*.json"):
        shutil.copy(path, into / "history")
    (into / "README").write_text(_KEPT.format(folder=f"build/chaos/{into.name}"), encoding="utf-8")


def _names(system: System) -> Iterator[dict[str, Any]]:
    """Yield each name of a person that is anywhere in a table."""
    with system.connect() as conn:
        for (table,) in conn.execute(_ALL_TABLES).fetchall():
            for (name,) in conn.execute(_NAMES.format(table=table).encode()).fetchall():
                yield {"table": table, "name": name}
