"""APScheduler owns time: every start is one of its jobs, and pacing moves the job's next run."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MISSED, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from relevo.config import Settings
from relevo.core.errors import DatabaseUnavailableError
from relevo.core.model import Report, RunOutcome
from relevo.database.outages import BUSY
from relevo.runtime.runner import IdleMode, Runner
from relevo.runtime.runs import Cycle
from relevo.runtime.timing import Timing, doubled, pause_ms

_log = structlog.get_logger("relevo.scheduler")
_CLOCK_CHECK_S = 2.0
_MISFIRE_GRACE_S = 3_600  # so late a scheduled run may still start
_CLOCK_SLACK_S = 1.0
_LOOK_AGAIN_MS, _LONGEST_LOOK_AGAIN_MS = 10, 5_000
_RESTS_AS_LONG = 10  # times what its work took: what comes meanwhile is done together
_BEHIND_S = 0.0004  # so much later starts who is called ahead: whoever feeds it goes first
_SOON_S = 0.5  # spread over so much, lest all replicas ask in the same moment


@dataclass
class _Clock:
    """The scheduler's state of one cycle between its rounds."""

    cycle: Cycle
    running: bool = False
    woken: bool = False
    ahead: bool = False
    """Whether it was called because another one was that feeds it."""
    asleep: bool = False
    unseen_below: int | None = 0
    """Transactions below this number that still run may not know that the cycle sleeps; None: not yet known."""
    looks: int = 0
    """How often it has looked for what they left, since it sleeps."""
    again: bool = False
    """Whether to look again soon, should the round under way fail."""
    last: RunOutcome | None = None
    streak: int = 0
    due: float = 0.0
    """When it runs next, by the clock that nobody sets."""
    ended: float = 0.0
    """When its last round ended, by the same clock."""


