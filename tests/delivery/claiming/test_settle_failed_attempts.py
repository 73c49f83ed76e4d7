"""What went wrong is told attempt by attempt: once, under the fence, so many of a delivery, and of no push that was sent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from relevo.core.model import Answer, ReceiptAnswer, SentRequest
from relevo.core.statuses import Status
from relevo.operators import actions
from relevo.operators.actions import DeadLetters
from support.claim_steps import HTTP_TIMEOUT, LEASE, MINUTE, NOW, SECOND, add, answers, journal, reap, send, take
from support.deliveries import TODAY, mark_failed

TOLD = """
select delivery_id, n, attempt, found_by, became, error_code, error_message, request_id, at from relevo.failed_attempts order by delivery_id, n
"""
SECRET = "ExponentPushToken[abcdefghijklmnopqrstuv]"


def told(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """Read what is told of deliveries, in order, without who and when."""
    return [row[1:6] for row in conn.execute(TOLD).fetchall()]


@pytest.mark.parametrize("status", ["retryable", "failed", "invalid", "unknown"])
def test_an_attempt_that_did_not_get_through_is_told_once(build, conn, status: Status) -> None:
    """With what was said, in which request, and what became of it; the same settle again, as after a lost answer, adds nothing."""
    worker = build()
    (push,) = add(conn, 1)
    claim = take(worker)
    request = journal(worker, claim)
    said = answers(claim, status, error_code="HTTP_500", error_message=f"no {SECRET}", request=request.id)
    for written in (1, 0):
        settled = worker.claims.settle(claim, said, [request.id], NOW + SECOND)
        assert sum(settled.written.values()) == written
    ((found, n, attempt, found_by, became, code, message, request_id, at),) = conn.execute(TOLD).fetchall()
    assert (found, n, attempt, found_by, became, code) == (push, 1, 1, "dispatch", status, "HTTP_500")
    assert (request_id, at) == (request.id, NOW + SECOND)
    assert message.startswith("no ")
    assert SECRET not in message


def test_what_was_sent_or_not_tried_is_no_failed_attempt(build, conn) -> None:
    """Nothing is told of a ticket, of what was postponed at no cost, or of what stood in the way of a push."""
    worker = build()
    sent, postponed, skipped = add(conn, 3)
    claim = take(worker)
    request = journal(worker, claim)
    said = [
        Answer(TODAY, sent, "sent", True, "ticket-1"),
        Answer(TODAY, postponed, "retryable", False, error_code="TOO_MANY_REQUESTS"),
        Answer(TODAY, skipped, "skipped", False, error_code="opted_out"),
    ]
    worker.claims.settle(claim, said, [request.id], NOW)
    assert told(conn) == []


def test_of_who_lost_its_claim_nothing_is_told(build, conn) -> None:
    """Once a reaper took the claim back, its word stands: the request's fate is unknown, and the late settle adds nothing."""
    worker = build()
    add(conn, 1)
    claim = take(worker)
    request = journal(worker, claim)
    assert reap(worker, NOW + LEASE + SECOND)["deliveries_ambiguous"] == 1
    said = answers(claim, "failed", error_code="MessageTooBig", request=request.id)
    assert worker.claims.settle(claim, said, [request.id], NOW + LEASE).written == {}
    ((*_, found_by, became, code, _, request_id, at),) = conn.execute(TOLD).fetchall()
    assert (found_by, became, code, request_id) == ("reaper", "retryable", "answer_not_seen", request.id)
    assert at == NOW + LEASE + SECOND


def test_a_claim_that_lapsed_is_an_attempt_only_if_it_kills(build, conn) -> None:
    """What was never journalled was not tried: a lapse is told once it ends the delivery, as poison."""
    worker = build(outbox_poison_lapses=2)
    add(conn, 1)
    now = NOW
    for expected in ([], [(1, 0, "reaper", "failed", "poison")]):
        take(worker, now)
        now += LEASE + SECOND
        reap(worker, now)
        assert told(conn) == expected
        now += HTTP_TIMEOUT


def test_twenty_are_kept_of_a_delivery(build, conn) -> None:
    """The first twenty: a delivery that fails for ever does not fill the table, and its last error stands in its own row."""
    worker = build(outbox_max_attempts=100)
    (push,) = add(conn, 1)
    now = NOW
    for n in range(1, 23):
        claim = take(worker, now)
        send(worker, claim, "retryable", now, error_code=f"code-{n}")
        now += timedelta(hours=2)
    assert [row[:2] + row[4:] for row in told(conn)] == [(n, n, f"code-{n}") for n in range(1, 21)]
    last = "select last_error_code from relevo.notification_deliveries where id = %s"
    assert conn.execute(last, [push]).fetchone() == ("code-22",)


