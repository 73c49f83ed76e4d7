"""Claims against a model: whatever workers, reapers, crashes and late answers do, in any order, at any time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from relevo.app import App
from relevo.core import queries
from relevo.core.errors import OwnershipLostError
from relevo.core.model import Answer, Awaiting, Delivery, PushRequest, ReceiptAnswer, SentRequest, Settlement
from relevo.delivery.claiming.claim import Claim
from relevo.operators import actions
from support import claim_model, soak
from support.claim_model import CAP, LEASES, OPEN, POISON, SUSPECT, Chunk, Handle, Model, Row, Standing
from support.claim_steps import MINUTE, SECOND, add, reap

SQL = queries.load("claims", "journal", "settle", "receipts")
FANOUT = queries.load("fanout")
OUTCOMES = ("sent", "sent", "retryable", "retryable", "failed", "invalid", "unknown")
NOT_BEGUN = ("skipped", "cancelled", "expired", "retryable")

HANDLE, WORKER, SOME = st.integers(0, 5), st.integers(0, 2), st.integers(1, 63)
RECEIPTS = st.lists(st.sampled_from(["ok", "retryable", "retryable", "waiting"]), min_size=1, max_size=6)
ANSWERS = st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=6)


def claimed(machine: Machine) -> bool:
    """Something was claimed before."""
    return bool(machine.held)


def asked(machine: Machine) -> bool:
    """Some request was started before."""
    return any(handle.requests for handle in machine.held)


class Machine(RuleBasedStateMachine):
    """Three workers on one database; each rule is one thing that may happen next."""

    conn: psycopg.Connection[Any]
    workers: list[App]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.held: list[Handle] = []
        for table in claim_model.TABLES:
            self.conn.execute(f"delete from relevo.{table}".encode())
        self._add(4, "tender.new")

    def teardown(self) -> None:
        """Forget the example's claims."""
        for handle in self.held:
            handle.worker.heartbeat.drop(handle.token)

    def handle(self, number: int, *, asked: bool = False) -> Handle:
        """Choose among the youngest claims, those that stand and those that were lost."""
        found = [handle for handle in self.held if handle.requests or not asked]
        return found[-1 - number % len(found)]

    @precondition(lambda machine: machine.model.is_idle)
    @rule(
        count=st.integers(1, 6),
        event_type=st.sampled_from(["tender.new", "tender.new", "slow"]),
        at_most_once=st.booleans(),
        deadline=st.sampled_from([None, None, 2 * MINUTE, 10 * MINUTE]),
    )
    def add(self, count: int, event_type: str, at_most_once: bool, deadline: timedelta | None) -> None:
        """Fan-out makes deliveries."""
        self._add(count, event_type, at_most_once=at_most_once, deadline=deadline)

    def _add(
        self, count: int, event_type: str, *, at_most_once: bool = False, deadline: timedelta | None = None
    ) -> None:
        now, until = self.model.now, self.model.now + deadline if deadline else None
        ((event,),) = self.conn.execute(
            claim_model.EVENT, [event_type, str(uuid4()), now, until, at_most_once]
        ).fetchall()
        columns = {"event_type": event_type, "at_most_once": at_most_once, "deadline": until, "due": now}
        for key in add(self.conn, count, event=event, **columns):
            self.model.rows[key] = Row(event_type, at_most_once, until, now, event=event)

    @rule(which=st.integers(0, 100), how=st.sampled_from(["move", "move", "forget", "forbid", "allow", "opt out"]))
    def change_phone(self, which: int, how: str) -> None:
        """A phone of an open delivery gets another token, is forgotten, wants no pushes any more, or wants them again."""
        found = [key for key, row in self.model.rows.items() if row.status in OPEN and row.phone.version is not None]
        if not found:
            return
        key = found[which % len(found)]
        phone = self.model.rows[key].phone
        if how == "move":
            phone.version = (phone.version or 0) + 1
        elif how == "forget":
            phone.version = None
        elif how == "opt out":
            phone.opted_out = True
        else:
            phone.allowed = how == "allow"
        self.conn.execute(claim_model.CHANGES[how], [key])

    @rule(which=st.integers(0, 100))
    def cancel(self, which: int) -> None:
        """The event of an open delivery is cancelled, which touches its own row alone."""
        found = [row.event for row in self.model.rows.values() if row.status in OPEN]
        if found:
            self.model.ended.add(found[which % len(found)])
            self.conn.execute(claim_model.CANCEL, [self.model.now, found[which % len(found)]])

    @rule()
    def sweep(self) -> None:
        """Fan-out ends what is queued of cancelled events."""
        expected = self.model.sweep(self._queue())
        swept = 0
        for event in sorted(self.model.ended):
            taken = {"event_id": event, "limit": 1_000, "now": self.model.now}
            ((cancelled, _),) = self.conn.execute(FANOUT["cancel_deliveries"], taken).fetchall()
            swept += cancelled
        assert swept == expected

    @rule(worker=WORKER)
    def redrive(self, worker: int) -> None:
        """An operator has the dead letters sent again."""
        which = actions.DeadLetters(project="default")
        assert actions.redrive(self.workers[worker].database, which, now=self.model.now) == self.model.redrive()

    @rule(worker=WORKER, limit=st.integers(1, 3))
    def probe(self, worker: int, limit: int) -> None:
        """A worker claims for a probe: some of what is due, of one lease, the rest of each chunk as before."""
        app, due = self.workers[worker], [key for chunk in self._due() for key in chunk.ids]
        claim = app.claims.claim("dispatch", "default", "bulk", limit=limit, now=self.model.now, probe=True)
        assert (claim is None) == (not due)
        if claim is None:
            return
        assert len(claim.ids) <= limit
        assert set(claim.ids) <= set(due)
        assert {LEASES[self.model.rows[key].event_type] for key in claim.ids} == {claim.lease_ms}
        self.model.claim(claim.token, claim.ids, claim.lease_ms)
        self.held.append(Handle(app, claim))

    def _due(self) -> list[Chunk]:
        return [chunk for chunk in self._queue() if chunk.due <= self.model.now]

    @rule(worker=WORKER, limit=st.integers(1, 6), commit=st.sampled_from(["answered", "answer lost", "lost"]))
    def claim(self, worker: int, limit: int, commit: str) -> None:
        """A worker claims; if the answer to its COMMIT is lost it adopts what it finds, and bars the token if that is nothing."""
        if commit == "lost":
            self._lose_commit(self.workers[worker])
        else:
            self._claim(self.workers[worker], limit, adopted=commit == "answer lost")

    def _claim(self, app: App, limit: int = 6, *, adopted: bool = False) -> Handle | None:
        expected = self.model.pick(limit, self._queue())
        if adopted:
            claim = self._claim_and_adopt(app, limit)
        else:
            claim = app.claims.claim("dispatch", "default", "bulk", limit=limit, now=self.model.now)
        if claim is None:
            assert expected[0] == []
            return None
        assert (claim.ids, claim.lease_ms) == expected
        self.model.claim(claim.token, claim.ids, claim.lease_ms)
        self.held.append(Handle(app, claim))
        return self.held[-1]

    def _queue(self) -> list[Chunk]:
        return [Chunk(*row) for row in self.conn.execute(claim_model.QUEUE).fetchall()]

    @rule(worker=WORKER, dies=st.booleans())
    def send(self, worker: int, dies: bool) -> None:
        """A worker claims and starts a request with all it got; maybe it dies over it."""
        self._send(self.workers[worker], dies=dies)

    def _send(self, app: App, *, dies: bool = False) -> Handle | None:
        handle = self._claim(app)
        if handle is not None:
            self._journal(handle, handle.claim.deliveries, obey=True)
            handle.crashed = dies
        return handle

    @rule(slow=WORKER, other=WORKER, resends=st.booleans(), number=HANDLE, outcomes=ANSWERS)
    def overtake(self, slow: int, other: int, resends: bool, number: int, outcomes: list[str]) -> None:
        """A slow worker loses its claim, another takes the deliveries and maybe sends them; then the slow one's answer comes."""
        handle = self._send(self.workers[slow], dies=True)
        self._advance_to_the_next_lease()
        self._advance_to_the_next_attempt()
        (self._send if resends else self._claim)(self.workers[other])
        if handle is not None and handle.requests:
            self._answer(handle, 0, ["sent"])
        if asked(self):
            self._answer(self.handle(number, asked=True), 0, outcomes)

    @rule(slow=WORKER, begun=st.booleans(), redriven=st.booleans())
    def lose_the_last_attempt(self, slow: int, begun: bool, redriven: bool) -> None:
        """A slow worker loses attempt after attempt to a reaper, up to the last; then it knows what became of that one."""
        handle = None
        for _ in range(CAP):
            self._advance_to_the_next_attempt()
            handle = self._send(self.workers[slow], dies=True) or handle
            while handle is not None and handle.token in self.model.claims:
                self._advance_to_the_next_lease()
        if redriven:
            self.redrive(slow)
        if handle is not None and handle.requests:
            if begun:
                self._answer(handle, 0, ["sent"])
            else:
                self._never_begin(handle, 0)

    def _asked(self, app: App, limit: int) -> dict[str, Any]:
        worker = {"worker_id": app.worker.worker_id, "cycle": "dispatch", "lease_ms": LEASES["tender.new"]}
        queue = {"project": "default", "lane": "bulk", "limit": limit, "shard_index": None, "shard_count": None}
        types = {
            "only_types": None,
            "not_types": None,
            "not_worded": None,
            "suspect_lapses": SUSPECT,
            "since": None,
            "in_shadow": False,
        }
        return {"token": uuid4(), "now": self.model.now} | worker | queue | types

    def _claim_and_adopt(self, app: App, limit: int) -> Claim | None:
        asked = self._asked(app, limit)
        taken = app.claims._take(asked)
        if taken is None:
            return None
        adopted = app.claims._adopt(asked)
        assert adopted == taken
        app.claims.keep(adopted)
        return adopted

    def _lose_commit(self, app: App) -> None:
        asked = self._asked(app, 1)
        assert app.claims._adopt(asked) is None
        self.model.claim(asked["token"], [], LEASES["tender.new"])
        if self._due():  # what a zombie still wants to claim
            with pytest.raises(psycopg.errors.UniqueViolation):
                self.conn.execute(SQL["claim_due"], asked)

    @precondition(claimed)
    @rule(number=HANDLE, mask=SOME, obey=st.booleans())
    def journal(self, number: int, mask: int, obey: bool) -> None:
        """A worker, maybe a slow one that has lost its claim, wants to send; maybe it settles what needs no sending."""
        handle = self.handle(number)
        begun = {d.id for request in handle.requests for d in request.deliveries}
        chosen = [d for n, d in enumerate(handle.claim.deliveries) if mask >> n & 1 and d.id not in begun]
        self._journal(handle, tuple(chosen), obey=obey)

    def _journal(self, handle: Handle, deliveries: tuple[Delivery, ...], *, obey: bool) -> None:
        claim, request = handle.claim, PushRequest(uuid4(), deliveries)
        nothing_left = all(self.model.rows[key].final for key in claim.ids)
        if claim.loss is not None or nothing_left or not self.model.may_journal(claim.token):
            reason = claim.loss[0] if claim.loss else self.model.loss(claim.token, claim.ids)
            with pytest.raises(OwnershipLostError) as lost:
                handle.worker.claims.journal(claim, [request], self.model.now)
            assert lost.value.reason == reason
            return
        verdicts = handle.worker.claims.journal(claim, [request], self.model.now)
        held = [d.id for d in request.deliveries if self.model.rows[d.id].token == claim.token]
        versions = {d.id: d.token_version for d in request.deliveries}
        assert {v.id: v.verdict for v in verdicts} == {key: self.model.verdict(key, versions[key]) for key in held}
        assert all(v.ticket_id in self.model.waiting(v.id) for v in verdicts if v.verdict == "sent")
        send = {v.id for v in verdicts if v.verdict == "send"}
        rows = self.conn.execute(
            "select unnest(ids) from relevo.push_requests where id = %s and answered_at is null", [request.id]
        ).fetchall()
        assert {row[0] for row in rows} == send, "the journal holds what may be sent"
        if send:
            handle.requests.append(PushRequest(request.id, tuple(d for d in request.deliveries if d.id in send)))
            self.model.unanswered[claim.token][request.id] = sorted(send)
        if obey:
            done = [v for v in verdicts if v.verdict != "send"]
            self._settle(
                handle,
                [Answer(v.event_day, v.id, claim_model.BECOMES[v.verdict], False, v.ticket_id) for v in done],
                [],
            )

    @precondition(asked)
    @rule(number=HANDLE, which=st.integers(0, 3), outcomes=ANSWERS)
    def answer(self, number: int, which: int, outcomes: list[str]) -> None:
        """The answer to a request comes in, in time, or long after its claim was lost, or twice with another result."""
        self._answer(self.handle(number, asked=True), which, outcomes)

    def _answer(self, handle: Handle, which: int, outcomes: list[str]) -> None:
        request = handle.requests[which % len(handle.requests)]
        answers = [
            self._answered(d, outcomes[n % len(outcomes)], f"{request.id.hex[:8]}-{d.id}", 90_000 * (which % 2))
            for n, d in enumerate(request.deliveries)
        ]
        self._settle(handle, answers, [request.id])

    def _answered(self, delivery: Delivery, status: Any, ticket: str, retry_after_ms: int) -> Answer:
        got, code = (ticket, None) if status == "sent" else (None, "Refused")
        return Answer(delivery.event_day, delivery.id, status, True, got, code, retry_after_ms=retry_after_ms)

    @precondition(claimed)
    @rule(number=HANDLE, status=st.sampled_from(NOT_BEGUN), mask=SOME)
    def decide_without_sending(self, number: int, status: Any, mask: int) -> None:
        """A worker settles what it did not have to send, or must not send yet."""
        handle = self.handle(number)
        begun = {d.id for request in handle.requests for d in request.deliveries}
        chosen = [d for n, d in enumerate(handle.claim.deliveries) if mask >> n & 1 and d.id not in begun]
        self._settle(handle, [Answer(d.event_day, d.id, status, attempted=False) for d in chosen], [])

    @precondition(claimed)
    @rule(number=HANDLE)
    def settle_again(self, number: int) -> None:
        """The answer to a settle was lost: the worker hands the same in once more."""
        handle = self.handle(number)
        if handle.reported:
            self._settle(handle, *handle.reported[-1])

    def _settle(self, handle: Handle, answers: list[Answer], requests: list[UUID]) -> None:
        if not answers:
            return
        handle.reported.append((answers, requests))
        known = handle.claim.loss is None
        settlement = self._settle_sent(handle, answers, requests) or handle.worker.claims.settle(
            handle.claim, answers, requests, self.model.now
        )
        expected = self.model.settle(handle.token, answers, requests, self._tickets(), known=known)
        assert (settlement.written, settlement.closed_late, settlement.kept_as_evidence) == expected

    def _settle_sent(self, handle: Handle, answers: list[Answer], requests: list[UUID]) -> Settlement | None:
        """Settle a request of which everything was sent as dispatch does; what is not plain is settled generally."""
        request = next((each for each in handle.requests if [each.id] == requests), None)
        if request is None or [answer.id for answer in answers if answer.status == "sent"] != [
            d.id for d in request.deliveries
        ]:
            return None
        sent = SentRequest(request, [str(answer.ticket_id) for answer in answers])
        return handle.worker.claims.settle_sent(handle.claim, [sent], self.model.now)

    @precondition(asked)
    @rule(number=HANDLE, which=st.integers(0, 3))
    def never_begin(self, number: int, which: int) -> None:
        """A worker, maybe long after its claim was lost, knows that a request was never begun."""
        self._never_begin(self.handle(number, asked=True), which)

    def _never_begin(self, handle: Handle, which: int) -> None:
        request = handle.requests.pop(which % len(handle.requests))
        handle.reported = [each for each in handle.reported if request.id not in each[1]]
        handle.worker.claims.mark_unsent(handle.claim, [request.id], self.model.now)
        self.model.never_begun(handle.token, request.id)

    @precondition(claimed)
    @rule(number=HANDLE)
    def release(self, number: int) -> None:
        """A worker hands back what is left, if anything is."""
        handle = self.handle(number)
        counts = handle.worker.claims.release(handle.claim, self.model.now)
        assert +counts == +self.model.end(handle.token, lapsed=False, tickets=self._tickets())

    @rule(worker=WORKER)
    def beat(self, worker: int) -> None:
        """A worker's heartbeat extends what it knows of, and finds out what it has lost."""
        alive = [h for h in self.held if h.worker is self.workers[worker] and not h.crashed]
        tokens = [h.token for h in alive]
        rows = self.conn.execute(SQL["renew_claims"], {"tokens": tokens, "now": self.model.now}).fetchall()
        standing = {token: self.model.claims[token] for token in tokens if token in self.model.claims}
        kept = {
            token: claim for token, claim in standing.items() if self.model.now < claim.claimed_at + 3 * claim.lease
        }
        assert {row[0] for row in rows} == set(kept)
        for claim in kept.values():
            claim.leased_until = self.model.now + claim.lease

    @rule()
    def reap(self) -> None:
        """A reaper takes back every claim whose lease is over."""
        counts = reap(self.workers[0], self.model.now)
        expired = [token for token, claim in self.model.claims.items() if claim.leased_until <= self.model.now]
        real = sum(self.model.holds_something(token) for token in expired)
        tickets, ended = self._tickets(), Counter[str]()
        for token in sorted(expired, key=lambda token: self.model.claims[token].leased_until):
            ended += self.model.end(token, lapsed=True, tickets=tickets)
        assert counts["claims_reaped"] == real
        assert counts["deliveries_recovered"] == ended["pending"] + ended["retryable"]
        assert counts["deliveries_dead"] == ended["failed"]
        assert counts["deliveries_unknown"] == ended["unknown"]
        assert counts["deliveries_closed_by_late_ticket"] == ended["sent"]
        assert counts["deliveries_ambiguous"] == ended["ambiguous"]

    @rule(to=st.sampled_from([SECOND, 30 * SECOND, "next lease", "next attempt", "next attempt"]))
    def advance(self, to: timedelta | str) -> None:
        """Time passes: a little, or until a lease is over and a reaper comes, or until some delivery is due."""
        if to == "next lease":
            self._advance_to_the_next_lease()
        elif to == "next attempt":
            self._advance_to_the_next_attempt()
        else:
            self.model.now += to

    def _advance_to_the_next_lease(self) -> None:
        ends = [claim.leased_until for claim in self.model.claims.values()]
        self.model.now = max(self.model.now, min(ends, default=self.model.now))
        self.reap()

    def _advance_to_the_next_attempt(self) -> None:
        due = [row.due for row in self.model.rows.values() if row.due is not None and row.token is None]
        self.model.now = max(self.model.now, min(due, default=self.model.now))

    @rule(worker=WORKER, limit=st.sampled_from([1, 3, 300]), says=RECEIPTS, dies=st.booleans())
    def receipt(self, worker: int, limit: int, says: list[str], dies: bool) -> None:
        """A worker asks for receipts; they confirm, ask for another try, or are missing; maybe it dies over it."""
        app = self.workers[worker]
        claim = app.claims.claim_awaiting("default", limit=limit, now=self.model.now)
        if claim is None:
            return
        lease = timedelta(milliseconds=claim.lease_ms)
        self.model.claims[claim.token] = Standing(
            claim.ids, self.model.now, lease, self.model.now + lease, cycle="receipt"
        )
        awaited = [each for each in claim.deliveries if isinstance(each, Awaiting)]
        assert all(self.model.rows[each.id].ticket == each.ticket_id for each in awaited)
        if dies:
            app.heartbeat.drop(claim.token)
            return
        answers: list[ReceiptAnswer] = []
        for n, each in enumerate(awaited):
            said: Any = says[n % len(says)]
            answers.append(ReceiptAnswer(each, said, paced=said != "waiting"))
            self.model.told(each.id, said)
        del self.model.claims[claim.token]
        app.claims.settle_receipts(claim, answers, self.model.now)

    def _tickets(self) -> dict[int, str | None]:
        rows = self.conn.execute("select id, provider_ticket_id from relevo.notification_deliveries").fetchall()
        return dict(rows)

    @invariant()
    def deliveries_are_as_expected(self) -> None:
        """Every delivery is where the contract says, so nothing was written by a claim that did not hold it."""
        seen = {row[0]: Row(*row[1:]) for row in self.conn.execute(claim_model.SEEN).fetchall()}
        assert seen == self.model.rows

    @invariant()
    def every_delivery_stands_in_one_place(self) -> None:
        """Each open one is in exactly one chunk or claim, each sent one awaited once, each failed one a dead letter."""
        assert self.conn.execute(claim_model.MISPLACED).fetchall() == []

    @invariant()
    def the_queue_tells_the_truth(self) -> None:
        """What chunks and awaited receipts say of a delivery is what its row says."""
        assert self.conn.execute(claim_model.UNTRUE).fetchall() == []

    @invariant()
    def every_failed_attempt_is_told_once(self) -> None:
        """What cost an attempt and got no ticket is told, no request of a delivery twice, and without a gap."""
        assert self.conn.execute(claim_model.UNTOLD).fetchall() == []

    @invariant()
    def events_count_their_deliveries(self) -> None:
        """What is told to events adds up to what their deliveries are."""
        assert self.conn.execute(claim_model.MISCOUNTED).fetchall() == []

    @invariant()
    def states_are_possible(self) -> None:
        """Attempts stay below the cap, completed_at is set exactly on final states."""
        ((attempts, unfinished),) = self.conn.execute(
            """select coalesce(max(attempt_count), 0),
                      count(*) filter (where (completed_at is null) <> (status in ('pending', 'retryable', 'sent')))
                 from relevo.notification_deliveries"""
        ).fetchall()
        assert attempts <= CAP
        assert unfinished == 0

    @invariant()
    def claims_and_evidence_are_as_expected(self) -> None:
        """The claims that stand and the late tickets that wait are those of the contract."""
        claims = self.conn.execute("select token, leased_until from relevo.claims").fetchall()
        assert dict(claims) == {token: claim.leased_until for token, claim in self.model.claims.items()}
        late = self.conn.execute("select delivery_id, ticket_id from relevo.late_tickets").fetchall()
        assert set(late) == set(self.model.late)


def test_claims_follow_their_contract(build, conn) -> None:
    """No delivery is lost, none is settled by a claim that does not hold it, attempts never exceed the cap."""
    conn.execute("insert into relevo.event_types (event_type, lease_ms) values ('slow', %s)", [LEASES["slow"]])
    bounds = {"outbox_max_attempts": CAP, "outbox_poison_lapses": POISON}
    times = {"outbox_retry_jitter_ms": 0, "receipt_first_poll_ms": 1}
    workers = [build(worker_id=f"worker-{n}", **times, **bounds) for n in range(3)]
    machine = type("Claims", (Machine,), {"conn": conn, "workers": workers})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=soak.cases(20, whole=60),
            stateful_step_count=40,
            deadline=None,
            derandomize=False,
            print_blob=True,
            database=None,
            phases=[Phase.generate],  # no shrinking, which takes minutes: the printed blob brings the case back
            suppress_health_check=list(HealthCheck),
        ),
    )
