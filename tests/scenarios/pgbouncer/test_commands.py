"""The command `relevo` behind PgBouncer: with a direct address beside it, and with PgBouncer's alone."""

from __future__ import annotations

import json

import pytest

from support.deliveries import add_deliveries, states
from support.processes import eventually

pytestmark = pytest.mark.needs("pgbouncer")

SLOW = {
    "reaper_interval_ms": 20_000,
    "worker_idle_backoff_min_ms": 20_000,
    "worker_cycles": "reaper,fanout,cleanup",
}
QUICK = {
    "worker_cycles": "reaper,fanout,cleanup",
    "reaper_interval_ms": 100,
    "worker_idle_backoff_max_ms": 100,
    "worker_idle_backoff_jitter_ms": 10,
}


def lapse(build, conn) -> None:
    """Leave an expired claim behind, for a reaper to find."""
    add_deliveries(conn, 1)
    assert build(worker_id="gone").claims.claim("dispatch", "default", "bulk") is not None
    conn.execute("update relevo.claims set leased_until = now()")


def reaped(conn) -> list[tuple[str, int]]:
    """Return trigger and count of the runs that took claims back."""
    found = conn.execute(
        "select trigger, (counts ->> 'claims_reaped')::int from relevo.worker_runs"
        " where cycle = 'reaper' and outcome = 'ok' and counts ? 'claims_reaped'"
    )
    return found.fetchall()


def test_run_with_a_direct_address_hears_wakeups(processes, build, dsn, conn) -> None:
    """The cycles run through PgBouncer, wake-ups arrive by the direct address, and a worker stops in good order."""
    running = processes.relevo("run", database_direct_url=dsn, worker_id="here", http_enabled=True, **SLOW)
    running.hears("wakeups_listening")
    wakeups = "select wakeups from relevo.workers where worker_id = 'here'"
    eventually(lambda: conn.execute(wakeups).fetchone() == ("listening",), "the worker says that it listens")
    rounds = "select cycle from relevo.cycle_state where rounds > 0 order by cycle"
    eventually(
        lambda: conn.execute(rounds).fetchall() == [("cleanup",), ("fanout",), ("reaper",)],
        "the cycles make a round",
    )

    lapse(build, conn)
    with build(worker_id="caller").database.connection() as caller:
        caller.execute("select pg_notify('relevo_wake', 'reaper')")
    eventually(lambda: reaped(conn) == [("wake-up", 1)], "the woken reaper takes the claim back")
    assert states(conn) == {"pending": 1}
    assert running.stops() == 0, running.stderr
    assert running.lines("wakeups_degraded") == []


def test_run_behind_the_pooler_alone_polls(processes, build, conn) -> None:
    """LISTEN is answered there and hears nothing: the self-test notices, says so once, and polling does the work."""
    running = processes.relevo("run", worker_id="here", **QUICK)
    degraded = running.hears("wakeups_degraded")
    assert "set DATABASE_DIRECT_URL" in degraded["detail"]
    wakeups = "select wakeups from relevo.workers where worker_id = 'here'"
    eventually(lambda: conn.execute(wakeups).fetchone() == ("polling",), "the worker says that it polls")
    lapse(build, conn)
    eventually(lambda: reaped(conn) == [("schedule", 1)], "the reaper finds the claim by itself")
    assert running.stops() == 0, running.stderr
    assert len(running.lines("wakeups_degraded")) == 1
    assert running.lines("wakeups_listening") == []
    assert running.lines(level="error") == []


def test_the_commands_work_with_one_address(processes, pooled_empty, build, conn) -> None:
    """migrate, run-cycle, tick, runs and status need no address but PgBouncer's."""
    made = processes.relevo("migrate", database_url=pooled_empty)
    lapse(build, conn)
    cycle = processes.relevo("run-cycle", "reaper")
    assert cycle.ends() == 0, cycle.stderr
    assert reaped(conn) == [("manual", 1)]
    tick = processes.relevo("tick")
    assert tick.ends() == 1, "there is no push service to send what was taken back"
    assert tick.stdout.split()[4:6] == ["reaper", "idle"]

    runs, status = processes.relevo("runs", "--cycle", "reaper", "--json"), processes.relevo("status", "--json")
    assert runs.ends() == 0, runs.stderr
    assert [row["outcome"] for row in map(json.loads, runs.stdout.splitlines())] == ["ok"]
    assert status.ends() == 0, status.stdout + status.stderr
    assert json.loads(status.stdout)["health"] == []
    assert made.ends() == 0, made.stderr
    assert made.stdout.split() == ["ran", "baseline"]
