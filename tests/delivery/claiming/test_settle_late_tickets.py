"""Late evidence: a ticket that arrives after its claim was lost still keeps its delivery from being sent twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest

from relevo.core import queries
from relevo.core.model import Answer
from relevo.cycles.reaper import reap_one
from relevo.operators import actions
from support.claim_steps import (
    LEASE,
    MINUTE,
    NOW,
    SECOND,
    add,
    answers,
    chunks_in,
    journal,
    late_tickets_in,
    reap,
    send,
    take,
    ticket_of,
)
from support.deliveries import TODAY, add_event, one
from support.lost_claims import (
    PATIENT,
    REAPED_AT,
    RESEND_AT,
    ask,
    awaited_in,
    dead_letters_in,
    progress_in,
    queue,
    receipt_says_try_again,
)
from support.phones import event_row, fan_out
from support.processes import PATIENCE_S, eventually

CLEANUP = queries.load("cleanup")


def test_it_waits_for_the_next_claim_of_an_open_delivery(lost, conn) -> None:
    """Reaped and due again, the delivery is not touched, for it lies in a chunk; its next claim uses the ticket, and
    it is not sent a second time."""
    lost.send()
    before = one(conn, lost.delivery)
    settlement = lost.answer(REAPED_AT + SECOND)
    assert (settlement.written, settlement.closed_late, settlement.kept_as_evidence) == ({}, 0, 1)
    assert (one(conn, lost.delivery), chunks_in(conn)) == (before, [[lost.delivery]])
    claim = take(lost.other, RESEND_AT)
    verdict, _ = ask(lost.other, claim, RESEND_AT)
    assert (verdict.verdict, verdict.ticket_id) == ("sent", lost.ticket)
    answer = Answer(verdict.event_day, verdict.id, "sent", attempted=False, ticket_id=verdict.ticket_id)
    assert lost.other.claims.settle(claim, [answer], now=RESEND_AT, finish=True).written == {"sent": 1}
    row = one(conn, lost.delivery)
    assert (row["status"], row["provider_ticket_id"], row["attempt_count"]) == ("sent", lost.ticket, 1)
    assert (row["next_attempt_at"], row["last_error_code"]) == (None, None)
    assert lost.other.claims.claim("dispatch", "default", "bulk", now=RESEND_AT) is None
    assert (late_tickets_in(conn), awaited_in(conn)) == ([], [(lost.delivery, lost.ticket)])


def test_a_claim_that_a_restore_took_back_tells_nothing(lost, conn) -> None:
    """Where a backup was restored under a worker, its claim journalled nothing, and its deliveries' numbers are given
    again: its tickets, kept ahead or come late, are not taken for those of others."""
    lost.send()
    conn.execute("delete from relevo.push_requests")
    lost.worker.claims.keep_tickets(lost.claim, answers(lost.claim), REAPED_AT + SECOND)
    settlement = lost.answer(REAPED_AT + SECOND)
    assert (settlement.written, settlement.closed_late, settlement.kept_as_evidence) == ({}, 0, 0)
    assert late_tickets_in(conn) == []


def test_tickets_of_a_request_that_was_given_up_are_kept_ahead(lost, conn) -> None:
    """A request that hung was settled as unclear; when its tickets come after all and cannot be written, they are kept."""
    lost.send()
    conn.execute("update relevo.push_requests set answered_at = now(), outcome = 'unclear'")
    told = [answer._replace(request=lost.request.id) for answer in answers(lost.claim)]
    lost.worker.claims.keep_tickets(lost.claim, told, REAPED_AT + SECOND)
    assert late_tickets_in(conn) == [(lost.delivery, lost.ticket)]


@pytest.mark.parametrize("status", ["expired", "skipped", "cancelled", "failed"])
def test_it_tells_that_what_would_end_unsent_was_sent(lost, conn, status) -> None:
    """A claim that ends its delivery without a request, for its deadline, phone or event, finds that it was sent."""
    lost.send()
    lost.answer(REAPED_AT + SECOND)
    claim = take(lost.other, RESEND_AT)
    ended = answers(claim, status, attempted=False, error_code="why")
    assert lost.other.claims.settle(claim, ended, now=RESEND_AT).written == {"sent": 1}
    row = one(conn, lost.delivery)
    assert (row["status"], row["completed_at"], row["last_error_code"]) == ("sent", None, None)
    assert row["provider_ticket_id"] == lost.ticket
    assert (late_tickets_in(conn), awaited_in(conn)) == ([], [(lost.delivery, lost.ticket)])
    assert conn.execute("select count(*) from relevo.dead_letters").fetchone() == (0,)


@pytest.mark.parametrize("status", ["expired", "skipped", "cancelled"])
def test_it_turns_what_ended_unsent_into_sent(lost, conn, status) -> None:
    """A delivery that ended without a ticket, whose first push arrived after all, becomes sent whenever its ticket comes."""
    lost.send()
    claim = take(lost.other, RESEND_AT)
    ended = answers(claim, status, attempted=False, error_code="why")
    assert lost.other.claims.settle(claim, ended, now=RESEND_AT, finish=True).written == {status: 1}
    settlement = lost.answer(RESEND_AT + SECOND)
    assert (settlement.closed_late, settlement.kept_as_evidence) == (1, 0)
    row = one(conn, lost.delivery)
    assert (row["status"], row["completed_at"], row["last_error_code"]) == ("sent", None, None)
    assert row["provider_ticket_id"] == lost.ticket
    assert (late_tickets_in(conn), awaited_in(conn)) == ([], [(lost.delivery, lost.ticket)])
    assert progress_in(conn) == {"pending": -1, "sent": 1}


def test_it_meets_the_end_of_its_delivery(lost, conn, dsn) -> None:
    """A ticket that is kept while the next claim ends the delivery is seen by that settle, which waits for it."""
    lost.send()
    claim = take(lost.other, RESEND_AT)
    keeping = """insert into relevo.late_tickets (event_day, delivery_id, ticket_id, claim_token, recorded_at)
                 select d.event_day, d.id, 'late', %s, now() from relevo.notification_deliveries d where d.id = %s for no key update of d"""
    ended = answers(claim, "expired", attempted=False, error_code="why")
    with psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute(keeping, [uuid4(), lost.delivery])
        settling = pool.submit(lost.other.claims.settle, claim, ended, now=RESEND_AT)
        eventually(
            lambda: conn.execute("select from pg_locks where not granted").rowcount or settling.done(), "it waits"
        )
        other.commit()
        assert settling.result(PATIENCE_S).written == {"sent": 1}
    assert one(conn, lost.delivery)["provider_ticket_id"] == "late"


def test_a_cancelled_event_does_not_hide_that_it_was_sent(lost, conn) -> None:
    """Whoever sweeps a cancelled event leaves what was sent after all to its next claim, ends the rest, and comes back."""
    event = add_event(conn)
    lost.send(event=event)
    lost.answer(REAPED_AT + SECOND)
    (unsent,) = add(conn, 1, event=event, due=RESEND_AT)
    conn.execute("update relevo.notification_events set state = 'cancelled', ended_at = now() where id = %s", [event])
    fan_out(lost.other)
    assert (one(conn, unsent)["status"], chunks_in(conn)) == ("cancelled", [[lost.delivery]])
    claim = take(lost.other, RESEND_AT)
    verdict, _ = ask(lost.other, claim, RESEND_AT)
    assert (verdict.verdict, verdict.ticket_id) == ("sent", lost.ticket)
    ended = answers(claim, "cancelled", attempted=False)
    assert lost.other.claims.settle(claim, ended, now=RESEND_AT, finish=True).written == {"sent": 1}
    assert awaited_in(conn) == [(lost.delivery, lost.ticket)]
    fan_out(lost.other)
    assert event_row(conn, event)["swept_at"] is not None


def test_it_waits_while_another_claim_holds_the_delivery(lost, conn) -> None:
    """Claimed by another, the delivery is not touched; the other's journal then says sent, and nothing is sent."""
    lost.send()
    claim = take(lost.other, RESEND_AT)
    settlement = lost.answer(RESEND_AT)
    assert (settlement.closed_late, settlement.kept_as_evidence) == (0, 1)
    assert one(conn, lost.delivery)["claim_token"] == claim.token
    verdict, request = ask(lost.other, claim, RESEND_AT)
    assert (verdict.verdict, verdict.ticket_id) == ("sent", lost.ticket)
    assert conn.execute("select count(*) from relevo.push_requests where id = %s", [request.id]).fetchone() == (0,)
    answer = Answer(verdict.event_day, verdict.id, "sent", attempted=False, ticket_id=verdict.ticket_id)
    assert lost.other.claims.settle(claim, [answer], now=RESEND_AT).written == {"sent": 1}
    row = one(conn, lost.delivery)
    assert (row["provider_ticket_id"], row["attempt_count"]) == (lost.ticket, 1)
    assert late_tickets_in(conn) == []


