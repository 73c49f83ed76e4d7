"""The fence: whoever lost a claim writes nothing, and what a claim leaves behind is neither lost nor doubled."""

from __future__ import annotations

import threading

import pytest

from relevo.core import queries
from relevo.cycles import reaper
from relevo.operators import event_types
from relevo.operators.event_types import TypeSettings
from relevo.runtime.runs import BUDGET, Run, RunContext
from support.claim_steps import HTTP_TIMEOUT, LEASE, NOW, SECOND, add, answers, claims_in, journal, reap, send, take
from support.deliveries import one, states

AFTER_LEASE = NOW + LEASE


def test_a_reaped_claim_settles_nothing(build, conn) -> None:
    """Outcomes of a claim that was taken back write no delivery, whatever they say."""
    add(conn, 4)
    slow, other = build(), build()
    claim = take(slow)
    assert reap(other, AFTER_LEASE)["claims_reaped"] == 1
    before = conn.execute("select * from relevo.notification_deliveries order by id").fetchall()
    for status in ("failed", "retryable", "invalid", "cancelled"):
        assert slow.claims.settle(claim, answers(claim, status), now=AFTER_LEASE).written == {}
    assert conn.execute("select * from relevo.notification_deliveries order by id").fetchall() == before


def test_the_fence_is_per_claim_not_per_worker(build, conn) -> None:
    """The same worker claims the same delivery again; its first claim cannot settle it, its second can."""
    (delivery,) = add(conn, 1)
    worker = build()
    stale = take(worker)
    reap(worker, AFTER_LEASE)
    fresh = take(worker, AFTER_LEASE)
    assert fresh.ids == stale.ids == [delivery]
    assert worker.claims.settle(stale, answers(stale, "failed"), now=AFTER_LEASE).written == {}
    assert one(conn, delivery)["claim_token"] == fresh.token
    assert worker.claims.settle(fresh, answers(fresh, "skipped", attempted=False), now=AFTER_LEASE).written == {
        "skipped": 1
    }


def test_a_claim_cannot_settle_what_it_never_held(build, conn) -> None:
    """Answers for another claim's deliveries, or for nobody's, are not written."""
    add(conn, 2)
    worker = build()
    mine, other = take(worker, limit=1), take(worker, limit=1)
    assert worker.claims.settle(mine, answers(other, "failed"), now=NOW).written == {}
    worker.claims.release(other, NOW)
    assert worker.claims.settle(mine, answers(other, "failed"), now=NOW).written == {}
    assert states(conn) == {"pending": 2}


@pytest.mark.parametrize("status", ["sent", "retryable", "failed", "unknown"])
def test_settling_twice_changes_nothing(build, conn, status) -> None:
    """Settling again, because the first answer was lost, neither writes nor keeps anything."""
    add(conn, 3)
    worker = build()
    claim = take(worker)
    request = journal(worker, claim)
    worker.claims.settle(claim, answers(claim, status), [request.id], NOW)
    before = conn.execute("select * from relevo.notification_deliveries order by id").fetchall()
    again = worker.claims.settle(claim, answers(claim, status), [request.id], NOW + SECOND)
    assert (again.written, again.closed_late, again.kept_as_evidence) == ({}, 0, 0)
    assert conn.execute("select * from relevo.notification_deliveries order by id").fetchall() == before


def test_a_settle_extends_the_lease(build, conn) -> None:
    """A settle of a part extends the claim it holds locked, as a beat would, but none held for three leases."""
    add(conn, 3)
    worker = build()
    claim = take(worker)
    skipped = answers(claim, "skipped", attempted=False)
    until = "select leased_until from relevo.claims"
    for answer, at, expected in [
        (skipped[0], NOW + SECOND, NOW + SECOND + LEASE),
        (skipped[1], NOW + 3 * LEASE - SECOND, NOW + 4 * LEASE - SECOND),
        (skipped[2], NOW + 3 * LEASE, NOW + 4 * LEASE - SECOND),
    ]:
        worker.claims.settle(claim, [answer], now=at)
        assert conn.execute(until).fetchone() == (expected,)


def test_a_settle_after_three_leases_gives_no_time(build, conn) -> None:
    """Its holder does not believe in an extension that the database did not make."""
    add(conn, 2)
    worker = build()
    claim = take(worker, None)
    first, second = answers(claim, "skipped", attempted=False)
    since = claim.since
    worker.claims.settle(claim, [first])
    extended = claim.since
    assert extended > since
    claim.taken_at -= 3 * claim.lease_ms / 1000
    assert worker.claims.settle(claim, [second]).written == {"skipped": 1}
    assert claim.since == extended


