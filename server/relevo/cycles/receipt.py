"""Receipt: ask what became of sent pushes, when their receipts are due, and settle what the answers say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from relevo.db import BUSY
from relevo.delivery.batch import Services, alerts, reason
from relevo.delivery.claims import Claim
from relevo.delivery.projects import Allowance
from relevo.delivery.sending import RequestPool
from relevo.errors import DatabaseUnavailableError, OwnershipLostError
from relevo.logs import normalise_error
from relevo.model import Awaiting, ReceiptAnswer, ReceiptReply, Step, Ticket
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every

_log = structlog.get_logger("relevo.receipt")

_PROJECTS_AT_ONCE = 8
_ASK_AGAIN_MS = 60_000
_LEAST_PAUSE_S = 1.0


def cycle(services: Services) -> Cycle:
    """Return receipt for the schedule: on every replica."""
    settings = services.settings
    timing = Every(settings.receipt_interval_minutes * 60_000)

    def step(run: Run) -> Step:
        return _ask_all(services, run)

    return Cycle("receipt", timing, step)


def _ask_all(services: Services, run: Run) -> Step:
    """Ask for the receipts that are due, one wave of requests per project, the projects beside each other."""
    due = [each for each in services.projects.due_receipts(run.now) if services.serves(each[0])]
    now = [project for project, due_in_s in due if due_in_s <= 0]
    waves = [_Wave(services, services.pools.of(project), run, project) for project in now]
    with ThreadPoolExecutor(_PROJECTS_AT_ONCE, thread_name_prefix="relevo-receipt") as projects:
        for wave in projects.map(_Wave.ask, waves):
            if wave.claimed:
                run.begin_work()
    counts = sum((wave.counts for wave in waves), Counter[str]())
    problems = tuple(problem for wave in waves for problem in wave.problems)
    later = [max(due_in_s, _LEAST_PAUSE_S) for _, due_in_s in due]
    return Step(
        {name: count for name, count in counts.items() if count},
        sum(wave.claimed for wave in waves),
        more=any(wave.full for wave in waves) and not any(wave.failed for wave in waves),
        problems=problems,
        due_in_s=min(later, default=None),
    )


@dataclass
class _Wave:
    """The requests of one project that are asked at once."""

    services: Services
    pool: RequestPool
    run: Run
    project: str
    claimed: int = 0
    full: bool = False
    failed: bool = False
    """Whether a request failed, so that going on at once would help nobody."""
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def ask(self) -> _Wave:
        """Claim, ask and settle on this worker's share of the connections, and leave them to others."""
        try:
            self._ask()
        except BUSY as error:  # a lock or a slow statement of this project is no other's trouble
            self._fail(error)
        finally:
            with suppress(DatabaseUnavailableError, *BUSY):  # their lease ends by itself
                self.services.projects.drop_connections(self.project, "receipt")
        return self

    def _fail(self, error: Exception) -> None:
        self.failed = True
        self.problems.append(f"receipts of {self.project}: {normalise_error(error, 200)}")

    def _ask(self) -> None:
        in_flight = self.pool.in_flight()
        allowance = self.services.projects.lease_connections(self.project, self.run.now, in_flight=in_flight)
        if not allowance.connections:
            return
        self.pool.resize(allowance.connections)
        claims = self._claim(allowance.connections)
        posts = [self.pool.submit("bulk", partial(self._post, claim)) for claim in claims]
        for claim, post in zip(claims, posts, strict=True):
            try:
                self._settle(claim, post.result(), allowance)
            except OwnershipLostError as lost:
                _log.warning("batch_given_up", claim=str(claim.token), reason=lost.reason)
            except Exception as error:  # noqa: BLE001 one request's surprise must not lose the answers of the others
                self._fail(error)
                self._hand_back(claim)

    def _claim(self, most: int) -> list[Claim]:
        settings = self.services.settings
        size = min(settings.receipt_chunk_size, self.services.provider_of(self.project).max_receipts)
        claims: list[Claim] = []
        for _ in range(most):
            limit = min(size, self.run.items_left - self.claimed)
            if limit <= 0:
                break
            try:
                claim = self.services.claims.claim_awaiting(
                    self.project, limit=limit, shard=self.run.shard, now=self.run.now
                )
            except BUSY as error:  # what is claimed already is asked for all the same
                self._fail(error)
                break
            self.full = claim is not None and len(claim.deliveries) == limit
            if claim is not None:
                claims.append(claim)
                self.claimed += len(claim.deliveries)
            if not self.full:
                break
        return claims

    def _post(self, claim: Claim) -> ReceiptReply:
        return self._fetch(claim, [each.ticket_id for each in _awaited(claim)])

    def _fetch(self, claim: Claim, ticket_ids: Sequence[str]) -> ReceiptReply:
        """Ask for receipts, in halves where the push service finds them too many at once."""
        claim.check(self.services.settings.push_request_timeout_ms)
        reply = self.services.provider_of(self.project).fetch_receipts(ticket_ids, self.project)
        if reply.kind != "too_many" or len(ticket_ids) == 1:
            return reply
        half = len(ticket_ids) // 2
        first, second = self._fetch(claim, ticket_ids[:half]), self._fetch(claim, ticket_ids[half:])
        failed = next((each for each in (first, second) if each.kind != "answered"), None)
        return failed or replace(first, receipts={**first.receipts, **second.receipts})

    def _settle(self, claim: Claim, reply: ReceiptReply, allowance: Allowance) -> None:
        """Write down what the receipts say; a request that failed changes nothing but when to ask again."""
        if reply.kind != "answered":
            self.failed = True
            self.problems.append(f"receipts of {self.project} were not told: {reply.kind} {reply.code or ''}".strip())
            self._tell_of_failure(reply)
        blocked = self._tell_of_credentials(claim, reply, watched=allowance.watched)
        answers = [self._answer(each, reply, blocked=blocked) for each in _awaited(claim)]
        settlement = self.services.claims.settle_receipts(
            claim,
            answers,
            self.run.now,
            may_prune=lambda c, p: not self.services.projects.pruning_stopped(c, p, self.run.now),
        )
        if allowance.troubled:
            self._tell_of_arrivals(claim, reply)
        self.problems += alerts(reply.receipts.values(), self.problems)
        self.counts["receipts_processed"] += len(reply.receipts)
        self.counts["receipts_missing"] += len(claim.deliveries) - len(reply.receipts)
        for status, name in (
            ("ok", "notifications_confirmed"),
            ("invalid", "notifications_invalidated"),
            ("failed", "notifications_failed"),
            ("retryable", "notifications_retryable"),
            ("pending", "notifications_postponed"),
            ("expired", "notifications_expired"),
            ("unconfirmed", "notifications_unconfirmed"),
        ):
            self.counts[name] += settlement.written.get(status, 0)
        self.counts["tokens_disabled"] += settlement.tokens_disabled

    def _answer(self, awaiting: Awaiting, reply: ReceiptReply, *, blocked: bool) -> ReceiptAnswer:
        if reply.kind != "answered":
            return ReceiptAnswer(
                awaiting, "waiting", paced=False, retry_after_ms=max(reply.retry_after_ms, _ASK_AGAIN_MS)
            )
        receipt = reply.receipts.get(awaiting.ticket_id)
        if receipt is None:
            return ReceiptAnswer(awaiting, "waiting", paced=False)
        return _said(awaiting, receipt, blocked=blocked)

    def _tell_of_failure(self, reply: ReceiptReply) -> None:
        if reply.kind == "unauthorised":
            self.services.projects.failed(self.project, f"{reply.code}", credential=True, now=self.run.now)
        elif reply.kind == "throttled":
            self.services.projects.throttled(self.project, reply.retry_after_ms, self.run.now)

    def _tell_of_credentials(self, claim: Claim, reply: ReceiptReply, *, watched: bool) -> bool:
        """Tell which phones met a credential fault, if that is news; return whether it is the project's."""
        said = [(each, receipt) for each in _awaited(claim) if (receipt := reply.receipts.get(each.ticket_id))]
        met = [(each, receipt) for each, receipt in said if receipt.fate == "credential"]
        if not met and not (said and watched):
            return False
        # a retry that meets the fault again is no news: else a few bad phones, tried again together, look like all
        heard = {each.installation_id: False for each, receipt in said if receipt.fate == "ok"}
        heard |= {each.installation_id: True for each, _ in met if each.attempt_count <= 1}
        sent_at = max((each.sent_at for each, _ in met if each.sent_at), default=None)
        why = reason(met[0][1]) if met else None
        return self.services.projects.heard(self.project, heard, why, by="receipt", sent_at=sent_at, now=self.run.now)

    def _tell_of_arrivals(self, claim: Claim, reply: ReceiptReply) -> None:
        """Close a breaker that a receipt opened, once a newer push arrived."""
        arrived = [
            each.sent_at
            for each in _awaited(claim)
            if each.sent_at and (said := reply.receipts.get(each.ticket_id)) and said.fate == "ok"
        ]
        if arrived:
            self.services.projects.succeeded(self.project, "receipt", max(arrived), self.run.now)

    def _hand_back(self, claim: Claim) -> None:
        try:
            self.services.claims.release(claim, self.run.now)
        except (DatabaseUnavailableError, *BUSY):
            _log.warning("claim_not_handed_back", claim=str(claim.token))


def _awaited(claim: Claim) -> Sequence[Awaiting]:
    return [each for each in claim.deliveries if isinstance(each, Awaiting)]


def _said(awaiting: Awaiting, receipt: Ticket, *, blocked: bool) -> ReceiptAnswer:
    """Return what a receipt means; a credential fault of the project gives the attempt back."""
    code, message = receipt.code, receipt.message
    match receipt.fate:
        case "ok" | "sent":
            return ReceiptAnswer(awaiting, "ok")
        case "credential" if blocked:
            return ReceiptAnswer(awaiting, "retryable", -1, paced=False, error_code=code, error_message=message)
        case "credential":
            return ReceiptAnswer(awaiting, "retryable", error_code=code, error_message=message)
        case "unclear":
            return ReceiptAnswer(awaiting, "waiting", paced=False)
        case "invalid" | "failed" | "retryable":
            return ReceiptAnswer(awaiting, receipt.fate, error_code=code, error_message=message)
