"""Cleanup retires what is past its retention: whole months, sealed first, and never what dedups."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest

from relevo.client import verbs
from relevo.client.values import Event
from relevo.core.items import Fetched, Item
from relevo.core.model import Answer
from relevo.cycles import ingest
from relevo.delivery.composing.rendering import tender
from relevo.operators import actions, consistency
from support import soak
from support.deliveries import states
from support.old_months import (
    add_old_deliveries,
    add_old_event,
    add_old_items,
    add_old_requests,
    clean_up,
    clean_up_step,
    exports,
    month_ago,
)
from support.phones import fan_out
from support.sealed_month import COLD, HOT, OLD, RECENT

A_MOMENT = timedelta(microseconds=1)


def test_a_month_past_its_retention_is_retired_whole(build, conn) -> None:
    """Deliveries and journal leave by their partition, events and items in batches, once it is time; what is younger stays."""
    march, over = date(2025, 3, 1), datetime(2025, 6, 1, tzinfo=UTC)  # 61 days after the month's end
    cold = f"relevo_archive.notification_deliveries_{march:%Y_%m}"
    add_old_deliveries(conn, march, 500)
    add_old_deliveries(conn, date(2025, 4, 1), 10)
    add_old_requests(conn, march, 20)
    event = add_old_event(conn, march, "k")
    add_old_items(conn, date(2024, 5, 1), 30)
    add_old_items(conn, date(2024, 6, 1), 3)
    assert clean_up(build(now=over - A_MOMENT, deliveries_retention_days=61)).outcome == "ok"
    assert exports(conn) == {}
    report = clean_up(build(now=over, deliveries_retention_days=61))
    assert report.outcome == "ok", report
    assert exports(conn) == {
        ("licitaciones", "2024-05"): "retired",
        ("notification_deliveries", "2025-03"): "retired",
        ("notification_events", "2025-03"): "retired",
        ("push_requests", "2025-03"): "retired",
    }
    assert (report.counts["archived_deliveries"], report.counts["archived_licitaciones"]) == (500, 30)
    row = (
        "select archived_deliveries, archived_licitaciones from relevo.worker_runs where cycle = 'cleanup' order by id"
    )
    assert conn.execute(row).fetchall() == [(0, 0), (500, 30)]
    assert conn.execute("select count(*) from relevo.notification_deliveries").fetchone() == (10,)
    assert conn.execute("select count(*) from relevo.licitaciones").fetchone() == (3,)
    assert conn.execute(f"select count(*) from {cold}").fetchone() == (500,)
    assert conn.execute("select event_id from relevo.event_keys").fetchall() == [(event,)]
    for write in (f"delete from {cold}", f"update {cold} set status = 'ok'", f"truncate {cold}"):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="is sealed"):
            conn.execute(write)
    assert clean_up(build(now=over, deliveries_retention_days=61)).outcome == "idle"


KEPT: list[tuple[dict[str, int], datetime]] = [
    ({}, datetime(2025, 6, 30, tzinfo=UTC)),
    ({"deliveries_retention_days": 31}, datetime(2025, 5, 2, tzinfo=UTC)),
    ({"deliveries_retention_days": 365}, datetime(2026, 4, 1, tzinfo=UTC)),
]


@pytest.mark.parametrize(("settings", "over"), soak.cases(KEPT[:1], whole=KEPT))  # 61 days are told above
def test_retention_is_counted_from_a_months_end(build, conn, settings, over) -> None:
    """Deliveries, journal and events of March stay for so many days after its last one, and leave with the next midnight."""
    march = date(2025, 3, 1)
    add_old_deliveries(conn, march, 5)
    add_old_event(conn, march, "k")
    clean_up(build(now=over - A_MOMENT, **settings))
    assert exports(conn) == {}
    clean_up(build(now=over, **settings))
    assert set(exports(conn)) == {
        (entity, "2025-03") for entity in ("notification_deliveries", "notification_events", "push_requests")
    }


def test_events_without_deliveries_stay_as_long(build, conn) -> None:
    """An event that had none, in a month without a partition, leaves when its deliveries would have."""
    add_old_event(conn, date(2025, 3, 1), "k")
    over = datetime(2025, 6, 30, tzinfo=UTC)
    assert clean_up(build(now=over - A_MOMENT)).counts.get("archived_events", 0) == 0
    assert clean_up(build(now=over)).counts["archived_events"] == 1


@pytest.mark.parametrize(
    ("settings", "over"),
    [
        ({}, datetime(2026, 4, 1, tzinfo=UTC)),
        ({"licitaciones_hot_months": 2}, datetime(2025, 6, 1, tzinfo=UTC)),
        ({"licitaciones_retention_days": 10}, datetime(2025, 4, 11, tzinfo=UTC)),
    ],
)
def test_items_stay_for_whole_months(build, conn, settings, over) -> None:
    """A tender of March, its first moment or its last, leaves so many months, or days, after March ended."""
    add_old_items(conn, date(2025, 3, 1), 2)
    conn.execute(
        "update relevo.licitaciones set created_at = (array['2025-03-01Z', '2025-03-31 23:59:59.999999Z'])[id]::timestamptz"
    )
    assert clean_up(build(now=over - A_MOMENT, **settings)).counts.get("archived_licitaciones", 0) == 0
    assert clean_up(build(now=over, **settings)).counts["archived_licitaciones"] == 2


def test_months_retire_one_after_the_other(build, conn) -> None:
    """Names of indexes that PostgreSQL shortened alike do not meet in the cold schema."""
    app = build()
    for ago in (5, 6, 7, 8):
        add_old_deliveries(conn, month_ago(ago), 5)
        report = clean_up(app)
        assert (report.outcome, report.counts["archived_deliveries"]) == ("ok", 5)


def test_a_tender_seen_again_after_13_months_makes_no_second_event(build, conn) -> None:
    """The registry and the events' keys stay: item and event are gone from the hot tables, and neither comes twice."""

    class Once:
        name, interval_ms, seeds_silently = "again", 60_000, False

        def fetch(self, cursor: Any, context: Any) -> Fetched:
            return Fetched("ok", {}, (Item("ns", "5002-3-LP26", "Puente", "1", region="Maule"),))

    app = build(cycles=[lambda settings, _claims: ingest.cycle(settings, Once(), tender)])
    assert app.runner.run(app.registry["ingest:again"], "manual").counts["events_created"] == 1
    fan_out(app)
    [(first,)] = conn.execute("select id from relevo.notification_events").fetchall()
    later = datetime.now(UTC) + timedelta(days=31 * 13)
    while clean_up_step(app, later).more:
        pass
    assert conn.execute("select count(*) from relevo.licitaciones").fetchone() == (0,)
    assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (0,)
    again = app.runner.run(app.registry["ingest:again"], "manual")
    assert again.counts.get("events_created", 0) == 0
    assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (0,)
    once_more = Event("new_licitacion", "ns:5002-3-LP26", "once more", audience="everyone")
    done = verbs.enqueue(conn, once_more, on_conflict="keep")
    assert (done.event_id, done.created, done.same_content) == (first, False, False)
    status = verbs.get(conn, first)
    assert status is not None
    assert (status.state, status.raw["archived"][:2]) == ("fanned", "20")


