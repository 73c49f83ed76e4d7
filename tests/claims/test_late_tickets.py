"""Late evidence: a ticket that arrives after its claim was lost still keeps its delivery from being sent twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest
from claiming import (
    HTTP_TIMEOUT,
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

from deliveries import TODAY, add_event, one
from phones import event_row, fan_out
from processes import PATIENCE_S, eventually
from relevo.core import queries
from relevo.core.model import Answer, PushRequest
from relevo.cycles.reaper import reap_one
from relevo.operators import actions

CLEANUP = queries.load("cleanup")
REAPED_AT = NOW + LEASE
RESEND_AT = REAPED_AT + HTTP_TIMEOUT
PATIENT = {"database_lock_timeout_ms": 15_000, "database_statement_timeout_ms": 16_000}


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
    conn.execute("delete from relevo.awaited_receipts where %s = any (ids)", [delivery])
    again = "update relevo.notification_deliveries set status = 'retryable' where id = %s and status = 'sent'"
    assert conn.execute(again, [delivery]).rowcount == 1
    queue(conn, delivery, now)


def queue(conn, delivery, now):
    """Put a delivery that was opened again into the queue."""
    put = """select relevo.queue_deliveries(array[d.event_day], array[d.id], array[%s::timestamptz])
               from relevo.notification_deliveries d where d.id = %s"""
    assert conn.execute(put, [now, delivery]).fetchone() == (1,)


def awaited_in(conn):
    """List the deliveries whose receipts are awaited, with their tickets."""
    awaited = (
        "select u.id, u.ticket from relevo.awaited_receipts r cross join unnest(r.ids, r.tickets) as u(id, ticket)"
    )
    return conn.execute(awaited).fetchall()


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


def dead_letters_in(conn):
    """List the deliveries that a redrive would open."""
    return [row[0] for row in conn.execute("select delivery_id from relevo.dead_letters order by 1").fetchall()]


def progress_in(conn):
    """Return by how much the counts of deliveries per status have changed."""
    told = "select status, sum(deliveries)::int from relevo.event_progress_deltas group by status having sum(deliveries) <> 0"
    return dict(conn.execute(told).fetchall())


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


@pytest.mark.parametrize("status", ["ok", "unconfirmed", "invalid", "failed", "expired", "skipped", "cancelled"])
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
