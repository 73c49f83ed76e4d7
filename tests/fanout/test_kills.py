"""A kill at every step of ingest and fan-out ends, after a restart, in one event per tender and one delivery per phone.

The kill points are made from the named statements, so that a new one is covered by itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from phones import add_phones, fan_out, prefer, reached
from relevo import door, queries
from relevo.app import App
from relevo.door import Event, Matching

KILLED = Path(__file__).parents[1] / "programs" / "killed.py"
SIGKILL = 9

# Statements that the scenarios below do not execute, each with its reason.
NOT_COVERED: dict[str, str] = {
    "ingest.follow_events": "only where a withdrawn tender is open again: tests/ingest/test_passes.py",
    "ingest.read_quota": "only where there is no turn for a request",
    "runaway.fold_repeats": "the reaper's",
    "runaway.hold_repeats": "the reaper's",
    "runaway.prune_repeats": "cleanup's",
    "runaway.prune_counts": "cleanup's",
    "runaway.prune_streams": "cleanup's",
}


@dataclass
class Mortals:
    """The program whose processes are killed: one line asks, one line answers."""

    process: subprocess.Popen[str]

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


@pytest.fixture
def mortals(dsn: str) -> Iterator[Mortals]:
    """A program that runs cycles on the test's database and survives its own processes."""
    command = [sys.executable, str(KILLED), dsn]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Mortals(process)
        finally:
            process.kill()


def kill_points(executed: dict[str, int], step: str) -> list[dict[str, Any]]:
    """Name the moments: before each statement is executed for the first time, and after the last."""
    uncovered = {f"{step}.{name}" for name in queries.load(step)} - executed.keys()
    assert uncovered == {name for name in NOT_COVERED if name.startswith(f"{step}.")}, (
        "extend the scenario, or say why not"
    )
    return [
        {"name": name, "when": when, "nth": nth}
        for name, count in executed.items()
        if name.startswith(f"{step}.")
        for when, nth in (("before", 1), ("after", count))
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


def test_ingest_survives_a_kill_at_every_statement(mortals: Mortals, build, conn) -> None:
    """Whatever moment a process dies at, each tender gets one event, and each phone that asked one delivery."""
    phones = Phones(conn)
    executed = mortals.run("ingest", "never killed")
    points = {f"killed {n}": point for n, point in enumerate(kill_points(executed, "ingest"))}
    for source, point in points.items():
        mortals.run("ingest", source, kill=point)
        conn.execute("update relevo.cycle_leases set leased_until = now() where source = %s", [source])  # it runs out
        mortals.run("ingest", source)
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


class Scene:
    """Events of every kind, at the moment before a run of fan-out, and what they must come to."""

    def __init__(self, conn: psycopg.Connection[Any], app: App, phones: Phones, name: str) -> None:
        self.conn, self.name, self.phones = conn, name, phones
        self.ended = self._event("ended", "everyone")
        fan_out(app)
        door.cancel(conn, self.ended)
        self.late = self._event("late", "everyone")
        conn.execute(
            "update relevo.notification_events set deadline_at = now() - interval '1 minute',"
            " scheduled_at = now() - interval '1 hour' where id = %s",
            [self.late],
        )
        self.begun = self._event("begun", "everyone")  # one delivery is there already
        conn.execute(
            "insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type)"
            " values ((now() at time zone 'UTC')::date, %s, %s, 'kill')",
            [self.begun, phones.all[3]],
        )
        self.big = self._event("big", phones.all)  # as if ten thousand had been made before
        conn.execute("update relevo.notification_events set deliveries_created = 10000 where id = %s", [self.big])
        self.matching = self._event("matching", Matching(region="Región del Ñuble"))
        self.sealed = self._event("sealed", "everyone")  # half way, when its month went to the archive
        conn.execute(
            "insert into relevo.archive_exports (entity, month, state, relation, part_rows, sealed_at)"
            " values ('notification_deliveries', '2001-02-01', 'sealed', 'gone', 1, now()) on conflict do nothing"
        )
        conn.execute(
            "update relevo.notification_events set state = 'fanning', event_day = '2001-02-03', fanout_upto = 9,"
            " fanout_started_at = now() where id = %s",
            [self.sealed],
        )

        self.stopped = self._event("stopped", "everyone")  # half way, when its deadline passed
        conn.execute(
            "update relevo.notification_events set state = 'fanning', event_day = (now() at time zone 'UTC')::date,"
            " fanout_upto = 9, fanout_started_at = now(), deadline_at = now() - interval '1 minute',"
            " scheduled_at = now() - interval '1 hour' where id = %s",
            [self.stopped],
        )
        self.new = self._event("new", "everyone", kind=f"new in {name}")
        self.runaway = self._event("runaway", "everyone", kind=f"loop in {name}")  # its phones had enough of it
        conn.execute(
            "with stream as (insert into relevo.event_streams (event_type, origin, known_since)"
            " values (%s, 'app', now()) returning id)"
            " insert into relevo.event_counts (stream_id, installation_id, hour_at, day, in_hour, hour_before,"
            " passed_today, busiest_day, releases)"
            " select s.id, i.installation_id, date_bin('1 hour', now(), 'epoch'), current_date, 99999, 0, 0, 0, 0"
            " from stream s, relevo.device_installations i",
            [f"loop in {name}"],
        )

    def _event(self, key: str, audience: Any, kind: str = "kill") -> int:
        return door.enqueue(self.conn, Event(kind, f"{self.name} {key}", "t", audience=audience)).event_id

    def check(self, point: object) -> None:
        """Look at every event: whom it reached, what it tells, and that nothing of an ended one is left open."""
        asked = [*self.phones.north, *self.phones.greedy]
        everyone = self.phones.all
        expected = {
            self.ended: ("cancelled", everyone, {"cancelled": 6}),
            self.late: ("cancelled", [], {}),
            self.begun: ("fanned", everyone, {"pending": 5}),
            self.big: ("fanned", everyone, {"pending": 6}),
            self.matching: ("fanned", asked, {"pending": 3}),
            self.sealed: ("cancelled", [], {}),
            self.stopped: ("fanned", [], {}),
            self.new: ("fanned", everyone, {"pending": 6}),
            self.runaway: ("held", [], {}),
        }
        for event_id, right in expected.items():
            status = door.get(self.conn, event_id)
            assert status is not None
            assert (status.state, reached(self.conn, event_id), status.deliveries) == right, point
        open_ones = "select count(*) from relevo.deliveries where notification_event_id = %s and status <> 'cancelled'"
        assert self.conn.execute(open_ones, [self.ended]).fetchone() == (0,), point


def test_fan_out_survives_a_kill_at_every_statement(mortals: Mortals, build, conn) -> None:
    """Whatever moment a process dies at, each event reaches each of its phones once, and an ended one sends nothing."""
    phones = Phones(conn)
    app = build()
    whole = Scene(conn, app, phones, "never killed")
    executed = mortals.run("fanout")
    whole.check("no kill")
    once = dict.fromkeys(executed, 1)  # how often the brake asks depends on what it knows from the scenes before
    points = [*kill_points(executed, "fanout"), *kill_points(once, "runaway")]
    for n, point in enumerate(points):
        scene = Scene(conn, app, phones, f"killed {n}")
        mortals.run("fanout", kill=point)
        mortals.run("fanout")
        scene.check(point)
