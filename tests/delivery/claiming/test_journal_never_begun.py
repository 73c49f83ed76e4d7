"""A claim was lost before its request was begun: what it had journalled is opened again, and nothing else is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest

from support.claim_steps import NOW, SECOND, add, answers, chunks_in, journal, reap, send, take
from support.deliveries import one
from support.lost_claims import PATIENT, REAPED_AT, RESEND_AT, dead_letters_in, progress_in
from support.processes import PATIENCE_S, eventually


def unsent(lost, now):
    """Say that the lost claim's request was never begun."""
    lost.worker.claims.mark_unsent(lost.claim, [lost.request.id], now)


def test_what_was_never_begun_is_opened_again(lost, conn) -> None:
    """A worker that wakes up late and knows that its request was never begun: what ended unknown for it is due again,
    as if nothing had happened, and is sent."""
    lost.send(at_most_once=True)
    assert one(conn, lost.delivery)["status"] == "unknown"
    woke_at = REAPED_AT + SECOND
    unsent(lost, woke_at)
    row = one(conn, lost.delivery)
    assert (row["status"], row["attempt_count"], row["completed_at"], row["last_error_code"]) == (
        "pending",
        0,
        None,
        None,
    )
    assert (row["next_attempt_at"], chunks_in(conn)) == (woke_at, [[lost.delivery]])
    unsent(lost, woke_at)  # and not a second time
    assert chunks_in(conn) == [[lost.delivery]]
    send(lost.other, take(lost.other, woke_at), now=woke_at)
    assert one(conn, lost.delivery)["status"] == "sent"
    told = "select status, sum(deliveries)::int from relevo.event_progress_deltas group by status having sum(deliveries) <> 0"
    assert dict(conn.execute(told).fetchall()) == {"pending": -1, "sent": 1}


def test_what_another_request_left_in_doubt_stays(lost, conn) -> None:
    """A delivery that ended unknown by a later request than the one that was never begun is not opened again."""
    lost.send(at_most_once=True)
    later = "update relevo.notification_deliveries set last_attempt_at = last_attempt_at + interval '1 second' where id = %s"
    conn.execute(later, [lost.delivery])
    unsent(lost, REAPED_AT + SECOND)
    assert (one(conn, lost.delivery)["status"], chunks_in(conn)) == ("unknown", [])


def test_a_journal_that_commits_late_is_waited_for(build, conn, dsn) -> None:
    """A journal whose answer was lost commits while its requests are marked: they are found, and nobody takes them for sent."""
    worker = build(**PATIENT)
    add(conn, 1)
    claim = take(worker)
    request = uuid4()
    journalled = """insert into relevo.push_requests (request_day, id, claim_token, worker_id, project, journalled_at, days, ids)
                    select current_date, %s, c.token, c.worker_id, 'default', now(), c.days, c.ids from relevo.claims c where c.token = %s for key share"""
    with psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute(journalled, [request, claim.token])
        marking = pool.submit(worker.claims.mark_unsent, claim, [request])
        eventually(
            lambda: conn.execute("select from pg_locks where not granted").rowcount or marking.done(), "it waits"
        )
        other.commit()
        marking.result(PATIENCE_S)
    asked = "select outcome from relevo.push_requests where id = %s"
    assert conn.execute(asked, [request]).fetchone() == ("held_back",)


def test_what_was_never_begun_goes_on_as_often_tried(lost, conn) -> None:
    """Opened again, a delivery that had been tried before still has its attempts behind it, without the one in doubt."""
    lost.send(at_most_once=True, attempts=2)
    assert one(conn, lost.delivery)["attempt_count"] == 3
    unsent(lost, REAPED_AT)
    assert (one(conn, lost.delivery)["status"], one(conn, lost.delivery)["attempt_count"]) == ("retryable", 2)


def test_a_last_attempt_that_was_never_begun_is_opened_again(lost, conn) -> None:
    """It ended failed, for a reaper could not know that its request was never begun: it is due again, and no dead letter."""
    last = lost.worker.settings.outbox_max_attempts - 1
    lost.send(attempts=last)
    assert (one(conn, lost.delivery)["status"], dead_letters_in(conn)) == ("failed", [lost.delivery])
    unsent(lost, REAPED_AT)
    row = one(conn, lost.delivery)
    assert (row["status"], row["attempt_count"], row["completed_at"]) == ("retryable", last, None)
    assert (dead_letters_in(conn), chunks_in(conn), progress_in(conn)) == ([], [[lost.delivery]], {})
    send(lost.other, take(lost.other, REAPED_AT), now=REAPED_AT)
    assert one(conn, lost.delivery)["status"] == "sent"


