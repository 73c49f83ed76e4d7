"""Cleanup retires what is past its retention: whole months, sealed first, and never what dedups."""

from __future__ import annotations

import threading
import time
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from months import (
    add_old_deliveries,
    add_old_event,
    add_old_items,
    add_old_requests,
    add_partitions,
    clean_up,
    clean_up_step,
    exports,
    month_ago,
)

from deliveries import states
from phones import add_phones, fan_out, reached
from processes import PATIENCE_S, eventually
from relevo.client import verbs
from relevo.client.values import Event
from relevo.core.items import Fetched, Item
from relevo.core.model import Answer, PushRequest
from relevo.cycles import cleanup, ingest
from relevo.delivery.rendering import tender
from relevo.operators import actions, consistency

OLD, RECENT = month_ago(5), month_ago(2)
A_MOMENT = timedelta(microseconds=1)
HOT = f"relevo.notification_deliveries_{OLD:%Y_%m}"
COLD = f"relevo_archive.notification_deliveries_{OLD:%Y_%m}"


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


@pytest.mark.parametrize(
    ("settings", "over"),
    [
        ({}, datetime(2025, 6, 30, tzinfo=UTC)),
        ({"deliveries_retention_days": 31}, datetime(2025, 5, 2, tzinfo=UTC)),
        ({"deliveries_retention_days": 365}, datetime(2026, 4, 1, tzinfo=UTC)),
    ],
)
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


@pytest.mark.parametrize("status", ["pending", "retryable", "sent"])
def test_a_month_with_something_open_is_not_sealed(build, conn, status) -> None:
    """The seal itself looks once more, under its lock: what was opened since the month was closed keeps it open."""
    add_old_deliveries(conn, OLD, 3)
    add_old_deliveries(conn, OLD, 1, status=status)
    assert seal(conn) is False
    assert exports(conn) == {}
    conn.execute("delete from relevo.due_chunks")
    conn.execute("delete from relevo.awaited_receipts")
    conn.execute(f"update {HOT} set status = 'failed', completed_at = now() where status = %s", [status])
    assert seal(conn) is True


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


def seal(conn: psycopg.Connection[Any]) -> bool:
    """Seal the old month; tell whether it could be."""
    row = conn.execute("select relevo.seal_month('notification_deliveries', %s, 1000)", [OLD]).fetchone()
    assert row is not None
    return bool(row[0])


def test_nobody_writes_to_a_sealed_month(build, conn) -> None:
    """Fan-out ends its event instead; settle, redrive and whoever knows nothing of seals are refused by the table itself."""
    add_old_deliveries(conn, OLD, 3, event=999)
    phones = add_phones(conn, 3)
    app = build()
    half_way = {"state": "fanning", "fanout_upto": 10_000, "fanout_finished_at": None}
    seal(conn)
    event = add_old_event(conn, OLD, "late", **half_way)
    fan_out(app)
    assert reached(conn, event) == []
    status = verbs.get(conn, event)
    assert status is not None
    assert (status.state, status.raw["end_reason"]) == (
        "cancelled",
        "its month was archived before its fan-out was finished",
    )
    redrive = "update relevo.notification_deliveries set status = 'pending', completed_at = null where event_day < %s"
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        conn.execute(redrive, [RECENT])
    insert = "insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type) values (%s, 1, %s, 'x')"
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        conn.execute(insert, [OLD, phones[0]])
    assert conn.execute("select relevo.hold_open(%s::date[])", [[OLD, RECENT]]).fetchone() == ([RECENT],)
    assert clean_up(app).outcome == "ok"
    add_partitions(conn, OLD)
    with pytest.raises(psycopg.errors.CheckViolation, match="no partition"):
        conn.execute(insert, [OLD, phones[0]])


WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"


