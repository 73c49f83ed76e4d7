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

from chaos.scene import Scene
from chaos.stage import Stage, until

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


def fill(stage: Stage) -> list[int]:
    """Write old months, and have a cleanup retire them; return the ids of their deliveries."""
    ids: list[int] = []
    today = datetime.now(UTC).date()
    with stage.connect() as conn:
        for ago in range(8, 8 + MONTHS):
            count = today.year * 12 + today.month - 1 - ago
            month = date(count // 12, count % 12 + 1, 1)
            conn.execute("select relevo.ensure_partitions(%s, 1)", [month])
            ids += [number for (number,) in conn.execute(_ADD, {"month": month, "rows": ROWS}).fetchall()]
    assert stage.run("run-cycle", "cleanup").wait(300) == 0, "cleanup failed: see commands.log"
    return ids


def begin_export(stage: Stage) -> subprocess.Popen[bytes]:
    """Start a process that exports what is retired."""
    assert stage.store is not None
    more = {"ARCHIVE_PART_ROWS": "20", "ARCHIVE_GRACE_DAYS": "0", "ARCHIVE_BUSY_SHARE_PERCENT": "100"}
    return stage.run("run-cycle", "archive-export", ARCHIVE_TIMEOUT_MS="2000", **more, **stage.store.settings)


def finish(stage: Stage) -> None:
    """Export until nothing is left."""
    for _ in range(5):
        if begin_export(stage).wait(120) == 0 and stage.ask(_LEFT) == [(0,)]:
            return


def read(stage: Stage) -> Iterator[dict[str, Any]]:
    """Yield each old delivery that is in the store, by what the manifests name, or still in the database."""
    if stage.store is None:
        return
    objects = stage.store.objects()
    for key, content in objects.items():
        if f"/{_ENTITY}/" in key and key.endswith("_manifest.json"):
            folder = key.rsplit("/", 1)[0]
            for name in sorted(_named(json.loads(content))):
                rows = pq.read_table(io.BytesIO(objects[f"{folder}/{name}"]), columns=["id"])
                yield from ({"id": number, "where": key} for number in rows.column("id").to_pylist())
    for month, relation in stage.ask(_NOT_GONE):
        for (number,) in stage.ask(f"select id from {relation} where event_type = 'old'"):
            yield {"id": number, "where": f"database {month}"}


def _named(manifest: Any) -> set[str]:
    """Find every file that a manifest names."""
    if isinstance(manifest, dict):
        return set().union(*map(_named, manifest.values())) if manifest else set()
    if isinstance(manifest, list):
        return set().union(*map(_named, manifest)) if manifest else set()
    return {manifest.rsplit("/", 1)[-1]} if isinstance(manifest, str) and manifest.endswith(".parquet") else set()


def _exporting(scene: Scene) -> subprocess.Popen[bytes] | None:
    """Start an export, and return it some time after it began to work; None if nothing is left to export."""
    if scene.stage.ask(_LEFT) == [(0,)]:
        return None
    exporter = begin_export(scene.stage)
    until(lambda: exporter.poll() is not None or scene.stage.ask(_RUNNING) != [(0,)], patience_s=30, every_s=0.05)
    time.sleep(scene.chance.random())
    return exporter


def kill_exporter(scene: Scene) -> None:
    """Kill who exports, somewhere on its way."""
    if exporter := _exporting(scene):
        if exporter.poll() is None:
            scene.hit("exports killed on their way")
        exporter.kill()
        exporter.wait()


def kill_store(scene: Scene) -> None:
    """Kill the store while it is written to, and start it again."""
    assert scene.stage.store is not None
    exporter = _exporting(scene)
    scene.stage.store.kill()
    if exporter is not None:
        with suppress(subprocess.TimeoutExpired):
            exporter.wait(20)
        exporter.kill()
        if exporter.wait() != 0:
            scene.hit("exports whose store went away")
    scene.stage.store.start()


def freeze_store(scene: Scene) -> None:
    """Let the store take what is sent and answer nothing, then kill it: what it was given is half-written."""
    assert scene.stage.store is not None
    exporter = _exporting(scene)
    scene.stage.store.freeze()
    time.sleep(1)
    if exporter is not None and exporter.poll() is None:
        scene.hit("exports whose store fell silent")
        exporter.kill()
        exporter.wait()
    scene.stage.store.kill()
    scene.stage.store.start()


KINDS: dict[str, Callable[[Scene], None]] = {
    "export killed": kill_exporter,
    "store killed": kill_store,
    "store silent": freeze_store,
}
