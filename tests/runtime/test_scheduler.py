"""APScheduler owns time: first run, follow-up, backoffs, and wake-ups that are neither dropped nor doubled."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest

from relevo.app import App
from relevo.core.model import Budget, Step
from relevo.runtime.runner import Runner
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.scheduler import Scheduler
from relevo.runtime.timing import Cron, Every
from support.processes import PATIENCE_S, eventually

MINUTE = 60_000
HOUR = 60 * MINUTE
Schedule = Callable[..., tuple[App, Scheduler]]
# After its first round a cycle with these sleeps for far longer than any test: only a wake-up makes it run.
SLEEPY = {"worker_idle_backoff_min_ms": HOUR, "worker_idle_backoff_max_ms": HOUR, "worker_idle_backoff_jitter_ms": 0}


class Rounds:
    """A cycle's step that notes when and why it ran, and does as it is told."""

    def __init__(self, step: Callable[[Run], Step] = lambda _run: Step()) -> None:
        self.times: list[float] = []
        self.triggers: list[str] = []
        self._step = step

    def __call__(self, run: Run) -> Step:
        """Take a step."""
        self.times.append(time.monotonic())
        self.triggers.append(run.context.trigger)
        return self._step(run)

    def wait(self, count: int) -> None:
        """Wait for this many rounds."""
        eventually(lambda: len(self.times) >= count, f"{count} rounds, saw {len(self.times)}", every=0.002)

    @property
    def pauses(self) -> list[float]:
        """The seconds between the rounds."""
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]


@pytest.fixture
def planned(monkeypatch) -> dict[str, list[float]]:
    """The seconds after which each cycle was told to run again, so far; how much later it did is the machine's."""
    seen: dict[str, list[float]] = defaultdict(list)
    move = Scheduler._move

    def noted(self: Scheduler, clock: Any, pause_s: float) -> None:
        seen[clock.cycle.key].append(pause_s)
        move(self, clock, pause_s)

    monkeypatch.setattr(Scheduler, "_move", noted)
    return seen


@pytest.fixture
def schedule(planned, build) -> Iterator[Schedule]:
    """Start a scheduler with these cycles and settings in this process; stopped at the end. No run stays for calls."""
    started: list[Scheduler] = []

    def make(*cycles: Cycle, **settings: object) -> tuple[App, Scheduler]:
        built = build(**{"worker_stay_ms": 0} | settings)
        scheduler = Scheduler(built.runner, cycles, built.settings)
        scheduler.start()
        started.append(scheduler)
        return built, scheduler

    yield make
    for scheduler in started:
        scheduler.stop(10)


def test_work_for_another_cycle_is_told_within_the_process(schedule: Schedule) -> None:
    """A step that makes work for another cycle has it run at once, though nothing was called out by the database."""
    second, told = Rounds(), threading.Event()

    def first(_run: Run) -> Step:
        if not second.triggers or told.is_set():
            return Step()
        told.set()
        return Step({"made": 1}, items=1, wakes="second")

    _, scheduler = schedule(
        Cycle("first", Every(60 * MINUTE), first, wakeable=True),
        Cycle("second", Every(60 * MINUTE), second),
        **SLEEPY,
    )
    second.wait(1)
    while not told.is_set():  # its first round may have been over before
        scheduler.wake("first")
        told.wait(1)
    second.wait(2)
    assert second.triggers == ["schedule", "wake-up"]


def test_the_first_run_is_at_once(schedule: Schedule) -> None:
    """Whatever its interval, cron or singleton, a cycle runs as soon as the process is up."""
    seen = {name: Rounds() for name in ("hourly", "nightly", "all")}
    schedule(
        Cycle("hourly", Every(60 * MINUTE), seen["hourly"], singleton=True),
        Cycle("nightly", Cron("17 3 * * *", "America/Santiago"), seen["nightly"], singleton=True),
        Cycle("all", Every(60 * MINUTE), seen["all"]),
    )
    for rounds in seen.values():
        rounds.wait(1)
        assert rounds.triggers == ["schedule"]


def assert_kept(rounds: Rounds, planned: list[float], *expected: float) -> None:
    """Check that these pauses were planned, and that no round came before its time."""
    assert planned[: len(expected)] == pytest.approx(expected)
    early = [(pause, real) for pause, real in zip(expected, rounds.pauses, strict=False) if real < pause]
    assert not early


