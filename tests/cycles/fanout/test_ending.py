"""The saga's compensation: a cancelled, completed or deleted event sends nothing more, and nobody is overrun."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from relevo.client import verbs
from relevo.client.values import Event
from relevo.core import queries
from relevo.core.model import Answer, PushRequest
from support.deliveries import states
from support.phones import add_phones, event_row, fan_out, fan_out_to_the_end, one_step, reached
from support.processes import PATIENCE_S, eventually


def waiting(conn: psycopg.Connection[Any]) -> int:
    """Count the sessions of this database that wait for a lock."""
    row = conn.execute(
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    ).fetchone()
    assert row is not None
    return int(row[0])


def join(*threads: threading.Thread) -> None:
    """Wait for threads that must come to their end."""
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"{thread.name} did not come to its end"


class TestCancel:
    """Cancel touches the event's row only; workers end its deliveries in batches."""

    def test_before_its_fan_out(self, build, conn) -> None:
        """An event cancelled while it waits makes no delivery."""
        add_phones(conn, 3)
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        assert verbs.cancel(conn, made.event_id, "a mistake")
        fan_out_to_the_end(build())
        assert reached(conn, made.event_id) == []
        row = event_row(conn, made.event_id)
        assert (row["state"], row["end_reason"], row["swept_at"] is not None) == ("cancelled", "a mistake", True)

    def test_between_slices(self, build, conn) -> None:
        """No further slice is made, and what was made ends cancelled, batch by batch, with the counts following."""
        add_phones(conn, 20)
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        app = build(fanout_slice_size=4)
        for _ in range(3):
            one_step(app)
        assert verbs.cancel(conn, made.event_id)
        assert states(conn) == {"pending": 12}
        left = []
        while one_step(app).more:
            left.append(states(conn).get("pending", 0))
        assert left == [8, 4, 0, 0]
        status = verbs.get(conn, made.event_id)
        assert status is not None
        assert (status.state, status.deliveries, status.left_to_send) == ("cancelled", {"cancelled": 12}, False)
        assert len(reached(conn, made.event_id)) == 12

    def test_during_a_slice_it_takes_turns(self, build, conn, dsn) -> None:
        """A cancel waits for the slice in hand, that slice stands, and there is no further one."""
        add_phones(conn, 9)
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        conn.execute(
            """
            create function hold() returns trigger language plpgsql
            as $$ begin perform pg_advisory_xact_lock(42); return null; end $$;
            create trigger hold after insert on relevo.notification_deliveries
              for each statement execute function hold()
            """
        )
        app = build(fanout_slice_size=3)
        cancelled: list[bool] = []

        def cancel() -> None:
            with psycopg.connect(dsn) as other:
                cancelled.append(verbs.cancel(other, made.event_id))

        conn.execute("select pg_advisory_lock(42)")
        slicing = threading.Thread(target=one_step, args=[app])
        cancelling = threading.Thread(target=cancel)
        slicing.start()
        eventually(lambda: waiting(conn) == 1, "the slice is held up")
        cancelling.start()
        eventually(lambda: waiting(conn) == 2, "the cancel waits for it")
        assert event_row(conn, made.event_id)["state"] == "waiting"
        conn.execute("select pg_advisory_unlock(42)")
        join(slicing, cancelling)
        assert cancelled == [True]
        assert states(conn) == {"pending": 3}
        fan_out_to_the_end(app)
        assert states(conn) == {"cancelled": 3}

    def test_a_cancel_under_way_is_passed_by(self, build, conn, dsn) -> None:
        """While a cancel is not committed its event is not sliced; rolled back, it goes on as if nothing had been."""
        phones = add_phones(conn, 3)
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        app = build()
        with psycopg.connect(dsn) as other:
            assert verbs.cancel(other, made.event_id)
            assert fan_out(app).outcome == "idle"
            other.rollback()
        fan_out(app)
        assert reached(conn, made.event_id) == phones

    def test_what_is_claimed_is_its_holders(self, build, conn) -> None:
        """Claimed deliveries are not touched; handed back, they are swept in a later round."""
        add_phones(conn, 5)
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        app = build()
        fan_out(app)
        claim = app.claims.claim("dispatch", "default", "bulk", limit=2)
        assert claim is not None
        verbs.cancel(conn, made.event_id)
        assert fan_out(app).counts == {"deliveries_cancelled": 3}
        assert states(conn) == {"pending": 2, "cancelled": 3}
        assert event_row(conn, made.event_id)["swept_at"] is None
        app.claims.release(claim)
        assert fan_out(app).counts == {"deliveries_cancelled": 2, "events_ended": 1}
        assert states(conn) == {"cancelled": 5}
        assert event_row(conn, made.event_id)["swept_at"] is not None
        assert fan_out(app).outcome == "idle"

    def test_what_its_holder_sent_stays_sent(self, build, conn) -> None:
        """A push that was on its way keeps its ticket, and the event's counts tell both."""
        add_phones(conn, 3)
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        app = build()
        fan_out(app)
        claim = app.claims.claim("dispatch", "default", "bulk", limit=1)
        assert claim is not None
        request = PushRequest(uuid4(), claim.deliveries)
        app.claims.journal(claim, [request])
        verbs.cancel(conn, made.event_id)
        fan_out(app)
        answers = [Answer(d.event_day, d.id, "sent", ticket_id="ticket") for d in claim.deliveries]
        app.claims.settle(claim, answers, [request.id])
        app.claims.release(claim)
        fan_out_to_the_end(app)
        status = verbs.get(conn, made.event_id)
        assert status is not None
        assert status.deliveries == {"sent": 1, "cancelled": 2}
        assert not status.left_to_send
        assert status.left_to_confirm

    def test_waiting_for_a_holder_is_no_run(self, build, conn) -> None:
        """A round that finds nothing but claimed deliveries left is idle and writes no row."""
        add_phones(conn, 1)
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        app = build()
        fan_out(app)
        assert app.claims.claim("dispatch", "default", "bulk") is not None
        verbs.cancel(conn, made.event_id)
        before = conn.execute("select count(*) from relevo.worker_runs").fetchone()
        assert app.runner.run(app.registry["fanout"], "schedule").outcome == "idle"
        assert conn.execute("select count(*) from relevo.worker_runs").fetchone() == before

    def test_one_holder_does_not_keep_the_others_waiting(self, build, conn) -> None:
        """One round ends everything that nobody holds, however many events in front of it are held."""
        add_phones(conn, 2)
        app = build()
        held = [verbs.enqueue(conn, Event("notice", f"held {n}", "t", audience="everyone")).event_id for n in range(3)]
        fan_out(app)
        claim = app.claims.claim("dispatch", "default", "bulk")
        free = [verbs.enqueue(conn, Event("notice", f"free {n}", "t", audience="everyone")).event_id for n in range(3)]
        fan_out(app)
        assert claim is not None
        for event_id in [*held, *free]:
            verbs.cancel(conn, event_id)
        assert fan_out(app).counts == {"deliveries_cancelled": 6, "events_ended": 3}
        assert [event_row(conn, each)["swept_at"] is not None for each in [*held, *free]] == [False] * 3 + [True] * 3

    def test_only_once_and_only_what_is_there(self, conn) -> None:
        """The second end says False and changes nothing; so does the end of an event that never was."""
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        assert verbs.cancel(conn, made.event_id, "first")
        assert not verbs.cancel(conn, made.event_id, "second")
        assert not verbs.complete(conn, made.event_id, "third")
        assert not verbs.cancel(conn, made.event_id + 1)
        row = event_row(conn, made.event_id)
        assert (row["state"], row["end_reason"]) == ("cancelled", "first")

    def test_the_fleet_sweeps_together(self, build, conn) -> None:
        """Two workers end the deliveries of many events without a double count or a deadlock."""
        add_phones(conn, 10)
        made = verbs.enqueue_many(conn, [Event("notice", str(n), "t", audience="everyone") for n in range(20)])
        apps = [build(worker_id=name, fanout_slice_size=3) for name in ("a", "b")]
        fan_out_to_the_end(apps[0])
        for each in made:
            verbs.cancel(conn, each.event_id)
        threads = [threading.Thread(target=fan_out_to_the_end, args=[app]) for app in apps]
        for thread in threads:
            thread.start()
        join(*threads)
        fan_out_to_the_end(apps[0])
        assert states(conn) == {"cancelled": 200}
        for each in made:
            status = verbs.get(conn, each.event_id)
            assert status is not None
            assert status.deliveries == {"cancelled": 10}


