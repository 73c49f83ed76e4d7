"""A kill at every step of retiring, uploading, verifying and dropping ends, after a restart, in one whole month in the store.

The kill points are made from the named statements and the store's calls, so that a new one is covered by itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest

from relevo.archive import marker, restore
from relevo.core import queries
from support import soak
from support.old_months import (
    add_old_deliveries,
    add_old_event,
    add_old_items,
    add_old_requests,
    exports,
    month_ago,
    open_store,
)

KILLED = Path(__file__).parents[2] / "support" / "programs" / "killed_archive.py"
SIGKILL = 9
OLD = month_ago(5)
EVERYTHING = {
    "licitaciones": 30,
    "notification_deliveries": 50,
    "notification_events": 3,
    "push_requests": 5,
}

# Statements that the scenario does not execute, each with its reason.
NOT_COVERED = {
    "export.record_mismatch": "only a store that holds something else needs it (test_faults)",
    "export.record_trouble": "only a store in trouble needs it (test_faults)",
}
# What only looks leaves the world as it was: a death before it is one before the next that writes.
READING = ("find_", "list_", "count_", "look_", "keeps_", "wait_", "fetch", "listing")


class DyingProcesses:
    """The program whose processes are killed: one line asks, one line answers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.died = False

    def run(self, cycle: str, kill: dict[str, Any] | None = None) -> dict[str, int]:
        """Run a cycle once in a process of its own; return how often it made which call."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"cycle": cycle, "kill": kill}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.died = answer["signal"] == SIGKILL
        assert answer["signal"] in (SIGKILL if kill else 0, 0), (kill, answer)
        assert self.died or "counts" in answer, "the run failed; its process said why"
        counts: dict[str, int] = answer.get("counts", {})
        return counts

    def dies(self, cycle: str, kill: dict[str, Any]) -> bool:
        """Run a cycle that is to be killed at a point; tell whether it came there."""
        self.run(cycle, kill)
        return self.died


@pytest.fixture
def dying_processes(dsn: str, tmp_path: Path) -> Iterator[DyingProcesses]:
    """A program that runs the cycles on the test's database and a folder, and survives its own processes."""
    (tmp_path / "cold").mkdir()
    command = [sys.executable, str(KILLED), dsn, str(tmp_path / "cold")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield DyingProcesses(process)
        finally:
            process.kill()


def fill(conn: psycopg.Connection[Any], folder: Path, months: int) -> None:
    """Make one old month of everything, the same number of months ago for all, with something still open; a new archive."""
    month = month_ago(months)
    add_old_deliveries(conn, month, 44)
    add_old_deliveries(conn, month, 6, status="sent", event=2)
    add_old_requests(conn, month, 5)
    for key in ("a", "b", "c"):
        add_old_event(conn, month, f"{months} {key}")
    add_old_items(conn, month, 30)
    conn.execute("update relevo.cycle_leases set leased_until = now()")
    conn.execute("delete from relevo.archive_stores")
    (folder / "relevo" / marker.KEY).unlink(missing_ok=True)


def check(conn: psycopg.Connection[Any], folder: Path, months: int, point: object) -> None:
    """Everything of the month is in the store, once, whole, listed, and nowhere else."""
    month = month_ago(months)
    states = {entity: state for (entity, name), state in exports(conn).items() if name == f"{month:%Y-%m}"}
    assert states == dict.fromkeys(EVERYTHING, "dropped"), point
    store = open_store(archive_folder=folder)
    for entity, count in EVERYTHING.items():
        place = folder / "relevo" / entity / f"year={month:%Y}" / f"month={month:%m}"
        reported = restore.read_manifest(store, entity, month)
        assert {path.name for path in place.iterdir()} == {"_manifest.json", *(part.file for part in reported.parts)}, (
            point
        )
        restore.verify(store, reported)
        ids = [row for path in place.glob("part-*") for row in pq.read_table(path, columns=["id"])["id"].to_pylist()]
        assert (len(ids), len(set(ids))) == (count, count), point


def test_a_kill_at_every_step_ends_in_a_whole_month(dying_processes: DyingProcesses, conn, tmp_path) -> None:
    """Whatever moment a process dies at, the month gets to the store once and whole, and only then leaves the database."""
    cycles = ("cleanup", "archive-export", "later")
    conn.execute(
        "insert into relevo.event_types (event_type, inbox_days) values ('kept.long', 3650)"
    )  # so it is copied
    fill(conn, tmp_path / "cold", 20)
    executed = {cycle: dying_processes.run(cycle) for cycle in cycles}
    check(conn, tmp_path / "cold", 20, "no kill")
    made = {name for counts in executed.values() for name in counts}
    known = {f"{step}.{name}" for step in ("retire", "export", "marker") for name in queries.load(step)}
    assert known - made == NOT_COVERED.keys(), "extend the scenario, or say why not"
    points = {
        cycle: [
            {"name": name, "when": when, "nth": 1}
            for name in counts  # in the order they were first made: the next life gets to the next one
            if not name.startswith("cleanup.") and (soak.WHOLE or not name.split(".")[-1].startswith(READING))
            for when in soak.cases(
                ("before", "after") if name == [*counts][-1] else ("before",), whole=("before", "after")
            )
        ]
        for cycle, counts in executed.items()
    }
    assert sum(map(len, points.values())) > soak.cases(14, whole=40)  # after one step is before the next
    months = 21
    while any(points.values()):  # in each month as many deaths, one after the other, as it has steps left
        fill(conn, tmp_path / "cold", months)
        left = sum(map(len, points.values()))
        for cycle in cycles:
            for point in list(points[cycle]):
                if not dying_processes.dies(cycle, point):
                    break  # it came to the end of its work; what is left comes with the next month
                points[cycle].remove(point)
                conn.execute("update relevo.cycle_leases set leased_until = now()")  # it runs out
            dying_processes.run(cycle)
        check(conn, tmp_path / "cold", months, months)
        assert sum(map(len, points.values())) < left, f"never reached: {points}"
        months += 1
