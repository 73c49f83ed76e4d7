"""Pushes, every cycle and the archive work for a role that owns one schema and comes in through a pooler."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relevo.client import verbs
from relevo.client.values import Event, Installation, Owners
from support.fixtures.hosted_database import ROLE, HostedDatabase
from support.old_months import add_old_deliveries, exports
from support.processes import Processes, eventually
from support.sealed_month import OLD

pytestmark = pytest.mark.needs("pgbouncer")


@pytest.mark.parametrize("by", ["pooler", "direct address, too"])
def test_a_worker_sends(
    by: str, processes: Processes, hosted: HostedDatabase, role: psycopg.Connection[Any], sandbox: Any
) -> None:
    """The app registers and enqueues as the role; a worker of the role sends and confirms, polling or woken."""
    direct = {} if by == "pooler" else {"database_direct_url": hosted.direct}
    quick = {"receipt_first_poll_ms": 1, "worker_idle_backoff_max_ms": 300, "expo_base_url": sandbox.url}
    worker = processes.relevo("run", worker_cycles="reaper,fanout,dispatch,receipt", **quick, **direct)
    worker.hears("wakeups_listening" if direct else "wakeups_degraded")
    verbs.register(role, Installation("ExponentPushToken[ana]", owner="ana"))
    verbs.enqueue(role, Event("order.shipped", "1", "On its way", audience=Owners("ana")))
    role.commit()

    def finished() -> bool:
        status = verbs.get(role, ("order.shipped", "1"))
        role.commit()
        return status is not None and status.deliveries == {"ok": 1}

    eventually(finished, "the push is confirmed")
    assert worker.stops() == 0
    assert worker.lines(level="error") == []


def test_every_cycle_runs(relay: Any, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    """Each cycle ends well; an old month is retired, exported, read back and dropped, once the schema for it is there."""
    conn.execute(f"create schema relevo_archive authorization {ROLE}".encode())
    add_old_deliveries(conn, OLD, 5)
    for owned in ("notification_deliveries", "push_requests"):  # those that staff made
        for (partition,) in conn.execute(
            "select inhrelid::regclass::text from pg_inherits where inhparent = %s::regclass", [f"relevo.{owned}"]
        ).fetchall():
            conn.execute(f"alter table {partition} owner to {ROLE}".encode())
    worker = relay(archive_store="folder", archive_folder=str(tmp_path), archive_grace_days=0)
    worker.tell("ana", "bea")
    for cycle in (*worker.app.registry, *worker.app.registry):
        report = worker.run(cycle)
        assert (report.outcome in ("ok", "idle", "skipped"), report.error) == (True, ""), (cycle, report)
    assert worker.states()["ok"] + worker.states().get("sent", 0) >= 2
    assert set(exports(conn).values()) <= {"verified", "dropped"}, exports(conn)
    assert list(tmp_path.rglob("*.parquet"))


def test_an_app_whose_sessions_are_serializable(dsn: str, role: psycopg.Connection[Any]) -> None:
    """Apps that enqueue at once may be told to try again (SQLSTATE 40001), as PostgreSQL does; what is tried again is stored once."""
    writers, each = 4, 25
    together, told = threading.Barrier(writers), Counter[str]()

    def write(number: int) -> None:
        with psycopg.connect(dsn, prepare_threshold=None) as app:
            together.wait(60)
            for n in range(each):
                while True:
                    try:
                        verbs.enqueue(app, Event("bill.due", f"{number}-{n}", "Due", audience=Owners(f"user-{number}")))
                        app.commit()
                    except psycopg.errors.SerializationFailure:
                        app.rollback()
                        told["again"] += 1
                    else:
                        break

    with ThreadPoolExecutor(writers) as threads:
        list(threads.map(write, range(writers), timeout=180))
    stored = role.execute("select count(*), count(distinct event_key) from relevo.notification_events").fetchone()
    assert stored == (writers * each, writers * each)
    print(f"{told['again']} of {writers * each + told['again']} transactions were told to try again")
