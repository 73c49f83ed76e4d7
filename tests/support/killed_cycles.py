"""Cycles that are killed at a named statement: the program that runs them, the moments, and the phones they are about."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psycopg

from relevo.core import queries
from support import soak
from support.phones import add_phones, prefer

KILLED = Path(__file__).parent / "programs" / "killed.py"
SIGKILL = 9


@dataclass
class KilledProcesses:
    """The program whose processes are killed: one line asks, one line answers."""

    process: subprocess.Popen[str]

    @classmethod
    @contextmanager
    def start(cls, dsn: str) -> Iterator[Self]:
        """Start the program on a database; it survives its own processes."""
        command = [sys.executable, str(KILLED), dsn]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield cls(process)
            finally:
                process.kill()

    def run(self, cycle: str, source: str = "", kill: dict[str, Any] | None = None) -> dict[str, int]:
        """Run a cycle once in a process of its own; return how often it executed which statement."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"cycle": cycle, "source": source, "kill": kill}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer["signal"] == (SIGKILL if kill else 0), (kill, answer)
        assert kill or "counts" in answer, "the run failed; its process said why"
        counts: dict[str, int] = answer.get("counts", {})
        return counts


def kill_points(executed: dict[str, int], step: str, not_covered: Mapping[str, str]) -> list[dict[str, Any]]:
    """Name the moments: before each statement is executed for the first time, and after the last.

    After a statement that is executed once comes the next one, before which there is a kill anyway: the whole matrix has
    both.
    """
    uncovered = {f"{step}.{name}" for name in queries.load(step)} - executed.keys()
    assert uncovered == {name for name in not_covered if name.startswith(f"{step}.")}, (
        "extend the scenario, or say why not"
    )
    *_, last = executed
    return [
        {"name": name, "when": when, "nth": nth}
        for name, count in executed.items()
        if name.startswith(f"{step}.")
        for when, nth in (("before", 1), ("after", count))
        if soak.WHOLE or when == "before" or count > 1 or name == last
    ]


class Phones:
    """Six phones: two in the north, two in the south, one that wants all, one that wants nothing."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.all = add_phones(conn, 6)
        self.north, self.south, self.greedy = self.all[:2], self.all[2:4], self.all[4:5]
        prefer(conn, self.north, region="Ñuble")
        prefer(conn, self.south, region="Maule")
        prefer(conn, self.greedy)
        prefer(conn, self.all[5:], enabled=False)
