"""Many at once: claims are disjoint, bounded and fenced whatever happens at the same time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pytest

from relevo.core import queries
from relevo.core.errors import DatabaseUnavailableError, OwnershipLostError
from relevo.core.model import SentRequest
from relevo.delivery.claiming.claims import end_claim
from support.claim_steps import (
    LATER,
    LEASE,
    MINUTE,
    NOW,
    SECOND,
    add,
    answers,
    chunks_in,
    claims_in,
    forget_deliveries,
    journal,
    late_tickets_in,
    reap,
    send,
    take,
)
from support.deliveries import one, states
from support.processes import eventually

SQL = queries.load("claims", "settle")
RENEW = SQL["renew_claims"]
DEADLINE_S = 60


@pytest.fixture
def at_once():
    """Run calls at the same moment, each in a thread, and return their results; an error of any is raised."""

    def run(*calls):
        line = threading.Barrier(len(calls), timeout=DEADLINE_S)

        def start(call):
            line.wait()
            return call()

        with ThreadPoolExecutor(len(calls)) as pool:
            return [future.result(DEADLINE_S) for future in [pool.submit(start, call) for call in calls]]

    return run


def test_eight_claimers_get_disjoint_batches(build, conn, at_once) -> None:
    """Eight workers drain one queue at once: no delivery is claimed twice, none is left, no batch exceeds its limit."""
    add(conn, 2_000)
    workers = [build(worker_id=f"worker-{n}", outbox_batch_size=70 + n) for n in range(8)]

    def drain(worker):
        batches = []
        while (claim := worker.claims.claim("dispatch", "default", "bulk", now=NOW)) is not None:
            batches.append(claim.ids)
        return batches

    results = at_once(*[lambda worker=worker: drain(worker) for worker in workers])
    batches = [batch for result in results for batch in result]
    assert max(map(len, batches)) <= 77
    claimed = Counter(delivery for batch in batches for delivery in batch)
    assert (len(claimed), max(claimed.values())) == (2_000, 1)
    listed = conn.execute("select count(*) from relevo.claims c cross join unnest(c.ids)").fetchone()
    assert (listed, chunks_in(conn)) == ((2_000,), [])


def test_a_limit_holds_while_deliveries_come_and_go(build, conn, at_once) -> None:
    """While others claim and hand back without pause, no claim takes more than it asked for, and nothing is lost."""
    add(conn, 300)
    workers = [build(worker_id=f"worker-{n}") for n in range(4)]

    def take_and_return(worker):
        sizes = []
        for _ in range(25):
            claim = worker.claims.claim("dispatch", "default", "bulk", limit=10, now=NOW)
            if claim is not None:
                sizes.append(len(claim.ids))
                worker.claims.release(claim, NOW)
        return sizes

    results = at_once(*[lambda worker=worker: take_and_return(worker) for worker in workers])
    assert max(size for sizes in results for size in sizes) <= 10
    assert (states(conn), claims_in(conn)) == ({"pending": 300}, [])
    queued = Counter(delivery for held in chunks_in(conn) for delivery in held)
    assert (len(queued), max(queued.values())) == (300, 1)
    assert conn.execute("select max(lapse_count) from relevo.notification_deliveries").fetchone() == (0,)


def test_settle_and_reap_at_once_write_once(build, conn, at_once) -> None:
    """Whoever comes first writes all of a claim's deliveries, the other none of them; they never deadlock."""
    worker, other = build(), build()
    for round_number in range(40):
        add(conn, 20, event=round_number)
        claim = take(worker)
        settlement, reaped = at_once(
            lambda claim=claim: worker.claims.settle(
                claim, list(reversed(answers(claim, "skipped", attempted=False))), now=NOW
            ),
            lambda: reap(other, NOW + LEASE),
        )
        settled, recovered = settlement.written.get("skipped", 0), reaped["deliveries_recovered"]
        assert (settled, recovered) in [(20, 0), (0, 20)]
        reap(other, NOW + LEASE)  # the settled claim's empty shell
        forget_deliveries(conn)
    assert claims_in(conn) == []


def test_settle_in_parts_and_reap_at_once(build, conn, at_once) -> None:
    """Waves settled from several threads race a reaper: each delivery is written by exactly one of them."""
    worker, other = build(), build()
    for round_number in range(15):
        add(conn, 30, event=round_number)
        claim = take(worker)
        given = answers(claim, "skipped", attempted=False)
        parts = [given[n::3] for n in range(3)]
        *settlements, reaped = at_once(
            *[lambda part=part, claim=claim: worker.claims.settle(claim, part, now=NOW) for part in parts],
            lambda: reap(other, NOW + LEASE),
        )
        settled = sum(s.written.get("skipped", 0) for s in settlements)
        assert settled % 10 == 0
        assert settled + reaped["deliveries_recovered"] == 30
        reap(other, NOW + LEASE)
        forget_deliveries(conn)


