"""Old months on their way to a store that fails, exported by processes that are killed."""

from __future__ import annotations

import io
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

import pyarrow.parquet as pq

from chaos.fault_context import FaultContext
from chaos.system import System, until

ROWS, MONTHS = 120, 8
_ENTITY = "notification_deliveries"
_ADD = """
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, status,
  attempt_count, last_attempt_at, completed_at, created_at, updated_at, provider_ticket_id)
select %(month)s::date + g %% 28, 1, gen_random_uuid(), 'old', 'ok', 1, %(month)s::timestamptz + g * interval '1 ms',
       %(month)s::timestamptz + g * interval '7 ms', %(month)s, %(month)s, gen_random_uuid()::text
  from generate_series(1, %(rows)s) g
returning id
"""
_LEFT = "select count(*) from relevo.archive_exports where state <> 'dropped'"
_RUNNING = "select count(*) from relevo.worker_runs where cycle = 'archive-export' and outcome = 'running'"
_NOT_GONE = """
select to_char(month, 'YYYY-MM'), relation from relevo.archive_exports
 where entity = 'notification_deliveries' and state <> 'dropped'
"""


def fill(system: System) -> list[int]:
    """Write old months, and have a cleanup retire them; return the ids of their deliveries."""
    ids: list[int] = []
    today = datetime.now(UTC).date()
    with system.connect() as conn:
        for ago in range(8, 8 + MONTHS):
            count = today.year * 12 + today.month - 1 - ago
            month = date(count // 12, count % 12 + 1, 1)
            conn.execute("select relevo.ensure_partitions(%s, 1)", [month])
            ids += [number for (number,) in conn.execute(_ADD, {"month": month, "rows": ROWS}).fetchall()]
    assert system.run("run-cycle", "cleanup").wait(300) == 0, "cleanup failed: see commands.log"
    return ids


def begin_export(system: System) -> subprocess.Popen[bytes]:
    """Start a process that exports what is retired."""
    assert system.store is not None
    more = {"ARCHIVE_PART_ROWS": "20", "ARCHIVE_GRACE_DAYS": "0", "ARCHIVE_BUSY_SHARE_PERCENT": "100"}
    return system.run("run-cycle", "archive-export", ARCHIVE_TIMEOUT_MS="2000", **more, **system.store.settings)


def finish(system: System) -> None:
    """Export until nothing is left."""
    for _ in range(5):
        if begin_export(system).wait(120) == 0 and system.ask(_LEFT) == [(0,)]:
            return


def read(system: System) -> Iterator[dict[str, Any]]:
    """Yield each old delivery that is in the store, by what the manifests name, or still in the database."""
    if system.store is None:
        return
    objects = system.store.objects()
    for key, content in objects.items():
        if f"/{_ENTITY}/" in key and key.endswith("_manifest.json"):
            folder = key.rsplit("/", 1)[0]
            for name in sorted(_named(json.loads(content))):
                rows = pq.read_table(io.BytesIO(objects[f"{folder}/{name}"]), columns=["id"])
                yield from ({"id": number, "where": key} for number in rows.column("id").to_pylist())
    for month, relation in system.ask(_NOT_GONE):
        for (number,) in system.ask(f"select id from {relation} where event_type = 'old'"):
            yield {"id": number, "where": f"database {month}"}


def _named(manifest: Any) -> set[str]:
    """Find every file that a manifest names."""
    if isinstance(manifest, dict):
        return set().union(*map(_named, manifest.values())) if manifest else set()
    if isinstance(manifest, list):
        return set().union(*map(_named, manifest)) if manifest else set()
    return {manifest.rsplit("/", 1)[-1]} if isinstance(manifest, str) and manifest.endswith(".parquet") else set()


def _exporting(context: FaultContext) -> subprocess.Popen[bytes] | None:
    """Start an export, and return it some time after it began to work; None if nothing is left to export."""
    if context.system.ask(_LEFT) == [(0,)]:
        return None
    exporter = begin_export(context.system)
    until(lambda: exporter.poll() is not None or context.system.ask(_RUNNING) != [(0,)], patience_s=30, every_s=0.05)
    time.sleep(context.chance.random())
    return exporter


def kill_exporter(context: FaultContext) -> None:
    """Kill who exports, somewhere on its way."""
    if exporter := _exporting(context):
        if exporter.poll() is None:
            context.hit("exports killed on their way")
        exporter.kill()
        exporter.wait()


def kill_store(context: FaultContext) -> None:
    """Kill the store while it is written to, and start it again."""
    assert context.system.store is not None
    exporter = _exporting(context)
    context.system.store.kill()
    if exporter is not None:
        with suppress(subprocess.TimeoutExpired):
            exporter.wait(20)
        exporter.kill()
        if exporter.wait() != 0:
            context.hit("exports whose store went away")
    context.system.store.start()


def freeze_store(context: FaultContext) -> None:
    """Make the store take data and answer nothing, then kill it: the data is half-written."""
    assert context.system.store is not None
    exporter = _exporting(context)
    context.system.store.freeze()
    time.sleep(1)
    if exporter is not None and exporter.poll() is None:
        context.hit("exports whose store fell silent")
        exporter.kill()
        exporter.wait()
    context.system.store.kill()
    context.system.store.start()


KINDS: dict[str, Callable[[FaultContext], None]] = {
    "export killed": kill_exporter,
    "store killed": kill_store,
    "store silent": freeze_store,
}
