"""A run of fan-out or dispatch that found work stays for the next call: one busy time is one run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.support.own_cycles import own_cycle

from relevo.app import App
from relevo.client import values, verbs
from relevo.core.errors import DatabaseUnavailableError
from relevo.core.model import Step
from relevo.operators import actions
from relevo.runtime.idle_wait import IdleWait
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.scheduler import Scheduler
from relevo.runtime.timing import Every
from support.processes import PATIENCE_S, eventually

HOUR = 3_600_000
SLEEPY = {"worker_idle_backoff_min_ms": HOUR, "worker_idle_backoff_max_ms": HOUR, "worker_idle_backoff_jitter_ms": 0}
ENDED = "select outcome, counts from relevo.worker_runs where cycle = %s and outcome <> 'running' order by id"
ASLEEP = "select asleep from relevo.cycle_state where cycle = %s"
Schedule = Callable[..., tuple[App, Scheduler]]


@pytest.fixture
def schedule(build) -> Iterator[Schedule]:
    """Start a scheduler with these cycles and settings in this process; stopped at the end."""
    started: list[Scheduler] = []

    def make(*cycles: Cycle, **settings: object) -> tuple[App, Scheduler]:
        built = build(**SLEEPY | settings)
        scheduler = Scheduler(built.runner, cycles, built.settings)
        scheduler.start()
        started.append(scheduler)
        return built, scheduler

    yield make
    for scheduler in started:
        if scheduler.is_running:
            scheduler.stop(10)


class Work:
    """A cycle's step with a list of what there is to do."""

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.done: list[int] = []
        self.looks = 0

    def __call__(self, _run: Run) -> Step:
        """Do one thing, if there is one."""
        self.looks += 1
        if not self.waiting:
            return Step()
        self.done.append(self.waiting.pop())
        return Step({"done": 1}, items=1)


def test_calls_that_follow_each_other_are_one_run(schedule: Schedule, conn) -> None:
    """Work that is called out while a run stays is done by it: one row tells of all, and it is called, not polled."""
    work = Work()
    _, scheduler = schedule(Cycle("probe", Every(HOUR), work, wakeable=True), worker_stay_ms=1_000)
    eventually(lambda: (True,) in conn.execute(ASLEEP, ["probe"]).fetchall(), "it sleeps")
    for number in range(5):
        work.waiting.append(number)
        scheduler.wake("probe")
        eventually(lambda so_far=number: len(work.done) > so_far, "the work is done", every=0.002)
    assert conn.execute(ENDED, ["probe"]).fetchall() == []
    assert conn.execute(ASLEEP, ["probe"]).fetchall() == [(True,)]
    [(outcome, counts)] = eventually(lambda: conn.execute(ENDED, ["probe"]).fetchall(), "it ends when nobody calls")
    assert (outcome, counts) == ("ok", {"done": 5})


def test_a_run_that_stays_is_stopped_at_once(schedule: Schedule, conn) -> None:
    """A process told to stop waits for nobody who only waits for calls."""
    work = Work()
    work.waiting = [1]
    _, scheduler = schedule(Cycle("probe", Every(HOUR), work, wakeable=True), worker_stay_ms=60_000)
    eventually(lambda: work.done, "the work is done")
    assert scheduler.stop(PATIENCE_S)
    assert conn.execute(ENDED, ["probe"]).fetchall() == [("ok", {"done": 1})]


def test_one_that_failed_or_found_nothing_does_not_stay(schedule: Schedule, conn) -> None:
    """A run without work, or with a problem, ends as ever."""
    failing = Cycle("failing", Every(HOUR), lambda _run: Step({"done": 1}, 1, problems=("no",)), wakeable=True)
    idle = Work()
    schedule(failing, Cycle("idle", Every(HOUR), idle, wakeable=True), worker_stay_ms=60_000)
    eventually(lambda: conn.execute(ENDED, ["failing"]).fetchall(), "the one that failed ended")
    counted = "select 1 from relevo.cycle_state where cycle = 'idle' and idle_rounds > 0"
    eventually(lambda: conn.execute(counted).fetchall(), "the one without work ended")


