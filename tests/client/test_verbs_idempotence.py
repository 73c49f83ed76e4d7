"""The same type and key is the same event, however many say it at once; and one notification is enough."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

import relevo
from relevo import Event
from relevo.client.values import Enqueued
from support.processes import PATIENCE_S

THREADS = 8


def at_once(dsn: str, work: Any) -> list[Any]:
    """Let eight sessions do something in the same moment, each in a transaction of its own; return what each got."""
    start = threading.Barrier(THREADS)
    results: list[Any] = [None] * THREADS

    def one(n: int) -> None:
        try:
            with psycopg.connect(dsn) as app:
                start.wait(PATIENCE_S)
                results[n] = work(app, n)
        except BaseException as error:  # noqa: BLE001 told by whoever looks at the results
            results[n] = error

    threads = [threading.Thread(target=one, args=[n]) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    return results


class TestSameAgain:
    """Idempotent by type and key."""

    def test_the_same_content(self, conn) -> None:
        """Said again, it is not created and says the same."""
        first = relevo.enqueue(conn, Event("t", "1", "Hello", data={"a": 1, "b": None}, audience="everyone"))
        again = relevo.enqueue(conn, Event("t", "1", "Hello", data={"b": None, "a": 1}, audience="everyone"))
        assert (first.created, again) == (True, Enqueued(first.event_id, created=False, same_content=True))

    def test_other_content(self, conn) -> None:
        """The same key with other content, asked to keep what is there, says so, and the first one stands."""
        first = relevo.enqueue(conn, Event("t", "1", "Hello", audience="everyone"))
        again = relevo.enqueue(conn, Event("t", "1", "Goodbye", audience="everyone"), on_conflict="keep")
        assert again == Enqueued(first.event_id, created=False, same_content=False)
        assert conn.execute("select title from relevo.notification_events").fetchall() == [("Hello",)]

    def test_the_same_key_of_another_type(self, conn) -> None:
        """Keys are the type's own."""
        assert relevo.enqueue(conn, Event("a", "1", "t", audience="everyone")).created
        assert relevo.enqueue(conn, Event("b", "1", "t", audience="everyone")).created

    def test_after_its_deadline(self, conn) -> None:
        """A producer that repeats itself after the deadline hears that the event is known, not that it is too late."""
        event = Event("t", "1", "Hello", ttl_s=60, audience="everyone")
        first = relevo.enqueue(conn, event)
        conn.execute(
            "update relevo.notification_events"
            " set scheduled_at = now() - interval '2 hours', deadline_at = now() - interval '1 hour'"
        )
        assert relevo.enqueue(conn, event) == Enqueued(first.event_id, created=False)

    def test_after_it_has_ended(self, conn) -> None:
        """A cancelled event does not come back by being said again."""
        first = relevo.enqueue(conn, Event("t", "1", "Hello", audience="everyone"))
        relevo.cancel(conn, first.event_id)
        assert relevo.enqueue(conn, Event("t", "1", "Hello", audience="everyone")) == Enqueued(
            first.event_id, created=False
        )

    def test_twice_in_one_call(self, conn) -> None:
        """In a batch the answers are in order, doubles included."""
        made = relevo.enqueue_many(conn, [Event("t", key, "t", audience="everyone") for key in "abacb"])
        assert [each.created for each in made] == [True, True, False, True, False]
        assert made[2].event_id == made[0].event_id
        assert made[4].event_id == made[1].event_id