def test_work_is_followed_up_fast_and_idleness_slowly(schedule: Schedule, planned) -> None:
    """While there is work rounds follow at the busy pause; without, the pause doubles from its floor to its cap."""
    rounds = Rounds(lambda _run: Step({"done": 1}, items=1) if len(rounds.times) <= 5 else Step())
    schedule(
        Cycle("probe", Every(MINUTE), rounds),
        worker_busy_loop_delay_ms=20,
        worker_idle_backoff_min_ms=100,
        worker_idle_backoff_max_ms=400,
        worker_idle_backoff_jitter_ms=0,
    )
    rounds.wait(10)
    assert_kept(rounds, planned["probe"], *[0.02] * 5, 0.1, 0.2, 0.4, 0.4)


def test_idle_pauses_are_jittered_and_end_with_the_interval(schedule: Schedule, planned, monkeypatch) -> None:
    """Two idle replicas drift apart by their jitter, but no pause is longer than the cycle's interval."""
    dice = iter([0.0, 0.25, 0.125, 0.5, 0.99])
    monkeypatch.setattr(random, "random", lambda: next(dice, 0.0))
    rounds = Rounds()
    schedule(
        Cycle("probe", Every(200), rounds),
        worker_idle_backoff_min_ms=50,
        worker_idle_backoff_max_ms=50,
        worker_idle_backoff_jitter_ms=400,
    )
    rounds.wait(6)
    assert_kept(rounds, planned["probe"], 0.05, 0.15, 0.1, 0.2, 0.2)


def test_an_error_is_followed_by_a_long_growing_pause(schedule: Schedule, planned, said) -> None:
    """A failed round is tried again after the error pause, doubled each time; a success ends the streak."""

    def fail(_run: Run) -> Step:
        if len(rounds.times) <= 3:
            raise RuntimeError("not yet")
        return Step()

    rounds = Rounds(fail)
    schedule(
        Cycle("probe", Every(MINUTE), rounds),
        worker_tick_loop_error_backoff_ms=150,
        worker_tick_loop_max_jitter_ms=0,
        worker_idle_backoff_min_ms=10,
        worker_idle_backoff_jitter_ms=0,
    )
    rounds.wait(5)
    assert_kept(rounds, planned["probe"], 0.15, 0.3, 0.6, 0.01)


def test_what_is_due_does_not_shorten_the_pause_after_an_error(schedule: Schedule, planned, said) -> None:
    """A round that failed although something is due waits like any other that failed: it would spin otherwise."""
    rounds = Rounds(lambda _run: Step(problems=("the service is down",), due_in_s=0.0))
    schedule(
        Cycle("probe", Every(MINUTE), rounds),
        worker_tick_loop_error_backoff_ms=150,
        worker_tick_loop_max_jitter_ms=0,
    )
    rounds.wait(3)
    assert_kept(rounds, planned["probe"], 0.15, 0.3)


def test_a_cycle_that_exits_is_a_failure_too(schedule: Schedule, said, runs) -> None:
    """Even SystemExit out of a step neither stops the cycle's time nor makes it spin, and it is written down."""

    def leave(_run: Run) -> Step:
        raise SystemExit(3)

    rounds = Rounds(leave)
    schedule(
        Cycle("probe", Every(MINUTE), rounds), worker_tick_loop_error_backoff_ms=200, worker_tick_loop_max_jitter_ms=0
    )
    rounds.wait(3)
    assert all(pause >= 0.2 for pause in rounds.pauses), rounds.pauses
    assert [row["error_message"] for row in runs("probe", "failed")][:2] == ["SystemExit: 3"] * 2


def test_an_error_after_a_round_stops_no_cycle(schedule: Schedule, monkeypatch) -> None:
    """What fails between two rounds, where nothing was expected to, costs a pause, and the next round comes."""

    def fail(*_: object, **__: object) -> bool:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(Runner, "set_asleep", fail)
    rounds = Rounds()
    schedule(Cycle("probe", Every(HOUR), rounds, wakeable=True), **SLEEPY, worker_tick_loop_error_backoff_ms=100)
    rounds.wait(3)
    assert all(pause >= 0.1 for pause in rounds.pauses), rounds.pauses


def test_every_start_is_an_apscheduler_job(schedule: Schedule) -> None:
    """Each cycle is one job: one instance, coalesced, an explicit misfire grace, a trigger that names its slots."""
    hold = threading.Event()
    rounds = Rounds(lambda _run: Step(more=not hold.wait(PATIENCE_S)))
    _, scheduler = schedule(
        Cycle("interval", Every(90_000), rounds),
        Cycle("nightly", Cron("17 3 * * *", "America/Santiago"), rounds, singleton=True),
    )
    jobs = {job.id: job for job in scheduler._aps.get_jobs()}
    assert set(jobs) == {"interval", "nightly"}
    for job in jobs.values():
        assert (job.max_instances, job.coalesce, job.misfire_grace_time) == (1, True, 3_600)
    noon = datetime(2026, 4, 4, 12, tzinfo=UTC)
    slots = {name: job.trigger.get_next_fire_time(None, noon) for name, job in jobs.items()}
    assert slots == {"interval": noon + timedelta(seconds=90), "nightly": datetime(2026, 4, 5, 7, 17, tzinfo=UTC)}
    hold.set()


