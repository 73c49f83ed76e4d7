"""Whose turn it is in fan-out: which event comes next, and which of several workers takes it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest

from relevo.client import verbs
from relevo.client.values import Event
from relevo.core import queries
from relevo.operators import events
from support.phones import add_phones, event_row, fan_out, fan_out_to_the_end, one_step, prefer, reached
from support.query_plans import BY_KEY, rows_read_by_table
from support.tenders import DROP_THE_MONTH, NEWS


class TestOrder:
    """What comes first, what waits, what comes too late."""

    def test_urgent_first_then_the_oldest(self, build, conn) -> None:
        """Urgent events overtake, and among equals the one that was due first goes first."""
        add_phones(conn, 1)
        now = datetime.now(UTC)
        events = [
            Event("notice", "late", "t", scheduled_at=now - timedelta(minutes=1), audience="everyone"),
            Event("notice", "early", "t", scheduled_at=now - timedelta(minutes=2), audience="everyone"),
            Event(
                "call", "urgent late", "t", lane="urgent", scheduled_at=now - timedelta(seconds=1), audience="everyone"
            ),
            Event(
                "call", "urgent early", "t", lane="urgent", scheduled_at=now - timedelta(seconds=2), audience="everyone"
            ),
            Event(
                "call",
                "urgent later on",
                "t",
                lane="urgent",
                scheduled_at=now + timedelta(hours=1),
                audience="everyone",
            ),
        ]
        keys = {made.event_id: event.key for made, event in zip(verbs.enqueue_many(conn, events), events, strict=True)}
        app = build()
        order = []
        for _ in range(4):
            one_step(app)
            newest = "select notification_event_id from relevo.notification_deliveries order by id desc limit 1"
            order.append(keys[conn.execute(newest).fetchone()[0]])
        assert order == ["urgent early", "urgent late", "early", "late"]
        assert not one_step(app).more

    def test_a_scheduled_event_waits_for_its_time(self, build, conn) -> None:
        """Before its time nothing is made and the run is idle; when it is due it goes out like any other."""
        add_phones(conn, 2)
        made = verbs.enqueue(
            conn, Event("notice", "1", "t", scheduled_at=datetime.now(UTC) + timedelta(hours=1), audience="everyone")
        )
        app = build()
        assert fan_out(app).outcome == "idle"
        assert event_row(conn, made.event_id)["state"] == "waiting"
        conn.execute("update relevo.notification_events set scheduled_at = now() - interval '1 second'")
        fan_out(app)
        assert len(reached(conn, made.event_id)) == 2

    def test_too_late_is_said_and_nothing_made(self, build, conn) -> None:
        """An event whose deadline passed before its fan-out ends with a reason and without a delivery."""
        add_phones(conn, 2)
        made = verbs.enqueue(conn, Event("notice", "1", "t", ttl_s=60, audience="everyone"))
        conn.execute(
            "update relevo.notification_events"
            " set scheduled_at = now() - interval '2 minutes', deadline_at = now() - interval '1 minute'"
        )
        app = build()
        assert fan_out(app).counts == {"events_expired": 1}
        row = event_row(conn, made.event_id)
        assert (row["state"], row["event_day"]) == ("cancelled", None)
        assert "deadline" in row["end_reason"]
        fan_out_to_the_end(app)
        assert reached(conn, made.event_id) == []
        assert event_row(conn, made.event_id)["swept_at"] is not None

    def test_too_late_in_the_midst_makes_no_more(self, build, conn) -> None:
        """A deadline that passes between two slices ends the fan-out: what was made stays, no more is, and it says so."""
        phones = add_phones(conn, 7)
        made = verbs.enqueue(conn, Event("notice", "1", "t", ttl_s=60, audience="everyone"))
        app = build(fanout_slice_size=3)
        one_step(app)
        conn.execute(
            "update relevo.notification_events"
            " set scheduled_at = now() - interval '2 minutes', deadline_at = now() - interval '1 minute'"
        )
        assert fan_out(app).counts == {"events_expired": 1}
        fan_out_to_the_end(app)
        assert reached(conn, made.event_id) == phones[:3]
        reported = verbs.get(conn, made.event_id)
        assert reported is not None
        assert (reported.state, reported.deliveries, reported.raw["deliveries_created"]) == (
            "fanned",
            {"pending": 3},
            3,
        )
        assert reported.raw["end_reason"] == "its deadline passed before its fan-out was finished"
        story = events.story(app.database, made.event_id)
        assert story is not None
        (finished,) = [moment.detail for moment in story.moments if moment.what == "fan-out finished"]
        assert finished == "3 phones, 3 deliveries: its deadline passed before its fan-out was finished"

    def test_finding_the_next_event_reads_one_of_many(self, conn) -> None:
        """With thousands of events waiting the next one is found by the index, not by sorting them all."""
        verbs.enqueue_many(conn, [Event("notice", str(n), "t", audience=[uuid4()]) for n in range(1_000)])
        asked = {
            "after_project": "", "given_up": [], "apart": [], "aside": [], "few": 100, "most_events": 1, "most": 10_000,
            "brake": True, "enough": 1, "at_once": False, "now": None,
            "since": None, "due_since": None,
        }  # fmt: skip
        with conn.transaction(force_rollback=True):
            conn.execute(BY_KEY)
            read = rows_read_by_table(conn, queries.load("fanout")["fan_out_next"], asked)
        assert read["notification_events"] <= 5, "one of each lane and project, and the first of a project"
        assert sum(read.values()) <= 7

    @pytest.mark.parametrize("due", [1, 150])
    def test_projects_with_something_scheduled_cost_a_due_event_nothing(self, build, conn, due: int) -> None:
        """Beside 500 projects that wait for tomorrow, in both directions of the round, few rows are read for what is due."""
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        later = [
            Event("notice", str(n), "t", audience="everyone", project=f"p{n:03}", scheduled_at=tomorrow)
            for n in range(500)
        ]
        now = [Event("notice", f"now {n}", "t", audience="everyone", project=f"p250 {n:03}") for n in range(due)]
        verbs.enqueue_many(conn, later + now)
        asked = {
            "after_project": "p249", "given_up": [], "apart": [], "aside": [], "few": 100, "most_events": 1, "most": 10_000,
            "brake": True, "enough": 1, "at_once": False, "now": None,
            "since": None, "due_since": None,
        }  # fmt: skip
        for after in ("", "p249", "p400"):
            with conn.transaction(force_rollback=True):
                conn.execute(BY_KEY)
                read = rows_read_by_table(
                    conn, queries.load("fanout")["fan_out_next"], asked | {"after_project": after}
                )
            assert read["notification_events"] <= (20 if due == 1 or after == "p249" else 1_500)
        app = build()
        fan_out_to_the_end(app)
        assert conn.execute("select count(*) from relevo.notification_events where state = 'fanned'").fetchone() == (
            due,
        )


class TestFleet:
    """Several workers at once."""

    def test_two_workers_share_many_events(self, build, conn) -> None:
        """Whoever takes what, each event reaches each of its phones once, and the counts add up."""
        phones = add_phones(conn, 25)
        prefer(conn, phones[:12], keywords=["aseo"])
        events = [
            Event(
                "tender",
                str(n),
                "t",
                audience=[NEWS, "everyone", phones[5:9]][n % 3],
                lane="urgent" if n % 5 == 0 else None,
            )
            for n in range(45)
        ]
        made = verbs.enqueue_many(conn, events)
        apps = [build(worker_id=name, fanout_slice_size=4) for name in ("a", "b")]
        reports = []
        threads = [threading.Thread(target=lambda app=app: reports.append(fan_out(app))) for app in apps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        expected = [phones[:12], phones, phones[5:9]]
        for n, each in enumerate(made):
            assert reached(conn, each.event_id) == expected[n % 3]
            status = verbs.get(conn, each.event_id)
            assert status is not None
            assert (status.state, status.deliveries) == ("fanned", {"pending": len(expected[n % 3])})
        total = 15 * (12 + 25 + 4)
        assert sum(report.counts.get("deliveries_created", 0) for report in reports) == total
        assert all(report.counts.get("deliveries_created") for report in reports), "both had a share"

    def test_an_event_in_hand_is_passed_by(self, build, conn, dsn) -> None:
        """While another replica is at an event, the next one is taken, and nobody waits."""
        add_phones(conn, 1)
        first, second = verbs.enqueue_many(conn, [Event("notice", str(n), "t", audience="everyone") for n in range(2)])
        with psycopg.connect(dsn) as other:
            other.execute("select from relevo.notification_events where id = %s for update", [first.event_id])
            fan_out(build())
            assert [len(reached(conn, each.event_id)) for each in (first, second)] == [0, 1]
        fan_out(build())
        assert [len(reached(conn, each.event_id)) for each in (first, second)] == [1, 1]

    def test_missing_partitions_are_made_by_two_at_once(self, build, conn) -> None:
        """Two workers that miss the same month both go on."""
        phones = add_phones(conn, 3)
        made = verbs.enqueue_many(conn, [Event("notice", str(n), "t", audience="everyone") for n in range(10)])
        conn.execute(DROP_THE_MONTH)
        apps = [build(worker_id=name) for name in ("a", "b")]
        threads = [threading.Thread(target=fan_out, args=[app]) for app in apps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert [reached(conn, each.event_id) for each in made] == [phones] * 10