def test_two_late_settlers_do_not_deadlock(build, conn, at_once) -> None:
    """Two lost claims hand in tickets for the same deliveries, in opposite order: of what was given up as unknown one
    closes each, the other is kept."""
    worker, other = build(), build()
    for round_number in range(15):
        add(conn, 50, event=round_number)
        first = take(worker)
        journal(worker, first)
        reap(worker, NOW + LEASE)
        again = NOW + 2 * LEASE
        second = take(other, again)
        journal(other, second, again)
        conn.execute("update relevo.notification_events set at_most_once = true where id = %s", [round_number])
        reap(worker, again + LEASE)
        assert states(conn) == {"unknown": 50}
        results = at_once(
            lambda: worker.claims.settle(first, answers(first), now=again + LEASE),
            lambda: other.claims.settle(second, list(reversed(answers(second))), now=again + LEASE),
        )
        assert sum(r.closed_late for r in results) == 50
        assert sum(r.kept_as_evidence for r in results) == 50
        assert len(late_tickets_in(conn)) == 50
        forget_deliveries(conn)


def test_a_late_settler_and_a_claimer_at_once(build, conn, at_once) -> None:
    """A late ticket for a delivery that is due again waits for whoever claims it, be it at the same moment."""
    worker, other = build(), build()
    for round_number in range(20):
        add(conn, 10, event=round_number)
        claim = take(worker)
        journal(worker, claim)
        reap(worker, NOW + LEASE)
        due = NOW + 2 * LEASE
        settlement, fresh = at_once(
            lambda claim=claim: worker.claims.settle(claim, answers(claim), now=due),
            lambda: other.claims.claim("dispatch", "default", "bulk", now=due),
        )
        assert (settlement.closed_late, settlement.kept_as_evidence) == (0, 10)
        assert other.claims.release(fresh, due)["sent"] == 10
        assert (states(conn), chunks_in(conn), late_tickets_in(conn)) == ({"sent": 10}, [], [])
        forget_deliveries(conn)


def test_a_late_settler_and_the_holder_at_once(build, conn, at_once) -> None:
    """Evidence for deliveries that their new holder settles at the same moment, in opposite order, meets no deadlock."""
    worker, other = build(), build()
    for round_number in range(15):
        add(conn, 50, event=round_number)
        lost = take(worker)
        journal(worker, lost)
        reap(worker, NOW + LEASE)
        due = NOW + 2 * LEASE
        holding = take(other, due)
        request = journal(other, holding, due)
        late, settlement = at_once(
            lambda lost=lost: worker.claims.settle(lost, answers(lost), now=due),
            lambda claim=holding, key=request.id: other.claims.settle(claim, answers(claim)[::-1], [key], due),
        )
        assert (late.closed_late, late.kept_as_evidence, settlement.written) == (0, 50, {"sent": 50})
        other.claims.release(holding, due)


def test_several_reapers_share_the_work(build, conn, at_once) -> None:
    """Reapers at once take back each claim exactly once."""
    add(conn, 60)
    worker = build()
    for _ in range(20):
        take(worker, limit=3)
    reapers = [build() for _ in range(4)]
    results = at_once(*[lambda reaper=reaper: reap(reaper, NOW + LEASE) for reaper in reapers])
    assert sum(r["claims_reaped"] for r in results) == 20
    assert sum(r["deliveries_recovered"] for r in results) == 60
    assert conn.execute("select distinct lapse_count from relevo.notification_deliveries").fetchall() == [(1,)]


def test_a_beat_and_a_reaper_at_once_agree(build, conn, at_once) -> None:
    """At the moment of expiry either the lease is extended or the claim is taken back, never both."""
    add(conn, 1)
    worker, other = build(), build()
    expiry = NOW
    for _ in range(30):
        claim = take(worker, expiry)
        expiry += LEASE

        def renew(claim=claim, now=expiry):
            with worker.database.connection() as connection:
                rows = connection.execute(RENEW, {"tokens": [claim.token], "now": now}).fetchall()
            return [token for token, state in rows if state == "renewed"]

        renewed, reaped = at_once(renew, lambda now=expiry: reap(other, now))
        assert (len(renewed), reaped["claims_reaped"]) in [(1, 0), (0, 1)]
        assert claims_in(conn) == renewed
        worker.claims.release(claim, expiry)
        conn.execute("update relevo.notification_deliveries set lapse_count = 0")
        conn.execute("update relevo.due_chunks set lapse_count = 0")
        expiry += SECOND


