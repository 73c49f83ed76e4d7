"""Limits per project: the rate, and how many requests are in flight at once.

At most 10,000 projects are remembered; the oldest that rest are forgotten first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX_PROJECTS = 10_000


@dataclass(slots=True)
class _Project:
    level: float = math.inf  # full, whatever the rate
    at: float = 0.0
    in_flight: int = 0
    peak: int = 0


class Projects:
    """The projects that were sent to."""

    def __init__(self) -> None:
        self._projects: dict[str, _Project] = {}

    def enter(self, name: str) -> None:
        """Count a request as in flight."""
        project = self._find(name)
        project.in_flight += 1
        project.peak = max(project.peak, project.in_flight)

    def leave(self, name: str) -> None:
        """Count a request as answered."""
        if name in self._projects:
            self._projects[name].in_flight -= 1

    def take(self, name: str, count: int, rate_per_s: float, now: float) -> int:
        """Take from a project's bucket, which holds one second's worth; return 0, or the seconds to wait for it.

        A full bucket allows any request, so that a rate below the size of a request slows it down and no more.
        """
        if not rate_per_s:
            return 0
        project = self._find(name)
        project.level = min(rate_per_s, project.level + (now - project.at) * rate_per_s)
        project.at = now
        missing = min(count, rate_per_s) - project.level
        if missing > 0:
            return max(1, math.ceil(missing / rate_per_s))
        project.level -= count
        return 0

    def peaks(self) -> dict[str, int]:
        """Return the most requests that were in flight at once, per project."""
        return {name: project.peak for name, project in self._projects.items()}

    def reset_peaks(self) -> None:
        """Measure the peaks anew."""
        for project in self._projects.values():
            project.peak = project.in_flight

    def _find(self, name: str) -> _Project:
        project = self._projects.get(name)
        if project is None:
            if len(self._projects) >= MAX_PROJECTS:
                self._forget_one()
            project = self._projects[name] = _Project()
        return project

    def _forget_one(self) -> None:
        resting = next((name for name, project in self._projects.items() if not project.in_flight), None)
        if resting is not None:
            del self._projects[resting]
