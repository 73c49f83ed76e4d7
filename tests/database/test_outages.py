"""A database that is late, goes away, restarts or drops connections: no crash, one word per change, and on it goes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relevo import embedded
from relevo.client import values, verbs
from relevo.database import pool
from relevo.sandbox.server import Sandbox
from support import postgres_folder
from support.postgres_proxy import Proxy
from support.processes import Process, Processes, eventually, never
from support.shared_database import PROBES

LEASE_MS = 6_000  # a quarter of it is how long a statement may take
HASTY: dict[str, Any] = {
    "outbox_lease_duration_ms": LEASE_MS,
    "database_connect_timeout_ms": 5_000,
    "worker_tick_loop_error_backoff_ms": 200,
    "worker_tick_loop_max_jitter_ms": 0,
    "worker_idle_backoff_jitter_ms": 20,
}
BUSY = {"name": "busy", "every_ms": 300, "singleton": False, "hold_ms": 600_000}  # until it is released
NIGHTLY = {"name": "nightly", "cron": "17 3 * * *", "hold_ms": 600_000}


def states(process: Process) -> list[str]:
    """The changes of the database's state that a process told."""
    return [line["event"] for line in process.lines() if line["event"].startswith("database_")]


def complaints(process: Process) -> list[str]:
    """What else it complained about, other than by the lines that belong to an outage."""
    expected = {"database_unreachable", "connection_lost", "wakeups_degraded", "lease_lost", "run_finished"}
    expected |= {"run_overlapped"}  # cycles are due several times a second here
    return [
        line["event"]
        for line in process.lines()
        if line["level"] in ("warning", "error", "critical") and line["event"] not in expected
    ]


def test_a_database_that_comes_late_is_waited_for(processes, dsn: str, runs) -> None:
    """Gone at start: the worker keeps trying, says so once, and works once the database is there."""
    with Proxy(dsn) as proxy:
        proxy.shut()
        worker = processes.relevo("run", http_enabled=True, **HASTY | {"database_url": proxy.dsn})
        worker.hears("database_unreachable")
        never(lambda: worker.lines("worker_started"), "it started without a database", during=1.5)
        proxy.open()
        worker.hears("worker_started")
        eventually(lambda: runs("cleanup", "ok"), "its cycles run")
        assert states(worker) == ["database_unreachable", "database_reachable"]
        assert complaints(worker) == []
        assert worker.stops() == 0


def test_who_waits_for_a_database_can_be_stopped(processes, dsn: str) -> None:
    """Before the database ever answered, SIGTERM ends the worker in good order."""
    with Proxy(dsn) as proxy:
        proxy.shut()
        worker = processes.relevo("run", **HASTY | {"database_url": proxy.dsn})
        worker.hears("database_unreachable")
        assert worker.stops() == 0


def test_one_shot_commands_do_not_wait_for_ever(processes, dsn: str) -> None:
    """run-cycle, tick and status without a database fail with a sentence and a next step."""
    with Proxy(dsn) as proxy:
        proxy.shut()
        asked = [
            processes.relevo(*words, **HASTY | {"database_url": proxy.dsn})
            for words in (("run-cycle", "reaper"), ("tick",), ("status",))
        ]
        for process in asked:
            assert process.ends() == 1
            assert "relevo: PostgreSQL did not answer" in process.stderr
            assert "DATABASE_URL" in process.stderr
            assert "Traceback" not in process.stderr


def goes_on(worker: Process, rows: Any, since: Any) -> None:
    """Check that after an outage everything that was in flight is closed and every cycle goes on."""
    eventually(
        lambda: not rows("select 1 from relevo.worker_runs where outcome = 'running' and started_at < %s", [since]),
        "what was in flight is finished",
    )
    for cycle in ("busy", "nightly"):
        eventually(
            lambda cycle=cycle: rows(
                "select 1 from relevo.worker_runs where outcome = 'ok' and cycle = %s and finished_at > %s",
                [cycle, since],
            ),
            f"{cycle} goes on",
        )
    eventually(
        lambda: rows("select 1 from relevo.cycle_state where cycle = 'reaper' and last_round_at > %s", [since]),
        "the reaper goes on",
    )
    flying = rows(
        "select outcome, error_message from relevo.worker_runs"
        " where cycle in ('busy', 'nightly') and started_at < %s and finished_at > %s",  # another may just begin
        [since, since],
    )
    assert flying, "nothing was in flight"
    assert {row["outcome"] for row in flying} <= {"failed", "ok"}, flying
    assert rows("select 1 from relevo.workers where lost_at is not null") == []
    assert complaints(worker) == []


