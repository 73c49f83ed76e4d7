"""What befalls the database and the way to it."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import psycopg

from chaos.scene import Scene
from chaos.stage import CONNECTIONS, until

_OTHERS = "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
_CANCEL = f"select count(*) filter (where pg_cancel_backend(pid)) from ({_OTHERS} and state = 'active') b"
_WAITING = "select count(*) from pg_locks where not granted"
FUNCTIONS = Path(__file__).parents[2] / "sql" / "functions"
_REFUSED = re.compile(rb"too many clients|connection slots are reserved")


def end_connections(scene: Scene) -> None:
    """End all connections."""
    with scene.stage.connect() as conn:
        if scene.noticed(lambda: conn.execute(f"select pg_terminate_backend(pid) from ({_OTHERS}) b".encode())):
            scene.hit("connections ended under a replica")


def crash(scene: Scene) -> None:
    """Kill a backend: PostgreSQL ends all the others, and recovers from its log."""
    pids = [pid for (pid,) in scene.stage.ask(_OTHERS) if Path(f"/proc/{pid}").exists()]
    if pids and scene.noticed(lambda: os.kill(scene.chance.choice(pids), signal.SIGKILL)):
        scene.hit("the database crashed under a replica")


def hold_snapshot(scene: Scene) -> None:
    """Hold a snapshot while others write."""
    before = scene.settled()
    with scene.stage.connect() as conn, conn.transaction():
        conn.execute("set transaction isolation level repeatable read")
        conn.execute("select count(*) from relevo.notification_events")
        time.sleep(3)
    scene.hit("requests settled while a snapshot was held", scene.settled() - before)


def lock_tables(scene: Scene) -> None:
    """Hold the lock of a busy table for longer than any statement may wait."""
    with scene.stage.connect() as conn, scene.stage.connect() as watch:
        conn.execute("set lock_timeout = '5s'")
        with conn.transaction():
            conn.execute("lock table relevo.claims in access exclusive mode")
            time.sleep(2)
            [(waiting,)] = watch.execute(_WAITING).fetchall()
        scene.hit("statements that waited for a lock beyond their time-out", waiting)


def cancel_statements(scene: Scene) -> None:
    """Have statements given up in their midst, as their time-out does."""
    until = time.monotonic() + 2
    with scene.stage.connect() as conn:
        while time.monotonic() < until:
            [(cancelled,)] = conn.execute(_CANCEL.encode()).fetchall()
            scene.hit("statements given up in their midst", cancelled)
            time.sleep(0.02)


def take_connections(scene: Scene) -> None:
    """Take every connection there is, those of replicas included, and keep them for a while."""
    log = scene.stage.folder / "postgres" / "postgres.log"
    before = len(_REFUSED.findall(log.read_bytes()))
    with ExitStack() as held:
        conn = held.enter_context(scene.stage.connect())
        conn.execute(f"select pg_terminate_backend(pid) from ({_OTHERS}) b".encode())
        with suppress(psycopg.OperationalError):
            for _ in range(CONNECTIONS):
                held.enter_context(psycopg.connect(scene.stage.dsn, autocommit=True, connect_timeout=5))
        time.sleep(3)
    refused = len(_REFUSED.findall(log.read_bytes())) - before - 1  # the last was our own
    scene.hit("connections refused, for none were left", max(0, refused))


def migrate_again(scene: Scene) -> None:
    """Replace every function while everybody works, as the migration of a release does, and run `relevo migrate`."""
    before = scene.settled()
    with scene.stage.connect() as conn, conn.transaction():
        for path in sorted(FUNCTIONS.rglob("*.sql")):
            conn.execute(path.read_bytes())
    if scene.stage.run("migrate").wait(120) == 0:
        scene.hit("requests settled around a migration", scene.settled() - before)


def lose_answers(scene: Scene) -> None:
    """Let COMMITs be carried out, and swallow their answers."""
    until(lambda: scene.stage.wire.connections > 0, patience_s=10)
    for _ in range(6):
        scene.stage.wire.lose_answer()
        scene.hit("answers to COMMIT lost", scene.stage.wire.was_hit(1.5))
    scene.stage.wire.calm()


def lose_commits(scene: Scene) -> None:
    """Cut connections instead of passing their COMMIT on."""
    until(lambda: scene.stage.wire.connections > 0, patience_s=10)
    for _ in range(6):
        scene.stage.wire.lose_commit()
        scene.hit("COMMITs lost", scene.stage.wire.was_hit(1.5))
    scene.stage.wire.calm()


def hold_commit(scene: Scene) -> None:
    """Let a COMMIT arrive seconds after its client was cut off."""
    scene.stage.wire.hold_commit()
    if scene.stage.wire.was_hit(10):
        time.sleep(scene.chance.random() * 2)
        with suppress(ConnectionError, TimeoutError, AssertionError):
            scene.stage.wire.deliver_commit()
            scene.hit("COMMITs that came late")
    scene.stage.wire.calm()


def freeze(scene: Scene) -> None:
    """Let nothing pass on the connections there are, which stay open; then let everything pass that was stuck."""
    until(lambda: scene.stage.wire.connections > 0, patience_s=10)
    connections = scene.stage.wire.connections
    scene.stage.wire.silence()
    time.sleep(3 + scene.chance.random() * 3)
    scene.stage.wire.thaw()
    scene.hit("connections that were open and silent", connections)


def slow_wire(scene: Scene) -> None:
    """Let every piece take its time."""
    scene.stage.wire.latency_s = 0.05
    before = scene.settled()
    time.sleep(3)
    scene.stage.wire.latency_s = 0
    scene.hit("requests settled beside a slow connection", scene.settled() - before)


def kill_pooler(scene: Scene) -> None:
    """Kill PgBouncer, and start it again."""
    pooler = scene.stage.pooler
    assert pooler is not None
    if scene.noticed(pooler.kill):
        scene.hit("PgBouncer killed under a replica")
    pooler.start()


KINDS: dict[str, Callable[[Scene], None]] = {
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


def kinds(scene: Scene, skipped: dict[str, str]) -> dict[str, Callable[[Scene], None]]:
    """Return what can be done here; what cannot is named with the reason."""
    if scene.stage.pooler is None:
        skipped["PgBouncer killed"] = "install pgbouncer (Debian: apt-get install pgbouncer)"
        return KINDS
    return KINDS | {"PgBouncer killed": kill_pooler}
