"""Workers in table state: started, stopping, stopped; and a silent death that somebody notices, logs and counts."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg

from relevo.app import App
from relevo.core.model import Step, Trigger
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every
from relevo.runtime.workers import make_worker_id
from support.processes import eventually, never

LEASE_MS = 6_000  # a quarter of it is how long a statement may take
FLEET: dict[str, Any] = {"outbox_lease_duration_ms": LEASE_MS, "worker_idle_backoff_min_ms": 100}
BUSY = {"name": "busy", "every_ms": 60_000, "singleton": False, "hold_ms": 600_000, "steps": 2}


def test_a_life_in_good_order(processes, rows) -> None:
    """Started, seen again and again, stopping, stopped: the row and the log tell the same story."""
    worker = processes.relevo("run", "--cycles", "reaper", worker_id="w-1", **FLEET)
    started = worker.hears("worker_started")
    assert (started["worker_id"], started["cycles"], started["role"]) == ("w-1", ["reaper"], "run")
    [first] = rows("select * from relevo.workers")
    assert (first["pid"], first["role"], first["cycles"], first["lease_ms"]) == (
        worker.pid,
        "run",
        ["reaper"],
        LEASE_MS,
    )
    assert first["stopping_at"] is first["stopped_at"] is first["lost_at"] is None
    eventually(
        lambda: rows("select 1 from relevo.workers where last_seen_at > %s", [first["last_seen_at"]]), "seen again"
    )
    assert worker.stops() == 0
    [last] = rows("select * from relevo.workers")
    assert first["started_at"] <= last["stopping_at"] <= last["stopped_at"] == last["last_seen_at"]
    assert last["lost_at"] is None
    reported = [line["event"] for line in worker.lines() if line["event"].startswith("worker_")]
    assert reported == ["worker_started", "worker_stopping", "worker_stopped"]


def test_worker_ids(processes, rows) -> None:
    """Unique per start; WORKER_ID names a replica, whose restart takes its row over; a command has one of its own, and leaves none."""
    started = [
        processes.relevo(*words, **more)
        for words, more in (
            (("run-cycle", "reaper"), {}),
            (("run-cycle", "reaper"), {}),
            (("run-cycle", "reaper"), {"worker_id": "same"}),
            (("run", "--cycles", "reaper"), {"worker_id": "same"}),
        )
    ]
    assert [process.ends() for process in started[:3]] == [0, 0, 0]
    names = [process.hears("worker_started")["worker_id"] for process in started]
    assert len(set(names)) == 4
    assert [name.partition(":")[0] for name in names[2:]] == ["same", "same"]
    assert rows("select worker_id from relevo.workers") == [{"worker_id": "same"}]
    started[3].kill()
    again = processes.relevo("run", "--cycles", "reaper", worker_id="same")
    again.hears("worker_started")
    [row] = rows("select * from relevo.workers")
    assert (row["role"], row["pid"], row["stopped_at"], row["lost_at"]) == ("run", again.pid, None, None)


def test_a_command_beside_a_replica_with_the_longest_name(make_settings, build, rows) -> None:
    """WORKER_ID may have a hundred characters; a command's own name, made of it, fits its column and is another."""
    longest = "w" * 100
    names = {make_worker_id(make_settings(worker_id=longest), role) for role in ("run", "tick", "run-cycle")}
    assert len(names) == 3
    assert longest in names
    assert max(map(len, names)) == 100
    build(role="tick", worker_id=longest)
    [row] = rows("select worker_id from relevo.workers")
    assert row["worker_id"].startswith("w" * 70 + ":")


def test_a_silent_death_is_noticed_logged_and_counted(processes, probed, rows, runs) -> None:
    """After SIGKILL whoever reaps marks the worker lost, ends its runs, says so, and counts both in its own run."""
    victim = processes.relay("run", "--cycles", "busy", probes=[BUSY | {"hold_ms": 200, "steps": 1_000}],
                             worker_id="victim", **FLEET)  # fmt: skip
    eventually(lambda: runs("busy", "running"), "its run stands there")
    victim.kill()
    survivor = processes.relevo("run", "--cycles", "reaper", worker_id="survivor", **FLEET)
    line = survivor.hears("worker_lost")
    assert (line["lost_worker"], line["pid"], line["level"]) == ("victim", victim.pid, "error")
    [run] = eventually(lambda: runs("reaper", "ok"), "the reaper's own run")
    assert run["counts"] == {"workers_lost": 1, "runs_abandoned": 1}
    assert run["worker_id"] == "survivor"
    [busy] = runs("busy")
    assert (busy["outcome"], busy["worker_id"]) == ("abandoned", "victim")
    assert busy["error_message"].startswith("worker victim was last seen at ")
    assert survivor.hears("run_abandoned")["abandoned_run"] == busy["id"]
    [row] = rows("select lost_at, last_seen_at, stopped_at from relevo.workers where worker_id = 'victim'")
    assert (row["lost_at"] - row["last_seen_at"]).total_seconds() >= LEASE_MS / 1000
    assert row["stopped_at"] is None
    never(lambda: len(survivor.lines("worker_lost")) > 1, "it was noticed twice", during=0.5)
    assert survivor.lines("worker_lost", lost_worker="survivor") == []


