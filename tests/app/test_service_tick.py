"""Tick: chosen cycles once, in order, within budgets of time and items, and then it leaves."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from relevo.app import App, service
from relevo.core.model import Shard, Step
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Cron, Every


class Clock:
    """The module `time` with a clock that may be put forward."""

    ahead = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        """Tell the time."""
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A tick's clock, which steps may put forward instead of letting time pass."""
    clock = Clock()
    monkeypatch.setattr(service, "time", clock)
    return clock


@pytest.fixture
def tick(build) -> Iterator[Any]:
    """Tick in this process with these cycles added: `tick(cycles, names, shard, **settings)`; signals are put back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(
        cycles: list[Cycle], names: list[str] | None = None, shard: Shard | None = None, **settings: object
    ) -> list[Any]:
        makers = [lambda _settings, _claims, cycle=cycle: cycle for cycle in cycles]
        worker: App = build(role="tick", cycles=makers, **settings)
        return service.tick(worker, names, shard)

    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


def steps(seen: list[Any], clock: Clock | None = None, *, seconds: int = 0, items: int = 1, more: bool = False) -> Any:
    """Make a step that notes its run and does as told; it takes so many seconds of the tick's clock, and of its run's."""

    def step(run: Run) -> Step:
        seen.append(run)
        run.started -= seconds
        if clock is not None:
            clock.ahead += seconds
        return Step({"done": items}, items=items, more=more)

    return step


def test_the_default_tick_begins_with_the_reaper(tick, rows) -> None:
    """Without a word the tick runs all of Relevo's own cycles in the order of their work, the reaper first."""
    reports = tick([])
    ran = [report.cycle for report in reports]
    assert ran[0] == "reaper"
    order = ["reaper", "ingest", "fanout", "digest", "dispatch", "receipt", "cleanup", "archive-export"]
    assert ran == [name for name in order if name in ran]
    assert {*order} - {*ran} <= {"ingest"}, "which runs only for a source"
    off = [report.cycle for report in reports if report.outcome == "skipped"]
    assert off == ["archive-export"]  # which has no store here, and says so
    assert {report.outcome for report in reports} <= {"idle", "ok", "skipped"}
    assert rows("select trigger, outcome from relevo.worker_runs where cycle = 'cleanup'") == [
        {"trigger": "tick", "outcome": "ok"}
    ]


def test_a_tick_is_a_worker_only_while_it_lasts(tick, rows) -> None:
    """Its row stands there while its cycles run; afterwards it is stopped, and the only one of all ticks."""
    seen: list[Any] = []

    def step(_run: Run) -> Step:
        seen.append(rows("select role, cycles, stopped_at, lost_at from relevo.workers"))
        return Step({"done": 1}, items=1)

    for _ in range(2):
        tick([Cycle("probe", Every(1_000), step)], names=["probe"])
    running = {"role": "tick", "cycles": ["probe"], "stopped_at": None, "lost_at": None}
    assert seen[0] == [running]
    assert running in seen[1]
    assert rows("select role, stopped_at is null as runs from relevo.workers") == [{"role": "tick", "runs": False}]
    assert rows("select outcome from relevo.worker_runs where cycle = 'probe'") == [{"outcome": "ok"}] * 2


def test_runners_run_in_the_order_asked_for(tick) -> None:
    """The order is the setting's or the command's, not the registry's; cycles not asked for stay out."""
    seen: list[Run] = []
    cycles = [Cycle(name, Every(1_000), steps(seen)) for name in ("a", "b", "c")]
    tick(cycles, worker_tick_runners="c,a")
    tick(cycles, names=["b", "c"])
    assert [run.context.cycle for run in seen] == ["c", "a", "b", "c"]
    assert {run.context.trigger for run in seen} == {"tick"}


def test_the_overall_budget_ends_a_tick(tick, runs, clock) -> None:
    """What the overall budget leaves no time for is skipped with a row; the runner in between gets what is left."""
    seen: list[Run] = []
    cycles = [
        Cycle("first", Every(1_000), steps(seen, clock, seconds=120)),
        Cycle("second", Every(1_000), steps(seen, clock, seconds=360, more=True)),
        Cycle("third", Every(1_000), steps(seen)),
    ]
    reports = tick(
        cycles,
        worker_tick_runners="first,second,third",
        worker_tick_overall_max_ms=1_440_000,
        worker_tick_runner_max_ms=1_440_000,
    )
    assert [report.outcome for report in reports] == ["ok", "ok", "skipped"]
    first, second = seen[0].budget.max_ms, seen[1].budget.max_ms
    assert first <= 1_440_000
    assert second <= first - 120_000
    assert reports[1].counts["done"] == 4, "what is left after the first is spent by four"
    [row] = runs("third")
    assert (row["outcome"], row["trigger"], row["reason"]) == ("skipped", "tick", "the tick's overall budget is spent")