def test_two_callers_and_a_retiring_event_agree_on_one(build, conn, dsn) -> None:
    """Enqueueing a key while its event is being moved finds the event or its key, never neither."""
    app, keys = build(), [f"k{n}" for n in range(200)]
    ids = {key: add_old_event(conn, OLD, key) for key in keys}
    wrong: list[Any] = []
    stop = threading.Event()

    def knock() -> None:
        with psycopg.connect(dsn, autocommit=True) as mine:
            while not stop.is_set():
                for key in keys:
                    done = verbs.enqueue(mine, Event("tender.new", key, "x", audience="everyone"), on_conflict="keep")
                    if (done.event_id, done.created) != (ids[key], False):
                        wrong.append((key, done))

    callers = [threading.Thread(target=knock) for _ in range(2)]
    for caller in callers:
        caller.start()
    for _ in range(100):
        conn.execute("select relevo.retire_events(%s, 1000, 3)", [OLD])
    stop.set()
    for caller in callers:
        caller.join()
    assert not wrong
    assert conn.execute("select count(*) from relevo.event_keys").fetchone() == (200,)
    assert clean_up(app).outcome == "ok"


def test_what_is_still_open_is_ended_with_a_reason(build, conn) -> None:
    """Stragglers past any deadline end as such: unsent ones expired, unconfirmed ones unconfirmed; counts follow."""
    event = add_old_event(conn, OLD, "k")
    for status in ("pending", "retryable", "sent"):
        add_old_deliveries(conn, OLD, 3, status=status, event=event)
    conn.execute(
        "insert into relevo.event_progress values (%s, 'pending', 3), (%s, 'retryable', 3), (%s, 'sent', 3)",
        [event] * 3,
    )
    report = clean_up(build())
    assert (report.outcome, report.counts["deliveries_ended"]) == ("ok", 9)
    found = conn.execute(f"select status, last_error_code, count(*) from {COLD} group by 1, 2 order by 1").fetchall()
    assert found == [("expired", "retired", 6), ("unconfirmed", "retired", 3)]
    reported = f"select deliveries from relevo_archive.notification_events_{OLD:%Y_%m}"
    assert conn.execute(reported).fetchall() == [({"expired": 6, "unconfirmed": 3},)]


