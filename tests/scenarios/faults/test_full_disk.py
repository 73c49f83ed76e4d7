"""A replica on a full disk: its log and its temporary files cannot be written, and it sends as usual."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import requests

import relevo
from relevo import Event, Installation, Owners
from relevo.app import build
from relevo.config import Settings
from relevo.operators import fleet
from relevo.sandbox import Sandbox
from support.http_server import free_port
from support.processes import RELEVO, Processes, eventually

PROJECTS = "@acme/shop", "@acme/bank"
EVENTS = 5
FULL = f"ulimit -f 0; exec {RELEVO} run 2>/dev/full >/dev/full"
"""No write of it to a file succeeds: neither to its log nor to any other."""


def lines_lost(port: int) -> float:
    """Return how many lines of its log a replica could not write, as Prometheus learns it."""
    metrics = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
    [told] = re.findall(r"^relevo_log_lines_lost_total ([0-9.e+]+)$", metrics, re.MULTILINE)
    return float(told)


def test_a_replica_on_a_full_disk_sends(
    processes: Processes, sandbox: Sandbox, conn: psycopg.Connection[Any], dsn: str, tmp_path: Path
) -> None:
    """Alone it sends the pushes of two projects and is alive in status, which names its log and nothing else; its metrics
    count the lines that are lost, for the alert that names it. One that can write loses none."""
    for project in PROJECTS:
        token = f"ExponentPushToken[{project[1:].replace('/', '-')}]"
        relevo.register(conn, Installation(token, project=project, owner="ana"))
    port, other = free_port(), free_port()
    common = {"expo_base_url": sandbox.url, "worker_cycles": "fanout,dispatch,receipt,reaper", "log_level": "info"}
    common |= {"http_enabled": True, "http_port": 0}
    full = processes.program("/bin/sh", "-c", FULL, metrics_port=port, worker_id="full", tmpdir=tmp_path, **common)
    for number in range(EVENTS):
        with conn.transaction():
            for project in PROJECTS:
                event = Event("told", f"{number}", f"Event {number}", project=project, audience=Owners("ana"))
                relevo.enqueue(conn, event)
    sent = "select count(*) from relevo.notification_deliveries where status in ('sent', 'ok')"
    expected = (EVENTS * len(PROJECTS),)
    eventually(lambda: conn.execute(sent).fetchone() == expected, "they are sent")
    assert sandbox.totals()["duplicates"] == 0
    eventually(partial(lines_lost, port), "the lines that are lost are counted")
    with build(Settings(database_url=dsn)) as app:
        assert [row["state"] for row in fleet.workers(app.database) if row["worker_id"] == "full"] == ["alive"]
        problems = eventually(lambda: list(fleet.status(app.database, app.settings).problems), "status names its log")
        assert [each.code for each in problems] == ["disk_full"]
        assert "cannot write to its log: No space left" in str(problems[0])
    well = processes.relevo("run", metrics_port=other, worker_id="well", **common)
    well.hears("worker_started")
    assert eventually(lambda: [lines_lost(other)], "it is scraped") == [0.0]
    assert full.stops() == 0
