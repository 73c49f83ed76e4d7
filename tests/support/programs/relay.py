"""The command `relevo` with probe cycles beside its own: they write what they do into public.probe.

PROBES is a JSON list of probes, each with the fields of `Probe`. Every wait of theirs is over once the current folder
holds a file `release`.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from relevo import app, cli, cycles
from relevo.cli import common
from relevo.config import Settings
from relevo.core.model import Step
from relevo.database.pool import Connection
from relevo.delivery.claiming.claims import Claims
from relevo.runtime.runs import Cycle, Ending, Run, RunContext
from relevo.runtime.timing import Cron, Every

RELEASE = Path("release")

_log = structlog.get_logger("relay")


@dataclass(frozen=True)
class Probe:
    """A cycle to watch: when it runs and how it behaves."""

    name: str
    every_ms: int = 0
    cron: str = ""
    singleton: bool = True
    wakeable: bool = False
    source: str = ""
    hold_ms: int = 0
    """How long a step lasts at most, between its two writes; it gets on meanwhile, slowly."""
    hangs: bool = False
    """Whether it does not."""
    hold_inside: bool = False
    """Whether it lasts inside the transaction of the first write."""
    fails: int = 0
    """How many runs fail before one succeeds, counted in the fleet."""
    steps: int = 1
    """How many steps a run takes."""
    takes_work: bool = False
    """Whether it only takes rows of public.probe_work, one per step, and is idle without."""
    around_ms: int = 0
    """How long a middleware waits at most before the run's steps."""

    def cycle(self, settings: Settings, _claims: Claims) -> Cycle:
        """Make the cycle for the registry."""
        timing = Cron(self.cron, settings.worker_timezone) if self.cron else Every(self.every_ms)
        step = self.take if self.takes_work else self.hold
        return Cycle(self.name, timing, step, singleton=self.singleton, source=self.source, wakeable=self.wakeable)

    def take(self, run: Run) -> Step:
        """Take one row of work, if there is any."""
        with run.transaction() as connection:
            taken = connection.execute(
                "delete from public.probe_work where id in (select id from public.probe_work where cycle = %s"
                " order by id limit 1 for update skip locked)",
                [self.name],
            ).rowcount
        if not taken:
            return Step()
        self.say(run, "took")
        return Step({"notifications_sent": 1}, items=1, more=True)

    def hold(self, run: Run) -> Step:
        """Write, wait, and write again."""
        with run.transaction() as connection:
            self.write(connection, run, "begin")
            failed = connection.execute(
                "select count(*) from relevo.worker_runs where cycle = %s and outcome = 'failed'", [self.name]
            ).fetchone()
            if self.hold_inside:
                _log.info("probe_holds", probe=self.name)
                wait(self.hold_ms, run)
        if failed and failed[0] < self.fails:
            raise RuntimeError(f"probe {self.name} was told to fail")
        if self.hold_ms and not self.hold_inside:
            _log.info("probe_holds", probe=self.name)
            wait(self.hold_ms, None if self.hangs else run)
        self.say(run, "end")
        return Step({"notifications_sent": 1}, items=1, more=run.items + 1 < self.steps)

    def say(self, run: Run, word: str) -> None:
        """Write one row in a transaction of its own."""
        with run.transaction() as connection:
            self.write(connection, run, word)

    @staticmethod
    def write(connection: Connection, run: Run, word: str) -> None:
        """Write one row of public.probe."""
        context = run.context
        connection.execute(
            "insert into public.probe (cycle, worker_id, run_id, slot_at, trigger, word)"
            " values (%s, %s, %s, %s, %s, %s)",
            [context.cycle, context.worker_id, context.run_id, context.slot_at, context.trigger, word],
        )


def wait(milliseconds: int, run: Run | None = None) -> None:
    """Let time pass, but no longer than until the test says so."""
    deadline = time.monotonic() + milliseconds / 1000
    while not RELEASE.exists() and (left := deadline - time.monotonic()) > 0:
        if run is not None:
            run.progress()
        time.sleep(min(left, 0.02))


def tell(context: RunContext, following: Callable[[], Ending]) -> Ending:
    """Log every run from outside (a middleware)."""
    _log.info("middleware_saw", of_cycle=context.cycle, trigger=context.trigger)
    return following()


def delay(probes: list[Probe], context: RunContext, following: Callable[[], Ending]) -> Ending:
    """Wait before the steps of some cycles, Relevo's own ones included (a middleware)."""
    for probe in probes:
        if probe.name == context.cycle and probe.around_ms:
            _log.info("middleware_holds", of_cycle=context.cycle)
            wait(probe.around_ms)
    return following()


def main() -> None:
    """Run the command line with the probes in the registry."""
    probes = [Probe(**given) for given in json.loads(os.environ["PROBES"])]
    makers = [probe.cycle for probe in probes if probe.every_ms or probe.cron]
    known = (*cycles.names(), *(probe.name for probe in probes))
    common.cycle_facts = lambda: dict.fromkeys(known)  # type: ignore[assignment,arg-type]
    parts = app.Parts(cycles=makers, middlewares=[tell, functools.partial(delay, probes)])
    app.load_parts = lambda _settings: parts  # type: ignore[assignment]
    cli.main()


if __name__ == "__main__":
    main()
