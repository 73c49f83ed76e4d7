"""A connection lost at every statement and at every COMMIT, while the process that held it lives on.

A kill takes the process along (test_killed_dispatch.py); here it is the process that has to find out what was done. The
moments are those that a run without a fault counts, so that a new statement is covered by itself: the backend ends
before a statement or a COMMIT, or the answer to a COMMIT, or to a statement that needs none, never comes.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from relevo.app import App
from relevo.client import verbs
from relevo.core import queries
from relevo.database import pool
from relevo.sandbox.server import Sandbox
from support import soak
from support.dying_processes import enqueue, fates, install, needless_resends
from support.phones import fan_out
from support.processes import eventually

STEPS = ("fanout", "claims", "journal", "settle", "receipts", "dispatch", "projects", "reaper")
NAMES = {body: f"{step}.{name}" for step in STEPS for name, body in queries.load(step).items()}
SENTENCES = {body.splitlines()[0]: name for body, name in NAMES.items()}
SELDOM = "claims.list_composed_types"  # its answer is kept for a while, so that most runs do without


def named(query: object) -> str | None:
    """Tell which statement it is, also of one that is sent together with what begins and commits it."""
    if not isinstance(query, bytes):
        return None
    return NAMES.get(query) or next((SENTENCES[line] for line in query.splitlines() if line in SENTENCES), None)


@dataclass(frozen=True)
class Moment:
    """When a connection is lost: before something is carried out, or after it, with its answer."""

    name: str
    when: str


class Connections:
    """Counts what is asked of the database, and loses one connection at one moment."""

    def __init__(self, observer: psycopg.Connection[Any]) -> None:
        self._observer = observer
        self._guard = threading.Lock()
        self.moments: Counter[Moment] = Counter()
        self.armed: Moment | None = None

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put itself around statements and transactions."""
        monkeypatch.setattr(psycopg.Cursor, "execute", self._around_statement(psycopg.Cursor.execute))
        monkeypatch.setattr(pool.Connection, "commit", self._around_commit(pool.Connection.commit))

    def _around_statement(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        def watched(cursor: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
            name = named(query)
            if name is None:
                return execute(cursor, query, *args, **kwargs)
            cursor.connection.last_named = name
            self._pass(cursor.connection, Moment(name, "before"))
            result = execute(cursor, query, *args, **kwargs)
            if cursor.connection.info.transaction_status == TransactionStatus.IDLE:  # committed with that
                self._pass(cursor.connection, Moment(name, "after"))
            return result

        return watched

    def _around_commit(self, commit: Callable[..., Any]) -> Callable[..., Any]:
        def watched(connection: Any) -> None:
            name = getattr(connection, "last_named", None)
            connection.last_named = None
            is_open = connection.info.transaction_status != TransactionStatus.IDLE
            if name is None or not is_open:  # a connection in autocommit is given back with a commit of nothing
                commit(connection)
                return
            self._pass(connection, Moment(f"COMMIT of {name}", "before"))
            commit(connection)
            self._pass(connection, Moment(f"COMMIT of {name}", "after"))

        return watched

    def _pass(self, connection: Any, moment: Moment) -> None:
        with self._guard:
            self.moments[moment] += 1
            is_lost = moment == self.armed
            self.armed = None if is_lost else self.armed
        if is_lost and moment.when == "before":
            self._end(connection.info.backend_pid)
        elif is_lost:
            connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    def _end(self, pid: int) -> None:
        """End a connection, and wait until it is gone: it would be lost at a later moment otherwise."""
        self._observer.execute("select pg_terminate_backend(%s)", [pid])
        there = "select from pg_stat_activity where pid = %s"
        eventually(lambda: not self._observer.execute(there, [pid]).fetchall(), "it ends", every=0.001)


@dataclass
class World:
    """The test's database, its push service, a worker, and the time it lives in."""

    conn: psycopg.Connection[Any]
    sandbox: Sandbox
    worker: App
    clock: Any
    connections: Connections

    def run(self, cycle: str, lost: Moment | None = None) -> bool:
        """Run a cycle, once, whatever it says of it; tell whether the connection was lost."""
        self.connections.armed = lost
        self.worker.runner.run(self.worker.registry[cycle], "manual")
        was_lost, self.connections.armed = self.connections.armed is None, None
        return was_lost

    def clear_up(self) -> None:
        """Run all cycles, minutes later, until everything is final and nothing is claimed."""
        left = """select (select count(*) from relevo.notification_deliveries where completed_at is null)
                       + (select count(*) from relevo.notification_events where state in ('waiting', 'fanning'))
                       + (select count(*) from relevo.claims where ids <> '{}')"""

        def nothing_left() -> bool:
            self.clock.ahead += timedelta(minutes=2)
            for cycle in ("fanout", "reaper", "dispatch", "receipt"):
                self.run(cycle)
            return self.conn.execute(left).fetchall() == [(0,)]

        eventually(nothing_left, "everything comes to its end")
        self.run("reaper")


@pytest.fixture
def world(conn, sandbox, travelling, clock, monkeypatch) -> World:
    """A worker whose connections can be lost, and which does not wait long before it settles again."""
    monkeypatch.setattr("relevo.delivery.settling.recorder._SETTLE_AGAIN_S", 0.05)
    worker = travelling(push_rate_per_second=5_000, push_chunk_size=2, receipt_first_poll_ms=1, worker_stay_ms=0)
    connections = Connections(conn)
    connections.install(monkeypatch)
    return World(conn, sandbox, worker, clock, connections)


class Scene:
    """An event that is sent at most once, one that may be repeated, and a phone that is gone."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        once, again = install(world.conn, ["", ""], name), install(world.conn, ["", "", "!DeviceNotRegistered"], name)
        self.gone: UUID = list(again)[-1]
        self.once = enqueue(world.conn, list(once), type="once", at_most_once=True)
        self.again = enqueue(world.conn, list(again), type="again")

    def check(self, moment: object) -> None:
        """Each phone got its push, once, and each row, count and token says so."""
        conn, sandbox = self.world.conn, self.world.sandbox
        *reached, gone = [*fates(conn, sandbox, self.once), *fates(conn, sandbox, self.again)]
        assert [(fate.status, fate.received) for fate in reached] == [("ok", 1)] * 4, (moment, reached)
        assert (gone.status, gone.received) == ("invalid", 0), (moment, gone)
        disabled = "select invalid_reason from relevo.device_installations where installation_id = %s"
        assert conn.execute(disabled, [self.gone]).fetchall() == [("DeviceNotRegistered",)], moment
        for event, expected in ((self.once, {"ok": 2}), (self.again, {"ok": 2, "invalid": 1})):
            status = verbs.get(conn, event)
            assert status is not None
            assert status.deliveries == expected, moment


def at_dispatch(world: World, _: str) -> None:
    """Bring events to where dispatch takes them."""
    fan_out(world.worker)


def at_receipts(world: World, _: str) -> None:
    """Bring events to where receipts are asked for."""
    fan_out(world.worker)
    world.run("dispatch")


def at_reaper(world: World, project: str) -> None:
    """Bring events into a claim whose worker is gone."""
    fan_out(world.worker)
    claim = world.worker.claims.claim("dispatch", project, "bulk")
    assert claim is not None
    world.worker.heartbeat.drop(claim.token)
    world.conn.execute("update relevo.claims set leased_until = now() - interval '1 second'")


CYCLES: dict[str, Callable[[World, str], None]] = {
    "fanout": lambda *_: None,
    "dispatch": at_dispatch,
    "receipt": at_receipts,
    "reaper": at_reaper,
}


def lasting(moments: Iterable[Moment]) -> list[Moment]:
    """Leave out what is inside a transaction: to whoever waits for its end, it is lost there as it is before its COMMIT."""
    committed = {moment.name for moment in moments if moment.when == "after"}
    return [moment for moment in moments if moment.name in committed]


@pytest.mark.parametrize("cycle", CYCLES)
def test_a_connection_lost_anywhere_costs_nothing(world, conn, cycle) -> None:
    """Whichever statement or COMMIT it is lost at, and whether or not that was carried out: each phone gets its push
    once, also where it may not come twice, and what the rows tell is true."""
    prepare = CYCLES[cycle]
    scenes = {"no fault": Scene(world, "whole")}
    prepare(world, "whole")
    world.connections.moments.clear()
    world.run(cycle)
    missed = []
    for n, moment in enumerate(soak.cases(lasting(world.connections.moments), whole=list(world.connections.moments))):
        scenes[str(moment)] = Scene(world, f"lost-{n}")
        prepare(world, f"lost-{n}")
        if not world.run(cycle, moment):
            missed.append(moment)
    world.clear_up()
    for moment, scene in scenes.items():
        scene.check(moment)
    assert {moment.name for moment in missed} <= {SELDOM}
    assert needless_resends(conn) == []
