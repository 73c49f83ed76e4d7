"""Problems of the fleet, each in a sentence with a next step: pure functions of what operators read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relevo.config import Settings
from relevo.operators.health import sending, sources, workers
from relevo.operators.health.problem import Observed, Problem
from relevo.runtime.cycle_facts import CycleFacts

Facts = Callable[[], Mapping[str, CycleFacts]]
"""Returns what is said of each cycle, by its name; asked only if a cycle is paused, for cycles need most of Relevo."""


def find_problems(seen: Observed, settings: Settings, facts: Facts = dict) -> list[Problem]:
    """Return everything that is wrong, what stops most first."""
    return [
        *workers.of_instance(seen),
        *workers.of_credentials(seen),
        *workers.of_no_worker(seen),
        *workers.of_workers(seen),
        *workers.of_unreachable(seen),
        *workers.of_clocks(seen),
        *workers.of_disks(seen),
        *workers.of_cycles(seen),
        *workers.of_pauses(seen, facts),
        *(sending.of_trouble(row) for row in seen.troubles),
        *sending.of_queue(seen, settings),
        *(problem for source in seen.sources for problem in sources.of_source(source)),
        *(problem for project in seen.projects for problem in sending.of_failures(project, seen.now, settings)),
        *(problem for project in seen.projects for problem in sending.of_project(project, seen.now)),
        *sending.of_fanout(seen),
        *sending.of_words(seen),
        *(sending.of_runaway(row) for row in seen.held),
        *(problem for row in seen.news for problem in sending.of_news(row, seen.now)),
        *(sources.of_month(month) for month in seen.archive if month["last_error"] is not None),
    ]