@pytest.mark.parametrize("writer", ["a shared hold", "a plain write"])
def test_a_seal_waits_for_writers_under_way(build, conn, dsn, writer) -> None:
    """Who began to write before the seal finishes first, and what it wrote is in the month that is retired."""
    add_old_deliveries(conn, OLD, 3)
    app, done = build(), threading.Event()
    with psycopg.connect(dsn) as mine:
        if writer == "a shared hold":
            assert mine.execute("select relevo.hold_open(array[%s::date])", [OLD]).fetchone() == ([OLD],)
        mine.execute(
            "insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, status,"
            " completed_at) values (%s, 9, %s, 'x', 'skipped', now())",
            [OLD, uuid4()],
        )

        def cleaning() -> None:
            assert clean_up(app).outcome == "ok"
            done.set()

        thread = threading.Thread(target=cleaning)
        thread.start()
        eventually(lambda: conn.execute(WAITING).fetchone() == (1,), "the seal waits", every=0.005)
        assert not done.is_set()
        mine.commit()
        thread.join(PATIENCE_S)
    assert done.is_set()
    assert conn.execute(f"select count(*) from {COLD}").fetchone() == (4,)


def test_fan_out_racing_the_seal_loses_nothing(build, conn, dsn) -> None:
    """Slices and a seal at once: each delivery is either in the retired month or was never made, and the event says which."""
    phones = add_phones(conn, 200)
    app = build(fanout_slice_size=10)
    add_partitions(conn, OLD)
    event = add_old_event(conn, OLD, "racing", state="fanning", fanout_upto=10_000, fanout_finished_at=None)
    fanning = threading.Thread(target=fan_out, args=(app,))
    fanning.start()
    other = build()
    while True:
        report = clean_up(other)
        if exports(conn).get(("notification_deliveries", f"{OLD:%Y-%m}")) == "retired":
            break
        assert report.outcome in ("ok", "partial", "failed"), report
    fanning.join()
    reported = f"select deliveries_created, state from relevo_archive.notification_events_{OLD:%Y_%m} where id = %s"
    row = (
        conn.execute(reported, [event]).fetchone()
        or conn.execute(
            "select deliveries_created, state from relevo.notification_events where id = %s", [event]
        ).fetchone()
    )
    assert row is not None
    [(made,)] = conn.execute(f"select count(*) from {COLD}").fetchall()
    assert (made, row[1]) in ((row[0], "cancelled"), (len(phones), "fanned"))
    assert conn.execute("select count(*) from relevo.notification_deliveries").fetchone() == (0,)


def test_settling_while_a_month_is_sealed_loses_no_answer(build, conn) -> None:
    """Dispatchers settle what cleanup would end: every answer that was written is in the cold month, each row is there once."""
    add_old_deliveries(conn, OLD, 400, status="pending")
    dispatchers, cleaner = [build(worker_id=name) for name in ("a", "b")], build(worker_id="c")
    settled: list[str] = []

    def dispatch(app: Any) -> None:
        while (claim := app.claims.claim("dispatch", "default", "bulk", limit=7)) is not None:
            tickets = {d.id: f"ticket-{d.id}" for d in claim.deliveries}
            app.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)])
            answers = [Answer(d.event_day, d.id, "sent", ticket_id=tickets[d.id]) for d in claim.deliveries]
            settlement = app.claims.settle(claim, answers)
            assert settlement.written == {"sent": len(answers)}, settlement
            settled.extend(tickets.values())
            app.claims.release(claim)

    reports = race(cleaner, *(lambda app=app: dispatch(app) for app in dispatchers))
    assert {report.outcome for report in reports} <= {"ok", "partial"}, reports
    rows = conn.execute(f"select id, status, provider_ticket_id from {COLD}").fetchall()
    assert len({row[0] for row in rows}) == len(rows) == 400
    assert {ticket for _, status, ticket in rows if status == "unconfirmed"} == set(settled)
    assert {status for _, status, ticket in rows if ticket not in settled} <= {"expired"}
    assert conn.execute("select count(*) from relevo.notification_deliveries").fetchone() == (0,)