def test_an_outage_in_flight(processes, dsn: str, probed, rows, conn) -> None:
    """Gone for longer than the lease: no crash, one word for the loss, one for the return, and nothing is left open."""
    with Proxy(dsn) as proxy:
        worker = processes.relay(
            "run", probes=[BUSY, NIGHTLY], http_enabled=True, **HASTY | {"database_url": proxy.dsn}
        )
        worker.hears("probe_holds", probe="busy")
        worker.hears("probe_holds", probe="nightly")
        worker.hears("wakeups_listening")
        [since] = conn.execute("select clock_timestamp()").fetchone()
        proxy.shut()
        processes.release()
        expired = "select 1 from relevo.cycle_leases where cycle = 'nightly' and leased_until < now()"
        eventually(lambda: rows(expired), "its lease has run out")
        proxy.open()
        goes_on(worker, rows, since)
        told = states(worker)  # a busy machine may make it lose the database once more; every loss is told once
        assert told == ["database_unreachable", "database_reachable"] * max(1, len(told) // 2)
        wakeups = [line["event"] for line in worker.lines() if line["event"].startswith("wakeups_")]
        assert wakeups == ["wakeups_listening"] + ["wakeups_degraded", "wakeups_listening"] * max(1, len(wakeups) // 2)
        assert worker.stops() == 0


def test_all_connections_terminated_at_once(processes, probed, rows, conn) -> None:
    """Backends terminated by an administrator are replaced; the database was never gone, and nobody says so."""
    worker = processes.relay("run", probes=[BUSY, NIGHTLY], **HASTY)
    worker.hears("probe_holds", probe="busy")
    worker.hears("probe_holds", probe="nightly")
    [since] = conn.execute("select clock_timestamp()").fetchone()
    conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    processes.release()
    goes_on(worker, rows, since)
    assert states(worker) == []
    assert worker.stops() == 0


def test_a_round_that_lost_its_connection_is_not_put_off(processes, probed, rows, conn) -> None:
    """A run fails because its one connection dies, while the server is there: its cycle looks again within a moment,
    not after the rest it would have after an error; the database was never gone, and nobody says so."""
    inside = {"name": "inside", "every_ms": 3_600_000, "singleton": False, "hold_ms": 3_600_000, "hold_inside": True}
    patient = {"worker_tick_loop_error_backoff_ms": 3_600_000, "database_idle_transaction_timeout_ms": 19_000}
    worker = processes.relay("run", probes=[inside], **HASTY | patient | {"outbox_lease_duration_ms": 60_000})
    worker.hears("wakeups_listening")
    worker.hears("probe_holds", probe="inside")
    conn.execute(
        "select pg_terminate_backend(pid, 60000) from pg_stat_activity"
        " where datname = current_database() and query like 'select count(*) from relevo.worker_runs%'"
        " and state = 'idle in transaction'"
    )
    processes.release()
    eventually(lambda: probed("inside", "end"), "it ran again")
    outcomes = "select outcome from relevo.worker_runs where cycle = 'inside' order by started_at"
    eventually(lambda: [row["outcome"] for row in rows(outcomes)][:2] == ["failed", "ok"], "both are written down")
    assert states(worker) == []
    assert worker.stops() == 0


def test_the_server_restarts_in_flight(prototype: Path, tmp_path: Path) -> None:
    """PostgreSQL is killed and comes back: the worker tells of both once, goes on, and closes what was in flight."""
    postgres_folder.copy(prototype, tmp_path / "postgres")
    quick = postgres_folder.QUICK | {"shared_buffers": "16MB"}
    with embedded.acquire(tmp_path / "postgres", postgres_folder.programs(), settings=quick) as server:
        started = Processes(server.dsn, tmp_path)
        try:
            with psycopg.connect(server.dsn, autocommit=True) as conn:
                conn.execute(PROBES)
            worker = started.relay("run", probes=[BUSY, NIGHTLY], **HASTY)
            worker.hears("probe_holds", probe="busy")
            worker.hears("probe_holds", probe="nightly")
            with psycopg.connect(server.dsn, autocommit=True) as conn:
                [since] = conn.execute("select clock_timestamp()").fetchone()
            postmaster = int((tmp_path / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
            os.kill(postmaster, signal.SIGKILL)
            started.release()

            def rows(query: str, parameters: Any = ()) -> list[dict[str, Any]]:
                try:
                    with psycopg.connect(server.dsn, autocommit=True, row_factory=psycopg.rows.dict_row) as conn:
                        return conn.execute(query, parameters).fetchall()
                except psycopg.OperationalError:
                    return []

            worker.hears("database_unreachable")
            worker.hears("database_reachable")
            goes_on(worker, rows, since)
            assert states(worker) == ["database_unreachable", "database_reachable"]
            assert worker.stops() == 0
        finally:
            started.close()


def test_a_replica_never_opens_more_connections_than_it_may(processes, probed, rows) -> None:
    """However many cycles are busy at once, and while listening and beating, the budget of connections holds."""
    crowd = [
        {"name": f"crowd-{n}", "every_ms": 10, "singleton": n % 2 == 0, "hold_ms": 60, "hold_inside": True}
        for n in range(8)
    ]
    worker = processes.relay(
        "run",
        probes=crowd,
        worker_id="w-1",
        database_max_connections=5,
        http_enabled=True,
        worker_busy_loop_delay_ms=1,
        outbox_lease_duration_ms=6_000,
    )
    worker.hears("worker_started")
    worker.hears("wakeups_listening")

    def connections() -> int:
        [row] = rows("select count(*)::int as n from pg_stat_activity where application_name = 'relevo w-1'")
        assert row["n"] <= 5
        return int(row["n"])

    eventually(lambda: connections() == 5, "it uses what it may", every=0.005)
    eventually(
        lambda: connections() and rows("select count(distinct cycle) as n from public.probe") == [{"n": len(crowd)}],
        "every cycle has its turn",
        every=0.005,
    )
    never(lambda: connections() > 5, "too many connections", during=1, every=0.005)
    assert worker.stops() == 0


PATIENT: dict[str, Any] = {
    "database_connect_timeout_ms": 10_000,
    "worker_idle_backoff_min_ms": 100,
    "worker_idle_backoff_max_ms": 200,  # so that every cycle meets the outage,
    "worker_tick_loop_error_backoff_ms": 3_600_000,  # and would then rest for an hour
    "push_rate_per_second": 0,
}


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A push service without a rate."""
    with Sandbox(rate_per_s=0) as started:
        yield started


def away(dsn: str, proxy: Proxy) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what makes the database go away, and come back."""
    return proxy.shut, proxy.open


def read_only(dsn: str, proxy: Proxy) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what leaves a server that only reads, as a former primary, and what makes it write again."""

    def change(value: str) -> None:
        with psycopg.connect(dsn, autocommit=True, options="-c default_transaction_read_only=off") as conn:
            conn.execute(f"alter database {conn.info.dbname} set default_transaction_read_only = {value}".encode())
        proxy.cut()

    return lambda: change("on"), lambda: change("off")


@pytest.mark.parametrize("outage", [away, read_only])
def test_cycles_look_at_once_when_the_database_is_back(processes, dsn: str, conn, rows, sandbox, outage) -> None:
    """Away for a while, or read-only as after a failover: once it can be written to again every cycle looks within a
    moment, long before the rest it would have after an error, and wake-ups are heard; each change is told once."""
    phone = verbs.register(conn, values.Installation("ExponentPushToken[back]"))
    with Proxy(dsn) as proxy:
        go, come_back = outage(dsn, proxy)
        worker = processes.relevo(
            "run", http_enabled=True, **PATIENT | {"database_url": proxy.dsn, "expo_base_url": sandbox.url}
        )
        worker.hears("wakeups_listening")
        eventually(
            lambda: len(rows("select 1 from relevo.cycle_state where asleep")) == 2, "fan-out and dispatch sleep"
        )
        go()
        worker.hears("database_unreachable")
        time.sleep(4)  # refused at once, each of them has tried in vain by now
        come_back()
        verbs.enqueue(conn, values.Event("back", "1", "Hello", audience=[phone]))
        eventually(lambda: sandbox.totals()["sendRequests"] == 1, "the push is sent")
        eventually(lambda: len(worker.lines("wakeups_listening")) == 2, "it listens again")
        assert states(worker) == ["database_unreachable", "database_reachable"]
        assert worker.stops() == 0


def test_an_outage_that_lasts_is_told_again(build, dsn: str, said, monkeypatch) -> None:
    """A database that stays away is told of once a minute, not once a try."""
    monkeypatch.setattr(pool, "_REMIND_S", 1.0)
    with Proxy(dsn) as proxy:
        worker = build(database_url=proxy.dsn)
        worker.heartbeat.start()
        proxy.shut()
        eventually(lambda: len(said("database_still_unreachable")) == 2, "reminders")
        assert len(said("database_unreachable")) == 1
        assert said("database_still_unreachable")[0]["for_s"] >= 1


def test_a_rollback_that_is_lost_is_no_news(build, dsn: str, said) -> None:
    """Something goes wrong inside a transaction whose connection is gone, too: that goes its way, and psycopg does not
    tell on top of it that it could not roll back what the server has forgotten already."""
    with Proxy(dsn) as proxy:
        worker = build(database_url=proxy.dsn)

        def fail() -> None:
            with worker.database.transaction() as connection, connection.transaction():
                proxy.cut()
                raise ValueError("of our own")

        with pytest.raises(ValueError, match="of our own"):
            fail()
        assert [line["event"] for line in said()] == ["worker_started"]
        assert worker.database.ping()
