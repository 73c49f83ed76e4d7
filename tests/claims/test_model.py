"""Claims against a model: whatever workers, reapers, crashes and late answers do, in any order, at any time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from claiming import HTTP_TIMEOUT, MINUTE, NOW, SECOND, add, reap
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from deliveries import TODAY
from relevo import queries
from relevo.app import App
from relevo.delivery.claims import Claim
from relevo.errors import OwnershipLostError
from relevo.model import Answer, Delivery, PushRequest

CAP, SUSPECT, POISON = 3, 2, 4
LEASES = {"tender.new": 60_000, "slow": 120_000}
OPEN = ("pending", "retryable")
SQL = queries.load("claims")


@dataclass
class Phone:
    """What a delivery's installation must look like: which of its tokens is the last, and whether it wants pushes."""

    version: int | None = 1
    allowed: bool = True
    opted_out: bool = False


@dataclass
class Row:
    """What a delivery must look like."""

    event_type: str
    at_most_once: bool
    deadline: datetime | None
    due: datetime | None
    status: str = "pending"
    attempts: int = 0
    lapses: int = 0
    token: UUID | None = None
    ticket: str | None = None
    phone: Phone = field(default_factory=Phone, compare=False)

    @property
    def final(self) -> bool:
        """Tell whether nothing more happens to it."""
        return self.status not in (*OPEN, "sent")

    def become(self, status: str, due: datetime | None = None) -> None:
        """Go into a state, out of whoever's hands."""
        self.status, self.due, self.token = status, due, None


@dataclass
class Standing:
    """What a row of claims must say."""

    ids: list[int]
    claimed_at: datetime
    lease: timedelta
    leased_until: datetime


@dataclass
class Handle:
    """What a worker holds in its hands, for as long as it lives, whether or not the claim still stands."""

    worker: App
    claim: Claim
    crashed: bool = False
    requests: list[PushRequest] = field(default_factory=list)
    reported: list[tuple[list[Answer], list[UUID]]] = field(default_factory=list)

    @property
    def token(self) -> UUID:
        """The claim's token."""
        return self.claim.token