@pytest.fixture
def other(dsn):
    """Another session's open transaction."""
    with psycopg.connect(dsn) as connection:
        yield connection


@pytest.fixture
def meanwhile(conn):
    """Begin a call in a thread, wait until it waits for a lock; calling the result returns what became of it."""
    with ThreadPoolExecutor(1) as pool:

        def begin(call, *args):
            running = pool.submit(call, *args)
            eventually(lambda: running.done() or conn.execute(WAITING).fetchone()[0])
            assert not running.done(), "it did not wait"
            return lambda: running.result(DEADLINE_S)

        yield begin


TAKE_BACK = "select from relevo.claims where token = %s for update"  # how a reaper begins
WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
DELETE = "delete from relevo.notification_deliveries where id = %s"  # as one deletes an event, or forgets a phone


def test_a_lease_is_counted_from_before_it_was_asked_for(build, conn, other, meanwhile) -> None:
    """However long a claim or a beat waits for its statement, its holder never thinks that it has more than is left."""
    add(conn, 1)
    worker = build()
    other.execute("lock table relevo.claims in share row exclusive mode")
    claiming = meanwhile(lambda: take(worker, None))
    waited = time.monotonic()
    other.commit()
    claim = claiming()
    assert claim.since < waited
    other.execute("lock table relevo.claims in share row exclusive mode")
    began = claim.since
    beating = meanwhile(worker.heartbeat.beat)
    waited = time.monotonic()
    other.commit()
    beating()
    assert began < claim.since < waited


@pytest.mark.parametrize("kind", ["awaiting", "adopted"])
def test_so_is_that_of_other_claims(build, conn, other, meanwhile, monkeypatch, kind) -> None:
    """The same holds for a claim that asks for receipts, and for one whose COMMIT answer was lost."""
    add(conn, 1)
    worker = build()
    if kind == "awaiting":
        send(worker, take(worker))
        begin = partial(worker.claims.claim_awaiting, "default", limit=1, now=LATER)
    else:
        begin = partial(take, worker)
        monkeypatch.setattr(worker.claims, "_take", _lose_the_answer(worker.claims._take))
    other.execute("lock table relevo.notification_deliveries, relevo.awaited_receipts")
    claiming = meanwhile(begin)
    waited = time.monotonic()
    other.commit()
    assert claiming().since < waited


def test_two_that_ask_for_receipts_never_get_the_same(build, conn, dsn) -> None:
    """What another worker took between a look for what is due and its lock is that one's: it is passed by."""
    add(conn, 1)
    worker = build()
    send(worker, take(worker))
    body = "begin perform pg_advisory_xact_lock_shared(7); return true; end"
    slowly = f"create or replace function relevo.in_shard(number bigint, shard int, shards int) returns boolean language plpgsql as $$ {body} $$"
    ask = "select from relevo.claim_awaited(gen_random_uuid(), 'slow', 'default', 10, %s, 0, 1, 60000)"
    with psycopg.connect(dsn) as slow:  # it looks slowly, alone: its function is undone
        slow.execute(slowly)
        conn.execute("select pg_advisory_lock(7)")
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(lambda: slow.execute(ask, [LATER]).fetchall())
            eventually(lambda: conn.execute("select from pg_locks where not granted").fetchall(), "it looks")
            taken = worker.claims.claim_awaiting("default", limit=10, now=LATER)
            conn.execute("select pg_advisory_unlock(7)")
            assert (len(taken.deliveries), found.result(DEADLINE_S)) == (1, [])
        slow.rollback()


def _lose_the_answer(take_them):
    def lost(*given):
        take_them(*given)
        raise DatabaseUnavailableError("the answer was lost")

    return lost


def test_a_claim_does_not_wait_for_others(build, conn, other) -> None:
    """A chunk that somebody else has locked is passed by, not waited for."""
    first, second, third = (add(conn, 1, due=NOW - MINUTE + n * SECOND)[0] for n in range(3))
    other.execute("select from relevo.due_chunks where ids[1] = %s for update", [second])
    assert take(build()).ids == [first, third]


@pytest.mark.parametrize(("status", "attempted"), [("skipped", False), ("sent", True), ("retryable", True)])
def test_a_settle_that_waited_looks_again(build, conn, other, meanwhile, status, attempted) -> None:
    """A delivery deleted while its settle waited for it stays deleted: no receipt is awaited for it, no retry queued."""
    deleted, kept = add(conn, 2)
    worker = build()
    claim = take(worker)
    other.execute(DELETE, [deleted])
    settling = meanwhile(lambda: worker.claims.settle(claim, answers(claim, status, attempted=attempted), now=NOW))
    other.commit()
    assert settling().written == {status: 1}
    assert states(conn) == {status: 1}
    awaited = [row[0] for row in conn.execute("select ids from relevo.awaited_receipts").fetchall()]
    assert (awaited, chunks_in(conn)) == ([[kept]] * (status == "sent"), [[kept]] * (status == "retryable"))
    assert conn.execute("select ids from relevo.claims").fetchall() == [([],)]


