"""A process's life: wait for the database, migrate, register, run until told to stop, drain, unregister."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Protocol

import psycopg
import structlog

from relevo.app import App
from relevo.core.errors import (
    DatabaseRefusedError,
    DatabaseUnavailableError,
    MigrationBusyError,
    RelevoError,
    StoppedError,
    UsageError,
)
from relevo.core.model import NEWS, Budget, Report, Shard
from relevo.cycles import names as own_cycles
from relevo.database import instance, migrate
from relevo.operators import audit
from relevo.runtime.runs import Cycle
from relevo.runtime.scheduler import Scheduler
from relevo.runtime.timing import Cron
from relevo.runtime.wakeups import Listener
from relevo.runtime.workers import Role
from relevo.sandbox import demo

_log = structlog.get_logger("relevo.service")
_WAIT_S = 1.0
_SAY_AGAIN_S = 60.0
_TURN_S = 0.0005
_COLLECT_AFTER = 50_000  # new objects; a few megabytes at most


class Signals:
    """The first SIGINT or SIGTERM asks to stop; the second ends the process at once."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.name = ""

    def install(self) -> None:
        """Catch the signals, those too that were held back until now; only the main thread may."""
        signal.signal(signal.SIGINT, self._caught)
        signal.signal(signal.SIGTERM, self._caught)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM])

    def came_early(self) -> bool:
        """Return whether we were told to stop before anything was begun."""
        if self.stop.is_set():
            _log.info("worker_not_started", why=self.name)
        return self.stop.is_set()

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self.stop.is_set():
            _log.warning("worker_ended_at_once", signal=name, hint="a reaper returns its claims to the queue")
            os._exit(128 + number)
        self.name = name
        self.stop.set()


class Face(Protocol):
    """The services beside the cycles, for the life of the process."""

    def start(self) -> None:
        """Begin to serve, before the database is there."""

    def watch(self, scheduler: Scheduler, listener: Listener) -> None:
        """Hear what runs in this process, once it does."""

    def stop(self) -> None:
        """End, once the cycles have."""


def serve(
    app: App, names: Sequence[str] | None = None, signals: Signals | None = None, faces: Sequence[Face] = ()
) -> bool:
    """Run the chosen cycles until a signal; return whether everything in flight came to its end in time.

    What cannot start is said in one line of the log, and ends the process with 1. `signals` are given where they are
    caught already; `faces` serve all the while.
    """
    try:
        cycles = app.cycles(names or app.settings.worker_cycles)
        with _serving(faces):
            return _serve(app, cycles, signals, faces)
    except UsageError:
        raise
    except RelevoError as error:
        _log.critical("fatal", error=error.message, hint=error.hint)
        raise SystemExit(1) from error


@contextmanager
def _serving(faces: Sequence[Face]) -> Iterator[None]:
    with ExitStack() as stack:
        for face in faces:
            face.start()
            stack.callback(face.stop)
        yield


def _serve(app: App, cycles: Sequence[Cycle], signals: Signals | None, faces: Sequence[Face]) -> bool:
    if not app.settings.outbox_worker_enabled:
        cycles = []
        _log.warning("no_cycles_started", why="OUTBOX_WORKER_ENABLED is false")
    if signals is None:
        signals = Signals()
        signals.install()
    if not _ready(app, signals, cycles):
        signals.came_early()
        return True
    tune_interpreter()
    scheduler = Scheduler(app.runner, cycles, app.settings)
    listener = Listener(
        app.database,
        on_wake=partial(_heard, scheduler, app.worker.worker_id),
        on_lost=app.heartbeat.suspect,
        on_change=app.worker.note_wakeups,
        on_resumed=scheduler.look_soon,
    )
    scheduler.hears = lambda: listener.hearing == "listening"
    scheduler.start()
    app.database.on_reachable(scheduler.look_soon)
    app.database.on_reachable(listener.prompt)
    app.heartbeat.start()
    listener.start()  # last: a wake-up finds every cycle's job
    for face in faces:
        face.watch(scheduler, listener)
    while not signals.stop.wait(0.5):  # short waits: a signal is handled between them
        pass
    return _drain(app, scheduler, listener, signals)


def _heard(scheduler: Scheduler, worker_id: str, call: str) -> None:
    """Wake a cycle that was called here, by its name alone or with the name of this worker behind it."""
    cycle_name, _, addressed = call.partition(" ")
    if addressed in ("", worker_id):
        scheduler.wake(cycle_name)


def tune_interpreter() -> None:
    """Switch threads more often than every 5 ms, and collect garbage seldom and without the objects that stay for ever.

    Next to nothing we make is a cycle, and a batch makes thousands of objects that are gone a moment later.
    """
    sys.setswitchinterval(_TURN_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, *gc.get_threshold()[1:])


def _ready(app: App, signals: Signals, cycles: Sequence[Cycle], role: Role = "run") -> bool:
    """Keep trying until the database answers, is migrated and knows this worker; False if told to stop before."""
    say_again_at = time.monotonic() + _SAY_AGAIN_S
    while not signals.stop.is_set():
        try:
            with app.database.stopped_by(signals.stop):
                _prepare(app, cycles, role)
        except DatabaseRefusedError:
            raise  # waiting does not help: a person has to mend it
        except (DatabaseUnavailableError, MigrationBusyError) as error:
            if time.monotonic() > say_again_at:
                say_again_at = time.monotonic() + _SAY_AGAIN_S
                _log.warning("still_waiting_for_database", error=str(error))
            signals.stop.wait(_WAIT_S)
        except StoppedError:
            return False
        else:
            return True
    return False


