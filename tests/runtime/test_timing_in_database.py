"""When a cycle runs stands in the database, as the worker or tick says that started last: status judges by that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from relevo.app import App
from relevo.app.service import one_shot, run_cycle
from relevo.config import Settings
from relevo.core.model import Step
from relevo.cycles.export import OFF
from relevo.operators import fleet
from relevo.runtime.runs import Cycle
from relevo.runtime.timing import Cron, Every

Build = Callable[..., App]


def described(conn: psycopg.Connection[Any], *cycles: str) -> dict[str, tuple[Any, ...]]:
    """Return what is written of some cycles: interval, cron expression, time zone, why they are off."""
    rows = conn.execute("select cycle, every_ms, cron, timezone, off_reason from relevo.cycle_state").fetchall()
    return {cycle: tuple(rest) for cycle, *rest in rows if cycle in cycles}


def late(app: App, settings: Settings) -> dict[str, str]:
    """Return which cycles are late, or missed a slot, by what status says with these settings."""
    problems = fleet.status(app.database, settings).problems
    return {str(each.parts["cycle"]): each.code for each in problems if each.code.startswith("cycle_")}


def make_late(conn: psycopg.Connection[Any], cycle: str, seconds: float) -> None:
    """Let a cycle have made its last round so long ago."""
    conn.execute(
        "insert into relevo.cycle_state as s (cycle, last_round_at) values (%s, now() - %s * interval '1 second')"
        " on conflict (cycle, source) do update set last_round_at = excluded.last_round_at, round_gap_s = null",
        [cycle, seconds],
    )


def test_each_cycle_is_described(build: Build, conn: psycopg.Connection[Any]) -> None:
    """A worker that starts writes down of each of its cycles the interval or cron expression, and why it is off."""
    app = build(reaper_interval_ms=4_000, cleanup_cron="5 4 * * *", worker_timezone="UTC")
    app.worker.describe(app.cycles())
    assert described(conn, "reaper", "cleanup", "archive-export") == {
        "reaper": (4_000, None, None, None),
        "cleanup": (None, "5 4 * * *", "UTC", None),
        "archive-export": (None, app.settings.archive_export_cron, "UTC", OFF),
    }


def test_the_last_start_counts(build: Build, conn: psycopg.Connection[Any], tmp_path: Any) -> None:
    """A later start with other settings replaces what was written; one that changes nothing writes nothing."""
    first = build(worker_id="a")
    first.worker.describe(first.cycles())
    conn.execute("update relevo.cycle_state set paused_at = now(), paused_reason = 'x' where cycle = 'reaper'")
    before = conn.execute("select cycle, xmin::text from relevo.cycle_state order by 1").fetchall()
    first.worker.describe(first.cycles())
    assert conn.execute("select cycle, xmin::text from relevo.cycle_state order by 1").fetchall() == before
    second = build(worker_id="b", archive_folder=str(tmp_path), reaper_interval_ms=20_000)
    second.worker.describe(second.cycles())
    assert described(conn, "archive-export")["archive-export"][3] is None
    assert conn.execute("select every_ms, paused_reason from relevo.cycle_state where cycle = 'reaper'").fetchone() == (
        20_000,
        "x",
    )


@pytest.mark.parametrize("role", ["tick", "run-cycle"])
def test_who_runs_a_cycle_by_hand_describes_nothing(build: Build, conn: psycopg.Connection[Any], role: str) -> None:
    """A tick describes its cycles; a cycle that is run by hand, maybe with a laptop's settings, keeps what stands there."""
    app = build(reaper_interval_ms=9_000)
    if role == "tick":
        with one_shot(app, "tick", app.cycles(["reaper"])):
            pass
    else:
        run_cycle(app, "reaper")
    assert described(conn, "reaper")["reaper"][0] == (9_000 if role == "tick" else None)


def test_status_judges_by_the_workers_settings(build: Build, conn: psycopg.Connection[Any]) -> None:
    """Whether a cycle is late is judged by what its workers run with, whatever settings status itself has."""
    app = build(reaper_interval_ms=50_000, cleanup_cron="0 * * * *", worker_timezone="UTC")
    asking = build(worker_id="asking", reaper_interval_ms=1_000).settings
    app.worker.describe(app.cycles())
    make_late(conn, "reaper", 120)
    make_late(conn, "cleanup", 4 * 3_600)
    assert late(app, asking) == {"cleanup": "cycle_missed_slot"}
    make_late(conn, "reaper", 400)
    assert late(app, asking)["reaper"] == "cycle_quiet"


def test_a_teams_own_cycle_is_judged_too(build: Build, conn: psycopg.Connection[Any]) -> None:
    """A cycle of a team's own is late after three of its own intervals, and missed by its own cron expression."""
    own = [Cycle("ours", Every(1_000), lambda _: Step()), Cycle("nightly", Cron("0 * * * *", "UTC"), lambda _: Step())]
    app = build(cycles=own)
    app.worker.describe(app.cycles())
    make_late(conn, "reaper", 1)
    make_late(conn, "ours", 300)
    make_late(conn, "nightly", 4 * 3_600)
    assert late(app, app.settings) == {"ours": "cycle_quiet", "nightly": "cycle_missed_slot"}


def test_a_cycle_that_nobody_described_may_be_quiet_for_hours(build: Build, conn: psycopg.Connection[Any]) -> None:
    """While all workers are of 0.3, which describe no cycle, none is called late within three hours."""
    app = build()
    make_late(conn, "reaper", 2 * 3_600)
    assert late(app, app.settings) == {}
    make_late(conn, "reaper", 4 * 3_600)
    assert late(app, app.settings) == {"reaper": "cycle_quiet"}


def test_a_locked_line_is_not_waited_for(build: Build, conn: psycopg.Connection[Any], dsn: str) -> None:
    """A worker starts beside somebody who holds a cycle's line; the line is written with a beat once it is free, the others at once."""
    first = build(worker_id="a")
    first.worker.describe(first.cycles())
    second = build(worker_id="b", reaper_interval_ms=7_000, dispatch_interval_minutes=5)
    with psycopg.connect(dsn) as other:
        other.execute("select from relevo.cycle_state where cycle = 'reaper' for update")
        second.worker.describe(second.cycles())
        assert described(conn, "reaper", "dispatch") == {
            "reaper": (first.settings.reaper_interval_ms, None, None, None),
            "dispatch": (300_000, None, None, None),
        }
        second.worker.beat(conn)
        assert described(conn, "reaper")["reaper"][0] == first.settings.reaper_interval_ms
    second.worker.beat(conn)
    assert described(conn, "reaper")["reaper"][0] == 7_000
    first.worker.describe(first.cycles())
    second.worker.beat(conn)  # it wrote all of its own, and does not do so again
    assert described(conn, "reaper")["reaper"][0] == first.settings.reaper_interval_ms
