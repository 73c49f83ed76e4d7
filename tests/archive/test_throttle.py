"""Export steps back while others write: it takes its share of the time, and all of it when nobody else is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
from months import a_run, add_old_deliveries, clean_up, export, month_ago

from processes import eventually
from relevo.archive.throttle import Throttle


@pytest.fixture
def writer(dsn, conn) -> Iterator[threading.Event]:
    """Somebody who writes two hundred rows a second as soon as the event is set."""
    conn.execute("create table public.scribble (n int)")
    go, stop = threading.Event(), threading.Event()

    def write() -> None:
        with psycopg.connect(dsn, autocommit=True) as own:
            while not stop.wait(0.005):
                if go.is_set():
                    own.execute("insert into public.scribble values (1)")

    thread = threading.Thread(target=write)
    thread.start()
    yield go
    stop.set()
    thread.join()


def watch(throttle: Throttle, run, seconds: float) -> None:
    """Look again and again for so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        throttle.look(run)
        time.sleep(0.05)


def at_work(share_percent: int, run) -> Throttle:
    """Return a pace that has just seen others at work."""
    throttle = Throttle(share_percent)
    throttle.look(run)
    throttle.busy = True
    return throttle


class Rests:
    """In the place of the event that a rest waits for: notes how long each rest is to be, and rests not at all."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def wait(self, seconds: float) -> None:
        """Note how long."""
        self.seconds.append(seconds)


def rests_of(throttle: Throttle, run, worked_s: float) -> list[float]:
    """Return how long it wants to rest after so much work."""
    run.stopping = rests = Rests()
    throttle.rest(run, worked_s)
    return rests.seconds


def test_it_rests_while_others_write_and_only_then(build, writer) -> None:
    """A fifth of the time is its own while somebody writes: four times the work is rest; alone it goes on at once."""
    run, throttle = a_run(build(), "archive-export"), Throttle(20)
    watch(throttle, run, 1.2)
    assert rests_of(throttle, run, 0.3) == []
    writer.set()
    eventually(lambda: throttle.look(run) or throttle.busy, "others are noticed", every=0.05)
    assert rests_of(throttle, run, 0.3) == [pytest.approx(1.2)]
    writer.clear()
    eventually(lambda: throttle.look(run) or not throttle.busy, "nobody writes any more", every=0.05)
    assert rests_of(throttle, run, 0.3) == []


def test_who_stops_does_not_rest(build) -> None:
    """A process that is asked to stop does so now, not after its rest."""
    run = a_run(build(), "archive-export")
    throttle = at_work(1, run)
    threading.Timer(0.2, run.stopping.set).start()
    began = time.monotonic()
    throttle.rest(run, 5.0)
    assert time.monotonic() - began < 30, "not the whole minute"


def test_all_of_the_time_can_be_its_own(build) -> None:
    """With a share of 100 per cent there is no rest, whoever writes."""
    run = a_run(build(), "archive-export")
    assert rests_of(at_work(100, run), run, 60.0) == [0]


def test_what_was_written_at_one_blow_does_not_count(build, conn) -> None:
    """Ten thousand rows, counted between two runs or once during one, say nothing of who writes now."""
    app, throttle = build(), Throttle(50)
    conn.execute("create table public.scribble (n int)")
    load = "insert into public.scribble select generate_series(1, 10000)"
    watch(throttle, a_run(app, "archive-export"), 1.2)
    conn.execute(load)
    conn.execute("select pg_stat_force_next_flush()")
    run = a_run(app, "archive-export")
    watch(throttle, run, 2.5)
    assert not throttle.busy
    conn.execute(load)
    conn.execute("select pg_stat_force_next_flush()")
    seen = []
    for _ in range(30):
        watch(throttle, run, 0.1)
        seen.append(throttle.busy)
    assert not any(seen)


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