class Model:
    """The contract of claims in Python: what each step must do to deliveries, claims, journal and late tickets."""

    def __init__(self) -> None:
        self.now = NOW
        self.rows: dict[int, Row] = {}
        self.claims: dict[UUID, Standing] = {}
        self.unanswered: dict[UUID, dict[UUID, list[int]]] = {}
        self.late: dict[tuple[int, str], datetime] = {}

    def pick(self, limit: int) -> tuple[list[int], int]:
        """Choose the next batch and its lease: due, unclaimed, oldest first, of one lease; a suspect alone."""
        free = [
            key for key, row in self.rows.items() if row.status in OPEN and row.token is None and row.due <= self.now
        ]
        free.sort(key=lambda key: (self.rows[key].due, key))
        lease = LEASES[self.rows[free[0]].event_type] if free else 0
        picked = [key for key in free if LEASES[self.rows[key].event_type] == lease][:limit]
        if picked and self.rows[picked[0]].lapses >= SUSPECT:
            return picked[:1], lease
        return [key for key in picked if self.rows[key].lapses < SUSPECT], lease

    def claim(self, token: UUID, ids: list[int], lease_ms: int) -> None:
        """Hand deliveries to a claim."""
        lease = timedelta(milliseconds=lease_ms)
        self.claims[token] = Standing(ids, self.now, lease, self.now + lease)
        self.unanswered[token] = {}
        for key in ids:
            assert self.rows[key].token is None, "claimed twice"
            self.rows[key].token = token

    def may_journal(self, token: UUID) -> bool:
        """Tell whether a claim stands with more lease than a request may take."""
        return token in self.claims and self.claims[token].leased_until > self.now + HTTP_TIMEOUT

    def loss(self, token: UUID, ids: list[int]) -> str:
        """Tell why a claim may not send any more."""
        if all(self.rows[key].final for key in ids):
            return "already_completed"
        return "error" if token in self.claims else "taken_by_another_worker"

    def verdict(self, key: int, version: int | None) -> str:
        """Say what the journal must say of a delivery that was claimed for one version of its phone's token."""
        row = self.rows[key]
        if self.waiting(key):
            return "sent"
        if row.deadline is not None and row.deadline <= self.now:
            return "deadline_passed"
        if row.phone.version is None:
            return "installation_gone"
        if not row.phone.allowed:
            return "not_allowed"
        if row.phone.opted_out:
            return "opted_out"
        return "send" if row.phone.version == version else "token_changed"

    def waiting(self, key: int) -> list[str]:
        """List the newest late tickets that wait for a delivery; those that came at the same time are as good as another."""
        found = {t: at for (k, t), at in self.late.items() if k == key and t != self.rows[key].ticket}
        return [ticket for ticket, at in found.items() if at == max(found.values())]

    def settle(self, token: UUID, answers: list[Answer], requests: list[UUID]) -> tuple[Counter[str], int, int]:
        """Write what is still held, keep the tickets of the rest; return what was written, closed and kept."""
        for request in requests:
            self.unanswered[token].pop(request, None)
        written: Counter[str] = Counter()
        rest = []
        for answer in answers:
            if self.rows[answer.id].token == token:
                written[self._write(answer)] += 1
            elif answer.ticket_id is not None and self.rows[answer.id].ticket != answer.ticket_id:
                rest.append(answer)
        closed = sum(self._close(answer.id, str(answer.ticket_id)) for answer in rest)
        fresh = [(a.id, str(a.ticket_id)) for a in rest if self.rows[a.id].ticket != a.ticket_id]
        kept = [key for key in fresh if key not in self.late]
        self.late |= dict.fromkeys(kept, self.now)
        return written, closed, len(kept)

    def _write(self, answer: Answer) -> str:
        row = self.rows[answer.id]
        row.attempts += answer.attempted
        row.lapses = 0
        row.ticket = answer.ticket_id or row.ticket
        self.late.pop((answer.id, str(answer.ticket_id)), None)
        floor = timedelta(milliseconds=answer.retry_after_ms)
        retry_at = self.now + (max(min(2 ** (row.attempts - 1), 60) * MINUTE, floor) if answer.attempted else floor)
        if answer.status != "retryable":
            row.become(answer.status)
        elif answer.attempted and row.attempts >= CAP:
            row.become("failed")
        elif row.deadline is not None and retry_at >= row.deadline:
            row.become("expired")
        else:
            row.become("retryable" if row.attempts else "pending", retry_at)
        return row.status

    def _close(self, key: int, ticket: str) -> bool:
        row = self.rows[key]
        if row.token is not None or row.status not in (*OPEN, "unknown"):
            return False
        row.become("sent")
        row.ticket = ticket
        return True

    def end(self, token: UUID, *, lapsed: bool, tickets: dict[int, str | None]) -> Counter[str]:
        """End a claim; `tickets` tells which of several equally good late tickets was taken."""
        counts: Counter[str] = Counter()
        standing = self.claims.pop(token, None)
        asked = {key for ids in self.unanswered.get(token, {}).values() for key in ids}
        for key in standing.ids if standing else ():
            row = self.rows[key]
            if row.token != token:
                continue
            journalled = key in asked
            row.attempts += journalled
            row.lapses += lapsed and not journalled
            if ready := self.waiting(key):
                assert tickets[key] in ready
                row.ticket = str(tickets[key])
                del self.late[(key, row.ticket)]
                row.become("sent")
            elif not journalled:
                poison = lapsed and row.lapses >= POISON
                row.become("failed" if poison else row.status, None if poison else row.due)
            elif row.at_most_once or row.attempts >= CAP:
                row.become("unknown" if row.at_most_once else "failed")
            else:
                row.become("retryable", self.now + HTTP_TIMEOUT)
            counts[row.status] += 1
            counts["ambiguous"] += journalled
        return counts


