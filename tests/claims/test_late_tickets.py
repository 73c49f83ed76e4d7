"""Late evidence: a ticket that arrives after its claim was lost still keeps its delivery from being sent twice."""

from __future__ import annotations

from uuid import uuid4

import pytest
from claiming import (
    HTTP_TIMEOUT,
    LEASE,
    NOW,
    SECOND,
    add,
    answers,
    journal,
    late_tickets_in,
    reap,
    send,
    take,
    ticket_of,
)

from deliveries import one
from relevo.model import Answer, PushRequest

REAPED_AT = NOW + LEASE
RESEND_AT = REAPED_AT + HTTP_TIMEOUT


@pytest.fixture
def lost(build, conn):
    """Return a worker with a claim it sent and lost; `lost.answer(now)` hands in its tickets."""

    class Lost:
        def __init__(self) -> None:
            self.worker = build(worker_id="slow")
            self.other = build(worker_id="other")
            self.delivery = 0

        def send(self, **columns):
            (self.delivery,) = add(conn, 1, **columns)
            self.claim = take(self.worker)
            self.request = journal(self.worker, self.claim)
            reap(self.other, REAPED_AT)
            return self

        def answer(self, now):
            return self.worker.claims.settle(self.claim, answers(self.claim), [self.request.id], now)

        @property
        def ticket(self):
            return ticket_of(self.claim, self.delivery)

    return Lost()


def ask(worker, claim, now):
    """Journal a claim of one delivery and return what the journal says, and the request it wrote, if it did."""
    request = PushRequest(uuid4(), claim.deliveries)
    (verdict,) = worker.claims.journal(claim, [request], now)
    return verdict, request


def receipt_says_try_again(conn, delivery, now):
    """Do what the receipt cycle does when the provider asks for another try."""
    conn.execute(
        "update relevo.notification_deliveries set status = 'retryable', next_attempt_at = %s where id = %s and status = 'sent'",
        [now, delivery],
    )


def test_it_closes_an_open_delivery_that_nobody_holds(lost, conn) -> None:
    """Reaped and due again, the delivery is closed as sent and is not sent a second time."""
    lost.send()
    settlement = lost.answer(REAPED_AT + SECOND)
    assert (settlement.written, settlement.closed_late, settlement.kept_as_evidence) == ({}, 1, 0)
    row = one(conn, lost.delivery)
    assert (row["status"], row["provider_ticket_id"], row["attempt_count"]) == ("sent", lost.ticket, 1)
    assert (row["next_attempt_at"], row["last_error_code"]) == (None, None)
    assert lost.other.claims.claim("dispatch", "default", "bulk", now=RESEND_AT) is None
    assert late_tickets_in(conn) == []


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
    """An at-most-once delivery given up as unknown becomes sent, and open for its receipt."""
    lost.send(at_most_once=True)
    assert one(conn, lost.delivery)["status"] == "unknown"
    assert lost.answer(REAPED_AT).closed_late == 1
    row = one(conn, lost.delivery)
    assert (row["status"], row["completed_at"], row["provider_ticket_id"]) == ("sent", None, lost.ticket)


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


def test_handing_it_in_twice_is_handing_it_in_once(lost, conn) -> None:
    """The same late answer again neither writes nor keeps anything, closed or waiting."""
    lost.send()
    assert lost.answer(REAPED_AT).closed_late == 1
    again = lost.answer(REAPED_AT + SECOND)
    assert (again.closed_late, again.kept_as_evidence) == (0, 0)
    assert one(conn, lost.delivery)["updated_at"] == REAPED_AT


def test_a_consumed_ticket_does_not_stop_a_resend(lost, conn) -> None:
    """After a late ticket closed the delivery and its receipt asks for another try, the journal lets it be sent."""
    lost.send()
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
    """Kept while the delivery was final, then closing it after a redrive, it has had its say: a receipt's retry is sent."""
    lost.send()
    claim = take(lost.other, RESEND_AT)
    lost.other.claims.settle(claim, answers(claim, "failed"), now=RESEND_AT)
    assert lost.answer(RESEND_AT).kept_as_evidence == 1
    conn.execute(
        "update relevo.notification_deliveries set status = 'pending', completed_at = null, next_attempt_at = %s",
        [RESEND_AT],
    )
    assert lost.answer(RESEND_AT).closed_late == 1
    receipt_says_try_again(conn, lost.delivery, RESEND_AT)
    send(lost.other, take(lost.other, RESEND_AT), now=RESEND_AT)


@pytest.mark.parametrize("status", ["ok", "unconfirmed", "invalid", "failed", "expired", "skipped", "cancelled"])
def test_final_states_are_not_reopened(lost, conn, status) -> None:
    """A late ticket is kept, but what is final stays as it is."""
    lost.send()
    claim = take(lost.other, RESEND_AT)
    ticket = "theirs" if status in ("ok", "unconfirmed") else None
    lost.other.claims.settle(claim, answers(claim, status, ticket_id=ticket), now=RESEND_AT)
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
    conn.execute("update relevo.notification_deliveries set claim_token = null where id = %s", [stolen])
    settlement = worker.claims.settle(claim, answers(claim), [request.id], NOW)
    assert (settlement.written, settlement.closed_late) == ({"sent": 1}, 1)
    assert one(conn, held)["status"] == one(conn, stolen)["status"] == "sent"
    assert late_tickets_in(conn) == []