@pytest.mark.parametrize("reaped_first", [True, False])
def test_what_was_refused_for_now_is_opened_again(build, conn, reaped_first) -> None:
    """A push service took one message of a lost claim and asked to try the other later: that one is certainly not sent, and
    does not stay unknown, whether the reaper or the answer was first."""
    taken, refused = add(conn, 2, at_most_once=True)
    worker, other = build(worker_id="slow"), build(worker_id="other")
    claim = take(worker)
    request = journal(worker, claim)
    claim.lose("error", "as if it had been held for too long")
    said = {answer.id: answer for answer in answers(claim)}
    said[refused] = said[refused]._replace(
        status="retryable", ticket_id=None, error_code="MessageRateExceeded", request=request.id
    )

    def answer() -> None:
        worker.claims.settle(claim, list(said.values()), [request.id], REAPED_AT)

    for step in (lambda: reap(other, REAPED_AT), answer) if reaped_first else (answer, lambda: reap(other, REAPED_AT)):
        step()
    assert [one(conn, each)["status"] for each in (taken, refused)] == ["sent", "pending"]
    assert chunks_in(conn) == [[refused]]


def test_what_nobody_knows_of_stays_as_it_ended(lost, conn) -> None:
    """A late answer that says nothing for sure opens nothing again: a last attempt that nobody saw stays a dead letter."""
    lost.send(attempts=lost.worker.settings.outbox_max_attempts - 1)
    unclear = answers(lost.claim, "retryable", error_code="timeout", request=lost.request.id, unclear=True)
    lost.worker.claims.settle(lost.claim, unclear, [lost.request.id], REAPED_AT)
    assert (one(conn, lost.delivery)["status"], chunks_in(conn)) == ("failed", [])


def test_what_was_never_begun_and_came_too_late_expires(lost, conn) -> None:
    """Past its deadline it is opened again too, and its next claim finds that it must not be sent any more."""
    lost.send(at_most_once=True, deadline=REAPED_AT)
    unsent(lost, REAPED_AT + SECOND)
    claim = take(lost.other, REAPED_AT + SECOND)
    assert [d.obstacle for d in claim.deliveries] == ["deadline_passed"]
    ended = answers(claim, "expired", attempted=False, error_code="deadline_passed")
    assert lost.other.claims.settle(claim, ended, now=REAPED_AT + SECOND, finish=True).written == {"expired": 1}
    assert (one(conn, lost.delivery)["status"], chunks_in(conn)) == ("expired", [])


@pytest.mark.parametrize("attempts", [0, 2])
def test_what_waits_again_has_its_attempt_back(lost, conn, attempts) -> None:
    """At least once, a reaper took its request for one that may have been sent, and counted it; it is known now that it
    was never begun. Others of its event, which wait in the same chunk, stay as they are."""
    lost.send(attempts=attempts)
    assert (one(conn, lost.delivery)["status"], one(conn, lost.delivery)["attempt_count"]) == (
        "retryable",
        attempts + 1,
    )
    conn.execute(
        """update relevo.due_chunks set ids = ids || 999999::bigint, installations = installations || gen_random_uuid()"""
    )
    unsent(lost, REAPED_AT)
    row = one(conn, lost.delivery)
    became = "retryable" if attempts else "pending"
    assert (row["status"], row["attempt_count"], row["last_error_code"]) == (became, attempts, None)
    assert row["next_attempt_at"] == REAPED_AT
    assert sorted(chunks_in(conn)) == [[lost.delivery], [999999]]
    unsent(lost, REAPED_AT)  # and not a second time
    assert one(conn, lost.delivery) == row


def test_what_others_are_at_stays_as_it_is(lost, conn) -> None:
    """What was claimed again meanwhile, or was closed by a ticket, is not opened."""
    lost.send()
    claim = take(lost.other, RESEND_AT)
    before = one(conn, lost.delivery)
    unsent(lost, REAPED_AT)
    assert (one(conn, lost.delivery), chunks_in(conn)) == (before, [])
    lost.other.claims.release(claim, RESEND_AT)
    conn.execute("delete from relevo.due_chunks")
    lost.send(at_most_once=True)
    lost.answer(REAPED_AT)
    unsent(lost, REAPED_AT)
    assert (one(conn, lost.delivery)["status"], chunks_in(conn)) == ("sent", [])


def test_a_claim_that_stands_keeps_what_was_never_begun(build, conn) -> None:
    """While the claim stands nothing is opened: handing it back finds that nothing was begun."""
    (delivery,) = add(conn, 1, at_most_once=True)
    worker = build()
    claim = take(worker)
    request = journal(worker, claim)
    worker.claims.mark_unsent(claim, [request.id], NOW)
    assert chunks_in(conn) == []
    assert worker.claims.release(claim, NOW) == {"pending": 1, "ambiguous": 0}
    assert (one(conn, delivery)["attempt_count"], chunks_in(conn)) == (0, [[delivery]])