def test_it_waits_in_vain_only_if_the_resend_was_journalled_before(lost, conn) -> None:
    """Recorded after the resend was journalled, it cannot stop it; the resend's own ticket is the delivery's."""
    lost.send()
    claim = take(lost.other, RESEND_AT)
    request = journal(lost.other, claim, RESEND_AT)
    lost.answer(RESEND_AT)
    assert lost.other.claims.settle(claim, answers(claim), [request.id], RESEND_AT).written == {"sent": 1}
    assert one(conn, lost.delivery)["provider_ticket_id"] == ticket_of(claim, lost.delivery)
    assert late_tickets_in(conn) == [(lost.delivery, lost.ticket)]


def test_it_turns_unknown_into_sent(lost, conn) -> None:
    """An at-most-once delivery given up as unknown, which nobody owns, becomes sent at once, and its receipt is awaited."""
    lost.send(at_most_once=True)
    assert one(conn, lost.delivery)["status"] == "unknown"
    assert lost.answer(REAPED_AT).closed_late == 1
    row = one(conn, lost.delivery)
    assert (row["status"], row["completed_at"], row["provider_ticket_id"]) == ("sent", None, lost.ticket)
    assert (late_tickets_in(conn), awaited_in(conn)) == ([], [(lost.delivery, lost.ticket)])
    assert row["next_receipt_at"] == REAPED_AT + 15 * MINUTE