def test_redriving_while_a_month_is_sealed_ends_what_it_opened(build, conn, monkeypatch) -> None:
    """A redrive comes before the seal, and is ended with the month, or after it, and leaves it alone; never in between."""
    add_old_deliveries(conn, OLD, 700)  # one in seven is a dead letter
    monkeypatch.setattr("relevo.operators.actions._REDRIVE_BATCH", 3)
    app, cleaner = build(worker_id="a"), build(worker_id="b")
    opened: list[int] = []

    def redrive() -> None:
        opened.append(actions.redrive(app.database, actions.DeadLetters(error_code="MessageRateExceeded")))

    reports = race(cleaner, redrive)
    assert {report.outcome for report in reports} <= {"ok", "partial"}, reports
    assert conn.execute(
        f"select status, count(*) from {COLD} where status <> 'ok' group by 1 order by 1"
    ).fetchall() == [row for row in (("expired", opened[0]), ("failed", 100 - opened[0])) if row[1]]


def test_a_redrive_that_meets_a_seal_leaves_the_month_alone(build, conn, dsn) -> None:
    """It waits for a seal under way, sees it then, and opens what is in other months only."""
    add_old_deliveries(conn, OLD, 7)
    add_old_deliveries(conn, RECENT, 7)
    app, opened = build(), []
    dead = actions.DeadLetters(error_code="MessageRateExceeded")
    with psycopg.connect(dsn) as mine:
        assert seal(mine)
        thread = threading.Thread(target=lambda: opened.append(actions.redrive(app.database, dead)))
        thread.start()
        eventually(lambda: conn.execute(WAITING).fetchone() == (1,), "the redrive waits", every=0.005)
        mine.commit()
        thread.join(PATIENCE_S)
    assert opened == [1]
    assert conn.execute(f"select count(*) from {HOT} where status = 'failed'").fetchone() == (1,)


def race(cleaner: Any, *others: Any) -> list[Any]:
    """Clean up again and again until the old month is retired, while others do what they do; return cleanup's reports."""
    threads, failures, reports = [], [], []

    def guarded(work: Any) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 the test fails with it
            failures.append(error)

    for work in others:
        threads.append(threading.Thread(target=guarded, args=(work,)))
        threads[-1].start()
    deadline = time.monotonic() + 60
    while "archived_deliveries" not in (reports[-1].counts if reports else {}):
        assert time.monotonic() < deadline, reports
        reports.append(clean_up(cleaner))
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert failures == []
    return reports


def test_a_late_ticket_meets_the_seal(build, conn) -> None:
    """An answer for an unknown delivery of a sealed month comes too late for the row, which stays as it was."""
    add_old_deliveries(conn, OLD, 2, status="pending")
    app = build()
    claim = app.claims.claim("dispatch", "default", "bulk")
    app.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)])
    conn.execute("delete from relevo.claims")
    conn.execute(f"update {HOT} set status = 'unknown', completed_at = now()")
    seal(conn)
    answers = [Answer(d.event_day, d.id, "sent", ticket_id="late") for d in claim.deliveries]
    settlement = app.claims.settle(claim, answers)
    assert (settlement.written, settlement.closed_late, settlement.kept_as_evidence) == ({}, 0, 0)
    assert clean_up(app).outcome == "ok"
    assert conn.execute(f"select status, count(*) from {COLD} group by 1").fetchall() == [("unknown", 2)]


def test_a_missing_cold_schema_is_told(build, conn) -> None:
    """Where the role could not make the schema, cleanup says who has to, and the rest of it is done."""
    add_old_deliveries(conn, OLD, 3)
    conn.execute("drop schema relevo_archive")
    report = clean_up(build())
    assert "the schema relevo_archive is missing; have an administrator create it" in report.error
    assert conn.execute("select count(*) from relevo.notification_deliveries").fetchone() == (3,)


def test_a_column_added_half_way_through_a_month_goes_along(build, conn) -> None:
    """A month of items that is being moved while an upgrade adds a column carries it; what went before has none."""
    month = month_ago(14)
    add_old_items(conn, month, 10)
    conn.execute("select relevo.retire_items(%s, 1000, 4)", [month])
    conn.execute("alter table relevo.licitaciones add column added_later numeric(8, 3) not null default 1.125")
    assert clean_up(build()).counts["archived_licitaciones"] == 6
    found = f"select added_later::text, count(*) from relevo_archive.licitaciones_{month:%Y_%m} group by 1 order by 1"
    assert conn.execute(found).fetchall() == [("1.125", 6), (None, 4)]


