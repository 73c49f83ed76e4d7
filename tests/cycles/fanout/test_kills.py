"""A kill at every step of fan-out ends, after a restart, in one delivery per phone.

The kill points are made from the named statements, so that a new one is covered by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from relevo.app import App
from relevo.client import verbs
from relevo.client.values import Event, TenderMatching
from support.killed_cycles import KilledProcesses, Phones, kill_points
from support.phones import fan_out, reached

# Statements that the scenario below does not execute, each with its reason.
NOT_COVERED: dict[str, str] = {
    "fanout.note_failed_fanout": "written after all was undone; without it the event is tried again at once",
    "fanout.sweep_later": "likewise",
    "fanout.find_first_turn": "which writes nothing, and is asked after slow looks alone",
    "fanout.find_first_ended": "likewise",
    "fanout.list_due_batches": "which are closed one by one where they could not be closed together",
    "fanout.put_off_batch": "likewise",
    "fanout.list_held_late": "which are ended one by one where they could not be ended together",
    "runaway.fold_repeats": "the reaper's",
    "runaway.hold_repeats": "the reaper's",
    "runaway.prune_repeats": "cleanup's",
    "runaway.prune_counts": "cleanup's",
    "runaway.prune_streams": "cleanup's",
}


@pytest.fixture
def killed_processes(dsn: str) -> Iterator[KilledProcesses]:
    """A program that runs cycles on the test's database and survives its own processes."""
    with KilledProcesses.start(dsn) as started:
        yield started


class Scene:
    """Events of every kind, at the moment before a run of fan-out, and what they must come to."""

    def __init__(self, conn: psycopg.Connection[Any], app: App, phones: Phones, name: str) -> None:
        self.conn, self.name, self.phones = conn, name, phones
        self.ended = self._event("ended", "everyone")
        self.gathering = f"gathered in {name}"
        conn.execute("insert into relevo.event_types (event_type, batch_window_s) values (%s, 60)", [self.gathering])
        self.gathered = [self._event(f"gathered {n}", phones.all[:1], kind=self.gathering) for n in range(2)]
        fan_out(app)
        conn.execute("update relevo.batches set closes_at = now() where closed_at is null")
        verbs.cancel(conn, self.ended)
        self.late = self._event("late", "everyone")
        conn.execute(
            "update relevo.notification_events set deadline_at = now() - interval '1 minute',"
            " scheduled_at = now() - interval '1 hour' where id = %s",
            [self.late],
        )
        self.held = self._event("held", "everyone")  # by the brake, until its deadline passed
        conn.execute(
            "update relevo.notification_events set state = 'held', deadline_at = now() - interval '1 minute',"
            " scheduled_at = now() - interval '1 hour' where id = %s",
            [self.held],
        )
        self.begun = self._event("begun", "everyone")  # one delivery is there already
        conn.execute(
            "insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type)"
            " values ((now() at time zone 'UTC')::date, %s, %s, 'kill')",
            [self.begun, phones.all[3]],
        )
        self.big = self._event("big", phones.all)  # as if ten thousand had been made before
        conn.execute("update relevo.notification_events set deliveries_created = 10000 where id = %s", [self.big])
        self.matching = self._event("matching", TenderMatching(region="Región del Ñuble"))
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
        mine = f"mine in {name}"
        self.there = self._event("mine there", phones.all[4:5], kind=mine)  # its delivery is there already
        conn.execute(
            "insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type)"
            " values ((now() at time zone 'UTC')::date, %s, %s, %s)",
            [self.there, phones.all[4], mine],
        )
        self.overdue = self._event("mine late", phones.all[:1], kind=mine)
        conn.execute(
            "update relevo.notification_events set deadline_at = now() - interval '1 minute',"
            " scheduled_at = now() - interval '1 hour' where id = %s",
            [self.overdue],
        )
        self.personal = [self._event(f"mine {n}", [phone], kind=mine) for n, phone in enumerate(phones.all[:3])]
        self.flood = self._event("mine again", phones.all[:1], kind=f"loop in {name}")  # its phone had enough of it
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
        self.calmer = self._event("calmer", "everyone", kind=f"calmer in {name}")  # what was stopped comes less often
        conn.execute(
            "insert into relevo.event_streams (event_type, origin, known_since, held_at, held_reason, held_above)"
            " values (%s, 'app', now(), now(), 'too often', 1000)",
            [f"calmer in {name}"],
        )

    def _event(self, key: str, audience: Any, kind: str = "kill") -> int:
        return verbs.enqueue(self.conn, Event(kind, f"{self.name} {key}", "t", audience=audience)).event_id

    def check(self, point: object) -> None:
        """Look at every event: whom it reached, what it tells, and that nothing of an ended one is left open."""
        asked = [*self.phones.north, *self.phones.greedy]
        everyone = self.phones.all
        expected = {
            self.ended: ("cancelled", everyone, {"cancelled": 6}),
            self.late: ("cancelled", [], {}),
            self.held: ("cancelled", [], {}),
            self.begun: ("fanned", everyone, {"pending": 5}),
            self.big: ("fanned", everyone, {"pending": 6}),
            self.matching: ("fanned", asked, {"pending": 3}),
            self.sealed: ("cancelled", [], {}),
            self.stopped: ("fanned", [], {}),
            **{
                event: ("fanned", [phone], {"pending": 1})
                for event, phone in zip(self.personal, everyone, strict=False)
            },
            self.there: ("fanned", everyone[4:5], {}),
            self.overdue: ("cancelled", [], {}),
            self.flood: ("held", [], {}),
            self.new: ("fanned", everyone, {"pending": 6}),
            self.runaway: ("held", [], {}),
            self.calmer: ("fanned", everyone, {"pending": 6}),
        }
        for event_id, right in expected.items():
            status = verbs.get(self.conn, event_id)
            assert status is not None
            assert (status.state, reached(self.conn, event_id), status.deliveries) == right, point
        batches = """
        select b.events, e.state, array(select d.status from relevo.notification_deliveries d where d.notification_event_id = e.id)
          from relevo.batches b left join relevo.notification_events e on e.batch_id = b.id where b.event_type = %s
        """
        told = self.conn.execute(batches, [self.gathering]).fetchall()
        assert told == [(self.gathered, "fanned", ["pending"])], point
        open_ones = "select count(*) from relevo.deliveries where notification_event_id = %s and status <> 'cancelled'"
        assert self.conn.execute(open_ones, [self.ended]).fetchone() == (0,), point


def test_fan_out_survives_a_kill_at_every_statement(killed_processes: KilledProcesses, build, conn) -> None:
    """Whatever moment a process dies at, each event reaches each of its phones once, and an ended one sends nothing."""
    phones = Phones(conn)
    app = build()
    whole = Scene(conn, app, phones, "never killed")
    executed = killed_processes.run("fanout")
    whole.check("no kill")
    once = dict.fromkeys(executed, 1)  # how often the brake asks depends on what it knows from the scenes before
    executed["fanout.close_batches"] = 1  # how often it looks depends on the time that passes
    points = [*kill_points(executed, "fanout", NOT_COVERED), *kill_points(once, "runaway", NOT_COVERED)]
    for n, point in enumerate(points):
        scene = Scene(conn, app, phones, f"killed {n}")
        killed_processes.run("fanout", kill=point)
        killed_processes.run("fanout")
        scene.check(point)