def test_it_turns_a_last_attempt_that_nobody_saw_into_sent(lost, conn) -> None:
    """The last attempt lost to a reaper failed because its answer was not seen: its ticket makes it sent, as it makes
    what was given up as unknown, and no dead letter is left to be redriven."""
    lost.send(attempts=lost.worker.settings.outbox_max_attempts - 1)
    row = one(conn, lost.delivery)
    assert (row["status"], row["last_error_code"]) == ("failed", "answer_not_seen")
    assert lost.answer(REAPED_AT).closed_late == 1
    row = one(conn, lost.delivery)
    assert (row["status"], row["completed_at"], row["provider_ticket_id"]) == ("sent", None, lost.ticket)
    assert (late_tickets_in(conn), awaited_in(conn), dead_letters_in(conn)) == ([], [(lost.delivery, lost.ticket)], [])
    assert progress_in(conn) == {"retryable": -1, "sent": 1}
    assert actions.redrive(lost.other.database, actions.DeadLetters(project="default"), now=RESEND_AT) == 0


def test_a_redrive_does_not_send_what_a_late_ticket_tells_of(lost, conn) -> None:
    """What failed for another reason keeps its late ticket for as long as it can be redriven, however old the ticket is;
    a redrive's claim then finds that it was sent."""
    lost.send()
    claim = take(lost.other, RESEND_AT)
    lost.other.claims.settle(claim, answers(claim, "failed", error_code="Refused"), now=RESEND_AT, finish=True)
    assert lost.answer(RESEND_AT).kept_as_evidence == 1
    later = RESEND_AT + 3 * 24 * 60 * MINUTE
    conn.execute(CLEANUP["prune_late_tickets"], {"now": later, "limit": 100})
    assert late_tickets_in(conn) == [(lost.delivery, lost.ticket)]
    assert actions.redrive(lost.other.database, actions.DeadLetters(project="default"), now=later) == 1
    verdict, _ = ask(lost.other, take(lost.other, later), later)
    assert (verdict.verdict, verdict.ticket_id) == ("sent", lost.ticket)