def test_each_runner_has_budgets_of_its_own(tick) -> None:
    """A runner takes no step after its milliseconds or items are spent, and the next runner still gets its turn."""
    timed: list[Run] = []
    counted: list[Run] = []
    last: list[Run] = []
    cycles = [
        Cycle("timed", Every(1_000), steps(timed, seconds=600, more=True)),
        Cycle("counted", Every(1_000), steps(counted, items=10, more=True)),
        Cycle("last", Every(1_000), steps(last)),
    ]
    reports = tick(
        cycles,
        worker_tick_runners="timed,counted,last",
        worker_tick_runner_max_ms=2_000_000,
        worker_tick_overall_max_ms=10_000_000,
        worker_tick_runner_max_items=25,
    )
    assert [report.outcome for report in reports] == ["ok", "ok", "ok"]
    assert len(timed) == 4
    assert (len(counted), reports[1].counts, reports[1].more) == (3, {"done": 30}, True)
    assert (counted[0].budget.max_ms, counted[0].budget.max_items) == (2_000_000, 25)
    assert len(last) == 1


def test_a_cron_cycle_ticks_only_for_a_free_slot(tick, runs, rows) -> None:
    """The second tick of a night leaves the nightly cycle alone, says why and is counted; named, it runs all the same."""
    seen: list[Run] = []
    nightly = Cycle("nightly", Cron("17 3 * * *", "America/Santiago"), steps(seen), singleton=True)
    first, second = (tick([nightly], worker_tick_runners="nightly")[0] for _ in range(2))
    named = tick([nightly], names=["nightly"])[0].outcome
    assert (first.outcome, second.outcome, named, len(seen)) == ("ok", "skipped", "ok", 2)
    assert second.reason.endswith("is filled")
    filled, by_name = runs("nightly")
    assert filled["slot_at"] is not None
    assert (by_name["outcome"], by_name["slot_at"]) == ("ok", None)
    assert rows("select slots_skipped from relevo.cycle_state where cycle = 'nightly'") == [{"slots_skipped": 1}]


def test_the_next_tick_goes_on_with_a_slot_that_was_too_much_for_one(tick, runs) -> None:
    """A night's work that needs several ticks is not cut off after the first: its slot is filled when it is done."""
    seen: list[Run] = []

    def step(run: Run) -> Step:
        seen.append(run)
        return Step({"done": 1}, items=1, more=len(seen) < 3)

    nightly = Cycle("nightly", Cron("17 3 * * *", "America/Santiago"), step, singleton=True)
    ticks = [tick([nightly], worker_tick_runners="nightly", worker_tick_runner_max_items=1)[0] for _ in range(4)]
    assert [report.outcome for report in ticks] == ["ok", "ok", "ok", "skipped"]
    assert [row["slot_at"] is not None for row in runs("nightly")] == [False, False, True]


def test_the_shard_reaches_the_run(tick) -> None:
    """A tick for one shard of several tells its cycles which one; without, there is none."""
    seen: list[Run] = []
    cycle = Cycle("probe", Every(1_000), steps(seen))
    tick([cycle], names=["probe"], shard=Shard(2, 5))
    tick([cycle], names=["probe"])
    assert [run.shard for run in seen] == [Shard(2, 5), None]


def test_the_shard_may_come_from_the_settings(processes, rows) -> None:
    """Half a shard, or an index that is not below its count, is wrong usage: nothing runs."""
    wrong = [
        processes.relevo("tick", "--shard-index", "1"),
        processes.relevo("tick", "--shard-index", "2", "--shard-count", "2"),
        processes.relevo("tick", worker_tick_shard_index=3, worker_tick_shard_count=3),
    ]
    right = processes.relevo("tick", worker_tick_shard_index=2, worker_tick_shard_count=3)
    for process in wrong:
        assert process.ends() == 2, process.stderr
        assert "shard" in process.stderr.lower()
        assert process.lines("worker_started") == []
    assert right.ends() == 0
    assert right.hears("worker_started")["role"] == "tick"