SEEN = """
select id, event_type, at_most_once, deadline_at, next_attempt_at, status, attempt_count, lapse_count, claim_token,
       provider_ticket_id
  from relevo.notification_deliveries order by id
"""
LOST = """
select d.id
  from relevo.notification_deliveries d
  left join relevo.claims c on c.token = d.claim_token and d.id = any (c.ids)
 where not case when d.completed_at is not null or d.status = 'sent' then d.claim_token is null and d.next_attempt_at is null
                when d.claim_token is null then d.next_attempt_at is not null
                else c.token is not null end
"""
PHONE = "where installation_id = (select installation_id from relevo.notification_deliveries where id = %s)"
CHANGES = {
    "move": f"update relevo.device_installations set token = token || '+', token_version = token_version + 1 {PHONE}",
    "forget": f"delete from relevo.device_installations {PHONE}",
    "forbid": f"update relevo.device_installations set permission = 'denied' {PHONE}",
    "allow": f"update relevo.device_installations set permission = 'granted' {PHONE}",
    "opt out": f"update relevo.device_installations set opt_outs = '{{news}}' {PHONE}",
}
EVENT = """
insert into relevo.notification_events (event_type, event_key, title, audience, content_hash, category, scheduled_at, deadline_at)
values (%s, %s, 'Hello', 'everyone', '', 'news', %s, %s) returning id
"""
BECOMES: dict[str, Any] = {
    "sent": "sent",
    "deadline_passed": "expired",
    "installation_gone": "skipped",
    "not_allowed": "skipped",
    "opted_out": "skipped",
    "token_changed": "retryable",
}
OUTCOMES = ("sent", "sent", "retryable", "retryable", "failed", "invalid", "unknown")
NOT_BEGUN = ("skipped", "cancelled", "expired", "retryable")


HANDLE, WORKER, SOME = st.integers(0, 5), st.integers(0, 2), st.integers(1, 63)
ANSWERS = st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=6)


def claimed(machine: Machine) -> bool:
    """Something was claimed before."""
    return bool(machine.held)


def asked(machine: Machine) -> bool:
    """Some request was started before."""
    return any(handle.requests for handle in machine.held)


def idle(machine: Machine) -> bool:
    """Few deliveries are open: a short queue is claimed again and again."""
    return sum(row.status in OPEN for row in machine.model.rows.values()) < 8