def test_settling_nothing_is_nothing(build, conn) -> None:
    """A settle without answers touches nothing."""
    add(conn, 1)
    worker = build()
    assert worker.claims.settle(take(worker), [], now=NOW).written == {}
    assert states(conn) == {"pending": 1}


def test_a_hand_back_spends_nothing(build, conn) -> None:
    """What was claimed and never journalled is due as before: no attempt, no lapse, no new time."""
    first, again = add(conn, 1), add(conn, 1, attempts=3, lapses=1)
    worker = build()
    for _ in range(7):
        claim = take(worker)
        assert worker.claims.release(claim, NOW + SECOND) == {"pending": 1, "retryable": 1, "ambiguous": 0}
    fresh, tried = one(conn, first[0]), one(conn, again[0])
    assert (fresh["status"], fresh["attempt_count"], fresh["lapse_count"]) == ("pending", 0, 0)
    assert (tried["status"], tried["attempt_count"], tried["lapse_count"]) == ("retryable", 3, 1)
    assert fresh["next_attempt_at"] == tried["next_attempt_at"] == NOW
    assert claims_in(conn) == []


def test_a_settled_part_is_not_handed_back(build, conn) -> None:
    """Release gives back only what was not settled, and ends the claim."""
    add(conn, 3)
    worker = build()
    claim = take(worker)
    worker.claims.settle(claim, answers(claim, "skipped", attempted=False)[:2], now=NOW)
    assert worker.claims.release(claim, NOW)["pending"] == 1
    assert states(conn) == {"pending": 1, "skipped": 2}
    assert worker.claims.release(claim, NOW) == {}


def test_lapses_are_counted_and_poison_ends(build, conn) -> None:
    """Claims that lapse before a request cost no attempt but are counted, and at five the delivery is dead."""
    (poison,) = add(conn, 1)
    worker = build()
    now = NOW
    for lapses in range(1, 5):
        take(worker, now)
        now += LEASE
        assert reap(worker, now)["deliveries_recovered"] == 1
        row = one(conn, poison)
        assert (row["status"], row["attempt_count"], row["lapse_count"]) == ("pending", 0, lapses)
        assert (row["next_attempt_at"], row["last_attempt_at"]) == (NOW, None)
    take(worker, now)
    now += LEASE
    assert reap(worker, now)["deliveries_dead"] == 1
    row = one(conn, poison)
    assert (row["status"], row["lapse_count"], row["last_error_code"]) == ("failed", 5, "poison")
    assert row["last_error_message"] == "Its claim lapsed 5 times before a request was started."
    assert (row["completed_at"], row["attempt_count"]) == (now, 0)


def test_after_two_lapses_a_batch_is_taken_apart(build, conn) -> None:
    """A batch that killed its worker twice is claimed one by one, so that only the culprit goes on killing."""
    ids = add(conn, 3)
    worker = build()
    for n in range(2):
        assert take(worker, NOW + n * LEASE).ids == ids
        reap(worker, NOW + (n + 1) * LEASE)
    assert [take(worker, NOW + 2 * LEASE).ids for _ in ids] == [[delivery] for delivery in ids]


def test_a_settle_forgets_lapses(build, conn) -> None:
    """A delivery that got through once starts its count of lapses anew."""
    (delivery,) = add(conn, 1, lapses=1)
    worker = build()
    send(worker, take(worker), "retryable")
    assert one(conn, delivery)["lapse_count"] == 0


def test_reaping_after_the_journal_is_ambiguous(build, conn) -> None:
    """A request without an answer spends an attempt and no lapse; it is tried again after one more HTTP timeout."""
    (delivery,) = add(conn, 1, lapses=1)
    worker = build()
    journal(worker, take(worker))
    counts = reap(worker, AFTER_LEASE)
    assert (counts["deliveries_ambiguous"], counts["deliveries_recovered"]) == (1, 1)
    row = one(conn, delivery)
    assert (row["status"], row["attempt_count"], row["lapse_count"]) == ("retryable", 1, 1)
    assert row["next_attempt_at"] == AFTER_LEASE + HTTP_TIMEOUT
    assert (row["last_attempt_at"], row["last_error_code"]) == (NOW, "answer_not_seen")


def test_an_ambiguous_at_most_once_delivery_is_not_sent_again(build, conn) -> None:
    """An at-most-once delivery whose request started ends unknown; one whose request did not is simply due."""
    started, not_started = add(conn, 2, at_most_once=True)
    worker = build()
    claim = take(worker)
    journal(worker, claim, deliveries=claim.deliveries[:1])
    assert reap(worker, AFTER_LEASE)["deliveries_unknown"] == 1
    row = one(conn, started)
    assert (row["status"], row["completed_at"], row["attempt_count"]) == ("unknown", AFTER_LEASE, 1)
    row = one(conn, not_started)
    assert (row["status"], row["attempt_count"], row["lapse_count"]) == ("pending", 0, 1)