def test_a_claimed_delivery_keeps_its_month_open(build, conn) -> None:
    """A month with a claim in it is left to a later run, which says so, and settling still works."""
    add_old_deliveries(conn, OLD, 4, status="pending")
    app = build()
    claim = app.claims.claim("dispatch", "default", "bulk", limit=2)
    report = clean_up(app)
    assert report.outcome == "partial"
    assert "something of it is still claimed" in report.error
    assert exports(conn) == {("push_requests", f"{OLD:%Y-%m}"): "retired"}
    answers = [Answer(d.event_day, d.id, "sent", ticket_id="t") for d in claim.deliveries]
    assert app.claims.settle(claim, answers).written == {"sent": 2}
    app.claims.release(claim)
    assert clean_up(app).outcome == "ok"
    assert exports(conn)["notification_deliveries", f"{OLD:%Y-%m}"] == "retired"


def test_what_was_sent_and_never_confirmed_is_ended_too(build, conn) -> None:
    """Nothing is left to be sent, but receipts are missing: those are ended before the month is sealed."""
    add_old_deliveries(conn, OLD, 50, status="sent")
    add_old_deliveries(conn, OLD, 50)
    report = clean_up(build())
    assert (report.outcome, report.counts["deliveries_ended"], report.counts["archived_deliveries"]) == ("ok", 50, 100)


def test_a_month_with_a_lost_delivery_is_told_and_holds_up_no_other(build, conn) -> None:
    """A row that is neither final nor in any queue would go with its month: that is a problem of this month alone."""
    add_old_deliveries(conn, OLD, 5, status="pending")
    add_old_deliveries(conn, month_ago(4), 3)
    conn.execute("delete from relevo.due_chunks where %s = any (ids)", [lost := lost_one(conn)])
    report = clean_up(build())
    assert (report.outcome, report.counts["deliveries_ended"]) == ("partial", 4)
    assert (
        f"notification_deliveries_{OLD:%Y_%m} could not be retired yet: 1 of its deliveries are neither" in report.error
    )
    assert "neither finished nor in any queue; `relevo doctor --repair` puts them there" in report.error
    assert exports(conn)["notification_deliveries", f"{month_ago(4):%Y-%m}"] == "retired"
    assert ("notification_deliveries", f"{OLD:%Y-%m}") not in exports(conn)
    assert conn.execute(f"select id from {HOT} where completed_at is null").fetchall() == [(lost,)]