@pytest.mark.parametrize("journalled", [False, True])
def test_the_reaper_uses_it(lost, conn, journalled) -> None:
    """A ticket that waits closes the delivery when the claim that holds it is reaped, even one that began to resend."""
    lost.send()
    claim = take(lost.other, RESEND_AT)
    if journalled:
        journal(lost.other, claim, RESEND_AT)
    lost.answer(RESEND_AT)
    assert reap(lost.worker, RESEND_AT + LEASE)["deliveries_closed_by_late_ticket"] == 1
    row = one(conn, lost.delivery)
    assert (row["status"], row["provider_ticket_id"], row["attempt_count"]) == ("sent", lost.ticket, 1 + journalled)
    assert late_tickets_in(conn) == []


@pytest.mark.parametrize("used_by", ["nobody", "journal", "settle", "hand-back", "reaper"])
def test_what_it_closes_counts_as_sent_once(lost, conn, used_by) -> None:
    """Whoever uses it, the push is one of those that its project sent: no more are confirmed than were sent."""
    lost.send(at_most_once=used_by == "nobody")
    if used_by != "nobody":
        claim = take(lost.other, RESEND_AT)
    lost.answer(RESEND_AT)
    if used_by == "journal":
        verdict, _ = ask(lost.other, claim, RESEND_AT)
        answer = Answer(verdict.event_day, verdict.id, "sent", attempted=False, ticket_id=verdict.ticket_id)
        lost.other.claims.settle(claim, [answer], now=RESEND_AT, finish=True)
    elif used_by == "settle":
        lost.other.claims.settle(claim, answers(claim, "expired", attempted=False), now=RESEND_AT, finish=True)
    elif used_by == "hand-back":
        lost.other.claims.release(claim, RESEND_AT)
    elif used_by == "reaper":
        reap(lost.worker, RESEND_AT + LEASE)
    assert one(conn, lost.delivery)["status"] == "sent"
    told = "select project, sum(sent)::int, sum(answers)::int, sum(unregistered)::int from relevo.push_tallies group by project"
    assert conn.execute(told).fetchall() == [("default", 1, 1, 0)]


def test_a_hand_back_uses_it(lost, conn) -> None:
    """A ticket that waits closes the delivery when the claim that holds it is handed back."""
    lost.send()
    claim = take(lost.other, RESEND_AT)
    lost.answer(RESEND_AT)
    assert lost.other.claims.release(claim, RESEND_AT)["sent"] == 1
    assert one(conn, lost.delivery)["provider_ticket_id"] == lost.ticket


def test_it_counts_more_than_the_deadline(lost, conn) -> None:
    """A delivery that was sent is sent, though its deadline has passed when the next claim looks at it."""
    lost.send(deadline=RESEND_AT)
    claim = take(lost.other, RESEND_AT)
    lost.answer(RESEND_AT)
    verdict, _ = ask(lost.other, claim, RESEND_AT + SECOND)
    assert verdict.verdict == "sent"