class TestRaces:
    """Several sessions at once."""

    @pytest.mark.parametrize("ending", ["commit", "rollback"])
    def test_one_of_eight_creates_it(self, dsn: str, conn, ending: str) -> None:
        """Exactly one creates the event and all get its id; if the first ones roll back, the next creates it."""

        def work(app: psycopg.Connection[Any], n: int) -> Enqueued:
            made = relevo.enqueue(app, Event("t", "1", "Hello", audience="everyone"))
            if ending == "rollback" and made.created and n % 2:
                app.rollback()
                return relevo.enqueue(app, Event("t", "1", "Hello", audience="everyone"))
            return made

        results = at_once(dsn, work)
        assert [type(each) for each in results] == [Enqueued] * THREADS, results
        row = conn.execute("select array_agg(id) from relevo.notification_events").fetchone()
        assert {each.event_id for each in results} == set(row[0])
        assert len(row[0]) == 1
        assert sum(each.created for each in results) == 1

    def test_eight_batches_in_any_order(self, dsn: str, conn) -> None:
        """Batches that overlap create each event once; the same order in all keeps them from waiting crosswise."""
        keys = [str(n) for n in range(100)]

        def work(app: psycopg.Connection[Any], n: int) -> list[Enqueued]:
            return relevo.enqueue_many(app, [Event("t", key, "t", audience="everyone") for key in keys[n * 5 :]])

        results = at_once(dsn, work)
        assert all(isinstance(each, list) for each in results), results
        assert sum(made.created for each in results for made in each) == 100
        assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (100,)

    def test_deleted_and_said_again_at_once(self, dsn: str) -> None:
        """Whoever deletes an event while others say it: each of those gets an id, and never nothing."""

        def work(app: psycopg.Connection[Any], n: int) -> list[Any]:
            app.autocommit = True
            got = []
            for _ in range(40):
                made = relevo.enqueue(app, Event("t", "1", "Hello", audience="everyone"))
                got.append(made.event_id)
                if n % 2:
                    relevo.delete(app, [made.event_id])
            return got

        results = at_once(dsn, work)
        assert all(isinstance(each, list) for each in results), results
        assert all(isinstance(event_id, int) for each in results for event_id in each)


class TestNotification:
    """Enqueue knocks only while the fleet sleeps, and once."""

    def heard(self, listener: psycopg.Connection[Any]) -> list[str]:
        """Return what was called out until now."""
        listener.execute("select 1")
        return [call.payload for call in listener.notifies(timeout=0.2)]

    def test_five_thousand_events_knock_once(self, dsn: str, conn) -> None:
        """While fan-out sleeps, a transaction with thousands of events sends one notification, at its commit."""
        conn.execute("insert into relevo.cycle_state (cycle, asleep) values ('fanout', true)")
        conn.execute("listen relevo_wake")
        with psycopg.connect(dsn) as app:
            made = relevo.enqueue_many(app, [Event("t", str(n), "t", audience="everyone") for n in range(5_000)])
            assert self.heard(conn) == []
        assert len({each.event_id for each in made}) == 5_000
        assert self.heard(conn) == ["fanout"]
        relevo.enqueue_many(conn, [Event("t", str(n), "t", audience="everyone") for n in range(10)])
        assert self.heard(conn) == [], "nothing new needs nobody"

    def test_nobody_is_knocked_at_who_is_awake(self, conn) -> None:
        """While fan-out works no notification is sent: in every commit it would serialise the app's commits."""
        conn.execute("listen relevo_wake")
        relevo.enqueue(conn, Event("t", "1", "t", audience="everyone"))
        conn.execute("insert into relevo.cycle_state (cycle, asleep) values ('fanout', false)")
        relevo.enqueue(conn, Event("t", "2", "t", audience="everyone"))
        assert self.heard(conn) == []

    @pytest.mark.parametrize("by_type", [False, True], ids=["its own lane", "its type's lane"])
    def test_what_is_urgent_knocks_at_a_busy_door_too(self, conn, by_type: bool) -> None:
        """An urgent event does not wait until fan-out has rested: it is called although nobody sleeps."""
        conn.execute("insert into relevo.cycle_state (cycle, asleep) values ('fanout', false)")
        conn.execute("insert into relevo.event_types (event_type, lane) values ('alarm', 'urgent'), ('digest', 'bulk')")
        conn.execute("listen relevo_wake")
        relevo.enqueue(conn, Event("digest", "1", "t", audience="everyone"))
        assert self.heard(conn) == []
        urgent = Event("alarm" if by_type else "t", "1", "t", audience="everyone", lane=None if by_type else "urgent")
        relevo.enqueue(conn, urgent)
        assert self.heard(conn) == ["fanout"]
        relevo.enqueue(conn, urgent)
        assert self.heard(conn) == [], "nothing new needs nobody"

    def test_what_is_rolled_back_knocks_at_no_door(self, dsn: str, conn) -> None:
        """A notification belongs to the caller's transaction too."""
        conn.execute("insert into relevo.cycle_state (cycle, asleep) values ('fanout', true)")
        conn.execute("listen relevo_wake")
        with psycopg.connect(dsn) as app:
            relevo.enqueue(app, Event("t", "1", "t", audience="everyone"))
            app.rollback()
        assert self.heard(conn) == []
        made = relevo.enqueue(conn, Event("t", "1", "t", audience="everyone"))
        assert self.heard(conn) == ["fanout"]
        relevo.cancel(conn, made.event_id)
        assert self.heard(conn) == ["fanout"], "an end is work for fan-out as well"
