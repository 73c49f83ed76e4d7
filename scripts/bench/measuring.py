"""The cost of a piece of work, and its row of the table."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import psycopg

from bench import processes


@dataclass(frozen=True)
class Cost:
    """How much was done, how long it took, and what it cost; a worker that was not measured is not a number."""

    count: int
    seconds: float
    worker_ms: float
    postgres_ms: float
    wal_bytes: float

    @property
    def per_s(self) -> float:
        """How many a second."""
        return self.count / self.seconds

    @property
    def cpu_ms(self) -> float:
        """CPU of worker and PostgreSQL per 1,000."""
        return (self.worker_ms + self.postgres_ms) / self.count * 1_000

    @property
    def figures(self) -> dict[str, float]:
        """The stored values."""
        return {
            "count": self.count,
            "seconds": self.seconds,
            "per_s": self.per_s,
            "worker_ms_per_1000": self.worker_ms / self.count * 1_000,
            "postgres_ms_per_1000": self.postgres_ms / self.count * 1_000,
            "cpu_ms_per_1000": self.cpu_ms,
            "wal_bytes_each": self.wal_bytes / self.count,
        }


@dataclass(frozen=True)
class Goal:
    """The bound of one of a row's figures."""

    figure: str
    limit: float
    unit: str = ""
    at_least: bool = False

    def is_met_by(self, value: float) -> bool:
        """Return whether a figure keeps its bound."""
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        gap = " " if self.unit.isalpha() or " " in self.unit else ""
        return f"{'≥' if self.at_least else '≤'} {self.limit:,g}{gap}{self.unit}"


@dataclass(frozen=True)
class Row:
    """One line of the table: its name, what it is, what was measured, and its goals."""

    name: str
    what: str
    said: str
    cost: Cost | None = None
    more: Mapping[str, float] = field(default_factory=dict)
    goals: Sequence[Goal] = ()

    @cached_property
    def figures(self) -> dict[str, float]:
        """All of its figures by name."""
        return (self.cost.figures if self.cost else {}) | dict(self.more)

    @property
    def missed(self) -> list[Goal]:
        """The goals that were not met."""
        return [goal for goal in self.goals if not goal.is_met_by(self.figures[goal.figure])]


def rate(name: str, what: str, cost: Cost, *goals: Goal, **more: float) -> Row:
    """Return a row that says how many a second."""
    return Row(name, what, f"{cost.per_s:,.0f}/s", cost, more, goals)


def latency(name: str, what: str, waits_ms: Sequence[float], *goals: Goal, cost: Cost | None = None) -> Row:
    """Return a row that says how long half of them waited at most, and all but a hundredth, and what that cost."""
    p50, p99 = percentile(waits_ms, 0.5), percentile(waits_ms, 0.99)
    return Row(name, what, f"p50 {p50:,.1f} ms, p99 {p99:,.1f} ms", cost, {"p50_ms": p50, "p99_ms": p99}, goals)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of all stay at or below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def middle(costs: Sequence[Cost]) -> Cost:
    """Return the one that half of the others were faster than."""
    return sorted(costs, key=lambda cost: cost.per_s)[len(costs) // 2]


class Meter:
    """Measures work against one PostgreSQL server; whoever serves HTTP meanwhile is not counted."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn
        self._server = processes.parent_of(conn.info.backend_pid)

    def measure(self, work: Callable[[], int], worker: int | None = None) -> Cost:
        """Do work that tells how much it did; its worker is this process, or one that is given."""
        finish = self.begin(worker)
        return finish(work())

    def begin(self, worker: int | None = None) -> Callable[[int], Cost]:
        """Begin to measure; what is returned takes how much was done, and tells the cost.

        Reading costs, too: what is read last at the beginning is read first at the end.
        """
        wal, server, ours = self._wal(), processes.server_ms(self._server), _worker_ms(worker)
        started = time.perf_counter()

        def finish(count: int) -> Cost:
            seconds = time.perf_counter() - started
            worker_ms = _worker_ms(worker) - ours
            postgres_ms = processes.server_ms(self._server) - server
            assert count > 0, "nothing was done"
            return Cost(count, seconds, worker_ms, postgres_ms, self._wal() - wal)

        return finish

    def _wal(self) -> float:
        row = self._conn.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        return float(row[0]) if row else math.nan


def _worker_ms(worker: int | None) -> float:
    return time.process_time() * 1_000 if worker is None else processes.spent_ms(worker)