def test_a_run_longer_than_its_interval_is_neither_doubled_nor_complained_about(schedule: Schedule, said) -> None:
    """While a round lasts over several intervals nothing else starts, and nobody logs a line about it."""
    rounds = Rounds(lambda _run: time.sleep(0.5) or Step())  # type: ignore[func-returns-value]
    schedule(Cycle("probe", Every(100), rounds))
    rounds.wait(3)
    assert min(rounds.pauses) >= 0.5
    assert [line for line in said() if line["level"] not in ("info", "debug")] == []


def test_a_wake_up_runs_a_sleeping_cycle_at_once(schedule: Schedule, planned) -> None:
    """A wake-up does not wait for the pause to end, and the run says what woke it."""
    rounds = Rounds()
    _, scheduler = schedule(Cycle("probe", Every(HOUR), rounds), **SLEEPY)
    eventually(lambda: planned["probe"] == [3_600], "the cycle sleeps")
    scheduler.wake("probe")
    rounds.wait(2)
    assert rounds.triggers == ["schedule", "wake-up"]


def test_no_wake_up_during_a_run_is_dropped(schedule: Schedule, request) -> None:
    """A wake-up that comes at any moment of a run, its very end included, is followed by another run."""
    began = threading.Event()

    def step(_run: Run) -> Step:
        began.set()
        time.sleep(0.003)
        return Step()

    rounds = Rounds(step)
    _, scheduler = schedule(Cycle("probe", Every(HOUR), rounds), **SLEEPY)
    rounds.wait(1)
    restless = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns at every opportunity
    request.addfinalizer(lambda: sys.setswitchinterval(restless))
    for number in range(150):
        # From the middle of the run on, in steps of a fraction of a millisecond, well beyond its end.
        began.clear()
        scheduler.wake("probe")
        assert began.wait(PATIENCE_S), f"wake-up {number} was dropped"
        time.sleep(number % 75 * 0.0003)


def test_many_wake_ups_are_one(schedule: Schedule, planned) -> None:
    """A hundred wake-ups during a run are one more run."""
    hold, began = threading.Event(), threading.Event()

    def step(_run: Run) -> Step:
        began.set()
        hold.wait(PATIENCE_S)
        return Step()

    rounds = Rounds(step)
    _, scheduler = schedule(Cycle("probe", Every(HOUR), rounds), **SLEEPY)
    assert began.wait(PATIENCE_S)
    for _ in range(100):
        scheduler.wake("probe")
    hold.set()
    eventually(lambda: planned["probe"][-1:] == [3_600], "the cycle sleeps")
    assert len(rounds.times) == 2
    assert planned["probe"] == [0, 3_600]


def test_a_round_that_fails_while_the_database_comes_back_is_soon_tried_again(
    schedule: Schedule, planned, said
) -> None:
    """It may have failed for the outage that is over. One that went well waits its pause, and so does the next failure."""
    begun = threading.Barrier(3)

    def meet() -> None:
        begun.wait(PATIENCE_S)
        begun.wait(PATIENCE_S)

    def fail(_run: Run) -> Step:
        if len(failing.times) == 1:
            meet()
        raise RuntimeError("not yet")

    failing, calm = Rounds(fail), Rounds(lambda _run: meet() or Step())  # type: ignore[func-returns-value]
    _, scheduler = schedule(
        Cycle("failing", Every(2 * HOUR), failing),
        Cycle("calm", Every(HOUR), calm),
        **SLEEPY,
        worker_tick_loop_error_backoff_ms=HOUR,
        worker_tick_loop_max_jitter_ms=0,
    )
    begun.wait(PATIENCE_S)
    scheduler.look_soon()
    begun.wait(PATIENCE_S)
    eventually(lambda: planned["failing"] and planned["calm"], "both rounds are over")
    assert planned["failing"][0] <= 0.5
    assert planned["calm"] == [3_600]
    failing.wait(2)
    eventually(lambda: len(planned["failing"]) == 2, "it failed again")
    assert planned["failing"][1] >= 3_600


