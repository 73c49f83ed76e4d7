"""Runs that hang: given up after three leases without progress, told of, taken over, and in nobody's way when they stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relevo.app import App
from relevo.core.items import Fetched, Item
from relevo.core.model import Report, Step
from relevo.core.ports import SourceContext
from relevo.cycles import ingest
from relevo.delivery.composing.rendering import tender
from relevo.operators import fleet
from relevo.runtime.runs import Cycle, Ending, Run, RunContext
from relevo.runtime.timing import Every
from support.processes import eventually

SHORT = {"outbox_lease_duration_ms": 900, "http_timeout_ms": 100}


class Trap:
    """Something that hangs until it is opened."""

    def __init__(self) -> None:
        self.caught = 0
        self.free = threading.Event()
        self._open = threading.Event()

    def __call__(self) -> None:
        """Hang."""
        self.caught += 1
        assert self._open.wait(120)

    def open(self) -> None:
        """Let everything go."""
        self._open.set()


@pytest.fixture
def trap() -> Iterator[Trap]:
    """A trap that holds nothing after the test."""
    made = Trap()
    yield made
    made.open()


def hourly(step: Any) -> Cycle:
    """A fleet-wide cycle with a step of the test's."""
    return Cycle("hourly", Every(3_600_000), step, singleton=True)


def is_told(app: App, what: str) -> None:
    """Wait until health says that something hangs in a worker, and since when."""
    words = f"worker {app.worker.worker_id}: {what} has not returned since 20"

    def look() -> bool:
        return any(words in problem for problem in fleet.status(app.database, app.settings).problems)

    eventually(look, f"health tells that {what} hangs")


def test_a_process_that_stood_still_has_not_hung(processes, probed, runs, rows) -> None:
    """Stopped for longer than a run may take, and let go on, a process ends its run as if nothing had been."""
    probe = {"name": "gather", "every_ms": 3_600_000, "hold_ms": 6_000}
    process = processes.relay("run-cycle", "gather", probes=[probe], worker_id="stopped", outbox_lease_duration_ms=900)
    process.hears("probe_holds")
    process.pause()
    silent = "select 1 from relevo.workers where role = 'run-cycle' and last_seen_at < now() - interval '4500 ms'"
    eventually(lambda: rows(silent), "nothing is heard of it for longer than a run may take")
    process.go_on()
    assert process.ends() == 0, process.stderr
    assert [row["outcome"] for row in runs("gather")] == ["ok"]


class Board:
    """A source that hangs in one of two workers."""

    name = "board"
    interval_ms = 3_600_000
    seeds_silently = False

    def __init__(self, trap: Trap | None = None) -> None:
        self.trap = trap

    def fetch(self, _cursor: Mapping[str, Any], _context: SourceContext) -> Fetched:
        """Tell of a tender, at once or when it wakes up."""
        if self.trap is not None:
            self.trap()
            self.trap.free.set()
        code = "1-1-LE26" if self.trap is None else "9-9-LE26"
        return Fetched(
            "ok", {}, items=(Item("cl", code, "Puente", "v1", cierra_at=datetime.now(UTC) + timedelta(days=3)),)
        )


def test_a_source_that_hangs(build, runs, rows, trap: Trap) -> None:
    """Its lease is not kept for ever: the run fails and says why, another replica reads, what wakes up writes nothing."""
    one, two = build(worker_id="one", **SHORT), build(worker_id="two", **SHORT)
    one.heartbeat.start()
    report = one.runner.run(ingest.cycle(one.settings, Board(trap), tender), "schedule")
    assert report.outcome == "failed"
    assert "the cycle ingest:board has not come back for" in report.error
    assert trap.caught == 1
    is_told(one, "the cycle ingest:board")
    assert [(row["outcome"], row["worker_id"]) for row in runs("ingest")] == [("failed", "one")]
    by_two = two.runner.run(ingest.cycle(two.settings, Board(), tender), "manual")
    assert (by_two.outcome, by_two.counts["licitaciones_new"]) == ("ok", 1)
    again = one.runner.run(ingest.cycle(one.settings, Board(), tender), "manual")
    assert again.outcome == "ok", "its place in the process is free again"
    trap.open()
    assert trap.free.wait(60)
    eventually(lambda: not rows("select from relevo.workers where hung <> '[]'"), "it came back")
    assert rows("select external_id from relevo.licitaciones") == [{"external_id": "1-1-LE26"}]
    assert [row["outcome"] for row in runs("ingest")] == ["failed", "ok", "ok"]


