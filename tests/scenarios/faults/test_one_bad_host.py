"""One replica cannot reach the push service, stands still or has a wrong clock: the other one sends, and status names the host."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import relevo
from relevo import Event, Installation, Owners
from relevo.app import build
from relevo.config import Settings
from relevo.operators import fleet
from relevo.operators.gauges import Gauges
from relevo.sandbox import Sandbox
from support.processes import NOWHERE, Processes, eventually
from support.soak import cases

PROJECTS = "@acme/shop", "@acme/bank"
EVENTS = cases(10, whole=20)
USUAL_S, LONGEST_S = 3.0, 20.0  # on a busy machine; behind the breaker of the fleet a push would wait for 30 s
WRONG_CLOCK = Path(__file__).parents[2] / "support" / "programs" / "wrong_clock.py"
AWAY = {"no-dns": "http://push.relevo.invalid", "no-route": NOWHERE}


def enqueue(conn: psycopg.Connection[Any], number: int) -> list[int]:
    """Enqueue one event for the same owner in both projects."""
    with conn.transaction():
        return [
            relevo.enqueue(
                conn, Event("told", f"{number}", f"Event {number}", project=project, audience=Owners("ana"))
            ).event_id
            for project in PROJECTS
        ]


def are_sent(conn: psycopg.Connection[Any], events: list[int]) -> bool:
    """Return whether the push service took the pushes of some events."""
    asked = """select count(*) from relevo.notification_deliveries
                where notification_event_id = any (%s) and status in ('sent', 'ok')"""
    return conn.execute(asked, [events]).fetchone() == (len(events),)


def both_are_seen(conn: psycopg.Connection[Any]) -> bool:
    """Return whether each of two workers gave a sign of life after both had started."""
    row = conn.execute("select count(*), min(last_seen_at) > max(started_at) from relevo.workers").fetchone()
    return row == (2, True)


@pytest.mark.parametrize("away", AWAY)
def test_the_other_replica_sends_as_usual(
    processes: Processes, sandbox: Sandbox, conn: psycopg.Connection[Any], dsn: str, away: str
) -> None:
    """Pushes of two projects leave in the usual time, no breaker opens, and status names the host that cannot send."""
    for project in PROJECTS:
        token = f"ExponentPushToken[{project[1:].replace('/', '-')}]"
        relevo.register(conn, Installation(token, project=project, owner="ana"))
    common = {"worker_cycles": "fanout,dispatch,receipt,reaper", "push_breaker_failures": 2}
    bad = processes.relevo("run", expo_base_url=AWAY[away], worker_id="bad", **common)
    good = processes.relevo("run", expo_base_url=sandbox.url, worker_id="good", **common)
    for worker in (bad, good):
        worker.hears("worker_started")
    took = []
    for number in range(EVENTS):
        began = time.monotonic()
        eventually(partial(are_sent, conn, enqueue(conn, number)), f"event {number} is sent")
        took.append(time.monotonic() - began)
    assert sorted(took)[len(took) // 2] < USUAL_S, took
    assert max(took) < LONGEST_S, took
    assert conn.execute("select what from relevo.project_incidents").fetchall() == []
    with build(Settings(database_url=dsn)) as app:

        def named() -> list[str]:
            enqueue(conn, len(took) + time.monotonic_ns())
            problems = fleet.status(app.database, app.settings).problems
            return [str(each) for each in problems if each.code == "service_unreachable"]

        [said] = eventually(named, "status names the worker that cannot send")
    assert f"worker bad on {socket.gethostname()} has not reached Expo" in said


def test_a_stopped_replica_delays_nobody(
    processes: Processes, sandbox: Sandbox, conn: psycopg.Connection[Any], dsn: str
) -> None:
    """While a replica stands still, pushes of two projects leave by the other in the usual time; status and the metric of
    the alert name its host long before its lease of a minute ends."""
    for project in PROJECTS:
        token = f"ExponentPushToken[{project[1:].replace('/', '-')}]"
        relevo.register(conn, Installation(token, project=project, owner="ana"))
    common = {
        "worker_cycles": "fanout,dispatch,receipt,reaper",
        "expo_base_url": sandbox.url,
    }
    good, stopped = (processes.relevo("run", worker_id=name, **common) for name in ("good", "stopped"))
    for worker in (stopped, good):
        worker.hears("worker_started")
    eventually(
        partial(both_are_seen, conn), "each worker is seen after both had started"
    )  # else one replaces the other
    stopped.signal(signal.SIGSTOP)
    try:
        took = []
        for number in range(EVENTS):
            began = time.monotonic()
            eventually(partial(are_sent, conn, enqueue(conn, number)), f"event {number} is sent")
            took.append(time.monotonic() - began)
        assert sorted(took)[len(took) // 2] < USUAL_S, took
        assert max(took) < LONGEST_S, took
        with build(Settings(database_url=dsn)) as app:

            def named() -> list[str]:
                problems = fleet.status(app.database, app.settings).problems
                return [str(each) for each in problems if str(each).startswith("worker stopped ")]

            [said] = eventually(named, "status names the worker that stands still", within=50)
            assert "worker stopped has not been seen for" in said
            assert f"end its process on {socket.gethostname()}" in said
            gauges = Gauges(app.database, app.settings, "watcher")
            silent = next(each for each in gauges.collect() if each.name == "relevo_worker_silent_seconds")
        [sample] = silent.samples
        assert (sample.labels, sample.value > 15) == ({"hostname": socket.gethostname()}, True)
    finally:
        stopped.signal(signal.SIGCONT)


@pytest.mark.parametrize("ahead_s", [3_600.0, -3_600.0], ids=["ahead", "behind"])
def test_a_wrong_clock_delays_nobody(
    processes: Processes, sandbox: Sandbox, conn: psycopg.Connection[Any], dsn: str, ahead_s: float
) -> None:
    """Beside a replica whose clock is an hour wrong, pushes of two projects leave in the usual time and once, also those
    that are due in a moment or expire soon; status and the metric of the alert name its host."""
    for project in PROJECTS:
        token = f"ExponentPushToken[{project[1:].replace('/', '-')}]"
        relevo.register(conn, Installation(token, project=project, owner="ana"))
    common = {"worker_cycles": "fanout,dispatch,receipt,reaper", "expo_base_url": sandbox.url}
    processes.program(
        sys.executable, str(WRONG_CLOCK), "run", worker_id="wrong", clock_ahead_s=ahead_s, **common
    ).hears("worker_started")
    processes.relevo("run", worker_id="good", **common).hears("worker_started")
    took = []
    for number in range(EVENTS):
        began = time.monotonic()
        eventually(partial(are_sent, conn, enqueue(conn, number)), f"event {number} is sent")
        took.append(time.monotonic() - began)
    assert sorted(took)[len(took) // 2] < USUAL_S, took
    assert max(took) < LONGEST_S, took
    with conn.transaction():
        soon = [
            relevo.enqueue(conn, Event("soon", project, "Soon", project=project, audience=Owners("ana"), ttl_s=60))
            for project in PROJECTS
        ]
    eventually(partial(are_sent, conn, [each.event_id for each in soon]), "what expires within a minute is sent")
    assert sandbox.totals()["duplicates"] == 0
    with build(Settings(database_url=dsn)) as app:

        def named() -> list[str]:
            problems = fleet.status(app.database, app.settings).problems
            return [str(each) for each in problems if each.code == "clock_wrong"]

        [said] = eventually(named, "status names the host")
        direction = "ahead of" if ahead_s > 0 else "behind"
        assert "the clock of web-2 is " in said
        assert f" {direction} the database's" in said
        gauges = Gauges(app.database, app.settings, "watcher").collect()
        skews = {
            sample.labels["hostname"]: sample.value
            for each in gauges
            if each.name == "relevo_clock_skew_seconds"
            for sample in each.samples
        }
    assert skews["web-2"] == pytest.approx(abs(ahead_s), abs=60)
    assert skews[socket.gethostname()] < 60


@pytest.mark.needs("mount")
def test_a_full_disk_delays_nobody(
    processes: Processes, sandbox: Sandbox, conn: psycopg.Connection[Any], dsn: str, tmp_path: Path
) -> None:
    """While the disk of a replica's temporary files and log is full, pushes of two projects leave in the usual time, also by that
    replica alone; status and the metric of the alert name its host, folder and log."""
    for project in PROJECTS:
        token = f"ExponentPushToken[{project[1:].replace('/', '-')}]"
        relevo.register(conn, Installation(token, project=project, owner="ana"))
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)], check=True)
    try:
        common = {"worker_cycles": "fanout,dispatch,receipt,reaper", "expo_base_url": sandbox.url}
        logged = f"exec {sys.executable} -m relevo run 2>>$TMPDIR/log"
        full = processes.program("/bin/sh", "-c", logged, worker_id="full", tmpdir=folder, **common)
        good = processes.relevo("run", worker_id="good", **common)
        good.hears("worker_started")
        eventually(partial(both_are_seen, conn), "each worker is seen after both had started")
        for name in ("filler", "log"):
            with suppress(OSError), (folder / name).open("ab", buffering=0) as file:
                while True:
                    file.write(b"0" * 1_024)
        took = []
        for number in range(EVENTS // 2):
            if number == EVENTS // 4:
                good.stops()
            began = time.monotonic()
            eventually(partial(are_sent, conn, enqueue(conn, number)), f"event {number} is sent")
            took.append(time.monotonic() - began)
        assert sorted(took)[len(took) // 2] < USUAL_S, took
        assert max(took) < LONGEST_S, took
        with build(Settings(database_url=dsn)) as app:

            def named() -> list[str]:
                problems = [
                    each for each in fleet.status(app.database, app.settings).problems if each.code == "disk_full"
                ]
                return [str(each) for each in problems] if len(problems) > 1 else []

            said = eventually(named, "status names the folder and the log")
            gauges = Gauges(app.database, app.settings, "watcher").collect()
            samples = [sample for each in gauges if each.name == "relevo_disk_full" for sample in each.samples]
        start = f"worker full on {socket.gethostname()} cannot write to "
        assert [
            each.startswith(f"{start}{place}: No space left")
            for place, each in zip((folder, "its log"), said, strict=True)
        ] == [True, True]
        assert {sample.labels["place"] for sample in samples} == {str(folder), "log"}
        full.kill()
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
