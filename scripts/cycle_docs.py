"""The page of the cycles: when each runs, what it does and what its runs count, from the cycles' own files."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from relevo import config, cycles
from relevo.runtime.cycle_facts import CycleFacts
from relevo.runtime.runs import Cycle
from relevo.runtime.timing import Cron

INTRODUCTION = """\
After this page you know when each cycle runs with the default [settings](settings.md), in how many replicas at once,
and what its runs count. Each cycle has one duty and hands its work on through tables.
"""
COUNTS = """\
The `counts` are in `relevo runs`, in the table `worker_runs`, in `relevo_run_items_total` and on the dashboard. A run
lists only those that are not zero. Every cycle may have `left_alone`: the things that a run could not work on and left
for later. `relevo status` names them.
"""


def timetable() -> list[tuple[str, ...]]:
    """Return of each cycle its name, when it runs by default, who may run it at once, and what it does."""
    settings, facts = config.load({}, None), cycles.facts()
    source = SimpleNamespace(name="", interval_ms=settings.worker_interval_minutes * 60_000)
    given = SimpleNamespace(settings=settings, services=None, sources=[(source, None)], store=None)
    made = {cycle.name: cycle for cycle in cycles.assemble(cast("Any", given))}
    return [(f"`{name}`", _when(made[name]), _who(said), said.does) for name, said in facts.items()]


def counts() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each cycle's name with what its runs count."""
    for name, said in cycles.facts().items():
        yield name, [(f"`{counted}`", meaning) for counted, meaning in said.counts.items()]


def _when(cycle: Cycle) -> str:
    if isinstance(cycle.timing, Cron):
        return f"`{cycle.timing.expression}`, {cycle.timing.timezone}"
    minutes, seconds = divmod(cycle.timing.interval_ms // 1000, 60)
    every = f"every {minutes} min" if minutes else f"every {seconds} s"
    return f"when called, and {every}" if cycle.wakeable else every


def _who(said: CycleFacts) -> str:
    if said.by_source:
        return "one in the fleet for each source"
    return "one in the fleet" if said.singleton else "every replica"