def test_a_column_added_to_events_goes_along_but_not_of_personal_ones(build, conn) -> None:
    """Nobody knows what an added column says of whom: it is kept of public events, and of personal ones it is not."""
    add_old_event(conn, OLD, "before")
    conn.execute("select relevo.retire_events(%s, 1000, 1)", [OLD])
    conn.execute("alter table relevo.notification_events add column added_later text")
    for audience in ("everyone", "matching", "installations"):
        add_old_event(conn, OLD, audience, audience=audience, added_later=audience, first_sent_at=OLD)
    assert clean_up(build()).counts["archived_events"] == 3
    found = (
        "select audience, added_later, first_sent_at is not null as sent"
        f" from relevo_archive.notification_events_{OLD:%Y_%m} order by id"
    )
    assert conn.execute(found).fetchall() == [
        ("everyone", None, False),
        ("everyone", "everyone", True),
        ("matching", "matching", True),
        ("installations", None, True),
    ]


def test_a_column_dropped_half_way_through_a_month_does_not_stop_it(build, conn) -> None:
    """What was moved before keeps its values, what comes later has none."""
    month = month_ago(14)
    conn.execute("alter table relevo.licitaciones add column dropped_later text default 'x'")
    add_old_items(conn, month, 10)
    conn.execute("select relevo.retire_items(%s, 1000, 4)", [month])
    conn.execute("alter table relevo.licitaciones drop column dropped_later")
    assert clean_up(build()).counts["archived_licitaciones"] == 6
    found = f"select dropped_later, count(*) from relevo_archive.licitaciones_{month:%Y_%m} group by 1 order by 1"
    assert conn.execute(found).fetchall() == [("x", 4), (None, 6)]


def test_a_column_that_changed_half_way_through_a_month_is_refused(build, conn) -> None:
    """Finer values would be rounded on their way: that month says so and keeps its rows, the others are moved."""
    month, younger = month_ago(15), month_ago(14)
    add_old_items(conn, month, 10)
    add_old_items(conn, younger, 3)
    conn.execute("select relevo.retire_items(%s, 1000, 4)", [month])
    conn.execute("alter table relevo.licitaciones alter column monto type numeric(20, 4)")
    report = clean_up(build())
    assert report.outcome == "partial"
    assert "column monto of relevo.licitaciones is of type numeric(20,4), and that of" in report.error
    assert "nothing was moved" in report.error
    left = (
        "select date_trunc('month', created_at at time zone 'UTC')::date, count(*) from relevo.licitaciones group by 1"
    )
    assert conn.execute(left).fetchall() == [(month, 6)]
    assert exports(conn) == {
        ("licitaciones", f"{month:%Y-%m}"): "moving",
        ("licitaciones", f"{younger:%Y-%m}"): "retired",
    }


@pytest.mark.parametrize("entity", ["licitaciones", "notification_events"])
def test_a_column_that_comes_while_a_batch_waits_goes_along(build, conn, dsn, entity) -> None:
    """The batch waits for the upgrade that adds it, looks at the columns only then, and loses no value."""
    month = month_ago(14)
    add_old_items(conn, month, 5)
    add_old_event(conn, month, "k")
    statement = "select relevo.retire_items(%s, 1000, 9)"
    if entity == "notification_events":
        statement = "select relevo.retire_events(%s, 1000, 9)"
    conn.execute(statement.replace("9)", "0)"), [month])  # its cold table is there, as the columns were
    with psycopg.connect(dsn) as mine, psycopg.connect(dsn, autocommit=True) as theirs:
        mine.execute(f"alter table relevo.{entity} add column added_later text default 'value'")
        moving = threading.Thread(target=lambda: theirs.execute(statement, [month]))
        moving.start()
        waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
        eventually(lambda: conn.execute(waits, [theirs.info.backend_pid]).fetchone() == (True,), "it waits")
        mine.commit()
        moving.join(PATIENCE_S)
        assert not moving.is_alive()
    found = f"select distinct added_later from relevo_archive.{entity}_{month:%Y_%m}"
    assert conn.execute(found).fetchall() == [("value",)]