def test_calls_do_not_make_a_cycle_spin_that_can_do_nothing(schedule: Schedule, planned, said) -> None:
    """One that failed, or is paused, is called by every urgent event: it tries again after the busy pause, not at once."""

    def fail(_run: Run) -> Step:
        calls[0]("probe")
        raise RuntimeError("not yet")

    rounds, calls = Rounds(fail), [lambda _cycle: None]
    _, scheduler = schedule(
        Cycle("probe", Every(HOUR), rounds), worker_busy_loop_delay_ms=150, worker_tick_loop_error_backoff_ms=MINUTE
    )
    calls[0] = scheduler.wake
    eventually(lambda: planned["probe"], "it has failed")
    scheduler.wake("probe")
    rounds.wait(4)
    assert min(rounds.pauses[1:]) >= 0.15
    assert 0.14 < min(planned["probe"][2:]) <= 0.15


def test_a_wake_up_concerns_its_cycle_alone(schedule: Schedule, planned) -> None:
    """All sources of the named cycle wake, no other cycle does, and an unknown name is nobody's business."""
    names = {"ingest:a": Rounds(), "ingest:b": Rounds(), "other": Rounds()}
    _, scheduler = schedule(
        *(
            Cycle(key.partition(":")[0], Every(HOUR), rounds, source=key.partition(":")[2])
            for key, rounds in names.items()
        ),
        **SLEEPY,
    )
    for key in names:
        eventually(lambda: planned[key] == [3_600], "the cycle sleeps")
    scheduler.wake("nobody")
    scheduler.wake("ingest")
    names["ingest:a"].wait(2)
    names["ingest:b"].wait(2)
    assert planned["other"] == [3_600]
    assert len(names["other"].times) == 1


def test_a_slot_whose_work_outlasts_the_budget_is_followed_up(schedule: Schedule, planned, runs) -> None:
    """A nightly run that hands over after its budget goes on at once; the run that ends the work fills the slot."""
    rounds = Rounds(lambda _run: Step({"done": 1}, items=1, more=len(rounds.times) < 5))
    schedule(
        Cycle(
            "nightly",
            Cron("17 3 * * *", "America/Santiago"),
            rounds,
            singleton=True,
            budget=Budget(MINUTE, max_items=2),
        ),
        worker_busy_loop_delay_ms=10,
    )
    rounds.wait(5)
    eventually(lambda: len(runs("nightly", "ok")) == 3, "three runs that are written down")
    assert [row["counts"]["done"] for row in runs("nightly")] == [2, 2, 1]
    assert [row["slot_at"] is not None for row in runs("nightly")] == [False, False, True]
    assert [row["reason"] is not None for row in runs("nightly")] == [True, True, False]
    eventually(lambda: len(planned["nightly"]) == 3, "the last run ends")
    assert planned["nightly"][-1] > 1, "the work was done, but it runs again"


def test_a_wakeable_cycle_rests_no_longer_than_its_work_is_worth(schedule: Schedule, planned) -> None:
    """After quick work it looks again soon, and may sleep and be called; the busy pause is the most it rests."""
    rounds = Rounds(lambda _run: Step({"done": 1}, items=1) if len(rounds.times) == 1 else Step())
    began = time.monotonic()
    schedule(Cycle("probe", Every(HOUR), rounds, wakeable=True), worker_busy_loop_delay_ms=MINUTE, **SLEEPY)
    rounds.wait(3)  # the one with work, one without, and one more look
    assert 0 < planned["probe"][0] <= 10 * (time.monotonic() - began)


def test_a_wakeable_cycle_with_more_to_do_keeps_the_busy_pause(schedule: Schedule, planned) -> None:
    """A round whose budget is spent leaves the others their turn, however quick it was."""
    rounds = Rounds(lambda _run: Step({"done": 1}, items=1, more=True))
    schedule(
        Cycle("probe", Every(HOUR), rounds, wakeable=True, budget=Budget(MINUTE, max_items=1)),
        worker_busy_loop_delay_ms=200,
        worker_idle_backoff_jitter_ms=0,
    )
    rounds.wait(2)
    assert planned["probe"][0] == pytest.approx(0.2)