def test_what_wakes_up_writes_nothing_even_if_nobody_took_over(build, rows, probed, trap: Trap) -> None:
    """A run that was given up finds every transaction closed, though its term is still the highest."""
    worker = build(**SHORT)
    worker.heartbeat.start()
    woken: list[BaseException] = []

    def step(run: Run) -> Step:
        trap()
        try:
            with run.transaction() as connection:
                connection.execute("insert into public.probe (cycle, word) values ('hourly', 'late')")
        except Exception as error:
            woken.append(error)
            raise
        return Step()

    assert worker.runner.run(hourly(step), "manual").outcome == "failed"
    trap.open()
    eventually(lambda: woken, "it woke up")
    assert "given up" in str(woken[0])
    assert probed("hourly") == []
    assert rows("select outcome from relevo.worker_runs") == [{"outcome": "failed"}]


def test_a_long_step_that_gets_on_is_not_given_up(build, runs) -> None:
    """More than three leases of work, a sign now and then: it is nobody else's, and it ends well."""
    lease = {"outbox_lease_duration_ms": 2_000}  # which a busy machine can keep
    one, two = build(worker_id="one", **SHORT | lease), build(worker_id="two", **SHORT | lease)
    one.heartbeat.start()
    seen: list[Report] = []

    def step(run: Run) -> Step:
        until = time.monotonic() + 7
        while time.monotonic() < until:
            run.progress()
            time.sleep(0.05)
        seen.append(two.runner.run(hourly(step), "manual"))
        return Step({"done": 1}, items=1)

    assert one.runner.run(hourly(step), "manual").outcome == "ok"
    assert seen[0].reason == "locked by worker one"


def test_a_middleware_that_hangs_around_a_run(build, runs, trap: Trap) -> None:
    """The run fails, and the next one begins."""

    def middleware(_context: RunContext, following: Any) -> Ending:
        if not trap.caught:
            trap()
        return following()

    worker = build(middlewares=[middleware], **SHORT)
    steps: list[int] = []
    cycle = Cycle("busy", Every(1_000), lambda _run: steps.append(1) or Step({"done": 1}, items=1))
    report = worker.runner.run(cycle, "schedule")
    assert (report.outcome, steps) == ("failed", [])
    assert "the cycle busy has not come back" in report.error
    assert worker.runner.run(cycle, "schedule").outcome == "ok"
    trap.open()
    eventually(lambda: worker.runner._hung.count("the cycle busy") == 0, "it came back")
    assert len(steps) == 1, "what woke up took no step"
    assert [row["outcome"] for row in runs("busy")] == ["failed", "ok"]


def test_a_cycle_that_hangs_again_and_again_is_left_alone(build, trap: Trap) -> None:
    """After three runs that hang this process starts no more of them, and says so, until they come back."""
    worker = build(outbox_lease_duration_ms=300)

    def step(_run: Run) -> Step:
        trap()
        return Step()

    cycle = Cycle("busy", Every(1_000), step)
    assert [worker.runner.run(cycle, "manual").outcome for _ in range(4)] == ["failed"] * 3 + ["skipped"]
    assert "3 runs of it hang in this process" in worker.runner.run(cycle, "manual").reason
    assert trap.caught == 3
    trap.open()
    eventually(lambda: worker.runner.run(cycle, "manual").outcome == "idle", "it is run again")


LONG = {"name": "long", "every_ms": 60_000, "singleton": False, "hold_ms": 300_000, "hangs": True}


def test_a_run_that_hangs_does_not_keep_the_process(processes, probed) -> None:
    """Given up, it is no reason to wait: SIGTERM ends the process in good order, though its thread hangs on."""
    worker = processes.relay("run", probes=[LONG], worker_id="w-1", **SHORT)
    line = worker.hears("run_finished", cycle="long")
    assert (line["outcome"], "the cycle long has not come back" in line["error"]) == ("failed", True)
    assert worker.stops() == 0
    assert worker.lines("worker_stopped")


def test_a_command_does_not_wait_for_a_step_that_hangs(processes, probed) -> None:
    """`run-cycle`, told to stop, waits for its step as long as WORKER_SHUTDOWN_TIMEOUT_MS says, and no longer."""
    worker = processes.relay("run-cycle", "long", probes=[LONG], worker_shutdown_timeout_ms=300)
    worker.hears("probe_holds")
    assert worker.stops() == 1
    assert "the cycle long has not come back" in worker.stdout.replace("\n", " ")
