"""Export steps back while others write: it takes its share of the time, and all of it when nobody else is there."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
import pytest

from relevo.archive.throttle import Throttle
from support.old_months import a_run, add_old_deliveries, clean_up, export, month_ago
from support.processes import eventually

WRITTEN = "select tup_inserted + tup_updated + tup_deleted from pg_stat_database where datname = current_database()"
BETWEEN_S = 10.0  # looks, by a clock of the test's own: the few rows of a relay without work are lost in them


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


class Rests:
    """Stands for the event of a process that stops: notes for how long it was waited for, and waits for nothing."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def wait(self, seconds: float) -> bool:
        """Note it."""
        self.seconds.append(seconds)
        return False


def write(conn: psycopg.Connection[Any], rows: int) -> None:
    """Write so many rows, and wait until the server counts them."""
    [(before,)] = conn.execute(WRITTEN).fetchall()
    conn.execute("create table if not exists public.scribble (n int)")
    conn.execute("insert into public.scribble select generate_series(1, %s)", [rows])

    def counted() -> bool:
        conn.execute("select pg_stat_force_next_flush()")
        [(now,)] = conn.execute(WRITTEN).fetchall()
        return bool(now >= before + rows)

    eventually(counted, "the server counts the rows")


@pytest.fixture
def looked(conn) -> Any:
    """Let a throttle look once more, after so many rows were written by others; return whether it takes them to be busy."""

    def look(throttle: Throttle, run: Any, rows: int = 0) -> bool:
        if rows:
            write(conn, rows)
        assert isinstance(throttle.clock, Clock)
        throttle.clock.now += BETWEEN_S
        throttle.look(run)
        return throttle.busy

    return look


def test_it_rests_while_others_write_and_only_then(build, looked) -> None:
    """A fifth of the time is its own while somebody writes: four times the work is rest; alone it goes on at once."""
    run, throttle = a_run(build(), "archive-export"), Throttle(20, clock=Clock())
    run.stopping = rests = Rests()
    assert [looked(throttle, run, rows) for rows in (0, 0, 2_000, 2_000)] == [False, False, False, True]
    throttle.rest(run, 0.3)
    assert rests.seconds == [pytest.approx(1.2)]
    throttle.rest(run, 3_600.0)
    assert rests.seconds[1] == 60.0
    assert not looked(throttle, run)
    throttle.rest(run, 0.3)
    assert len(rests.seconds) == 2


def test_a_relay_without_work_is_nobody(build, looked) -> None:
    """Twenty rows a second are what it takes to be busy; a little less is not."""
    run, throttle = a_run(build(), "archive-export"), Throttle(20, clock=Clock())
    assert [looked(throttle, run, rows) for rows in (0, 100, 100, 100)] == [False] * 4
    assert [looked(throttle, run, rows) for rows in (300, 300)] == [False, True]


def test_what_it_writes_itself_does_not_count(build, looked) -> None:
    """Each step of its own writes a few rows: a hundred quick steps between two looks are not others at work."""
    run, throttle = a_run(build(), "archive-export"), Throttle(20, clock=Clock())
    run.stopping = Rests()
    looked(throttle, run)
    for _ in range(2):
        for _ in range(100):
            throttle.rest(run, 0.0)
        assert not looked(throttle, run, 300)


def test_who_stops_does_not_rest(build) -> None:
    """A process that is asked to stop does so now, not after its rest."""
    run = a_run(build(), "archive-export")
    throttle = Throttle(1, clock=Clock())
    throttle.look(run)
    throttle.busy = True
    began = time.monotonic()
    threading.Timer(0.2, run.stopping.set).start()
    throttle.rest(run, 5.0)
    assert run.stopping.is_set()
    assert time.monotonic() - began < 50.0  # its rest would be a minute


def test_all_of_the_time_can_be_its_own(build) -> None:
    """With a share of 100 per cent there is no rest, whoever writes."""
    run, throttle = a_run(build(), "archive-export"), Throttle(100, busy=True, clock=Clock())
    run.stopping = rests = Rests()
    throttle.look(run)
    throttle.busy = True
    throttle.rest(run, 60.0)
    assert rests.seconds == [0.0]


def test_what_was_written_at_one_blow_does_not_count(build, looked) -> None:
    """Ten thousand rows, counted between two runs or once during one, say nothing of who writes now."""
    app, throttle = build(), Throttle(50, clock=Clock())
    assert not looked(throttle, a_run(app, "archive-export"))
    run = a_run(app, "archive-export")
    assert [looked(throttle, run, rows) for rows in (10_000, 0, 10_000, 0, 0)] == [False] * 5
    assert [looked(throttle, run, rows) for rows in (10_000, 10_000)] == [False, True]
    assert not looked(throttle, a_run(app, "archive-export"), 10_000)


def test_export_rests_after_each_step_but_the_last(build, conn, folder_settings, monkeypatch) -> None:
    """Every part that was uploaded or verified is followed by a rest as the settings say; what is done needs none."""
    add_old_deliveries(conn, month_ago(5), 30)
    rests: list[tuple[int, float]] = []
    monkeypatch.setattr(Throttle, "rest", lambda self, _run, worked: rests.append((self.share_percent, worked)))
    app = build(archive_part_rows=10, archive_busy_share_percent=7, **folder_settings)
    clean_up(app)
    report = export(app)
    assert report.counts["parts_uploaded"] == 3
    assert {share for share, _ in rests} == {7}
    assert len(rests) >= 8  # three parts up, three back, the manifest, the whole; and the empty month of the journal
