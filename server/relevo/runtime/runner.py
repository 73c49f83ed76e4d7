"""The one function that starts a cycle: lock, pause switch, lease and slot, middlewares, a row, a log line."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Literal

import psycopg
import structlog
from psycopg.types.json import Jsonb

from relevo.config import Settings
from relevo.core import queries
from relevo.core.errors import DatabaseUnavailableError, RelevoError
from relevo.core.logs import normalise_error, scrub
from relevo.core.metrics import Metrics
from relevo.core.model import Budget, Report, RunOutcome, Shard, Trigger
from relevo.database.instance import Guard
from relevo.database.outages import BUSY, is_unavailable
from relevo.database.pool import Database
from relevo.runtime import threads
from relevo.runtime.hung_calls import HungCalls
from relevo.runtime.idle_wait import IdleWait
from relevo.runtime.runs import Cycle, Ending, Middleware, Run, RunContext, set_asleep
from relevo.runtime.singleton import NotHeld, Singletons
from relevo.runtime.troubles import Troubles

_SQL = queries.load("runner")
_log = structlog.get_logger("relevo.runner")
_FINISH_RETRY_S = 1.0
_WATCH_S = 0.25
_MOST_HUNG_RUNS = 3
_RESTS_AS_LONG = 5  # times what its work took, though called: what comes meanwhile is done together
_LONGEST_REST_S = 0.08

_AHEAD_S = 0.1  # what feeds it is done by then, or has far more to do

IdleMode = Literal["asleep", "awake", "ahead"] | None
"""Whether a run waits for calls once its work is done, or, called ahead, before; whether the fleet was told of it."""


class Runner:
    """Runs cycles for one process; schedule, wake-up, tick and hand all come through `run`."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        worker_id: str,
        singletons: Singletons,
        *,
        middlewares: Sequence[Middleware] = (),
        hung: HungCalls | None = None,
        guard: Guard | None = None,
        metrics: Metrics | None = None,
        patience_s: float = math.inf,
        stop_s: float = math.inf,
        clock: Callable[[], datetime | None] = lambda: None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._worker_id = worker_id
        self._singletons = singletons
        self._middlewares = tuple(middlewares)
        self._hung = hung or HungCalls()
        self._guard = guard or Guard(settings)
        self._metrics = metrics or Metrics()
        self._patience_s = patience_s
        self._stop_s = stop_s
        self._troubles = Troubles(database)
        self._leaving = threading.Event()
        self._clock = clock
        self._locks: dict[str, threading.Lock] = {}
        self._told_skips: dict[str, datetime] = {}
        self._looked_for_leftovers: dict[str, float] = {}
        self._calls: dict[str, threading.Event] = {}
        self.stopping = threading.Event()
        self.on_work: Callable[[str], None] = lambda _cycle: None
        """Told which cycle has work because of a step of another."""

    def run(
        self,
        cycle: Cycle,
        trigger: Trigger,
        *,
        budget: Budget | None = None,
        shard: Shard | None = None,
        by_slot: bool | None = None,
        idle_mode: IdleMode = None,
    ) -> Report:
        """Run a cycle once, unless it is running here, held elsewhere, paused, or its slot is filled.

        Scheduled singletons fill slots; a run by hand does not, unless `by_slot` asks for it. With an `idle_mode` it
        waits for calls once its work is done.
        Raises DatabaseUnavailableError only if nothing was begun.
        """
        if (kept_back := self._kept_back(cycle, trigger)) is not None:
            return kept_back
        lock = self._locks.setdefault(cycle.key, threading.Lock())
        if not lock.acquire(blocking=False):
            self.call(cycle)  # one that only waits for more work looks at once
            if trigger != "wake-up":
                _log.warning("cycle_already_running", cycle=cycle.key, trigger=trigger, worker_id=self._worker_id)
            return self.skip(cycle, trigger, "already running in this process", news=False)
        try:
            began = time.monotonic()
            context, obstacle = self._open(cycle, trigger, by_slot)
            if obstacle is not None:
                again_s = self._settings.worker_idle_backoff_max_ms / 1000 if cycle.singleton else None
                self._end_leftovers(cycle)
                return self.skip(cycle, trigger, obstacle, context, again_s)
            report = self._attempt(cycle, context, budget or cycle.budget, shard, idle_mode)
            self._end_leftovers(cycle)
            if not cycle.singleton:
                return report
            wait = cycle.timing.next_slot(context.started_at) - context.started_at  # by the database's clock
            return replace(report, next_slot_in_s=max(0.0, wait.total_seconds() - (time.monotonic() - began)))
        finally:
            lock.release()

    def _kept_back(self, cycle: Cycle, trigger: Trigger) -> Report | None:
        """Report what keeps a cycle from running in this process at all; None if nothing does."""
        if not self._settings.outbox_worker_enabled:
            return self.skip(cycle, trigger, "OUTBOX_WORKER_ENABLED is false")
        if cycle.off:  # it has nothing to work with, and tries again at its next slot
            context, _ = self._open(cycle, trigger, None)
            wait = cycle.timing.next_slot(context.started_at) - context.started_at
            return self.skip(cycle, trigger, cycle.off, context, wait.total_seconds())
        if (hanging := self._hung.count(_named(cycle))) >= _MOST_HUNG_RUNS:
            why = f"{hanging} runs of it hang in this process, which has to be restarted"
            return self.skip(cycle, trigger, why, look_again_in_s=self._settings.worker_idle_backoff_max_ms / 1000)
        return None

    def _attempt(
        self, cycle: Cycle, context: RunContext, budget: Budget, shard: Shard | None, idle_mode: IdleMode
    ) -> Report:
        held = None
        if cycle.singleton:
            taken = self._singletons.acquire(vars(context) | {"slot_ms": cycle.timing.slot_ms(context.started_at)})
            if isinstance(taken, NotHeld):
                return self.skip(cycle, context.trigger, taken.reason, context, taken.look_again_in_s, news=False)
            held = taken
            self._untold_slot(cycle, context)  # a slot of our own is no news later
        run = Run(
            context,
            self._settings,
            self._database,
            budget,
            shard,
            held,
            self.stopping,
            begun=held is not None,
            clock=self._clock,
            woken=self._call_of(cycle),
            wake=self.on_work,
            metrics=self._metrics,
            troubles=self._troubles,
            trouble=lambda: "" if cycle.bookkeeping else self._guard.trouble,
        )
        if idle_mode is not None:
            run.idle_wait = self._idle_wait(run, idle_mode)
        with structlog.contextvars.bound_contextvars(run_id=context.run_id, cycle=cycle.key, worker_id=self._worker_id):
            try:
                ending = self._watched(cycle, run)
                if ending is None:  # the process leaves without it; a reaper ends its row
                    return Report(cycle.key, "failed", error="the process stopped while it hung")
                return self._finish(cycle, run, ending)
            finally:
                if held is not None:  # whatever happened, nobody keeps the lease of a run that is over
                    self._singletons.forget(held)

    def _open(self, cycle: Cycle, trigger: Trigger, by_slot: bool | None) -> tuple[RunContext, str | None]:
        """Open a round, and say what keeps the cycle from it: the database belongs elsewhere, or it is paused."""
        asked = {"cycle": cycle.name, "source": cycle.source, "instance": self._settings.relevo_instance}
        with self._database.connection() as connection:
            row = connection.execute(_SQL["open_round"], asked).fetchone()
            assert row is not None
            run_id, started_at, paused, elsewhere, *opened = row
            trouble = self._guard.look(connection) if elsewhere or self._guard.trouble else ""
        obstacle = trouble if trouble and not cycle.bookkeeping else f"paused: {paused}" if paused is not None else None
        slotted = cycle.singleton and (trigger in ("schedule", "wake-up") if by_slot is None else by_slot)
        slot_at = cycle.timing.slot_at(started_at) if slotted else None
        open_transactions = opened[0], opened[1]
        context = RunContext(
            run_id, cycle.name, cycle.source, trigger, self._worker_id, slot_at, started_at, open_transactions
        )
        return context, obstacle

    def _end_leftovers(self, cycle: Cycle) -> None:
        """End, now and then, the rows of runs here that are still open: none of the cycle is under way any more.

        A run's end is committed without waiting for the disk, so that a crash of the server may take it. Whoever takes
        a singleton's lease ends what was left of it.
        """
        looked_at = self._looked_for_leftovers.get(cycle.key, -math.inf)
        lately = time.monotonic() < looked_at + self._settings.outbox_lease_duration_ms / 1000
        if cycle.singleton or lately or self.stopping.is_set():
            return
        self._looked_for_leftovers[cycle.key] = time.monotonic()
        asked = {"cycle": cycle.name, "source": cycle.source, "worker_id": self._worker_id}
        try:
            left = self._database.execute(_SQL["end_leftover_runs"], asked).fetchall()
        except (DatabaseUnavailableError, psycopg.OperationalError):  # the next look does it; BUSY are such, too
            return
        for (run_id,) in left:
            _log.warning(
                "run_abandoned",
                abandoned_run=run_id,
                of_cycle=cycle.name,
                source=cycle.source,
                former_worker=self._worker_id,
            )

    def _idle_wait(self, run: Run, mode: IdleMode) -> IdleWait | None:
        settings = self._settings
        if not settings.worker_stay_ms:
            return None
        lasts_ms = min(settings.worker_stay_ms, settings.outbox_lease_duration_ms)  # long before it counts as hung
        return IdleWait(
            run.woken,
            self.stopping,
            run.say_asleep,
            asleep=mode != "awake",
            lasts_s=lasts_ms / 1000,
            longest_rest_s=settings.worker_busy_loop_delay_ms / 1000,
            ahead_s=_AHEAD_S if mode == "ahead" else 0.0,
        )

    def _call_of(self, cycle: Cycle) -> threading.Event:
        return self._calls.setdefault(cycle.key, threading.Event())

    def call(self, cycle: Cycle) -> None:
        """Notify the run of a cycle that is under way, if it waits for that, that there may be more work."""
        self._call_of(cycle).set()

    def leave(self) -> None:
        """Wait for no run any more: the process is about to end."""
        self._leaving.set()

    def _watched(self, cycle: Cycle, run: Run) -> Ending | None:
        """Run the steps on a thread of their own; one that gets nowhere for too long is given up.

        Its lease is given back with its row, so that another replica may go on; what is left of it can write nothing.
        """
        totals: Counter[str] = Counter()
        steps = threads.start(f"relevo-{cycle.key}", partial(self._guarded, cycle, run, totals))
        lasts_s = (cycle.stall_ms or 3 * self._settings.outbox_lease_duration_ms) / 1000
        stop_at, looked_at = math.inf, time.monotonic()
        while not wait([steps], timeout=_WATCH_S).done:
            stood_s = max(0.0, time.monotonic() - looked_at - 2 * _WATCH_S)
            run.moved_at += stood_s  # while this process stood still nothing of it could come back
            looked_at = time.monotonic()
            if self._leaving.is_set():
                run.abandon()
                return None
            if self.stopping.is_set():
                stop_at = min(stop_at, time.monotonic() + self._stop_s)
            if time.monotonic() > min(run.moved_at + lasts_s, stop_at):
                run.abandon()
                call = self._hung.add(_named(cycle), "", run.moved_at, lasts_s, steps)
                return Ending("failed", dict(totals), self._hung.give_up(call))
        return steps.result()

    def _guarded(self, cycle: Cycle, run: Run, totals: Counter[str]) -> Ending:
        """Run the middlewares around the steps; whatever is raised becomes a failed ending."""
        call = partial(_loop, cycle, run, totals)
        for middleware in reversed(self._middlewares):
            call = partial(middleware, run.context, call)
        try:
            return _ending(call())
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever a cycle raises is the run's failure, written down
            expected = isinstance(error, RelevoError | SystemExit) or is_unavailable(error)
            (_log.debug if expected else _log.error)("run_raised", exc_info=True)
            return Ending("failed", dict(totals), normalise_error(error))

    def _finish(self, cycle: Cycle, run: Run, ending: Ending) -> Report:
        """Write the ending down, waiting for the database if need be, and say it in one line."""
        worth_a_row = run.begun or run.context.trigger == "manual" or ending.outcome in ("failed", "partial")
        outcome = "ok" if ending.outcome == "idle" and worth_a_row else ending.outcome
        kept = self._write_patiently(run, ending, outcome if worth_a_row else None)
        took_s = time.monotonic() - run.started
        self._metrics.count_round(cycle.name, cycle.source, took_s, ending.counts)
        if worth_a_row:
            self._metrics.runs.labels(cycle.name, cycle.source, outcome if kept else "not_recorded").inc()
            _warn_of_overlap(cycle, run, took_s)
            level = _log.error if outcome == "failed" else _log.info
            level(
                "run_finished",
                trigger=run.context.trigger,
                outcome=outcome,
                duration_ms=round(took_s * 1000),
                counts=ending.counts,
                **({"error": ending.error} if ending.error else {}),
                **({} if kept else {"row": "not written: the run was abandoned or the database is gone"}),
            )
        return Report(
            cycle.key,
            ending.outcome,
            run.context.run_id if worth_a_row else None,
            ending.counts,
            error=ending.error,
            more=ending.more,
            due_in_s=ending.due_in_s,
            open_transactions=run.context.open_transactions,
            asleep=ending.outcome != "failed" and run.idle_wait is not None and run.idle_wait.is_asleep,
            was_awake=run.idle_wait is None or run.idle_wait.was_awake,
        )

    def _write_patiently(self, run: Run, ending: Ending, outcome: str | None) -> bool:
        """Write the ending down once the database answers; wait for a lock no longer than a lease."""
        began = time.monotonic()
        while True:
            try:
                return self._write(run, ending, outcome)
            except BUSY:
                lasts_s = min(self._patience_s, self._settings.outbox_lease_duration_ms / 1000)
            except (DatabaseUnavailableError, psycopg.OperationalError):
                lasts_s = self._patience_s
            if time.monotonic() > began + lasts_s or self.stopping.wait(_FINISH_RETRY_S):
                return False

    def _write(self, run: Run, ending: Ending, outcome: str | None) -> bool:
        context, reason = run.context, None
        if ending.more and context.slot_at is not None:  # a slot is filled once its work is done
            context, reason = replace(context, slot_at=None), "handed its slot over: more work is waiting"
        # a slot that was filled must stay so; of another run a crash of the server may take the end
        with self._database.transaction("bound_transaction" if run.held else "bound_unflushed") as connection:
            key = {"cycle": context.cycle, "source": context.source}
            if run.held is not None:  # before the run's row, as a successor locks them
                self._singletons.release(connection, run.held)
            counted = {"idle": outcome is None, "failed": outcome == "failed", "counts": Jsonb(ending.counts)}
            connection.execute(_SQL["count_round"], key | counted)
            if outcome is None:
                return True
            error = ending.error or ("no reason was given" if outcome == "failed" else "")
            ended = {"outcome": outcome, "reason": reason, "error_message": error[:500] or None}
            return connection.execute(_SQL["finish_run"], vars(context) | counted | ended).fetchone() is not None

    def skip(
        self,
        cycle: Cycle,
        trigger: Trigger,
        reason: str,
        context: RunContext | None = None,
        look_again_in_s: float | None = None,
        *,
        news: bool = True,
    ) -> Report:
        """Report why nothing ran: a row for a run by hand, and one for a reason that is news; all else is counted.

        What another run does, here or elsewhere, is no news: a fleet would write a row per replica and slot.
        """
        if context is None:
            context, _ = self._open(cycle, trigger, None)
        by_hand = trigger == "manual"
        written = False
        with suppress(*BUSY), self._database.transaction("bound_unflushed") as connection:  # not worth a long wait
            if trigger == "wake-up":
                connection.execute(_SQL["count_skipped_wakeup"], {"cycle": cycle.name, "source": cycle.source})
            elif by_hand or trigger == "tick" or self._untold_slot(cycle, context):
                reported = vars(context) | {"reason": reason[:300], "always": by_hand}
                written = (news or by_hand) and connection.execute(_SQL["tell_skip"], reported).rowcount > 0
                if not written:
                    connection.execute(_SQL["count_skipped_slot"], {"cycle": cycle.name, "source": cycle.source})
        if written:
            self._metrics.runs.labels(cycle.name, cycle.source, "skipped").inc()
        log = _log.info if written else _log.debug
        told_in_log = {"trigger": trigger, "outcome": "skipped", "reason": reason}
        log("run_skipped", run_id=context.run_id, cycle=cycle.key, worker_id=self._worker_id, **told_in_log)
        run_id = context.run_id if written else None
        return Report(cycle.key, "skipped", run_id, reason=reason, look_again_in_s=look_again_in_s)

    def set_asleep(self, cycle: Cycle, *, asleep: bool) -> bool:
        """Write to table state whether this cycle's workers sleep (then `enqueue` wakes them); return if it is new."""
        return set_asleep(self._database, cycle.name, self._worker_id, asleep=asleep)

    def _untold_slot(self, cycle: Cycle, context: RunContext) -> bool:
        """Report each slot that went by once, however often this process saw it."""
        if context.slot_at is None or self._told_skips.get(cycle.key) == context.slot_at:
            return False
        self._told_skips[cycle.key] = context.slot_at
        return True