@pytest.mark.parametrize("at_most_once", [False, True])
def test_handing_it_in_twice_is_handing_it_in_once(lost, conn, at_most_once) -> None:
    """The same late answer again neither writes nor keeps anything, closed or waiting."""
    lost.send(at_most_once=at_most_once)
    first = lost.answer(REAPED_AT)
    assert (first.closed_late, first.kept_as_evidence) == (int(at_most_once), int(not at_most_once))
    again = lost.answer(REAPED_AT + SECOND)
    assert (again.closed_late, again.kept_as_evidence) == (0, 0)
    assert one(conn, lost.delivery)["updated_at"] == REAPED_AT
    assert len(awaited_in(conn)) == at_most_once


def test_a_consumed_ticket_does_not_stop_a_resend(lost, conn) -> None:
    """After a late ticket closed the delivery and its receipt asks for another try, the journal lets it be sent."""
    lost.send(at_most_once=True)
    lost.answer(REAPED_AT)
    receipt_says_try_again(conn, lost.delivery, RESEND_AT)
    assert lost.answer(RESEND_AT).kept_as_evidence == 0  # a third time, for good measure
    send(lost.other, take(lost.other, RESEND_AT), now=RESEND_AT)
    assert one(conn, lost.delivery)["attempt_count"] == 2


def test_a_ticket_that_waited_stops_one_send_not_two(lost, conn) -> None:
    """A ticket that was overtaken is looked at once, when a receipt asks for another try; then the way is free."""
    lost.send()
    claim = take(lost.other, RESEND_AT)
    request = journal(lost.other, claim, RESEND_AT)
    lost.answer(RESEND_AT)
    lost.other.claims.settle(claim, answers(claim), [request.id], RESEND_AT)
    lost.other.claims.release(claim, RESEND_AT)
    receipt_says_try_again(conn, lost.delivery, RESEND_AT)
    claim = take(lost.other, RESEND_AT)
    verdict, _ = ask(lost.other, claim, RESEND_AT)
    assert (verdict.verdict, verdict.ticket_id) == ("sent", lost.ticket)
    answer = Answer(verdict.event_day, verdict.id, "sent", attempted=False, ticket_id=verdict.ticket_id)
    lost.other.claims.settle(claim, [answer], now=RESEND_AT)
    lost.other.claims.release(claim, RESEND_AT)
    receipt_says_try_again(conn, lost.delivery, RESEND_AT)
    send(lost.other, take(lost.other, RESEND_AT), now=RESEND_AT)
    assert late_tickets_in(conn) == []


def test_a_ticket_kept_before_it_was_used_does_not_stop_a_resend(lost, conn) -> None:
    """Kept while the delivery was final, used by its claim after a redrive, it has had its say: a receipt's retry is sent."""
    lost.send()
    claim = take(lost.other, RESEND_AT)
    lost.other.claims.settle(claim, answers(claim, "failed", error_code="Refused"), now=RESEND_AT)
    assert lost.answer(RESEND_AT).kept_as_evidence == 1
    lost.other.claims.release(claim, RESEND_AT)
    conn.execute("update relevo.notification_deliveries set status = 'retryable', completed_at = null")
    queue(conn, lost.delivery, RESEND_AT)
    assert lost.answer(RESEND_AT).kept_as_evidence == 0
    assert lost.other.claims.release(take(lost.other, RESEND_AT), RESEND_AT)["sent"] == 1
    receipt_says_try_again(conn, lost.delivery, RESEND_AT)
    send(lost.other, take(lost.other, RESEND_AT), now=RESEND_AT)


@pytest.mark.parametrize("status", ["ok", "unconfirmed", "invalid", "failed"])
def test_final_states_are_not_reopened(lost, conn, status) -> None:
    """A late ticket is kept, but what is final stays as it is."""
    lost.send()
    claim = take(lost.other, RESEND_AT)
    ticket = "theirs" if status in ("ok", "unconfirmed") else None
    lost.other.claims.settle(claim, answers(claim, status, ticket_id=ticket, error_code="Refused"), now=RESEND_AT)
    before = one(conn, lost.delivery)
    assert before["status"] == status
    settlement = lost.answer(RESEND_AT)
    assert (settlement.closed_late, settlement.kept_as_evidence) == (0, 1)
    assert one(conn, lost.delivery) == before


