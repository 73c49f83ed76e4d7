"""The seal of a month: what keeps it open, who waits for whom, and that nobody writes to a sealed one."""

from __future__ import annotations

import threading
import time
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from relevo.client import verbs
from relevo.core.model import Answer, PushRequest
from relevo.operators import actions
from support.old_months import add_old_deliveries, add_old_event, add_partitions, clean_up, exports, month_ago
from support.phones import add_phones, fan_out, reached
from support.processes import PATIENCE_S, eventually
from support.sealed_month import COLD, HOT, OLD, RECENT, seal


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


@pytest.mark.parametrize("state", ["", "retired"])
def test_only_a_sealed_month_is_retired(conn, state) -> None:
    """What may still be written to stays where it is, and what was retired is not retired again."""
    add_old_deliveries(conn, OLD, 3)
    if state:
        seal(conn)
        conn.execute("update relevo.archive_exports set state = %s, retired_at = now(), rows = 3", [state])
    with pytest.raises(psycopg.errors.RaiseException, match="is not sealed"):
        conn.execute("select relevo.retire_month('notification_deliveries', %s)", [OLD])
    assert conn.execute(f"select count(*) from {HOT}").fetchone() == (3,)


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
    for emptied in (f"relevo.notification_deliveries_{OLD:%Y_%m}", "relevo.notification_deliveries cascade"):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            conn.execute(f"truncate {emptied}".encode())
    assert conn.execute("select relevo.hold_open(%s::date[])", [[OLD, RECENT]]).fetchone() == ([RECENT],)
    assert clean_up(app).outcome == "ok"
    add_partitions(conn, OLD)
    with pytest.raises(psycopg.errors.CheckViolation, match="no partition"):
        conn.execute(insert, [OLD, phones[0]])


def test_a_seal_concerns_its_own_month(conn) -> None:
    """Dead letters and half-fanned-out events of the months before and after stay as they were; its own are ended."""
    months = [month_ago(6), OLD, RECENT]
    half_way = {"state": "fanning", "fanout_upto": 10_000, "fanout_finished_at": None}
    events = [add_old_event(conn, month, f"{month}", **half_way) for month in months]
    for month in months:
        add_old_deliveries(conn, month, 7)
    assert seal(conn) is True
    dead = "select date_trunc('month', event_day::timestamp)::date from relevo.dead_letters order by 1"
    assert conn.execute(dead).fetchall() == [(months[0],), (months[2],)]
    states = "select state from relevo.notification_events where id = any (%s) order by array_position(%s, id)"
    found = conn.execute(states, [events, events]).fetchall()
    assert found == [("fanning",), ("cancelled",), ("fanning",)]


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