class Machine(RuleBasedStateMachine):
    """Three workers on one database; each rule is one thing that may happen next."""

    conn: psycopg.Connection[Any]
    workers: list[App]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.held: list[Handle] = []
        for table in ("notification_deliveries", "claims", "push_requests", "late_tickets", "device_installations"):
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

    @precondition(idle)
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
        ((event,),) = self.conn.execute(EVENT, [event_type, str(uuid4()), now, until]).fetchall()
        columns = {"event_type": event_type, "at_most_once": at_most_once, "deadline": until, "due": now}
        for key in add(self.conn, count, event=event, **columns):
            self.model.rows[key] = Row(event_type, at_most_once, until, now)

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
        self.conn.execute(CHANGES[how], [key])

    @rule(worker=WORKER, limit=st.integers(1, 6), commit=st.sampled_from(["answered", "answer lost", "lost"]))
    def claim(self, worker: int, limit: int, commit: str) -> None:
        """A worker claims; if the answer to its COMMIT is lost it adopts what it finds, and bars the token if that is nothing."""
        if commit == "lost":
            self._lose_commit(self.workers[worker])
        else:
            self._claim(self.workers[worker], limit, adopted=commit == "answer lost")

    def _claim(self, app: App, limit: int = 6, *, adopted: bool = False) -> Handle | None:
        expected = self.model.pick(limit)
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

    def _asked(self, app: App, limit: int) -> dict[str, Any]:
        worker = {"worker_id": app.worker.worker_id, "cycle": "dispatch", "lease_ms": LEASES["tender.new"]}
        queue = {"project": "default", "lane": "bulk", "limit": limit, "shard_index": None, "shard_count": None}
        return {"token": uuid4(), "now": self.model.now} | worker | queue

    def _claim_and_adopt(self, app: App, limit: int) -> Claim | None:
        asked = self._asked(app, limit)
        taken = app.claims._take(asked["token"], "dispatch", asked)
        if taken is None:
            return None
        adopted = app.claims._adopt(asked["token"], "dispatch", asked)
        assert adopted == taken
        app.claims.keep(adopted)
        return adopted

    def _lose_commit(self, app: App) -> None:
        asked = self._asked(app, 1)
        assert app.claims._adopt(asked["token"], "dispatch", asked) is None
        self.model.claim(asked["token"], [], LEASES["tender.new"])
        free = [key for key, row in self.model.rows.items() if row.token is None][
            :3
        ]  # what a zombie still wants to claim
        with pytest.raises(psycopg.errors.UniqueViolation):
            self.conn.execute(SQL["claim_picked"], asked | {"ids": free, "days": [TODAY] * len(free)})

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
        rows = self.conn.execute("select unnest(ids) from relevo.push_requests where id = %s", [request.id]).fetchall()
        assert {row[0] for row in rows} == send, "the journal holds what may be sent"
        if send:
            handle.requests.append(PushRequest(request.id, tuple(d for d in request.deliveries if d.id in send)))
            self.model.unanswered[claim.token][request.id] = sorted(send)
        if obey:
            done = [v for v in verdicts if v.verdict != "send"]
            self._settle(handle, [Answer(v.event_day, v.id, BECOMES[v.verdict], False, v.ticket_id) for v in done], [])

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
        got = ticket if status == "sent" else None
        return Answer(delivery.event_day, delivery.id, status, True, got, retry_after_ms=retry_after_ms)

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
        settlement = handle.worker.claims.settle(handle.claim, answers, requests, self.model.now)
        expected = self.model.settle(handle.token, answers, requests)
        assert (settlement.written, settlement.closed_late, settlement.kept_as_evidence) == expected

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
        real = sum(bool(self.model.claims[token].ids) for token in expired)
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

    @rule(which=st.integers(0, 100), says=st.sampled_from(["ok", "unconfirmed", "retryable", "retryable"]))
    def receipt(self, which: int, says: str) -> None:
        """A receipt confirms a push, or asks for another try, within the cap."""
        sent = [key for key, row in self.model.rows.items() if row.status == "sent"]
        if not sent:
            return
        key = sent[which % len(sent)]
        row = self.model.rows[key]
        status = "failed" if says == "retryable" and row.attempts >= CAP else says
        row.become(status, self.model.now if status == "retryable" else None)
        self.conn.execute(
            "update relevo.notification_deliveries set status = %s, next_attempt_at = %s, completed_at = %s where id = %s",
            [status, row.due, self.model.now if row.final else None, key],
        )

    def _tickets(self) -> dict[int, str | None]:
        rows = self.conn.execute("select id, provider_ticket_id from relevo.notification_deliveries").fetchall()
        return dict(rows)

    @invariant()
    def deliveries_are_as_expected(self) -> None:
        """Every delivery is where the contract says, so nothing was written by a claim that did not hold it."""
        seen = {row[0]: Row(*row[1:]) for row in self.conn.execute(SEEN).fetchall()}
        assert seen == self.model.rows

    @invariant()
    def no_delivery_is_lost(self) -> None:
        """Each is due, or held by a claim that stands and lists it, or sent, or final."""
        assert self.conn.execute(LOST).fetchall() == []

    @invariant()
    def states_are_possible(self) -> None:
        """Attempts stay below the cap, completed_at is set exactly on final states, every token has its claim."""
        ((attempts, unfinished, orphans),) = self.conn.execute(
            """select coalesce(max(attempt_count), 0),
                      count(*) filter (where (completed_at is null) <> (status in ('pending', 'retryable', 'sent'))),
                      count(*) filter (where claim_token is not null and not exists (
                        select from relevo.claims c where c.token = claim_token and id = any (c.ids)))
                 from relevo.notification_deliveries"""
        ).fetchall()
        assert attempts <= CAP
        assert (unfinished, orphans) == (0, 0)

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
    bounds = {"outbox_max_attempts": CAP, "outbox_poison_lapses": POISON, "outbox_suspect_lapses": SUSPECT}
    workers = [build(worker_id=f"worker-{n}", outbox_retry_jitter_ms=0, **bounds) for n in range(3)]
    machine = type("Claims", (Machine,), {"conn": conn, "workers": workers})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=30,
            stateful_step_count=40,
            deadline=None,
            derandomize=False,
            print_blob=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
