"""A model of claims, and the statements that compare it with the tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from relevo.app import App
from relevo.core.model import Answer, PushRequest
from relevo.delivery.claiming.claim import Claim
from support.claim_steps import HTTP_TIMEOUT, MINUTE, NOW

CAP, SUSPECT, POISON = 3, 2, 4
LEASES = {"tender.new": 60_000, "slow": 120_000}
OPEN = ("pending", "retryable")


@dataclass
class Phone:
    """What a delivery's installation must look like: which of its tokens is the last, and whether it wants pushes."""

    version: int | None = 1
    allowed: bool = True
    opted_out: bool = False

    @property
    def obstacle(self) -> str | None:
        """What keeps every push from it."""
        if self.version is None:
            return "installation_gone"
        if not self.allowed:
            return "not_allowed"
        return "opted_out" if self.opted_out else None


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
    event: int = field(default=0, compare=False)
    unseen: UUID | None = field(default=None, compare=False)
    """The claim over which it was given up, because the answer to its request was not seen."""
    phone: Phone = field(default_factory=Phone, compare=False)

    @property
    def final(self) -> bool:
        """Tell whether nothing more happens to it."""
        return self.status not in (*OPEN, "sent")

    def become(self, status: str, due: datetime | None = None) -> None:
        """Go into a state, out of whoever's hands."""
        self.status, self.due, self.token, self.unseen = status, due, None, None


@dataclass
class Standing:
    """What a row of claims must say."""

    ids: list[int]
    claimed_at: datetime
    lease: timedelta
    leased_until: datetime
    cycle: str = "dispatch"