def test_a_replica_that_died_awake_costs_no_call(schedule: Schedule, conn) -> None:
    """Whoever enqueued while a dead replica's word held calls nobody: a run that ends asleep finds that, and looks."""
    work = Work()
    _, scheduler = schedule(Cycle("probe", Every(HOUR), work, wakeable=True), worker_stay_ms=1_000)
    rounds = "select idle_rounds from relevo.cycle_state where cycle = 'probe' and asleep"
    eventually(lambda: conn.execute(rounds).fetchall() == [(2,)], "it sleeps")
    work.waiting.append(1)
    scheduler.wake("probe")
    eventually(lambda: work.looks == 4, "it has done it, and looked beside")
    conn.execute("update relevo.cycle_state set asleep = false where cycle = 'probe'")
    work.waiting.append(2)
    eventually(lambda: len(work.done) == 2, "what nobody called out is done")


def test_after_a_failure_it_is_not_taken_for_asleep(schedule: Schedule, conn, monkeypatch) -> None:
    """A run that failed may have told the fleet to make no calls: the next that stays tells it anew."""
    monkeypatch.setattr("relevo.runtime.idle_wait._LONGEST_S", PATIENCE_S)
    work, failing = Work(), threading.Event()

    def step(run: Run) -> Step:
        if failing.is_set():
            conn.execute("update relevo.cycle_state set asleep = false where cycle = 'probe'")
            raise RuntimeError("no")
        return work(run)

    _, scheduler = schedule(Cycle("probe", Every(HOUR), step, wakeable=True), worker_stay_ms=60_000)
    eventually(lambda: (True,) in conn.execute(ASLEEP, ["probe"]).fetchall(), "it sleeps")
    failing.set()
    scheduler.wake("probe")
    eventually(lambda: conn.execute(ENDED, ["probe"]).fetchall() == [("failed", {})], "it fails")
    failing.clear()
    work.waiting.append(1)
    scheduler.wake("probe")
    eventually(lambda: work.done == [1], "it looks again")
    eventually(lambda: (True,) in conn.execute(ASLEEP, ["probe"]).fetchall(), "the fleet is told")
    assert len(conn.execute(ENDED, ["probe"]).fetchall()) == 1, "by the run that stays"


def test_where_no_call_is_heard_no_run_stays(schedule: Schedule) -> None:
    """Where calls do not reach the process, looks follow each other as they did: a run that waits for one looks less."""
    stays: list[bool] = []

    def step(run: Run) -> Step:
        stays.append(run.idle_wait is not None)
        return Step({"done": 1}, 1) if len(stays) == 1 else Step()

    heard = threading.Event()
    _, scheduler = schedule(Cycle("probe", Every(HOUR), step, wakeable=True))
    eventually(lambda: len(stays) > 1, "it stays")
    scheduler.hears = heard.is_set
    before = len(stays)
    eventually(lambda: scheduler.wake("probe") or False in stays[before:], "it does not")
    assert stays[0]


def test_a_stay_is_shorter_than_what_counts_as_hung(schedule: Schedule, conn) -> None:
    """However long a run is told to stay, with a short lease it ends well before it would be given up."""
    work = Work()
    work.waiting = [1]
    short = {"outbox_lease_duration_ms": 1_000, "push_request_timeout_ms": 450, "worker_shutdown_timeout_ms": 900}
    schedule(Cycle("probe", Every(HOUR), work, wakeable=True), worker_stay_ms=60_000, **short)
    assert eventually(lambda: conn.execute(ENDED, ["probe"]).fetchall(), "it ends") == [("ok", {"done": 1})]


def test_who_runs_a_cycle_by_hand_is_served_by_the_run_that_stays(schedule: Schedule, conn, monkeypatch) -> None:
    """A run by hand is skipped while one stays here, but that one looks at once: what is there is done."""
    monkeypatch.setattr("relevo.runtime.idle_wait._LONGEST_S", PATIENCE_S)
    work = Work()
    work.waiting = [1]
    probe = Cycle("probe", Every(HOUR), work, wakeable=True)
    built, _ = schedule(probe, worker_stay_ms=60_000)
    eventually(lambda: work.done and (True,) in conn.execute(ASLEEP, ["probe"]).fetchall(), "it stays for calls")
    eventually(lambda: work.looks > 3, "it has looked beside")
    work.waiting.append(2)
    assert built.runner.run(probe, "manual").outcome == "skipped"
    eventually(lambda: len(work.done) == 2, "it is done", every=0.002)
    ended = "select outcome from relevo.worker_runs where cycle = 'probe' and outcome <> 'running'"
    assert conn.execute(ended).fetchall() == [("skipped",)], "by the run that stays"


