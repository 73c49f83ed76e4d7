"""A kill at every step of ingest ends, after a restart, in one event per tender and one delivery per phone.

The kill points are made from the named statements, so that a new one is covered by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from support.killed_cycles import KilledProcesses, Phones, kill_points
from support.phones import fan_out, reached

# Statements that the scenario below does not execute, each with its reason.
NOT_COVERED: dict[str, str] = {
    "ingest.follow_events": "only where a withdrawn tender is open again: tests/cycles/ingest/test_passes.py",
    "ingest.read_quota": "only where there is no turn for a request",
}


@pytest.fixture
def killed_processes(dsn: str) -> Iterator[KilledProcesses]:
    """A program that runs cycles on the test's database and survives its own processes."""
    with KilledProcesses.start(dsn) as started:
        yield started


def test_ingest_survives_a_kill_at_every_statement(killed_processes: KilledProcesses, build, conn) -> None:
    """Whatever moment a process dies at, each tender gets one event, and each phone that asked one delivery."""
    phones = Phones(conn)
    executed = killed_processes.run("ingest", "never killed")
    points = {f"killed {n}": point for n, point in enumerate(kill_points(executed, "ingest", NOT_COVERED))}
    for source, point in points.items():
        killed_processes.run("ingest", source, kill=point)
        conn.execute("update relevo.cycle_leases set leased_until = now() where source = %s", [source])  # it runs out
        killed_processes.run("ingest", source)
    fan_out(build())
    expected = {
        "changing": ("fanned", [*phones.south, *phones.greedy]),
        "withdrawn": ("cancelled", []),
        "north": ("fanned", [*phones.north, *phones.greedy]),
        "south": ("fanned", [*phones.south, *phones.greedy]),
    }
    for source, point in {"never killed": None, **points}.items():
        assert reported(conn, source) == expected, point
        rejects = "select attempts, resolved_at is not null from relevo.ingest_rejects where source = %s"
        assert conn.execute(rejects, [source]).fetchall() == [(1, True)], point
        state = "select cursor, last_outcome from relevo.source_state where source = %s"
        assert conn.execute(state, [source]).fetchall() == [({"spoken": 2}, "unchanged")], point


def reported(conn: psycopg.Connection[Any], source: str) -> dict[str, tuple[str, list[UUID]]]:
    """Return the state of each tender's one event, and whom it reached."""
    events = "select data ->> 'codigo', state, id from relevo.notification_events where event_key like %s"
    rows = conn.execute(events, [f"{source}:%"]).fetchall()
    assert len(rows) == len({row[0] for row in rows}), f"{source}: a tender has two events"
    return {code: (state, reached(conn, event_id)) for code, state, event_id in rows}