def _named(cycle: Cycle) -> str:
    return f"the cycle {cycle.key}"


def _warn_of_overlap(cycle: Cycle, run: Run, took_s: float) -> None:
    """Warn of a run that was still under way when its cycle was due again; who stays for calls lasts as it wants."""
    slot_s = cycle.timing.slot_ms(run.context.started_at) / 1000
    if took_s > slot_s and not cycle.wakeable:
        _log.warning(
            "run_overlapped",
            trigger=run.context.trigger,
            duration_s=round(took_s, 1),
            interval_s=round(slot_s, 1),
            hint="the cycle was due again before this run ended: lengthen its interval, or find out why it is slow",
        )


def _loop(cycle: Cycle, run: Run, totals: Counter[str]) -> Ending:
    """Take steps until one comes up short, a budget is spent, or the process stops."""
    problems: list[str] = []
    more, due_in_s, worked, began = True, None, False, time.monotonic()
    if not run.is_ahead:  # else the call that it waits for may have come
        run.woken.clear()  # before the look: a call that comes during it is worth another
    while more and run.may_go_on():
        step = cycle.step(run)
        totals.update({name: count for name, count in step.counts.items() if count})
        run.items += step.items
        problems += step.problems
        left, run.left_alone = run.left_alone, []
        problems += dict.fromkeys(left)
        totals.update({"left_alone": len(left)} if left else {})
        more, due_in_s = step.more, step.due_in_s
        if step.wakes:
            run.wake(step.wakes)
        took_s = time.monotonic() - began
        rest_s = min(took_s * _RESTS_AS_LONG, _LONGEST_REST_S)
        if more and step.short and run.idle_wait is not None:
            run.woken.wait(rest_s)  # those it made work for come first
        if step.items or any(step.counts.values()) or step.problems or left:
            run.begin_work()
            worked = True
        if not more and not problems:
            more = run.wait_for_work(worked=worked, took_s=took_s, rest_s=rest_s, due_in_s=due_in_s)
            worked, began = False, time.monotonic()
    worked = bool(run.items or totals)
    outcome: RunOutcome = ("partial" if worked else "failed") if problems else "ok" if worked else "idle"
    return Ending(outcome, dict(totals), scrub("; ".join(problems))[:500], more, due_in_s)


def _ending(returned: object) -> Ending:
    if not isinstance(returned, Ending):
        raise TypeError(f"a middleware must return what next() returned, not {type(returned).__name__}")
    return returned