class _AtSlots(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """Fires at a cycle's slots; pacing moves the job after each of its runs.

    APScheduler's CronTrigger cannot name the last slot, which the whole fleet counts a nightly run by, and runs a time
    twice that the clock shows twice; so slots come from `Timing`, here and everywhere.
    """

    def __init__(self, timing: Timing) -> None:
        self.timing = timing

    def get_next_fire_time(self, _previous: datetime | None, now: datetime) -> datetime:
        """Return the next slot, for APScheduler."""
        return self.timing.next_slot(now)


class _WatchfulScheduler(BackgroundScheduler):  # type: ignore[misc]
    """Calls a function every few seconds, however far away its next job is."""

    def __init__(self, check: Callable[[], None], **options: object) -> None:
        super().__init__(**options)
        self._check = check

    def _process_jobs(self) -> float:
        self._check()
        wait_s: float | None = super()._process_jobs()
        return _CLOCK_CHECK_S if wait_s is None else min(wait_s, _CLOCK_CHECK_S)


class Scheduler:
    """Runs the registry's cycles in time, wakes them up, and drains them."""

    def __init__(self, runner: Runner, cycles: Sequence[Cycle], settings: Settings) -> None:
        self._runner = runner
        self._settings = settings
        self._busy_s = settings.worker_busy_loop_delay_ms / 1000
        self._guard = threading.Condition()
        self._clocks = {cycle.key: _Clock(cycle) for cycle in cycles}
        self._stopping = False
        self._lead_s = _wall_clock_lead_s()
        self._aps = _WatchfulScheduler(
            self._follow_clock,
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(max(1, len(cycles)))},
            job_defaults={"max_instances": 1, "coalesce": True, "misfire_grace_time": _MISFIRE_GRACE_S},
        )
        self.hears: Callable[[], bool] = lambda: True
        """Whether calls reach this process; where none would come no run waits for them."""
        runner.on_work = self.wake
        # A job moved from within would be due while it still counts as running, and be skipped.
        self._aps.add_listener(self._ended, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR | EVENT_JOB_MISSED)

    @property
    def is_running(self) -> bool:
        """Whether time was started and nobody has asked to stop."""
        return bool(self._aps.running) and not self._stopping

    def start(self) -> None:
        """Start time; every cycle runs at once, then at its own pace."""
        for key, clock in self._clocks.items():
            clock.due = time.monotonic()
            trigger = _AtSlots(clock.cycle.timing)
            self._aps.add_job(self._fire, trigger, args=[key], id=key, next_run_time=datetime.now(UTC))
        self._aps.start()

    def wake(self, cycle_name: str) -> None:
        """Run a cycle as soon as possible; during a run, right after it. Many calls are one.

        One that failed, or may not run, is not made to spin by them: it tries again after the busy pause.
        """
        with self._guard:
            for clock in self._clocks.values():
                if clock.cycle.name == cycle_name:
                    clock.woken = True
                    self._runner.call(clock.cycle)
                    if not clock.running:
                        self._move(clock, min(self._called_in_s(clock), max(0.0, clock.due - time.monotonic())))
                        self._call_ahead(clock.cycle.feeds)

    def _call_ahead(self, cycle_name: str) -> None:
        """Prepare a sleeping cycle that another cycle, just called, feeds; the caller holds the guard."""
        for clock in self._clocks.values():
            if clock.cycle.name == cycle_name and clock.asleep and not clock.running and clock.last == "idle":
                clock.ahead = True
                self._move(clock, _BEHIND_S)

    def look_soon(self) -> None:
        """Make every cycle look within a moment: the database answers again, or a wake-up may have been missed.

        A singleton that did not fail waits for its slot, as ever.
        """
        with self._guard:
            for clock in self._clocks.values():
                clock.again = clock.running
                if not clock.running and (clock.last == "failed" or not clock.cycle.singleton):
                    self._move(clock, _soon_s())

    def halt(self) -> None:
        """Start nothing new from now on; what runs takes no further step."""
        with self._guard:
            self._stopping = True
        self._runner.stopping.set()
        for clock in self._clocks.values():
            self._runner.call(clock.cycle)  # one that waits for more work need not
        self._aps.pause()

    def stop(self, timeout_s: float) -> bool:
        """Start nothing new, let what runs come to an end; return whether it did in time."""
        self.halt()
        deadline = time.monotonic() + timeout_s
        with self._guard:
            while any(clock.running for clock in self._clocks.values()) and (left := deadline - time.monotonic()) > 0:
                self._guard.wait(left)
            drained = not any(clock.running for clock in self._clocks.values())
        if not drained:
            self._runner.leave()
        self._aps.shutdown(wait=drained)
        return drained

    def _fire(self, key: str) -> float | None:
        """Run a round of a cycle; return the pause after it, in seconds."""
        clock = self._clocks[key]
        with self._guard:
            if self._stopping:
                return None
            self._aps.pause_job(key)  # its next run is decided by how this one ends
            clock.running, clock.again = True, False
            woken, clock.woken = clock.woken or clock.ahead, False
            ahead, clock.ahead = clock.ahead, False
        began = time.monotonic()
        report = self._run(clock, woken=woken, ahead=ahead)
        return self._pause_s(clock, report, time.monotonic() - began)

    def _ended(self, event: JobExecutionEvent) -> None:
        clock = self._clocks[event.job_id]
        error_s = self._settings.worker_tick_loop_error_backoff_ms / 1000
        pause_s = error_s if event.retval is None else event.retval
        if event.code == EVENT_JOB_MISSED:  # too late by APScheduler's book; the slot decides what is still worth doing
            pause_s = 0.0
        with self._guard:
            clock.running, clock.ended = False, time.monotonic()
            if clock.again and clock.last == "failed":
                pause_s = min(pause_s, _soon_s())
            self._move(clock, min(pause_s, self._called_in_s(clock)) if clock.woken else pause_s)
            self._guard.notify_all()

    def _run(self, clock: _Clock, *, woken: bool, ahead: bool) -> Report:
        cycle = clock.cycle
        mode: IdleMode = "ahead" if ahead else "asleep" if clock.asleep else "awake"
        idle_mode = mode if cycle.wakeable and self.hears() else None
        try:
            return self._runner.run(cycle, "wake-up" if woken else "schedule", idle_mode=idle_mode)
        except DatabaseUnavailableError as error:
            return Report(cycle.key, "failed", error=str(error))  # said once by the database's own watch
        except Exception as error:  # noqa: BLE001 one cycle's surprise must not stop the others' time
            _log.exception("round_failed", cycle=cycle.key)
            return Report(cycle.key, "failed", error=type(error).__name__)

    def _pause_s(self, clock: _Clock, report: Report, took_s: float) -> float:
        outcome: RunOutcome = "idle" if report.asleep else report.outcome
        clock.streak = clock.streak + 1 if outcome == clock.last and not report.asleep else 1
        clock.last = outcome
        if report.look_again_in_s is not None:
            return report.look_again_in_s
        chance = random.random()  # noqa: S311 jitter needs no secrecy
        if report.next_slot_in_s is not None and outcome != "failed" and not report.more:
            return report.next_slot_in_s + self._settings.worker_idle_backoff_jitter_ms / 1000 * chance
        look_again_s = self._settle_down(clock, report) if clock.cycle.wakeable else None
        ceiling_ms = clock.cycle.timing.ceiling_ms
        pause = pause_ms(
            outcome, self._settings, more=report.more, streak=clock.streak, ceiling_ms=ceiling_ms, chance=chance
        )
        if clock.cycle.wakeable and outcome == "ok" and not report.more:  # soon asleep, and so to be called
            pause = min(pause, took_s * 1000 * _RESTS_AS_LONG)
        if report.due_in_s is not None and outcome != "failed":  # what is known to fall due is on time
            pause = min(pause, max(report.due_in_s * 1000, 0.0))
        return pause / 1000 if look_again_s is None else min(pause / 1000, look_again_s)

    def _settle_down(self, clock: _Clock, report: Report) -> float | None:
        """Write whether this cycle sleeps; return how soon to look for work once more, if at all.

        Told after every round, however it ended: the flag is the fleet's, and another replica may have died and left it
        wrong. If it was wrong, those who enqueued since the last look called nobody. One that failed sleeps, too: who
        comes meanwhile has it look sooner than the rest after an error would.
        """
        sleeps = report.asleep or (report.outcome in ("idle", "failed", "partial") and not report.more)
        slept = clock.asleep and not (report.asleep and report.was_awake)
        clock.asleep = False  # should the fleet not be told
        look_again_s: float | None = None
        with suppress(DatabaseUnavailableError, *BUSY):
            was_wrong = self._runner.set_asleep(clock.cycle, asleep=sleeps)
            clock.asleep = sleeps
            if sleeps and (was_wrong or not slept):
                clock.unseen_below, clock.looks = None, 0
                look_again_s = 0.0
            elif sleeps:
                look_again_s = _next_look_s(clock, report.open_transactions)
        if look_again_s is not None and report.outcome == "failed":
            return max(look_again_s, self._busy_s)
        return look_again_s

    def _called_in_s(self, clock: _Clock) -> float:
        """Return how soon a cycle runs that is called."""
        if clock.last not in ("failed", "skipped"):
            return 0.0
        return max(0.0, clock.ended + self._busy_s - time.monotonic())

    def _move(self, clock: _Clock, pause_s: float) -> None:
        """Set when a cycle's job runs next; the caller holds the guard."""
        if not self._stopping:
            clock.due = time.monotonic() + pause_s
            self._aps.modify_job(clock.cycle.key, next_run_time=datetime.now(UTC) + timedelta(seconds=pause_s))

    def _follow_clock(self) -> None:
        """Move the jobs along if the wall clock, by which APScheduler goes, was set back: a pause is a span of time."""
        with self._guard:
            before, self._lead_s = self._lead_s, _wall_clock_lead_s()
            if before - self._lead_s <= _CLOCK_SLACK_S or self._stopping:
                return
            _log.warning("clock_set_back", by_s=round(before - self._lead_s))
            for clock in self._clocks.values():
                if not clock.running:
                    self._move(clock, max(0.0, clock.due - time.monotonic()))


def _next_look_s(clock: _Clock, open_transactions: tuple[int, int]) -> float | None:
    """Return how soon a sleeping cycle looks again for work that nobody calls out; None if there can be none.

    Whoever enqueued before the fleet was told that it sleeps, and commits afterwards, calls nobody.
    """
    ended_before, begun_before = open_transactions
    if clock.unseen_below is None:
        clock.unseen_below = begun_before
    if ended_before >= clock.unseen_below:
        return None
    clock.looks += 1
    return doubled(_LOOK_AGAIN_MS, clock.looks, _LONGEST_LOOK_AGAIN_MS) / 1000


def _wall_clock_lead_s() -> float:
    """Return by how much the wall clock is ahead of the one that nobody sets."""
    return datetime.now(UTC).timestamp() - time.monotonic()


def _soon_s() -> float:
    return _SOON_S * random.random()  # noqa: S311 jitter needs no secrecy