@pytest.mark.parametrize(("own_cap", "attempts"), [(None, 8), (3, 2)])
def test_an_ambiguous_last_attempt_is_the_last(build, conn, own_cap, attempts) -> None:
    """Out of attempts, ambiguous or not, is failed; a type's own cap counts."""
    (delivery,) = add(conn, 1, attempts=attempts)
    worker = build()
    event_types.set_event_type(worker.database, worker.settings, "tender.new", TypeSettings(max_attempts=own_cap))
    journal(worker, take(worker))
    assert reap(worker, AFTER_LEASE)["deliveries_dead"] == 1
    row = one(conn, delivery)
    assert (row["status"], row["attempt_count"], row["completed_at"]) == ("failed", attempts + 1, AFTER_LEASE)


def test_releasing_an_unanswered_request_is_ambiguous_too(build, conn) -> None:
    """A graceful hand-back tells the journalled from the rest: only the latter is as if nothing had happened."""
    asked, spared = add(conn, 2)
    (at_most_once,) = add(conn, 1, at_most_once=True)
    worker = build()
    claim = take(worker)
    journal(worker, claim, deliveries=[d for d in claim.deliveries if d.id != spared])
    assert worker.claims.release(claim, NOW) == {"retryable": 1, "pending": 1, "unknown": 1, "ambiguous": 2}
    assert (one(conn, asked)["attempt_count"], one(conn, asked)["next_attempt_at"]) == (1, NOW + HTTP_TIMEOUT)
    assert (one(conn, spared)["attempt_count"], one(conn, spared)["next_attempt_at"]) == (0, NOW)
    assert one(conn, at_most_once)["status"] == "unknown"


def test_an_answered_request_is_not_ambiguous(build, conn) -> None:
    """What was journalled, answered and settled is not touched when its claim is reaped."""
    add(conn, 2)
    worker = build()
    claim = take(worker)
    request = journal(worker, claim, deliveries=claim.deliveries[:1])
    worker.claims.settle(claim, answers(claim, "sent")[:1], [request.id], NOW)
    counts = reap(worker, AFTER_LEASE)
    assert (counts["deliveries_recovered"], counts["deliveries_ambiguous"]) == (1, 0)
    assert states(conn) == {"sent": 1, "pending": 1}


def test_an_expired_lease_that_nobody_took_still_settles(build, conn) -> None:
    """Until a reaper takes it back a claim may hand in its answers, however late."""
    add(conn, 1)
    worker = build()
    claim = take(worker)
    request = journal(worker, claim)
    late = NOW + 10 * LEASE
    assert worker.claims.settle(claim, answers(claim, "sent"), [request.id], late).written == {"sent": 1}


def test_reapers_take_the_oldest_first_and_only_what_has_expired(build, conn) -> None:
    """A reaper takes back claims in the order of their expiry, says how overdue they were, and spares the living."""
    add(conn, 3)
    worker = build()
    first, second, third = (take(worker, NOW + n * SECOND, limit=1) for n in range(3))
    assert reap(worker, NOW + LEASE - SECOND) == {}
    counts = reap(worker, NOW + LEASE + SECOND)
    assert (counts["claims_reaped"], counts["stale_ms"]) == (2, 1000)
    assert claims_in(conn) == [third.token]
    assert first.token not in claims_in(conn)
    assert second.token not in claims_in(conn)


def test_a_barred_token_is_reaped_without_a_word(build, conn) -> None:
    """The mark of a claim that never came to be goes with its lease and counts for nothing."""
    worker = build()
    bar = queries.load("claims")["bar_claim"]
    conn.execute(
        bar,
        {
            "token": "00000000-0000-4000-8000-000000000001",
            "worker_id": "a",
            "cycle": "dispatch",
            "lease_ms": 60_000,
            "now": NOW,
        },
    )
    assert len(claims_in(conn)) == 1
    assert reap(worker, AFTER_LEASE) == {}
    assert claims_in(conn) == []


def test_a_reapers_items_are_deliveries(build, conn) -> None:
    """A reaper's budget is spent by deliveries taken back, not by how long they had been stuck."""
    add(conn, 5)
    worker = build()
    take(worker)
    conn.execute("update relevo.claims set leased_until = now() - interval '1 hour'")
    context = RunContext(1, "reaper", "", "manual", worker.worker.worker_id, None, NOW)
    step = reaper.step(
        Run(context, worker.settings, worker.database, BUDGET, None, None, threading.Event()), reaper.Memory()
    )
    assert (step.items, step.more, step.counts["deliveries_recovered"]) == (5, False, 5)
    assert step.counts["stale_ms"] >= 3_600_000
    assert claims_in(conn) == []