class TestComplete:
    """Handled elsewhere: what is left ends unsent."""

    def test_an_event(self, build, conn) -> None:
        """A completed event ends like a cancelled one, under its own name."""
        add_phones(conn, 3)
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        app = build()
        fan_out(app)
        assert verbs.complete(conn, made.event_id, "read in the app")
        fan_out_to_the_end(app)
        assert states(conn) == {"cancelled": 3}
        row = event_row(conn, made.event_id)
        assert (row["state"], row["end_reason"]) == ("completed", "read in the app")

    def test_an_installation(self, build, conn) -> None:
        """All that was made for one installation until now may not be sent any more; others and later ones may."""
        phones = add_phones(conn, 2)
        verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        app = build()
        fan_out(app)
        assert verbs.complete(conn, phones[0], "read in the app")
        assert not verbs.complete(conn, uuid4())
        verbs.enqueue(conn, Event("notice", "2", "t", audience="everyone"))
        fan_out(app)
        claim = app.claims.claim("dispatch", "default", "bulk")
        assert claim is not None
        verdicts = app.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)])
        keys = {d.id: (phones.index(d.installation_id), d.notification_event_id) for d in claim.deliveries}
        first = min(d.notification_event_id for d in claim.deliveries)
        judged = {keys[v.id]: v.verdict for v in verdicts}
        assert judged == {
            (0, first): "handled_elsewhere",
            (1, first): "send",
            (0, first + 1): "send",
            (1, first + 1): "send",
        }


