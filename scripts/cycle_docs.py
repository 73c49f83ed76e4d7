"""The page of the cycles: when each runs, what it does and what its runs count, from the cycles' own files."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from relevo import config
from relevo.cycles import cleanup, digest, dispatch, export, fanout, ingest, reaper, receipt
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


def cycles() -> list[Cycle]:
    """Return the cycles as a worker with the default settings has them."""
    settings = config.load({}, None)
    services = cast("Any", SimpleNamespace(settings=settings))
    source = SimpleNamespace(name="", interval_ms=settings.worker_interval_minutes * 60_000)
    return [
        reaper.cycle(settings),
        ingest.cycle(settings, cast("Any", source), cast("Any", None)),
        fanout.cycle(settings),
        digest.cycle(settings),
        dispatch.cycle(services),
        receipt.cycle(services),
        cleanup.cycle(settings),
        export.cycle(settings, cast("Any", object())),
    ]


def timetable() -> list[tuple[str, ...]]:
    """Return a row for each cycle: its name, when it runs, who may run it at once, what it does."""
    return [(f"`{cycle.name}`", _when(cycle), _who(cycle), cycle.does) for cycle in cycles()]


def counts() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each cycle's name with what its runs count."""
    for cycle in cycles():
        yield cycle.name, [(f"`{name}`", meaning) for name, meaning in cycle.counts.items()]


def _when(cycle: Cycle) -> str:
    if isinstance(cycle.timing, Cron):
        return f"`{cycle.timing.expression}`, {cycle.timing.timezone}"
    minutes, seconds = divmod(cycle.timing.interval_ms // 1000, 60)
    every = f"every {minutes} min" if minutes else f"every {seconds} s"
    return f"when called, and {every}" if cycle.wakeable else every


def _who(cycle: Cycle) -> str:
    if cycle.name == "ingest":
        return "one in the fleet for each source"
    return "one in the fleet" if cycle.singleton else "every replica"