class Chunk(NamedTuple):
    """A chunk of the queue as it is read from the table."""

    due: datetime
    event_type: str
    lapses: int
    ids: list[int]


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
        self.ended: set[int] = set()

    @property
    def is_idle(self) -> bool:
        """Few deliveries are open: a short queue is claimed again and again."""
        return sum(row.status in OPEN for row in self.rows.values()) < 8

    def pick(self, limit: int, queue: list[Chunk]) -> tuple[list[int], int]:
        """Choose the next batch and its lease: from the head as long as chunks share a lease; a suspect one alone."""
        picked: list[int] = []
        lease = 0
        for chunk in (each for each in queue if each.due <= self.now):
            if picked and (LEASES[chunk.event_type] != lease or chunk.lapses >= SUSPECT):
                break
            lease = LEASES[chunk.event_type]
            picked += chunk.ids[: limit - len(picked)]
            if len(picked) == limit or chunk.lapses >= SUSPECT:
                break
        return picked, lease

    def claim(self, token: UUID, ids: list[int], lease_ms: int) -> None:
        """Hand deliveries to a claim."""
        lease = timedelta(milliseconds=lease_ms)
        self.claims[token] = Standing(ids, self.now, lease, self.now + lease)
        self.unanswered[token] = {}
        first_due = min((self.rows[key].due for key in ids), default=None)
        for key in ids:
            assert self.rows[key].token is None, "claimed twice"
            self.rows[key].token, self.rows[key].due = token, first_due

    def holds_something(self, token: UUID) -> bool:
        """Tell whether not all of a claim was settled; what is asked for is settled as a whole."""
        claim = self.claims[token]
        return claim.cycle == "receipt" or any(self.rows[key].token == token for key in claim.ids)

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
        if row.event in self.ended:
            return "event_ended"
        if row.deadline is not None and row.deadline <= self.now:
            return "deadline_passed"
        return row.phone.obstacle or ("send" if row.phone.version == version else "token_changed")

    def waiting(self, key: int) -> list[str]:
        """List the newest late tickets that wait for a delivery; those that came at the same time are as good as another."""
        found = {t: at for (k, t), at in self.late.items() if k == key and t != self.rows[key].ticket}
        return [ticket for ticket, at in found.items() if at == max(found.values())]

    def settle(
        self, token: UUID, answers: list[Answer], requests: list[UUID], tickets: dict[int, str | None], *, known: bool
    ) -> tuple[Counter[str], int, int]:
        """Write what is still held, keep the tickets of the rest; return what was written, closed and kept.

        `tickets` tells which of several equally good late tickets was taken; a claim known to be lost is left alone.
        """
        if known:
            for request in requests:
                self.unanswered[token].pop(request, None)
            self._extend(token)
        written: Counter[str] = Counter()
        rest = []
        for answer in answers:
            if known and self.rows[answer.id].token == token:
                written[self._write(answer, tickets)] += 1
            elif answer.ticket_id is not None and self.rows[answer.id].ticket != answer.ticket_id:
                rest.append(answer)
        closed = sum(self._close(answer.id, str(answer.ticket_id)) for answer in rest)
        fresh = [(a.id, str(a.ticket_id)) for a in rest if self.rows[a.id].ticket != a.ticket_id]
        kept = [key for key in fresh if key not in self.late]
        self.late |= dict.fromkeys(kept, self.now)
        return written, closed, len(kept)

    def _extend(self, token: UUID) -> None:
        """A settle extends the lease it holds, as far as a heartbeat may."""
        claim = self.claims.get(token)
        if claim is not None and self.now < claim.claimed_at + 3 * claim.lease:
            claim.leased_until = max(claim.leased_until, self.now + claim.lease)

    def _write(self, answer: Answer, tickets: dict[int, str | None]) -> str:
        row = self.rows[answer.id]
        ready = self.waiting(answer.id)
        row.attempts += answer.attempted
        row.lapses = 0
        if ready and not answer.attempted and answer.status not in ("sent", "retryable"):
            assert tickets[answer.id] in ready
            answer = answer._replace(status="sent", ticket_id=tickets[answer.id])
        row.ticket = answer.ticket_id or row.ticket
        if answer.status != "retryable":
            self.late.pop((answer.id, str(row.ticket)), None)
        floor = timedelta(milliseconds=answer.retry_after_ms)
        retry_at = self.now + (max(_pause(row.attempts), floor) if answer.attempted else floor)
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
        is_unsent = row.status in ("expired", "cancelled", "skipped") and row.ticket is None
        if not is_unsent and row.status != "unknown" and (row.status != "failed" or row.unseen is None):
            return False
        row.become("sent")
        row.ticket = ticket
        self.late.pop((key, ticket), None)
        return True

    def never_begun(self, token: UUID, request: UUID) -> None:
        """A request was never begun: what was given up, or waits, because its answer was not seen is due again."""
        for key in self.unanswered.get(token, {}).pop(request, ()):
            row = self.rows[key]
            if token not in self.claims and row.unseen == token and row.token is None:
                row.attempts -= 1
                row.become("retryable" if row.attempts else "pending", self.now)

    def sweep(self, queue: list[Chunk]) -> int:
        """End what is queued of ended events, but no chunk with something in it that was sent after all; count it."""
        swept = [
            key
            for chunk in queue
            if self.rows[chunk.ids[0]].event in self.ended and not any(self.waiting(key) for key in chunk.ids)
            for key in chunk.ids
        ]
        for key in swept:
            self.rows[key].become("cancelled")
        return len(swept)

    def redrive(self) -> int:
        """Open what failed and is not too late again, as if it had never been tried; count it."""
        dead = [row for row in self.rows.values() if row.status == "failed"]
        opened = [row for row in dead if row.deadline is None or row.deadline > self.now]
        for row in opened:
            row.attempts = row.lapses = 0
            row.become("pending", self.now)
        return len(opened)

    def told(self, key: int, says: str) -> None:
        """A receipt confirms a push, asks for another try within the cap, or is still missing."""
        row = self.rows[key]
        retry_at = self.now + _pause(max(row.attempts, 1))  # one that was redriven before its late ticket came has none
        if says == "retryable":
            row.lapses = 0
        if says == "ok":
            row.become("ok")
        elif says == "retryable" and row.attempts >= CAP:
            row.become("failed")
        elif says == "retryable" and row.deadline is not None and retry_at >= row.deadline:
            row.become("expired")
        elif says == "retryable":
            row.become("retryable" if row.attempts else "pending", retry_at)

    def end(self, token: UUID, *, lapsed: bool, tickets: dict[int, str | None]) -> Counter[str]:
        """End a claim; `tickets` tells which of several equally good late tickets was taken."""
        counts: Counter[str] = Counter()
        standing = self.claims.pop(token, None)
        if standing is not None and standing.cycle == "receipt":
            return counts
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
                poison, unseen = lapsed and row.lapses >= POISON, row.unseen
                row.become("failed" if poison else row.status, None if poison else row.due)
                row.unseen = None if poison else unseen
            else:
                ends = "unknown" if row.at_most_once else "failed" if row.attempts >= CAP else "retryable"
                row.become(ends, self.now + HTTP_TIMEOUT if ends == "retryable" else None)
                row.unseen = token
            counts[row.status] += 1
            counts["ambiguous"] += journalled
        return counts


def _pause(attempts: int) -> timedelta:
    return min(2 ** (attempts - 1), 60) * MINUTE