def test_a_name_that_is_taken_in_the_cold_schema_holds_up_no_other_month(build, conn) -> None:
    """Somebody made a table where a month should go: it stays where it is and says why; the others are retired."""
    add_old_deliveries(conn, OLD, 3)
    add_old_deliveries(conn, month_ago(4), 3)
    conn.execute(f"create table {COLD} (theirs int)")
    report = clean_up(build())
    assert report.outcome == "partial"
    assert f"notification_deliveries_{OLD:%Y_%m} could not be retired yet" in report.error
    assert "already exists" in report.error
    assert exports(conn)["notification_deliveries", f"{month_ago(4):%Y-%m}"] == "retired"
    assert conn.execute(f"select count(*) from {HOT}").fetchone() == (3,)


def test_a_moving_month_whose_table_is_gone_holds_up_no_other(build, conn) -> None:
    """Somebody dropped the table that a month was moving to: that is told, and the other months are retired."""
    for ago in (14, 15):
        add_old_items(conn, month_ago(ago), 3)
    conn.execute("select relevo.retire_items(%s, 1000, 3)", [month_ago(15)])
    conn.execute(f"drop table relevo_archive.licitaciones_{month_ago(15):%Y_%m}")
    report = clean_up(build())
    assert report.outcome == "partial"
    assert f"licitaciones_{month_ago(15):%Y_%m} could not be moved yet: UndefinedTable" in report.error
    assert exports(conn)["licitaciones", f"{month_ago(14):%Y-%m}"] == "retired"


def test_a_default_partition_is_complained_of_and_stops_nothing(build, conn) -> None:
    """Its rows are in no month: cleanup says so each time, retires the months, and makes what partitions it can."""
    conn.execute("create table relevo.everything_else partition of relevo.notification_deliveries default")
    add_old_deliveries(conn, OLD, 3)
    report = clean_up(build())
    assert report.outcome == "partial"
    assert "relevo.everything_else is a partition of relevo.notification_deliveries and no month's" in report.error
    assert "move its rows, and detach it" in report.error
    assert exports(conn)["notification_deliveries", f"{OLD:%Y-%m}"] == "retired"


def test_rows_in_a_default_partition_keep_a_new_one_from_being_made_in_words(build, conn, monkeypatch) -> None:
    """The month ahead whose rows lie there already cannot be made: that is told once, and the rest of cleanup is done."""
    conn.execute(
        "create table relevo.notification_deliveries_default partition of relevo.notification_deliveries default"
    )
    conn.execute(
        "insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type)"
        " values (now()::date + 150, 1, %s, 'x')",
        [uuid4()],
    )
    add_old_deliveries(conn, OLD, 3)
    monkeypatch.setattr(cleanup, "_MONTHS_AHEAD", 6)
    report = clean_up(build())
    assert report.outcome == "partial"
    assert report.error.count("the partitions ahead could not be made: CheckViolation") == 1
    assert exports(conn)["notification_deliveries", f"{OLD:%Y-%m}"] == "retired"


def test_a_seal_passes_by_an_event_that_fan_out_is_at(build, conn, dsn: str) -> None:
    """Fan-out locks its event and then waits for the seal: the seal does not wait for the event, which ends all the same."""
    add_old_deliveries(conn, OLD, 3, event=999)
    app = build()
    event = add_old_event(conn, OLD, "late", state="fanning", fanout_upto=10_000, fanout_finished_at=None)
    with psycopg.connect(dsn) as fanning:
        fanning.execute("select from relevo.notification_events for update")
        conn.execute("set lock_timeout = '10s'")
        assert seal(conn)
    fan_out(app)
    status = verbs.get(conn, event)
    assert status is not None
    assert (status.state, reached(conn, event)) == ("cancelled", [])
