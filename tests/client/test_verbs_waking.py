"""Whoever enqueues wakes the fan-out, whatever the isolation of its transaction; asked not to, it wakes nobody."""

from __future__ import annotations

from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

import relevo
from relevo import Event
from relevo.core.model import Lane
from support.processes import PATIENCE_S

ASLEEP = """
insert into relevo.cycle_state (cycle, source, asleep) values ('fanout', '', true)
on conflict (cycle, source) do update set asleep = true
"""

AWAKE = ASLEEP.replace("true", "false")
MARK = "select relevo.mark_awake('fanout')"
IS_AWAKE = "select relevo.is_awake('fanout')"


def heard(listener: psycopg.Connection[Any], timeout_s: float = PATIENCE_S) -> list[str]:
    """Return the first call, if one comes in time."""
    return [call.payload for call in listener.notifies(timeout=timeout_s, stop_after=1)]


def test_every_isolation_wakes(conn, dsn: str) -> None:
    """A fan-out that fell asleep after the app's transaction began is woken as soon as the app commits."""
    conn.execute("listen relevo_wake")
    lanes: tuple[Lane, ...] = ("bulk", "urgent")
    for lane, level in product(lanes, IsolationLevel):
        conn.execute("delete from relevo.cycle_state")
        with psycopg.connect(dsn) as app, psycopg.connect(dsn, autocommit=True) as fleet:
            app.isolation_level = level
            app.execute("select from relevo.cycle_state")  # from here on an older snapshot
            fleet.execute(ASLEEP)
            relevo.enqueue(app, Event("t", f"{lane} {level}", "t", audience="everyone", lane=lane))
            app.commit()
        assert heard(conn) == ["fanout"], (lane, level)


def test_no_isolation_calls_a_fan_out_that_is_awake(conn, dsn: str) -> None:
    """One that said so after the app's transaction began is not called; once it says that it sleeps, it is called again."""
    conn.execute("listen relevo_wake")
    for level, awake in product(IsolationLevel, (True, False)):
        conn.execute(ASLEEP)
        with psycopg.connect(dsn) as app, psycopg.connect(dsn, autocommit=True) as fleet:
            app.isolation_level = level
            app.execute("select from relevo.cycle_state")  # from here on an older snapshot
            fleet.execute(AWAKE)
            fleet.execute(MARK)
            if not awake:
                fleet.execute(ASLEEP)
            relevo.enqueue(app, Event("t", f"{awake} {level}", "t", audience="everyone"))
            app.commit()
        assert heard(conn, PATIENCE_S if not awake else 0.2) == ([] if awake else ["fanout"]), (level, awake)


def test_what_is_undone_leaves_no_fan_out_marked_as_awake(conn, dsn: str) -> None:
    """Neither a line that says that it sleeps, nor one that somebody holds, is marked; undone sleep costs a call at most."""
    conn.execute("listen relevo_wake")
    conn.execute(ASLEEP)
    conn.execute(MARK)
    assert conn.execute(IS_AWAKE).fetchone() == (False,)
    with psycopg.connect(dsn) as holder:
        holder.execute(AWAKE)
        conn.execute(MARK)
        assert conn.execute(IS_AWAKE).fetchone() == (False,)
        holder.commit()
        conn.execute(MARK)
        assert conn.execute(IS_AWAKE).fetchone() == (True,)
        holder.execute(ASLEEP)
        holder.rollback()
    assert conn.execute(IS_AWAKE).fetchone() == (False,)


def test_a_worker_that_starts_finds_nobody_marked(conn, build) -> None:
    """A mark that a backup brought back is gone once a worker has started: sequences and lines are not of one moment there."""
    conn.execute(AWAKE)
    conn.execute(MARK)
    build().worker.record_start("run", ["fanout"])
    assert conn.execute(IS_AWAKE).fetchone() == (False,)


def test_a_prepared_transaction(conn, dsn: str) -> None:
    """With relevo.wake off nobody is called, so that the transaction may be prepared; what it enqueued counts once committed."""
    conn.execute(ASLEEP)
    lanes: tuple[Lane, ...] = ("bulk", "urgent")
    for lane in lanes:
        with psycopg.connect(dsn, autocommit=True) as app:
            app.execute("begin")
            app.execute("set local relevo.wake = 'off'")
            made = relevo.enqueue(app, Event("t", lane, "t", audience="everyone", lane=lane))
            assert relevo.cancel(app, made.event_id), lane
            app.execute("prepare transaction 'order-1'")
            assert relevo.get(conn, made.event_id) is None, lane
            app.execute("commit prepared 'order-1'")
        assert relevo.get(conn, made.event_id) is not None, lane


def test_a_prepared_transaction_that_calls(conn, dsn: str) -> None:
    """Without it PostgreSQL refuses to prepare, in words that the page about the SQL door explains."""
    conn.execute(ASLEEP)
    with psycopg.connect(dsn, autocommit=True) as app:
        app.execute("begin")
        relevo.enqueue(app, Event("t", "1", "t", audience="everyone"))
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="NOTIFY"):
            app.execute("prepare transaction 'order-2'")