SEEN = """
select id, event_type, at_most_once, deadline_at, next_attempt_at, status, attempt_count, lapse_count,
       case when status <> 'sent' then claim_token end, provider_ticket_id
  from relevo.deliveries order by id
"""
QUEUE = "select due_at, event_type, lapse_count, ids from relevo.due_chunks order by due_at, id"
UNTOLD = """
select d.id, d.status, d.attempt_count, f.*
  from relevo.notification_deliveries d
  cross join lateral (select count(*) as told, coalesce(max(f.n), 0) as last, count(*) filter (where f.error_code is distinct from 'poison') as tried,
                             count(f.request_id) as in_requests, count(distinct f.request_id) as requests
                        from relevo.failed_attempts f where f.event_day = d.event_day and f.delivery_id = d.id) f
 where f.told <> f.last or f.in_requests <> f.requests
    or (d.provider_ticket_id is null and d.status in ('pending', 'retryable', 'failed', 'unknown', 'invalid') and f.tried < d.attempt_count)
"""
MISPLACED = """
with place as (
  select u.id, 'open' as kind from relevo.due_chunks q cross join unnest(q.ids) as u(id)
  union all
  select u.id, 'open' from relevo.claims c cross join unnest(c.ids) as u(id) where c.cycle <> 'receipt'
  union all
  select u.id, 'sent' from relevo.awaited_receipts r cross join unnest(r.ids) as u(id)
  union all
  select l.delivery_id, 'failed' from relevo.dead_letters l
)
select d.id, d.status, array_agg(p.kind)
  from relevo.notification_deliveries d
  full join place p on p.id = d.id
 group by d.id, d.status
having array_remove(array_agg(p.kind), null) is distinct from
       case when d.status in ('pending', 'retryable') then array['open'] when d.status in ('sent', 'failed') then array[d.status] else '{}' end
"""
UNTRUE = """
select q.id
  from relevo.due_chunks q
  cross join unnest(q.ids, q.installations) as u(id, installation_id)
  join relevo.notification_deliveries d on d.event_day = q.event_day and d.id = u.id
 where (q.project, q.lane, q.event_id, q.event_type, q.created_at, q.attempt_count, q.lapse_count, u.installation_id) is distinct from
       (d.project, d.lane, d.notification_event_id, d.event_type, d.created_at, d.attempt_count, d.lapse_count, d.installation_id)
union all
select r.id
  from relevo.awaited_receipts r
  cross join unnest(r.days, r.ids, r.tickets, r.attempts, r.installations) as u(event_day, id, ticket, attempts, installation_id)
  join relevo.notification_deliveries d on d.event_day = u.event_day and d.id = u.id
 where (u.ticket, u.attempts, u.installation_id) is distinct from (d.provider_ticket_id, d.attempt_count, d.installation_id)
"""
MISCOUNTED = """
select m.event_id, m.status, sum(m.n)
  from (select d.notification_event_id as event_id, s.status, s.n
          from relevo.notification_deliveries d cross join lateral (values (d.status, 1), ('pending', -1)) as s(status, n)
        union all
        select p.event_id, p.status, -p.deliveries from relevo.event_progress_deltas p) m
 group by m.event_id, m.status
having sum(m.n) <> 0
"""
CANCEL = "update relevo.notification_events set state = 'cancelled', ended_at = %s where id = %s and ended_at is null"
PHONE = "where installation_id = (select installation_id from relevo.notification_deliveries where id = %s)"
CHANGES = {
    "move": f"update relevo.device_installations set token = token || '+', token_version = token_version + 1 {PHONE}",
    "forget": f"delete from relevo.device_installations {PHONE}",
    "forbid": f"update relevo.device_installations set permission = 'denied' {PHONE}",
    "allow": f"update relevo.device_installations set permission = 'granted' {PHONE}",
    "opt out": f"update relevo.device_installations set opt_outs = '{{news}}' {PHONE}",
}
EVENT = """
insert into relevo.notification_events (event_type, event_key, title, audience, content_hash, category, scheduled_at, deadline_at, at_most_once)
values (%s, %s, 'Hello', 'everyone', '', 'news', %s, %s, %s) returning id
"""
BECOMES: dict[str, Any] = {
    "sent": "sent",
    "event_ended": "cancelled",
    "deadline_passed": "expired",
    "installation_gone": "skipped",
    "not_allowed": "skipped",
    "opted_out": "skipped",
    "token_changed": "retryable",
}


TABLES = (
    "due_chunks",
    "awaited_receipts",
    "dead_letters",
    "notification_deliveries",
    "claims",
    "push_requests",
    "late_tickets",
    "failed_attempts",
    "event_progress_deltas",
    "device_installations",
)
"""What an example begins without."""
