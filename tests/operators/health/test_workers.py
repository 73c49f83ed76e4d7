"""Nobody runs cycles any more: status, doctor and HTTP say so within seconds, and not while cron does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from relevo.app import App
from relevo.operators import doctor, fleet
from relevo.operators.health.problem import Problem
from relevo.operators.health.workers import worker_state
from relevo.runtime.heartbeat import announced_every_ms
from support.processes import eventually

QUICK: dict[str, Any] = {"outbox_lease_heartbeat_ms": 1_000}


@pytest.fixture
def watcher(build, conn) -> App:
    """Somebody who watches the fleet, and is no worker of it."""
    built = build(worker_id="watcher")
    built.worker.stopped()
    conn.execute("delete from relevo.workers")
    return built


@pytest.fixture
def problems(watcher: App) -> Callable[[], list[Problem]]:
    """Return what status calls wrong."""
    return lambda: list(fleet.status(watcher.database, watcher.settings).problems)


@pytest.fixture
def codes(problems) -> Callable[[], list[str]]:
    """Return the codes of what status calls wrong."""
    return lambda: [problem.code for problem in problems()]


def test_a_killed_worker_is_missed_within_fifteen_seconds(make_settings) -> None:
    """By default a worker is seen every 4 s, and late after 12 s: a killed one is told of before 15 s have passed."""
    assert 3 * announced_every_ms(make_settings().outbox_lease_heartbeat_ms) == 12_000


def test_the_only_worker_is_killed(processes, watcher, problems, codes, rows) -> None:
    """After SIGKILL of the only worker status says that no worker runs, long before its lease ends; doctor does, too.

    A second worker in its place makes the fleet healthy; the dead one is shown as late."""
    victim = processes.relevo("run", worker_id="victim", **QUICK)
    eventually(lambda: rows("select from relevo.workers where next_beat_at is not null"), "it is seen")
    eventually(lambda: codes() == [], "the fleet is healthy")
    victim.kill()
    killed_at = time.monotonic()
    eventually(lambda: codes() == ["no_worker"], lambda: str(codes()), within=30)
    assert time.monotonic() - killed_at < 30, "its lease of a minute has not ended"
    [row] = rows("select lost_at, stopped_at from relevo.workers where worker_id = 'victim'")
    assert row == {"lost_at": None, "stopped_at": None}
    [told] = problems()
    assert "no worker is running: worker victim, the last one, has not been seen for " in str(told)
    assert not fleet.has_scheduler(watcher.database)
    doctor = processes.relevo("doctor")
    doctor.ends()  # the way to Expo is another matter
    assert "No worker is running" in doctor.stdout
    second = processes.relevo("run", worker_id="second", **QUICK)
    eventually(lambda: codes() == [], "the second one works")
    states = {row["worker_id"]: worker_state(row) for row in fleet.workers(watcher.database)}
    assert (states["victim"], states["second"]) == ("late", "alive")
    assert second.stops() == 0


def test_cron_takes_over_from_a_worker(processes, watcher, codes, rows) -> None:
    """After a worker stopped, ticks run the cycles: no word of a missing worker between them, and one row for all.

    So says HTTP, too, where `relevo serve` runs beside cron, until no tick came for a quarter of an hour."""
    worker = processes.relevo("run", worker_id="w", **QUICK)
    worker.hears("worker_started")
    eventually(lambda: codes() == [], "the fleet is healthy")
    assert worker.stops() == 0
    assert codes() == ["no_worker"]
    assert not fleet.has_scheduler(watcher.database)
    for _ in range(2):
        assert processes.relevo("tick").ends() == 0
        assert codes() == []
        assert fleet.has_scheduler(watcher.database)
    ended = rows("select stopped_at is not null as stopped from relevo.workers where role = 'tick'")
    assert ended == [{"stopped": True}]
    doctor = processes.relevo("doctor")
    doctor.ends()
    assert "No worker is running" not in doctor.stdout
    rows(
        "update relevo.workers set last_seen_at = now() - interval '20 minutes' where role = 'tick' returning worker_id"
    )
    assert not fleet.has_scheduler(watcher.database)


@pytest.mark.parametrize(("silent", "works"), [("59 minutes", True), ("5 hours", True), ("7 hours", False)])
def test_cron_may_tick_by_the_hour(watcher: App, codes, conn, silent: str, works: bool) -> None:
    """Where cron ticks every hour, doctor, status and HTTP miss nobody between ticks, but after six that did not come."""
    conn.execute(
        """insert into relevo.cycle_state (cycle, source, rounds, last_round_at, last_ok_at, round_gap_s)
           select 'reaper', '', 9, s.at, s.at, 3600 from (select now() - %s::interval as at) s""",
        [silent],
    )
    conn.execute(
        """insert into relevo.workers (worker_id, hostname, pid, version, role, cycles, started_at, last_seen_at, lease_ms, stopped_at)
           select 'cron', 'h', 1, '0', 'tick', '{fanout,dispatch,receipt,reaper}', s.at, s.at, 60000, s.at
             from (select now() - %s::interval as at) s""",
        [silent],
    )
    warned = list(doctor._workers(watcher.database))
    assert (warned == [], fleet.has_scheduler(watcher.database)) == (works, works)
    assert "no_worker" not in codes(), "no worker of `relevo run` was there to be missed"