def test_receipts_tell_errors_alone(build, conn) -> None:
    """A receipt's error is told, retried or final, once; one that says ok, or is awaited, is not."""
    worker = build()
    add(conn, 4)
    claim = take(worker)
    send(worker, claim)
    later = NOW + 30 * MINUTE
    awaited = worker.claims.claim_awaiting("default", limit=10, now=later)
    assert awaited is not None
    said: list[tuple[str, str | None]] = [
        ("ok", None),
        ("retryable", "MessageRateExceeded"),
        ("failed", "MessageTooBig"),
    ]
    given = [
        ReceiptAnswer(each, status, error_code=code)  # type: ignore[arg-type]
        for each, (status, code) in zip(awaited.deliveries, [*said, ("waiting", None)], strict=True)
    ]
    for _ in ("once", "and again"):
        worker.claims.settle_receipts(awaited, given, later)
    assert sorted(told(conn), key=str) == [
        (1, 1, "receipt", "failed", "MessageTooBig"),
        (1, 1, "receipt", "retryable", "MessageRateExceeded"),
    ]


def test_a_push_that_arrives_does_not_touch_the_table(build, conn, dsn) -> None:
    """Claim, journal, settle and confirmation of what simply goes well: all of it passes while somebody holds the table locked."""
    worker = build()
    add(conn, 100)
    with psycopg.connect(dsn) as other:
        other.execute("lock table relevo.failed_attempts in access exclusive mode")
        claim = take(worker)
        request = journal(worker, claim)
        tickets = [f"ticket-{each.id}" for each in claim.deliveries]
        settled = worker.claims.settle_sent(claim, [SentRequest(request, tickets)], NOW, finish=True)
        assert settled is not None
        assert settled.written == {"sent": 100}
        awaited = worker.claims.claim_awaiting("default", limit=1_000, now=NOW + 30 * MINUTE)
        assert awaited is not None
        said = [ReceiptAnswer(each, "ok") for each in awaited.deliveries]
        confirmed = worker.claims.settle_receipts(awaited, said, NOW + 30 * MINUTE)
        assert confirmed.written == {"ok": 100}
    assert told(conn) == []


def test_a_death_before_a_redrive_is_kept(build, conn) -> None:
    """Also one that nobody noted, as a worker of 0.2.0 does not: the redrive notes it with its last error, and only then."""
    worker = build(outbox_max_attempts=1)
    noted, unnoted = add(conn, 2)
    send(worker, take(worker, limit=1), "retryable", error_code="ConnectionBroken")
    mark_failed(conn, [unnoted], code="MessageTooBig")
    assert actions.redrive(worker.database, DeadLetters(ids=[noted, unnoted])) == 2
    found = [(row[0], *row[1:6]) for row in conn.execute(TOLD).fetchall()]
    assert found == [
        (noted, 1, 1, "dispatch", "failed", "ConnectionBroken"),
        (unnoted, 1, 0, "redrive", "failed", "MessageTooBig"),
    ]


def fail_one(worker: Any, conn: psycopg.Connection[Any], **where: Any) -> int:
    """Have one delivery fail, and return its id."""
    (push,) = add(conn, 1, **where)
    send(worker, take(worker), "failed", error_code="MessageTooBig")
    return push


def test_it_goes_with_its_delivery(build, conn) -> None:
    """A deleted event takes along what went wrong with its deliveries, and nothing of others."""
    worker = build()
    gone, kept = (fail_one(worker, conn, event=each) for each in (81, 82))
    assert conn.execute("select relevo.delete_events('{81}')").fetchone() == (1,)
    left = [row[0] for row in conn.execute(TOLD).fetchall()]
    assert (gone in left, left) == (False, [kept])


def test_it_goes_with_its_month(build, conn) -> None:
    """Once a month of deliveries is sealed, cleanup prunes what went wrong in it, and nothing of other months."""
    worker = build()
    kept = fail_one(worker, conn)
    old = TODAY.replace(day=1) - timedelta(days=40)
    row: dict[str, Any] = {"day": old, "month": old.replace(day=1)}
    conn.execute(
        "insert into relevo.failed_attempts (event_day, delivery_id, n, at, attempt, found_by, became) "
        "select %(day)s, g, 1, now(), 1, 'dispatch', 'failed' from generate_series(1, 30) g",
        row,
    )
    clean = worker.registry["cleanup"]
    assert worker.runner.run(clean, "manual").counts.get("attempts_pruned", 0) == 0
    conn.execute(
        "insert into relevo.archive_exports (entity, month, state, relation, part_rows, sealed_at) "
        "values ('notification_deliveries', %(month)s, 'sealed', 'x', 10, now())",
        row,
    )
    assert worker.runner.run(clean, "manual").counts["attempts_pruned"] == 30
    assert [row[0] for row in conn.execute(TOLD).fetchall()] == [kept]


def test_a_repeated_number_costs_no_settle(build, conn) -> None:
    """Whatever stands in the table already, a settle writes its deliveries."""
    worker = build()
    (push,) = add(conn, 1)
    conn.execute(
        "insert into relevo.failed_attempts (event_day, delivery_id, n, at, attempt, found_by, became, request_id) "
        "values (%s, %s, 20, now(), 1, 'dispatch', 'retryable', %s)",
        [TODAY, push, uuid4()],
    )
    send(worker, take(worker), "failed", error_code="MessageTooBig")
    assert [row[0] for row in told(conn)] == [20]
