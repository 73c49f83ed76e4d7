"""The counts and errors of a claim or of a whole run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from relevo.core.logs import normalise_error

_MOST_PROBLEMS = 20


@dataclass
class Report:
    """Counts, and problems in words."""

    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """Projects that a request failed for, as a whole, and the reason of the first one."""
    turned_away: dict[str, str] = field(default_factory=dict)
    """Projects that a request was too many for, and what the push service said first."""
    answered: set[str] = field(default_factory=set)
    """Projects of which a request was answered."""

    def add(self, *problems: str) -> None:
        """Add problems, each once and up to a limit."""
        for problem in problems:
            if problem not in self.problems and len(self.problems) < _MOST_PROBLEMS:
                self.problems.append(problem)

    def add_hung(self, *problems: str) -> None:
        """Add calls that hang and were given up."""
        self.counts["calls_given_up"] += len(problems)
        self.add(*problems)

    def add_failure(self, project: str, why: str) -> None:
        """Add a request of a project that failed as a whole."""
        self.failures.setdefault(project, why)

    def fail_turned_away(self) -> None:
        """Count it as a failure where a project's requests were too many, and none was answered."""
        for project, why in self.turned_away.items():
            if project not in self.answered:
                self.add_failure(project, why)

    def include(self, other: Report) -> None:
        """Add all that another says."""
        self.counts += other.counts
        self.add(*other.problems)
        self.failures = other.failures | self.failures
        self.turned_away = other.turned_away | self.turned_away
        self.answered |= other.answered

    def sentences(self) -> tuple[str, ...]:
        """Return problems and failures in words, up to a limit each."""
        failed = [f"project {project}: {why}" for project, why in self.failures.items()]
        return *self.problems, *failed[:_MOST_PROBLEMS]

    @contextmanager
    def in_passing(self, project: str) -> Iterator[None]:
        """Limit an error of a write about a project, beside its deliveries, to a sentence in the report."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 whatever it is, the deliveries come first
            self.add(f"project {project} was not told: {normalise_error(error, 200)}")
