"""Changes of events' counts are folded behind those that were folded before, and none is lost by that."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import psycopg

from relevo.app import App
from relevo.core import queries
from relevo.core.model import Budget
from relevo.cycles import reaper
from relevo.runtime.runs import Run, RunContext
from support.query_plans import pages_of

MANY = 10_000
FOLD = queries.load("reaper")["fold_progress"]
CHANGE = "insert into relevo.event_progress_deltas (event_id, status, deliveries) select 1, 'sent', 1 from generate_series(1, %s)"
FOLDED = "select coalesce(sum(deliveries), 0)::int from relevo.event_progress where event_id = 1"


def fold(app: App, folded: reaper.Folded) -> None:
    """Fold as a scheduled reaper does."""
    context = RunContext(1, "reaper", "", "schedule", app.worker.worker_id, None, datetime.now(UTC))
    run = Run(context, app.settings, app.database, Budget(60_000, 1_000), None, None, threading.Event())
    reaper._fold_progress(folded, run)


def test_what_was_folded_under_a_snapshot_is_passed_by(conn, dsn) -> None:
    """Behind the last one folded, a look for more begins behind the dead rows that somebody's snapshot keeps."""
    conn.execute("alter table relevo.event_progress_deltas set (autovacuum_enabled = off)")
    with psycopg.connect(dsn) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select from relevo.due_chunks")
        conn.execute(CHANGE, [MANY])
        ((_, last),) = conn.execute(FOLD, {"limit": MANY, "after": 0, "left_out": "{}"}).fetchall()
        conn.execute(CHANGE, [1])
        assert pages_of(conn, FOLD, {"limit": 10, "after": 0, "left_out": "{}"}) > 100, (
            "from the beginning, it passes by all of it"
        )
        assert pages_of(conn, FOLD, {"limit": 10, "after": last, "left_out": "{}"}) <= 40
        holder.rollback()


def test_a_change_that_is_committed_late_is_folded(build, conn, dsn, monkeypatch) -> None:
    """What was numbered before others were folded, and committed after, is folded by the next look at all."""
    clock = [1_000.0]
    monkeypatch.setattr(reaper, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(reaper, "min", lambda *_: 60.0, raising=False)
    app, folded = build(), reaper.Folded()

    def folded_now() -> Any:
        fold(app, folded)
        return conn.execute(FOLDED).fetchone()

    with psycopg.connect(dsn) as late:
        late.execute(CHANGE, [1])
        conn.execute(CHANGE, [2])
        assert folded_now() == (2,)
        late.commit()
    conn.execute(CHANGE, [4])
    assert folded_now() == (6,), "behind the last one"
    clock[0] += 61
    assert folded_now() == (7,), "all"