def test_what_a_wakeable_cycle_says_about_its_sleep(schedule: Schedule, planned, conn) -> None:
    """Idle, it sets the fleet's flag and looks once more before it sleeps; with work it clears the flag."""
    seen = threading.Event()

    def step(_run: Run) -> Step:
        if len(rounds.times) == 3:
            return Step({"done": 1}, items=1)
        assert len(rounds.times) < 4 or seen.wait(PATIENCE_S)
        return Step()

    rounds = Rounds(step)
    _, scheduler = schedule(Cycle("probe", Every(HOUR), rounds, wakeable=True), worker_busy_loop_delay_ms=1, **SLEEPY)

    def asleep() -> Any:
        return conn.execute("select asleep from relevo.cycle_state where cycle = 'probe'").fetchone()

    rounds.wait(2)  # one that found nothing, and one more look
    assert asleep() == (True,)
    eventually(lambda: planned["probe"] == [0, 3_600], "it sleeps, and looks no third time")
    scheduler.wake("probe")
    rounds.wait(4)  # the one with work, and one without, which has not ended yet
    assert asleep() == (False,)
    seen.set()
    rounds.wait(5)  # one more look
    assert asleep() == (True,)
    eventually(lambda: planned["probe"][-1] == 3_600, "it sleeps again")
    assert len(rounds.times) == 5


@pytest.mark.parametrize("ending", ["raises", "fails", "does something and fails"])
def test_a_wakeable_cycle_sleeps_whatever_its_round_came_to(schedule: Schedule, planned, conn, ending: str) -> None:
    """After a round that failed it is called by who enqueues, and rests long only if nobody does; it does not spin."""

    def step(_run: Run) -> Step:
        if ending == "raises":
            raise RuntimeError("a bad day")
        done = ending.startswith("does")
        return Step({"done": 1} if done else {}, items=int(done), problems=("one of them failed",))

    rounds = Rounds(step)
    conn.execute("listen relevo_wake")
    schedule(
        Cycle("probe", Every(HOUR), rounds, wakeable=True),
        worker_busy_loop_delay_ms=50,
        worker_tick_loop_error_backoff_ms=HOUR,
        worker_tick_loop_max_jitter_ms=0,
        **SLEEPY,
    )
    eventually(lambda: len(planned["probe"]) >= 2, "it looked once more, and then rests")
    assert conn.execute("select asleep from relevo.cycle_state where cycle = 'probe'").fetchone() == (True,)
    conn.execute("select relevo.wake('probe')")
    assert [call.payload.split()[0] for call in conn.notifies(timeout=1, stop_after=1)] == ["probe"]
    if not ending.startswith("does"):
        assert planned["probe"] == [pytest.approx(0.05), 3_600], "soon once more, then after the rest an error asks for"


def test_a_flag_left_behind_is_set_right_by_who_sleeps(schedule: Schedule, conn) -> None:
    """If a replica died busy, the flag says awake while everyone sleeps; the next idle round puts that right."""
    rounds = Rounds()
    schedule(
        Cycle("probe", Every(300), rounds, wakeable=True),
        worker_idle_backoff_min_ms=200,
        worker_idle_backoff_jitter_ms=0,
    )
    rounds.wait(2)
    conn.execute("update relevo.cycle_state set asleep = false where cycle = 'probe'")
    eventually(
        lambda: conn.execute("select asleep from relevo.cycle_state where cycle = 'probe'").fetchone() == (True,),
        "the flag is set again",
    )


class SetBack(datetime):
    """A wall clock that can be set."""

    by = timedelta(0)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        """Tell the time that was set."""
        return datetime.now(tz) - cls.by


@pytest.mark.parametrize("by", [timedelta(hours=5), -timedelta(hours=5)])
def test_a_wall_clock_that_is_set_holds_up_no_cycle(schedule: Schedule, monkeypatch, by: timedelta, said) -> None:
    """A pause is a span of time: with the clock set back or forward by hours, rounds go on as before."""
    monkeypatch.setattr(SetBack, "by", timedelta(0))
    for module in ("apscheduler.schedulers.base", "apscheduler.executors.base", "relevo.runtime.scheduler"):
        monkeypatch.setattr(f"{module}.datetime", SetBack)
    often, seldom = Rounds(), Rounds()
    schedule(
        Cycle("often", Every(100), often),
        Cycle("seldom", Every(MINUTE), seldom),
        worker_idle_backoff_min_ms=5_000,
        worker_idle_backoff_jitter_ms=0,
    )
    often.wait(3)
    monkeypatch.setattr(SetBack, "by", by)
    before = len(often.times)
    eventually(lambda: len(often.times) >= before + 5, "rounds that follow each other as before")
    eventually(lambda: len(seldom.times) >= 2, "a round whose pause had begun before the clock was set")
    if by > timedelta(0):
        assert said("clock_set_back")
        assert seldom.pauses[0] >= 5.0, "and no sooner than its pause asked for"