class TestDelete:
    """Events go with their deliveries."""

    def test_nothing_of_it_is_left(self, build, conn) -> None:
        """Event, deliveries, audience and counts are gone, the others stand, and the number of events is told."""
        phones = add_phones(conn, 3)
        gone, kept = verbs.enqueue_many(conn, [Event("notice", str(n), "t", audience=phones) for n in range(2)])
        app = build(fanout_slice_size=2)
        fan_out_to_the_end(app)
        assert verbs.delete(conn, [gone.event_id, gone.event_id + 99]) == 1
        assert verbs.get(conn, gone.event_id) is None
        assert reached(conn, gone.event_id) == []
        assert reached(conn, kept.event_id) == phones
        for table in ("event_audience", "event_progress", "event_progress_deltas"):
            rows = conn.execute(f"select count(*) from relevo.{table} where event_id = %s", [gone.event_id]).fetchone()
            assert rows == (0,), table
        assert verbs.delete(conn, [gone.event_id]) == 0

    def test_between_slices(self, build, conn) -> None:
        """A deleted event is not sliced on."""
        add_phones(conn, 6)
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        app = build(fanout_slice_size=2)
        one_step(app)
        assert verbs.delete(conn, [made.event_id]) == 1
        assert fan_out(app).outcome == "idle"
        assert states(conn) == {}

    def test_in_flight_work_finds_nothing(self, build, conn) -> None:
        """A claim on deleted deliveries may send nothing, settles nothing, and ends without a trace."""
        add_phones(conn, 3)
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        app = build()
        fan_out(app)
        claim = app.claims.claim("dispatch", "default", "bulk")
        assert claim is not None
        verbs.delete(conn, [made.event_id])
        verdicts = app.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)])
        assert [verdict.verdict for verdict in verdicts] == ["event_gone"] * 3
        answers = [Answer(d.event_day, d.id, "failed", error_code="x") for d in claim.deliveries]
        assert app.claims.settle(claim, answers).written == {}
        assert app.claims.release(claim).total() == 0
        assert conn.execute("select count(*) from relevo.claims").fetchone() == (0,)
        assert conn.execute("select count(*) from relevo.event_progress_deltas").fetchone() == (0,)

    def test_it_locks_in_the_order_of_every_writer(self, build, conn, dsn) -> None:
        """A delete that waits for a delivery holds none behind it, so that a settle under way can go on."""
        for number in range(9, 0, -1):  # the first delivery has the last installation's id
            conn.execute(
                "insert into relevo.device_installations (installation_id, token) values (%s, %s)",
                [UUID(int=number), f"ExponentPushToken[{number}]"],
            )
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        fan_out(build())
        ids = [row[0] for row in conn.execute("select id from relevo.notification_deliveries order by id").fetchall()]
        lock = "select from relevo.notification_deliveries where id = %s for update"

        def delete() -> None:
            with psycopg.connect(dsn) as other:
                verbs.delete(other, [made.event_id])

        with psycopg.connect(dsn) as settling:
            settling.execute(lock, ids[:1])
            deleting = threading.Thread(target=delete)
            deleting.start()
            eventually(lambda: waiting(conn) == 1, "the delete waits")
            for each in ids[1:]:
                settling.execute(lock + " nowait", [each])
        join(deleting)
        assert states(conn) == {}

    def test_it_waits_for_a_reaper_that_folds(self, build, conn, dsn) -> None:
        """Counts that are being folded while their event is deleted do not stay behind."""
        add_phones(conn, 1)
        made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
        fan_out(build())

        def delete() -> None:
            with psycopg.connect(dsn) as other:
                verbs.delete(other, [made.event_id])

        with psycopg.connect(dsn) as folding:
            folding.execute(queries.load("reaper")["fold_progress"], {"limit": 100, "after": 0, "left_out": "{}"})
            deleting = threading.Thread(target=delete)
            deleting.start()
            eventually(lambda: waiting(conn) == 1, "the delete waits")
        join(deleting)
        assert verbs.get(conn, made.event_id) is None
        for table in ("event_progress", "event_progress_deltas"):
            assert conn.execute(f"select count(*) from relevo.{table}").fetchone() == (0,), table

    def test_settling_and_deleting_at_once(self, build, conn, dsn) -> None:
        """Whoever is first, neither side fails and nothing is left of the event."""
        add_phones(conn, 300)
        app = build()
        for n in range(5):
            made = verbs.enqueue(conn, Event("notice", str(n), "t", audience="everyone"))
            fan_out(app)
            claims = [app.claims.claim("dispatch", "default", "bulk", limit=100) for _ in range(3)]
            faults: list[BaseException] = []

            def guarded(work: Callable[[], object], faults: list[BaseException] = faults) -> None:
                try:
                    work()
                except BaseException as error:  # noqa: BLE001 told by the assertion below
                    faults.append(error)

            def delete(event_id: int = made.event_id) -> None:
                with psycopg.connect(dsn) as other:
                    verbs.delete(other, [event_id])

            def settle(claim: Any) -> None:
                app.claims.settle(claim, [Answer(d.event_day, d.id, "sent", ticket_id="t") for d in claim.deliveries])
                app.claims.release(claim)

            work: list[Callable[[], object]] = [lambda claim=claim: settle(claim) for claim in claims]
            threads = [threading.Thread(target=guarded, args=[each]) for each in [*work[:2], delete, *work[2:]]]
            for thread in threads:
                thread.start()
            join(*threads)
            assert faults == []
            assert states(conn) == {}


@pytest.mark.parametrize("ending", [verbs.cancel, verbs.complete])
def test_an_end_that_is_rolled_back_never_was(build, conn, dsn, ending: Any) -> None:
    """Cancel and complete belong to the caller's transaction."""
    phones = add_phones(conn, 2)
    made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
    with psycopg.connect(dsn) as other:
        assert ending(other, made.event_id)
        other.rollback()
    fan_out(build())
    assert reached(conn, made.event_id) == phones