@pytest.mark.parametrize("status", ["pending", "sent"])
def test_a_month_with_a_lost_delivery_is_retired_after_a_repair(build, conn, status) -> None:
    """Until a delivery that stands nowhere was put where it belongs its month is not sealed; then it is, with it closed."""
    add_old_deliveries(conn, OLD, 5, status=status)
    conn.execute("delete from relevo.due_chunks")
    conn.execute("delete from relevo.awaited_receipts")
    app = build()
    refused = clean_up(app)
    assert "5 of its deliveries are neither finished nor in any queue; `relevo doctor --repair`" in refused.error
    kind = "not_queued" if status == "pending" else "not_awaited"
    assert [each.kind for each in consistency.examine(app.database)] == [kind]
    assert actions.repair(app.database) == {kind: 5}
    assert clean_up(app).outcome == "ok"
    assert exports(conn)["notification_deliveries", f"{OLD:%Y-%m}"] == "retired"
    ended = conn.execute(f"select status, count(*) from {COLD} group by 1").fetchall()
    assert ended == [("expired" if status == "pending" else "unconfirmed", 5)]
    assert consistency.examine(app.database) == []


def lost_one(conn: psycopg.Connection[Any]) -> int:
    """Return the first delivery of the old month."""
    [(lost,)] = conn.execute(f"select min(id) from {HOT}").fetchall()
    return int(lost)


def test_what_is_awaited_of_deleted_events_does_not_keep_a_month_open(build, conn, monkeypatch) -> None:
    """Receipts of deliveries that are gone are dropped, however many batches of them there are, and the month is retired."""
    monkeypatch.setattr("relevo.archive.retire._BATCH", 100)
    event = add_old_event(conn, OLD, "k")
    for _ in range(5):
        add_old_deliveries(conn, OLD, 4, status="sent", event=event)
    conn.execute(f"update {HOT} set event_day = %s", [OLD + timedelta(days=3)])  # its event's, as everywhere else
    assert verbs.delete(conn, [event]) == 1
    assert states(conn) == {}
    assert conn.execute("select count(*) from relevo.awaited_receipts").fetchone() == (5,)
    assert clean_up(build()).outcome == "ok"
    assert exports(conn)["notification_deliveries", f"{OLD:%Y-%m}"] == "retired"
    assert conn.execute("select count(*) from relevo.awaited_receipts").fetchone() == (0,)


def test_what_was_sent_together_with_another_month_is_still_awaited(build, conn) -> None:
    """Of receipts that are awaited together only those of the old month are given up."""
    for month in (OLD, RECENT):
        add_old_deliveries(conn, month, 3, status="sent")
    conn.execute(TOGETHER)
    assert conn.execute("select count(*) from relevo.awaited_receipts").fetchone() == (1,)
    assert clean_up(build()).counts["deliveries_ended"] == 3
    left = conn.execute(
        "select u.day, d.provider_ticket_id = u.ticket from relevo.awaited_receipts r"
        " cross join unnest(r.days, r.ids, r.tickets) as u(day, id, ticket)"
        " join relevo.notification_deliveries d on d.event_day = u.day and d.id = u.id"
    ).fetchall()
    assert [(day.replace(day=1), same) for day, same in left] == [(RECENT, True)] * 3


TOGETHER = """
with gone as (delete from relevo.awaited_receipts returning *)
insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
select g.project, min(g.look_at), min(g.sent_at), array_agg(u.day), array_agg(u.id), array_agg(u.installation), array_agg(u.ticket),
       array_agg(u.version), array_agg(u.attempt)
  from gone g
  cross join unnest(g.days, g.ids, g.installations, g.tickets, g.versions, g.attempts) as u(day, id, installation, ticket, version, attempt)
 group by g.project
"""


def test_what_was_completed_meanwhile_is_not_closed_again(conn) -> None:
    """Of what an old month has in the queues, a delivery that has its end keeps it; the others expire."""
    march = date(2025, 3, 1)
    add_old_deliveries(conn, march, 2, status="pending")
    first = "(select min(o.id) from relevo.notification_deliveries o)"
    conn.execute(
        f"update relevo.notification_deliveries d set status = 'ok', completed_at = now() where d.id = {first}"
    )
    assert conn.execute("select relevo.close_deliveries(%s, 1000, null)", [march]).fetchone() == (2,)
    assert states(conn) == {"ok": 1, "expired": 1}
