"""A signal to stop: nothing new begins, what is in flight may end, and the second signal means now."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psycopg
import pytest

from support.postgres_proxy import Proxy
from support.processes import Process, Processes, eventually, never
from support.soak import cases

NUMBERS = cases([signal.SIGTERM], whole=[signal.SIGTERM, signal.SIGINT])
"""Both are handled alike; that SIGINT is, shows test_the_second_signal_ends_at_once."""
LONG = {"name": "long", "every_ms": 200, "singleton": False}
QUICK = {"name": "quick", "every_ms": 100, "singleton": False}


@pytest.mark.parametrize("number", NUMBERS)
def test_what_is_in_flight_may_end(processes, probed, rows, runs, number: signal.Signals) -> None:
    """After SIGTERM or SIGINT the running step comes to its end, nothing new starts, and the exit code is 0."""
    worker = processes.relay("run", probes=[LONG | {"hold_ms": 600_000}, QUICK], worker_id="w-1", http_enabled=True)
    worker.hears("probe_holds", probe="long")
    eventually(lambda: probed("quick"), "quick runs too")
    worker.signal(number)
    assert worker.hears("worker_stopping")["why"] == number.name
    eventually(
        lambda: rows("select 1 from relevo.workers where stopping_at is not null and stopped_at is null"), "stopping"
    )
    begun = len(probed("quick", "begin"))
    never(lambda: worker.lines("worker_stopped"), "it did not wait for what is in flight", during=0.3)
    processes.release()
    assert worker.ends() == 0
    assert len(probed("quick", "begin")) <= begun + 1  # one may have begun just before the signal
    assert [row["word"] for row in probed("long")] == ["begin", "end"]
    assert [row["outcome"] for row in runs("long")] == ["ok"]
    [row] = rows("select stopping_at, stopped_at, lost_at from relevo.workers")
    assert row["stopping_at"] <= row["stopped_at"]
    assert row["lost_at"] is None
    assert worker.lines()[-1]["event"] == "worker_stopped"
    assert rows("select 1 from relevo.worker_runs where outcome = 'running'") == []


def test_a_long_run_ends_with_its_step(processes, probed, runs) -> None:
    """A run of many steps takes no further one after the signal and is written down with what it did."""
    worker = processes.relay("run", probes=[LONG | {"hold_ms": 200, "steps": 1_000}])
    eventually(lambda: len(probed("long", "end")) >= 2, "some steps")
    assert worker.stops() == 0
    [row] = runs("long")
    assert row["outcome"] == "ok"
    assert row["counts"]["notifications_sent"] == len(probed("long", "end")) == len(probed("long", "begin")) < 100


def test_what_does_not_end_in_time_is_left_behind(processes, probed, rows, runs) -> None:
    """Beyond WORKER_SHUTDOWN_TIMEOUT_MS the process says so and leaves with 1; the row of a run that was left behind
    does not stay open: the next reaper ends it as abandoned."""
    nightly = {"name": "nightly", "cron": "17 3 * * *", "hold_ms": 300_000}
    worker = processes.relay(
        "run", probes=[LONG | {"hold_ms": 300_000}, nightly], worker_id="w-1", worker_shutdown_timeout_ms=300
    )
    for name in ("long", "nightly"):
        worker.hears("probe_holds", probe=name)
    assert worker.stops() == 1
    assert worker.hears("stop_timed_out")["level"] == "error"
    assert rows("select stopped_at is not null as stopped from relevo.workers") == [{"stopped": True}]
    assert [row["outcome"] for row in runs("long")] == []  # its first step never ended, so there was nothing to tell
    assert [row["outcome"] for row in runs("nightly")] == ["running"]
    reaper = processes.relevo("run-cycle", "reaper")
    assert reaper.ends() == 0
    [row] = runs("nightly")
    assert (row["outcome"], row["finished_at"] is not None) == ("abandoned", True)
    assert "w-1" in row["error_message"]
    assert "runs_abandoned=" in reaper.stdout  # within its short time it may leave more behind


def test_the_second_signal_ends_at_once(processes, probed) -> None:
    """Whoever cannot wait sends another signal: it is logged, and the process is gone."""
    worker = processes.relay("run", probes=[LONG | {"hold_ms": 300_000}])
    worker.hears("probe_holds")
    worker.signal(signal.SIGINT)
    worker.hears("worker_stopping", why="SIGINT")
    never(lambda: worker.lines("worker_stopped"), "it did not wait for what is in flight", during=0.3)
    worker.signal(signal.SIGTERM)
    assert worker.ends() == 128 + signal.SIGTERM
    assert worker.hears("worker_ended_at_once")["signal"] == "SIGTERM"


def test_stopping_without_a_database(processes, probed, dsn: str) -> None:
    """A worker whose database is gone still stops in good order and within its time, with a word about the goodbye."""
    with Proxy(dsn) as proxy:
        worker = processes.relay(
            "run",
            probes=[LONG | {"hold_ms": 300}],
            database_url=proxy.dsn,
            database_connect_timeout_ms=5_000,
            outbox_lease_duration_ms=12_000,
        )
        worker.hears("probe_holds")
        proxy.shut()
        worker.hears("database_unreachable")
        assert worker.stops() == 0
        assert worker.lines("worker_end_not_recorded")
        assert "Traceback" not in worker.stderr


def test_nothing_new_begins_while_the_goodbye_waits(processes, probed, dsn: str) -> None:
    """From the signal on no cycle starts, even if the goodbye cannot be written at once, or at all."""
    worker = processes.relay("run", probes=[QUICK], worker_busy_loop_delay_ms=1, outbox_lease_duration_ms=12_000)
    eventually(lambda: len(probed("quick", "end")) > 2, "it runs")
    with psycopg.connect(dsn) as other:
        other.execute("lock table relevo.workers in access exclusive mode")
        worker.signal(signal.SIGTERM)
        stopping = worker.hears("worker_stopping")["ts"]
        assert worker.ends() == 0
    begun = [line for line in worker.lines("middleware_saw", of_cycle="quick") if line["ts"] > stopping]
    assert len(begun) <= 1, "a round that was being opened may begin, no other"
    assert len(worker.lines("worker_end_not_recorded")) == 2


@pytest.mark.parametrize("command", [("run-cycle", "slow"), ("tick", "--runners", "slow,quick")])
def test_one_shot_commands_stop_with_their_step(processes, probed, runs, command: tuple[str, ...]) -> None:
    """A signal lets the current step of run-cycle or tick end; what comes after it is skipped with a reason."""
    slow = {"name": "slow", "every_ms": 1_000, "singleton": False, "hold_ms": 500, "steps": 1_000}
    worker = processes.relay(*command, probes=[slow, QUICK])
    worker.hears("probe_holds")
    assert worker.stops() == 0
    [row] = runs("slow")
    assert (row["outcome"], row["counts"]["notifications_sent"] < 10) == ("ok", True)
    assert [row["word"] for row in probed("slow")][-1] == "end"
    if command[0] == "tick":
        assert [(row["outcome"], row["reason"]) for row in runs("quick")] == [("skipped", "the tick was told to stop")]


def holds_signals_back(process: Process) -> bool:
    """Tell whether SIGTERM waits until the process has made itself ready for it."""
    [blocked] = [line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "SigBlk" in line]
    return bool(int(blocked.split()[1], 16) & 1 << signal.SIGTERM - 1)


@pytest.mark.needs("linux")
@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_while_the_program_is_loaded(processes, conn, number: signal.Signals) -> None:
    """Told to stop in the first moment, before anything was begun, a process leaves with 0 and has touched nothing."""
    worker = processes.module("run", http_enabled=True)
    eventually(lambda: holds_signals_back(worker), "it is under way", every=0.001)
    worker.signal(number)
    assert worker.ends() == 0
    assert "Traceback" not in worker.stderr
    assert [line["event"] for line in worker.lines()] == ["worker_not_started"]
    assert conn.execute("select from relevo.workers").fetchall() == []


BLOCKS = {
    "another migrates": "create schema relevo",
    "a migration waits": "create schema relevo_archive",
}


def test_a_signal_while_it_migrates(empty_database, tmp_path) -> None:
    """Told to stop while a migration waits or works, a process undoes it and leaves with 0, and its backend waits no
    longer; the next start migrates."""
    started = Processes(empty_database, tmp_path)
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    try:
        with psycopg.connect(empty_database) as other, psycopg.connect(empty_database, autocommit=True) as conn:
            for block, statement in BLOCKS.items():
                other.execute(statement.encode())
                worker = started.relevo("run", http_enabled=True)
                eventually(lambda: conn.execute(waiting).fetchone() == (1,), f"it waits: {block}")
                worker.signal(signal.SIGTERM)
                began = time.monotonic()
                eventually(lambda: conn.execute(waiting).fetchone() == (0,), f"it waits no longer: {block}")
                assert time.monotonic() - began < 29  # and not when the wait for the lock is over
                assert worker.ends() == 0, block
                assert "Traceback" not in worker.stderr, block
                said = [line["event"] for line in worker.lines() if not line["event"].startswith("http_")]
                assert said == ["worker_not_started"], block
                other.rollback()
        successor = started.relevo("run")
        successor.hears("worker_started")
        assert successor.stops() == 0
    finally:
        started.close()


def test_a_signal_while_the_database_is_frozen_at_the_start(processes, dsn: str) -> None:
    """A database that takes connections and says nothing keeps nobody who was told to stop."""
    with Proxy(dsn) as proxy:
        proxy.freeze()
        worker = processes.relevo("run", database_url=proxy.dsn, database_connect_timeout_ms=2_000, http_enabled=True)
        eventually(lambda: proxy.connections, "it connects")
        assert worker.stops() == 0
        assert "Traceback" not in worker.stderr
        assert worker.lines("worker_not_started")


@pytest.mark.parametrize(("event", "database"), [("migrated", "empty_database"), ("worker_started", "dsn")])
def test_a_signal_right_after_the_start(request, tmp_path, event: str, database: str) -> None:
    """Told to stop once the first line is there, a process says goodbye in good order."""
    started = Processes(request.getfixturevalue(database), tmp_path)
    try:
        worker = started.relevo("run", http_enabled=True)
        worker.hears(event)
        assert worker.stops() == 0
        assert "Traceback" not in worker.stderr
        assert [line for line in worker.lines() if line["level"] in ("warning", "error", "critical")] == []
        assert worker.lines()[-1]["event"] in ("worker_stopped", "worker_not_started")
    finally:
        started.close()