def test_a_settle_waits_for_the_reaper_that_was_first(build, conn, other, meanwhile) -> None:
    """A reaper at work on the claim is waited for; then nothing is written, and the tickets are evidence."""
    add(conn, 3)
    worker = build()
    claim = take(worker)
    request = journal(worker, claim)
    other.execute(TAKE_BACK, [claim.token])
    settling = meanwhile(lambda: worker.claims.settle(claim, answers(claim), [request.id], NOW + LEASE))
    end_claim(other, worker.settings, claim.token, lapsed=True, now=NOW + LEASE)
    other.commit()
    assert (settling().written, settling().closed_late, settling().kept_as_evidence) == ({}, 0, 3)
    assert states(conn) == {"retryable": 3}


def test_a_settle_of_what_was_sent_waits_for_the_reaper_that_was_first(build, conn, other, meanwhile) -> None:
    """The faster settle waits for a reaper at work on the claim, too: nothing is settled and taken back at once."""
    add(conn, 3)
    worker = build()
    claim = take(worker)
    request = journal(worker, claim)
    sent = SentRequest(request, [f"ticket-{each.id}" for each in request.deliveries])
    other.execute(TAKE_BACK, [claim.token])
    settling = meanwhile(lambda: worker.claims.settle_sent(claim, [sent], NOW + LEASE))
    end_claim(other, worker.settings, claim.token, lapsed=True, now=NOW + LEASE)
    other.commit()
    assert settling() is None
    assert states(conn) == {"retryable": 3}
    assert conn.execute("select count(*) from relevo.awaited_receipts").fetchone() == (0,)


def test_a_hand_back_that_waited_looks_again(build, conn, other, meanwhile) -> None:
    """Answers written while the hand-back waited for them stay: only the rest is due again."""
    settled, rest = add(conn, 2)
    worker = build()
    claim = take(worker)
    answer = worker.claims.parameters(claim, answers(claim, "skipped", attempted=False)[:1], {}, NOW, finish=False)
    other.execute(SQL["settle_deliveries"], answer)
    releasing = meanwhile(lambda: worker.claims.release(claim, NOW))
    other.commit()
    assert releasing()["pending"] == 1
    assert (one(conn, settled)["status"], one(conn, rest)["status"]) == ("skipped", "pending")
    assert chunks_in(conn) == [[rest]]


def test_a_slow_settle_costs_no_other_claim(build, conn, other, meanwhile) -> None:
    """While a settle waits for a lock, holding its own claim's, a beat extends the others, and loses none; the settle
    extends the claim it held."""
    slow, others = add(conn, 2)[0], add(conn, 3, due=NOW + SECOND)
    worker = build()
    settled, *kept = (take(worker, None, limit=n) for n in (2, 1, 2))
    assert [len(claim.ids) for claim in kept] == [1, 2]
    first = dict(conn.execute("select token, leased_until from relevo.claims").fetchall())
    other.execute("select from relevo.notification_deliveries where id = %s for update", [slow])
    settling = meanwhile(lambda: worker.claims.settle(settled, answers(settled, "skipped", attempted=False)[:1]))
    since = settled.since
    assert worker.heartbeat.beat() == 1, "one to ask for again"
    until = dict(conn.execute("select token, leased_until from relevo.claims").fetchall())
    assert until[settled.token] == first[settled.token]
    assert all(until[claim.token] > first[claim.token] for claim in kept)
    assert all(claim.loss is None for claim in (settled, *kept))
    other.commit()
    assert settling().written == {"skipped": 1}
    until = dict(conn.execute("select token, leased_until from relevo.claims").fetchall())
    assert until[settled.token] > first[settled.token]
    assert settled.since > since
    assert sorted(delivery for claim in kept for delivery in claim.ids) == others


def test_a_journal_waits_for_the_reaper_that_was_first(build, conn, other, meanwhile) -> None:
    """The fence before a request waits for a reaper at work, and then lets nothing through."""
    add(conn, 1)
    worker = build()
    claim = take(worker)
    other.execute(TAKE_BACK, [claim.token])
    journalling = meanwhile(lambda: journal(worker, claim))
    end_claim(other, worker.settings, claim.token, lapsed=True, now=NOW + LEASE)
    other.commit()
    with pytest.raises(OwnershipLostError):
        journalling()
    assert conn.execute("select count(*) from relevo.push_requests").fetchone() == (0,)
