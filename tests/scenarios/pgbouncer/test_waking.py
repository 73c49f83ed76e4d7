"""Through PgBouncer apps call a fan-out that sleeps, and none that is awake, at every isolation level."""

from __future__ import annotations

from itertools import product
from typing import Any

import psycopg
from psycopg import IsolationLevel

import relevo
from relevo import Event
from support.processes import PATIENCE_S

SAY = """
insert into relevo.cycle_state (cycle, source, asleep) values ('fanout', '', %s)
on conflict (cycle, source) do update set asleep = excluded.asleep
"""


def test_who_is_called(conn: psycopg.Connection[Any], pooled: str) -> None:
    """What one client of the pooler marks is seen by another's transaction, though its snapshot is older."""
    conn.execute("listen relevo_wake")
    for level, asleep in product(IsolationLevel, (True, False)):
        with (
            psycopg.connect(pooled, prepare_threshold=None) as app,
            psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as fleet,
        ):
            app.isolation_level = level
            app.execute("select from relevo.cycle_state")
            fleet.execute(SAY, [asleep])
            fleet.execute("select relevo.mark_awake('fanout')")
            relevo.enqueue(app, Event("t", f"{level} {asleep}", "t", audience="everyone"))
            app.commit()
        calls = [call.payload for call in conn.notifies(timeout=PATIENCE_S if asleep else 0.2, stop_after=1)]
        assert calls == (["fanout"] if asleep else []), (level, asleep)
