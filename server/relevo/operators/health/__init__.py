"""What is wrong with the fleet, each in a sentence with a next step: pure functions of what operators read."""

from __future__ import annotations

from relevo.config import Settings
from relevo.operators.health.problem import Observed, Problem
from relevo.operators.health.sending import (
    of_failures,
    of_fanout,
    of_news,
    of_project,
    of_queue,
    of_runaway,
    of_trouble,
    of_words,
)
from relevo.operators.health.sources import of_month, of_source
from relevo.operators.health.workers import of_credentials, of_cycles, of_instance, of_no_worker, of_pauses, of_workers


def find_problems(seen: Observed, settings: Settings) -> list[Problem]:
    """Return everything that is wrong, what stops most first."""
    return [
        *of_instance(seen),
        *of_credentials(seen),
        *of_no_worker(seen),
        *of_workers(seen),
        *of_cycles(seen, settings),
        *of_pauses(seen),
        *(of_trouble(row) for row in seen.troubles),
        *of_queue(seen, settings),
        *(problem for source in seen.sources for problem in of_source(source)),
        *(problem for project in seen.projects for problem in of_failures(project, seen.now, settings)),
        *(problem for project in seen.projects for problem in of_project(project, seen.now)),
        *of_fanout(seen),
        *of_words(seen),
        *(of_runaway(row) for row in seen.held),
        *(problem for row in seen.news for problem in of_news(row, seen.now)),
        *(of_month(month) for month in seen.archive if month["last_error"] is not None),
    ]