def test_a_fleet_that_cannot_be_told_costs_no_run(build, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the database is away when a run wants to stay, it ends: what it did is done, and nothing of it failed."""
    work = Work()
    work.waiting = [1]

    def say_asleep(_run: Run, asleep: bool) -> None:
        said.append(asleep)
        raise DatabaseUnavailableError("it is away")

    def step(run: Run) -> Step:
        done = work(run)
        assert run.wait_for_work(worked=True, took_s=0.0, rest_s=0.0)
        assert not run.wait_for_work(worked=False, took_s=0.0, rest_s=0.0)
        return done

    said = list[bool]()
    monkeypatch.setattr(Run, "say_asleep", say_asleep)
    runner = build(worker_stay_ms=60_000).runner
    report = runner.run(Cycle("probe", Every(HOUR), step, wakeable=True), "schedule", idle_mode="awake")
    assert (report.outcome, report.counts, report.asleep) == ("ok", {"done": 1}, False)
    assert said == [True], "it is not tried again by the same run"


def stay(call: threading.Event, said: list[bool], *, asleep: bool, lasts_s: float = PATIENCE_S) -> IdleWait:
    """IdleWait for calls, writing down what the fleet is told."""
    return IdleWait(call, threading.Event(), said.append, asleep=asleep, lasts_s=lasts_s, longest_rest_s=0.001)


def test_where_calls_press_no_more_are_asked_for() -> None:
    """Called again and again before it has rested, it says that it is awake, looks by itself, and sleeps once idle."""
    call, said = threading.Event(), list[bool]()
    staying = stay(call, said, asleep=True)
    for _ in range(10):
        assert said == []
        call.set()
        assert staying.for_more(worked=True, took_s=0.0, rest_s=0.0)
    assert said == [False]
    assert staying.for_more(worked=True, took_s=0.0, rest_s=0.0)
    assert staying.for_more(worked=False, took_s=0.0, rest_s=0.0)
    assert said == [False, True]
    assert staying.was_awake


def test_calls_now_and_then_do_not_press() -> None:
    """A call that comes after the rest is what it waits for: nothing is told to the fleet, however many come."""
    call, said = threading.Event(), list[bool]()
    staying = stay(call, said, asleep=True)
    for _ in range(15):
        later = threading.Timer(0.01, call.set)
        later.start()
        assert staying.for_more(worked=True, took_s=0.0, rest_s=0.0)
        later.join()
    assert said == []
    assert not staying.was_awake


def test_who_called_nobody_is_found_by_a_look_beside() -> None:
    """One that is not called looks once more by itself after its work, and for what is known to fall due; then ends."""
    staying = stay(threading.Event(), [], asleep=True, lasts_s=0.5)
    assert staying.for_more(worked=True, took_s=0.0, rest_s=0.0)
    assert staying.for_more(worked=False, took_s=0.0, rest_s=0.0, due_in_s=0.01)
    assert not staying.for_more(worked=False, took_s=0.0, rest_s=0.0)
    assert staying.is_asleep
    assert not staying.for_more(worked=True, took_s=0.0, rest_s=0.0)


def test_a_stay_has_an_end_however_many_call() -> None:
    """After some seconds a run hands over, so that it is written down."""
    call = threading.Event()
    call.set()
    staying = stay(call, [], asleep=True)
    staying.began_at = time.monotonic() - 5.0
    assert not staying.for_more(worked=True, took_s=0.0, rest_s=0.0)


def test_a_pause_holds_for_a_run_that_stays(schedule: Schedule, settings, conn) -> None:
    """What is enqueued after fan-out was paused waits, though a run stays that is called for it."""
    phone = verbs.register(conn, values.Installation("ExponentPushToken[stays]"))
    built, scheduler = schedule(own_cycle("fanout", settings), worker_stay_ms=60_000)
    eventually(lambda: (True,) in conn.execute(ASLEEP, ["fanout"]).fetchall(), "it sleeps")
    state = "select e.state from relevo.notification_events e where e.event_key = %s"

    def enqueue(key: str) -> None:
        verbs.enqueue(conn, values.Event("chat", key, "Hello", audience=[phone]))
        scheduler.wake("fanout")

    enqueue("before")
    eventually(lambda: conn.execute(state, ["before"]).fetchall() == [("fanned",)], "the first is fanned out")
    actions.pause(built.database, "fanout", "to see that it holds")
    enqueue("after")
    eventually(lambda: conn.execute(ENDED, ["fanout"]).fetchall(), "the run ends")
    assert conn.execute(state, ["after"]).fetchall() == [("waiting",)]
    actions.resume(built.database, "fanout")
    scheduler.wake("fanout")
    eventually(lambda: conn.execute(state, ["after"]).fetchall() == [("fanned",)], "the second is fanned out")


def test_a_run_that_stays_ends_what_is_cancelled_meanwhile(schedule: Schedule, settings, conn, monkeypatch) -> None:
    """An event that is cancelled while fan-out stays is swept by that run, not only by the next."""
    monkeypatch.setattr("relevo.runtime.idle_wait._LONGEST_S", PATIENCE_S)
    phone = verbs.register(conn, values.Installation("ExponentPushToken[stays]"))
    _, scheduler = schedule(own_cycle("fanout", settings), worker_stay_ms=60_000)
    eventually(lambda: (True,) in conn.execute(ASLEEP, ["fanout"]).fetchall(), "it sleeps")
    event = verbs.enqueue(conn, values.Event("chat", "one", "Hello", audience=[phone]))
    scheduler.wake("fanout")
    fanned = "select from relevo.notification_events where state = 'fanned'"
    eventually(lambda: conn.execute(fanned).fetchall(), "it is fanned out")
    verbs.cancel(conn, event.event_id)
    scheduler.wake("fanout")
    swept = "select from relevo.notification_events where swept_at is not null"
    eventually(lambda: conn.execute(swept).fetchall(), "it is swept")
    assert conn.execute(ENDED, ["fanout"]).fetchall() == [], "by the run that stays"


def test_nothing_is_due_for_a_dispatch_that_is_paused(build, settings, conn) -> None:
    """A dispatch under way finds nothing more to claim once it is paused, and all of it once it is resumed."""
    phone = verbs.register(conn, values.Installation("ExponentPushToken[stays]"))
    verbs.enqueue(conn, values.Event("chat", "one", "Hello", audience=[phone]))
    built = build()
    built.runner.run(own_cycle("fanout", settings), "manual")
    due = built.services.projects.lanes.read
    assert len(due()) == 1
    actions.pause(built.database, "dispatch", "to see that it holds")
    assert due() == []
    actions.resume(built.database, "dispatch")
    assert len(due()) == 1


def test_a_sleeper_is_ready_for_what_feeds_it(schedule: Schedule, conn) -> None:
    """Called because another cycle was, it has looked while that one is still at work, and does what comes of it."""
    work, armed, looked = Work(), threading.Event(), threading.Event()

    def first(_run: Run) -> Step:
        if not armed.is_set() or not looked.wait(1.0):
            return Step()
        armed.clear()
        work.waiting.append(1)
        return Step({"made": 1}, items=1, wakes="second")

    def second(run: Run) -> Step:
        step = work(run)
        looked.set()
        return step

    _, scheduler = schedule(
        Cycle("first", Every(HOUR), first, wakeable=True, feeds="second"),
        Cycle("second", Every(HOUR), second, wakeable=True),
        worker_stay_ms=1_000,
    )
    for cycle in ("first", "second"):
        eventually(lambda cycle=cycle: (True,) in conn.execute(ASLEEP, [cycle]).fetchall(), "it sleeps")
    eventually(lambda: work.looks >= 2, "it looked once more before it slept")
    looked.clear()
    armed.set()

    def done_once_called() -> bool:
        scheduler.wake("first")  # again, for the other may still have been at its last look
        return work.done == [1]

    eventually(done_once_called, "what came of it is done", every=2.0)
    [(outcome, counts)] = eventually(lambda: conn.execute(ENDED, ["second"]).fetchall(), "it ends when nobody calls")
    assert (outcome, counts) == ("ok", {"done": 1})


def test_one_that_was_called_ahead_in_vain_ends_soon() -> None:
    """It waits a moment for its first work, and is as idle afterwards as any that found none."""
    staying = IdleWait(
        threading.Event(), threading.Event(), [].append, asleep=True, lasts_s=60, longest_rest_s=1, ahead_s=0.01
    )
    while staying.for_more(worked=False, took_s=0.0, rest_s=0.0):
        pass
    assert staying.is_over
    assert not staying.is_asleep
    assert not stay(threading.Event(), [], asleep=True).for_more(worked=False, took_s=0.0, rest_s=0.0)