def test_a_worker_that_comes_back_says_so(processes, probed, rows, runs) -> None:
    """Paused for longer than its lease and given up, it lives again, knows it, and its run stays abandoned."""
    sleeper = processes.relay(
        "run", "--cycles", "busy", probes=[BUSY | {"hold_ms": 100, "steps": 1_000}], worker_id="sleeper", **FLEET
    )
    eventually(lambda: runs("busy", "running"), "its run stands there")
    sleeper.pause()
    other = processes.relevo("run", "--cycles", "reaper", worker_id="other", **FLEET)
    assert other.hears("worker_lost")["lost_worker"] == "sleeper"
    eventually(lambda: rows("select 1 from relevo.workers where worker_id = 'sleeper' and lost_at is not null"), "lost")
    sleeper.go_on()
    assert sleeper.hears("worker_was_declared_lost")["worker_id"] == "sleeper"
    eventually(lambda: rows("select 1 from relevo.workers where worker_id = 'sleeper' and lost_at is null"), "it lives")
    assert sleeper.stops() == 0
    line = sleeper.hears("run_finished", cycle="busy")
    assert line["row"].startswith("not written")
    [given_up] = [row for row in runs("busy") if row["id"] == line["run_id"]]  # it may have begun another since
    assert given_up["outcome"] == "abandoned"
    [row] = rows("select stopped_at is not null as stopped, lost_at from relevo.workers where worker_id = 'sleeper'")
    assert row == {"stopped": True, "lost_at": None}


def test_a_reaper_does_not_bury_its_own(build, conn, rows) -> None:
    """A process that was away for long and reaps before it beats again does not give itself up."""
    worker = build(worker_id="w-1", outbox_lease_duration_ms=9_000)
    conn.execute("update relevo.workers set last_seen_at = now() - interval '1 hour'")
    report = worker.runner.run(worker.registry["reaper"], "schedule")
    assert report.outcome == "idle"
    assert rows("select lost_at from relevo.workers") == [{"lost_at": None}]


def test_a_restart_under_the_same_name_ends_the_old_runs(build, conn, runs) -> None:
    """With a fixed WORKER_ID the runs of the earlier start are over, although the name lives on."""
    first = build(worker_id="same")

    def die(run: Run) -> Step:
        run.begin_work()
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        first.runner.run(Cycle("busy", Every(1_000), die), "schedule")
    assert [row["outcome"] for row in runs("busy")] == ["running"]
    second = build(worker_id="same")
    second.runner.run(second.registry["reaper"], "schedule")
    [row] = runs("busy")
    assert (row["outcome"], row["worker_id"]) == ("abandoned", "same")


def test_an_abandoned_slot_is_called_out(build, conn, dsn: str) -> None:
    """Whoever ends a lost worker's slot run wakes the fleet, so that the slot need not wait to be looked at."""
    build(worker_id="lost")
    reaping = build(worker_id="reaping")
    conn.execute(
        "insert into relevo.worker_runs (cycle, slot_at, trigger, worker_id, started_at, outcome)"
        " values ('nightly', now(), 'schedule', 'lost', now(), 'running')"
    )
    conn.execute("update relevo.workers set last_seen_at = now() - interval '1 hour' where worker_id = 'lost'")
    with psycopg.connect(dsn, autocommit=True) as ear:
        ear.execute("listen relevo_wake")
        report = reaping.runner.run(reaping.registry["reaper"], "schedule")
        assert report.counts == {"workers_lost": 1, "runs_abandoned": 1}
        assert [call.payload for call in ear.notifies(timeout=60, stop_after=1)] == ["nightly"]


def test_replicas_share_what_one_does_for_all(build, conn) -> None:
    """Within an interval one replica folds counts and looks for the lost; each takes back expired claims all the same."""
    first, second = build(worker_id="first"), build(worker_id="second")

    def reap(worker: App, trigger: Trigger = "schedule") -> tuple[int, int]:
        """Leave a count to be folded and an expired claim; return how many of each a round leaves."""
        conn.execute("insert into relevo.event_progress_deltas (event_id, status, deliveries) values (1, 'pending', 1)")
        conn.execute(
            "insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids)"
            " values (gen_random_uuid(), 'gone', 'dispatch', 'epoch', 1, 'epoch', '{}', '{}')"
        )
        worker.runner.run(worker.registry["reaper"], trigger)
        left = "select (select count(*) from relevo.event_progress_deltas), (select count(*) from relevo.claims)"
        row = conn.execute(left).fetchone()
        assert row is not None
        return row[0], row[1]

    assert reap(first) == (0, 0)
    assert reap(second) == (1, 0)
    assert reap(first) == (2, 0)
    conn.execute("update relevo.cycle_state set shared_at = now() - interval '1 hour' where cycle = 'reaper'")
    assert reap(second) == (0, 0)
    conn.execute("update relevo.cycle_state set shared_at = now() + interval '1 hour' where cycle = 'reaper'")
    assert reap(first) == (0, 0), "the clock was set back"
    assert reap(second) == (1, 0)
    assert reap(second, "manual") == (0, 0)