def _prepare(app: App, cycles: Sequence[Cycle], role: Role) -> None:
    migrate.prepare(app.database)
    instance.record(app.database, app.settings)
    if demo.wanted(app.settings):
        demo.lay_out(app.settings)
        demo.open_shop(app.database)
        demo.hand_out_phones(app.database, app.settings.relevo_data_dir, app.services.providers.keys())
    app.worker.record_start(role, [cycle.key for cycle in cycles])
    app.worker.describe(cycles)
    app.worker.serve([name for name in app.services.providers if name != NEWS])


def _drain(app: App, scheduler: Scheduler, listener: Listener, signals: Signals) -> bool:
    deadline = time.monotonic() + app.settings.worker_shutdown_timeout_ms / 1000
    scheduler.halt()
    _say_goodbye(lambda: app.worker.stopping(signals.name))
    drained = scheduler.stop(deadline - time.monotonic())
    if not drained:
        _log.error("stop_timed_out", hint="a reaper returns its claims to the queue")
    listener.stop()
    app.heartbeat.stop()
    _say_goodbye(app.worker.stopped)
    return drained


def _say_goodbye(word: Callable[[], None]) -> None:
    try:
        word()
    except (DatabaseUnavailableError, psycopg.Error):  # a reaper notices that we are gone
        _log.warning("worker_end_not_recorded")


def serve_alone(app: App, faces: Sequence[Face], signals: Signals) -> None:
    """Serve these faces until a signal, and run no cycle unless somebody asks for one."""
    with _serving(faces):
        try:
            ready = _ready(app, signals, (), "run-cycle")
        except RelevoError as error:
            _log.critical("fatal", error=error.message, hint=error.hint)
            raise SystemExit(1) from error
        if not ready:
            return
        app.heartbeat.start()
        while not signals.stop.wait(0.5):
            pass
        app.runner.stopping.set()
    app.heartbeat.stop()
    _say_goodbye(app.worker.stopped)


@contextmanager
def one_shot(app: App, role: Role, cycles: Sequence[Cycle]) -> Iterator[None]:
    """Register a process that runs cycles once and leaves; a signal lets the current step come to its end."""
    signals = Signals()
    signals.stop = app.runner.stopping
    signals.install()
    migrate.prepare(app.database)
    instance.record(app.database, app.settings)
    app.worker.record_start(role, [cycle.key for cycle in cycles])
    if role == "tick":  # who runs a cycle by hand says nothing of when it runs
        app.worker.describe(cycles)
    app.worker.serve([name for name in app.services.providers if name != NEWS])
    app.heartbeat.start()
    try:
        yield
    finally:
        app.heartbeat.stop()
        _say_goodbye(app.worker.stopped)


def run_cycle(app: App, name: str) -> list[Report]:
    """Run one cycle by hand, every source of it, one after the other."""
    cycles = app.cycles([name])
    if not cycles:
        raise UsageError("There is no source to read.", hint="Name some in SOURCES, or set CHILECOMPRA_TICKET.")
    with one_shot(app, "run-cycle", cycles):
        return _run_by_hand(app, name, None)


def run_beside(app: App, name: str) -> list[Report]:
    """Run one cycle by hand in a process that goes on, every source of it, within the budget that a tick gives it."""
    return _run_by_hand(
        app, name, Budget(app.settings.worker_tick_runner_max_ms, app.settings.worker_tick_runner_max_items)
    )


def _run_by_hand(app: App, name: str, budget: Budget | None) -> list[Report]:
    cycles = app.cycles([name])
    with audit.recorded(app.database, "run_cycle", cycle=name) as result:
        reports = [app.runner.run(cycle, "manual", budget=budget) for cycle in cycles]
        result.update({report.cycle: report.outcome for report in reports})
    return reports


def tick(app: App, names: Sequence[str] | None = None, shard: Shard | None = None) -> list[Report]:
    """Run the chosen cycles once, in order, within their budgets; a cron cycle not named runs only for a free slot."""
    settings = app.settings
    cycles = app.cycles(names or settings.worker_tick_runners or own_cycles())
    deadline = time.monotonic() + settings.worker_tick_overall_max_ms / 1000
    reports = []
    with one_shot(app, "tick", cycles):
        for cycle in cycles:
            left_ms = int((deadline - time.monotonic()) * 1000)
            if left_ms <= 0 or app.runner.stopping.is_set():
                told = app.runner.stopping.is_set()
                why = "the tick was told to stop" if told else "the tick's overall budget is spent"
                reports.append(app.runner.skip(cycle, "tick", why))
                continue
            budget = Budget(min(left_ms, settings.worker_tick_runner_max_ms), settings.worker_tick_runner_max_items)
            by_slot = names is None and isinstance(cycle.timing, Cron)
            reports.append(app.runner.run(cycle, "tick", budget=budget, shard=shard, by_slot=by_slot))
    return reports