def test_a_late_failure_is_no_evidence(lost, conn) -> None:
    """Only a ticket says that something was sent: a late error leaves the delivery to be tried again."""
    lost.send()
    late = lost.worker.claims.settle(lost.claim, answers(lost.claim, "retryable"), [lost.request.id], REAPED_AT)
    assert (late.written, late.closed_late, late.kept_as_evidence) == ({}, 0, 0)
    assert one(conn, lost.delivery)["status"] == "retryable"


def test_answers_may_come_partly_in_time(build, conn) -> None:
    """In one settle, what is still held is written and only the rest becomes evidence."""
    held, stolen = add(conn, 2)
    worker = build()
    claim = take(worker)
    request = journal(worker, claim)
    conn.execute("update relevo.claims set days = days[1:1], ids = %s", [[held]])
    settlement = worker.claims.settle(claim, answers(claim), [request.id], NOW)
    assert (settlement.written, settlement.closed_late, settlement.kept_as_evidence) == ({"sent": 1}, 0, 1)
    assert (one(conn, held)["status"], one(conn, stolen)["status"]) == ("sent", "pending")
    assert late_tickets_in(conn) == [(stolen, ticket_of(claim, stolen))]


def test_a_reaper_at_work_is_waited_for(build, conn, dsn) -> None:
    """A worker says that nothing was begun while a reaper is giving it up: whoever is first, nothing ends unknown."""
    (delivery,) = add(conn, 1, at_most_once=True)
    worker = build()
    claim = take(worker)
    request = journal(worker, claim)
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    with psycopg.connect(dsn) as reaper, ThreadPoolExecutor(1) as pool:
        assert reap_one(reaper, worker.settings, REAPED_AT).counts["deliveries_unknown"] == 1
        marking = pool.submit(worker.claims.mark_unsent, claim, [request.id], REAPED_AT)
        eventually(lambda: marking.done() or conn.execute(waiting).fetchone()[0])
        reaper.commit()
        marking.result(PATIENCE_S)
    assert (one(conn, delivery)["status"], chunks_in(conn)) == ("pending", [[delivery]])


def test_a_ticket_meets_a_reaper(build, conn, dsn) -> None:
    """A worker that knows that its claim is lost hands in tickets while a reaper gives the claim up: whoever is first,
    what may be sent at most once is known to be sent."""
    ids = add(conn, 2, at_most_once=True)
    worker, other = build(worker_id="slow", **PATIENT), build(worker_id="other", **PATIENT)
    claim = take(worker)
    request = journal(worker, claim)
    claim.lose("error", "as if it had been held for too long")
    keep = "insert into relevo.late_tickets (event_day, delivery_id, ticket_id, claim_token, recorded_at) values (%s, %s, %s, %s, %s)"
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    with psycopg.connect(dsn) as between, ThreadPoolExecutor(2) as pool:
        between.execute(
            keep, [TODAY, ids[1], ticket_of(claim, ids[1]), uuid4(), NOW]
        )  # holds the worker up in the midst
        settling = pool.submit(worker.claims.settle, claim, answers(claim), [request.id], REAPED_AT)
        eventually(lambda: settling.done() or conn.execute(waiting).fetchone() == (1,))
        reaping = pool.submit(reap, other, REAPED_AT)
        eventually(lambda: reaping.done() or conn.execute(waiting).fetchone() == (2,))
        between.rollback()
        settling.result(PATIENCE_S), reaping.result(PATIENCE_S)
    reap(other, REAPED_AT)
    assert [one(conn, each)["status"] for each in ids] == ["sent", "sent"]
    assert (late_tickets_in(conn), len(awaited_in(conn))) == ([], 2)
