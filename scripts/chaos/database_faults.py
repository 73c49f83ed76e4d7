"""Faults of the database and of the way to it."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import psycopg

from chaos.fault_context import FaultContext
from chaos.system import CONNECTIONS, until

_OTHERS = "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
_CANCEL = f"select count(*) filter (where pg_cancel_backend(pid)) from ({_OTHERS} and state = 'active') b"
_WAITING = "select count(*) from pg_locks where not granted"
_REFUSED = re.compile(rb"too many clients|connection slots are reserved")


def end_connections(context: FaultContext) -> None:
    """End all connections."""
    with context.system.connect() as conn:
        if context.noticed(lambda: conn.execute(f"select pg_terminate_backend(pid) from ({_OTHERS}) b".encode())):
            context.hit("connections ended under a replica")


def crash(context: FaultContext) -> None:
    """Kill a backend: PostgreSQL ends all the others, and recovers from its log."""
    pids = [pid for (pid,) in context.system.ask(_OTHERS) if Path(f"/proc/{pid}").exists()]
    if pids and context.noticed(lambda: os.kill(context.chance.choice(pids), signal.SIGKILL)):
        context.hit("the database crashed under a replica")


def hold_snapshot(context: FaultContext) -> None:
    """Hold a snapshot while others write."""
    before = context.settled()
    with context.system.connect() as conn, conn.transaction():
        conn.execute("set transaction isolation level repeatable read")
        conn.execute("select count(*) from relevo.notification_events")
        time.sleep(3)
    context.hit("requests settled while a snapshot was held", context.settled() - before)


def lock_tables(context: FaultContext) -> None:
    """Hold the lock of a busy table for longer than any statement may wait."""
    with context.system.connect() as conn, context.system.connect() as watch:
        conn.execute("set lock_timeout = '5s'")
        with conn.transaction():
            conn.execute("lock table relevo.claims in access exclusive mode")
            time.sleep(2)
            [(waiting,)] = watch.execute(_WAITING).fetchall()
        context.hit("statements that waited for a lock beyond their time-out", waiting)


def cancel_statements(context: FaultContext) -> None:
    """Cancel statements in their midst, as their time-out does."""
    until = time.monotonic() + 2
    with context.system.connect() as conn:
        while time.monotonic() < until:
            [(cancelled,)] = conn.execute(_CANCEL.encode()).fetchall()
            context.hit("statements given up in their midst", cancelled)
            time.sleep(0.02)


def take_connections(context: FaultContext) -> None:
    """Take every connection there is, those of replicas included, and keep them for a while."""
    log = context.system.folder / "postgres" / "postgres.log"
    before = len(_REFUSED.findall(log.read_bytes()))
    with ExitStack() as held:
        conn = held.enter_context(context.system.connect())
        conn.execute(f"select pg_terminate_backend(pid) from ({_OTHERS}) b".encode())
        with suppress(psycopg.OperationalError):
            for _ in range(CONNECTIONS):
                held.enter_context(psycopg.connect(context.system.dsn, autocommit=True, connect_timeout=5))
        time.sleep(3)
    refused = len(_REFUSED.findall(log.read_bytes())) - before - 1  # the last was our own
    context.hit("connections refused, for none were left", max(0, refused))


def migrate_again(context: FaultContext) -> None:
    """Replace every function by `relevo migrate` while everybody works, as at a release."""
    before = context.settled()
    with context.system.connect() as conn:
        conn.execute("update relevo.applied_functions set checksum = ''")
    if context.system.run("migrate").wait(120) == 0:
        context.hit("requests settled around a migration", context.settled() - before)


def lose_answers(context: FaultContext) -> None:
    """Carry out COMMITs, and swallow their answers."""
    until(lambda: context.system.wire.connections > 0, patience_s=10)
    for _ in range(6):
        context.system.wire.lose_answer()
        context.hit("answers to COMMIT lost", context.system.wire.was_hit(1.5))
    context.system.wire.calm()


def lose_commits(context: FaultContext) -> None:
    """Cut connections instead of passing their COMMIT on."""
    until(lambda: context.system.wire.connections > 0, patience_s=10)
    for _ in range(6):
        context.system.wire.lose_commit()
        context.hit("COMMITs lost", context.system.wire.was_hit(1.5))
    context.system.wire.calm()


def hold_commit(context: FaultContext) -> None:
    """Deliver a COMMIT seconds after its client was cut off."""
    context.system.wire.hold_commit()
    if context.system.wire.was_hit(10):
        time.sleep(context.chance.random() * 2)
        with suppress(ConnectionError, TimeoutError, AssertionError):
            context.system.wire.deliver_commit()
            context.hit("COMMITs that came late")
    context.system.wire.calm()


def freeze(context: FaultContext) -> None:
    """Block the existing connections, which stay open; then pass on everything that was blocked."""
    until(lambda: context.system.wire.connections > 0, patience_s=10)
    connections = context.system.wire.connections
    context.system.wire.silence()
    time.sleep(3 + context.chance.random() * 3)
    context.system.wire.thaw()
    context.hit("connections that were open and silent", connections)


def slow_wire(context: FaultContext) -> None:
    """Delay every piece."""
    context.system.wire.latency_s = 0.05
    before = context.settled()
    time.sleep(3)
    context.system.wire.latency_s = 0
    context.hit("requests settled beside a slow connection", context.settled() - before)


def kill_pooler(context: FaultContext) -> None:
    """Kill PgBouncer, and start it again."""
    pooler = context.system.pooler
    assert pooler is not None
    if context.noticed(pooler.kill):
        context.hit("PgBouncer killed under a replica")
    pooler.start()


KINDS: dict[str, Callable[[FaultContext], None]] = {
    "connections ended": end_connections,
    "database crashed": crash,
    "snapshot held": hold_snapshot,
    "table locked beyond the time-outs": lock_tables,
    "statements cancelled": cancel_statements,
    "out of connections": take_connections,
    "migration run again": migrate_again,
    "answers to COMMIT lost": lose_answers,
    "COMMITs lost": lose_commits,
    "COMMIT late": hold_commit,
    "connections frozen": freeze,
    "connections slow": slow_wire,
}


def kinds(context: FaultContext, skipped: dict[str, str]) -> dict[str, Callable[[FaultContext], None]]:
    """Return what can be done here; what cannot is named with the reason."""
    if context.system.pooler is None:
        skipped["PgBouncer killed"] = "install pgbouncer (Debian: apt-get install pgbouncer)"
        return KINDS
    return KINDS | {"PgBouncer killed": kill_pooler}
