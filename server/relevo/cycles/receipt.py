"""Receipt: ask what became of sent pushes, when their receipts are due, and settle what the answers say."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

import psycopg
import structlog

from relevo.core.errors import DatabaseUnavailableError, OwnershipLostError
from relevo.core.i18n import N_
from relevo.core.logs import normalise_error
from relevo.core.model import Awaiting, ReceiptAnswer, ReceiptReply, Settlement, Step, Ticket
from relevo.core.phrases import Phrase
from relevo.cycles import Assembled
from relevo.delivery.claiming.claim import Claim
from relevo.delivery.projects.allowance import Allowance
from relevo.delivery.projects.connection_leases import PoolUse
from relevo.delivery.projects.projects import DueReceipts
from relevo.delivery.projects.request_pool import PoolCall, RequestPool
from relevo.delivery.projects.unreachable import is_unreached
from relevo.delivery.report import Report
from relevo.delivery.sending.in_flight import SERVICE
from relevo.delivery.sending.reply_checks import checked_receipts
from relevo.delivery.settling.outcomes import alerts, reason
from relevo.delivery.worker_services import WorkerServices
from relevo.runtime import threads
from relevo.runtime.cycle_facts import CycleFacts
from relevo.runtime.halving import is_of_rows
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every
from relevo.runtime.troubles import Thing, is_own

FACTS = CycleFacts(
    "receipt",
    does="fetches Expo's receipts, at first 15 minutes after sending, then less and less often",
    counts={
        "receipts_processed": "receipts that arrived",
        "receipts_missing": "receipts that Expo does not have yet",
        "notifications_confirmed": "pushes that Apple or Google accepted",
        "notifications_invalidated": "pushes to a token that is gone",
        "notifications_failed": "pushes that failed for good",
        "notifications_retryable": "pushes that failed and are tried again",
        "notifications_postponed": "pushes returned to the queue without spending an attempt",
        "notifications_expired": "pushes whose deadline passed",
        "notifications_unconfirmed": "pushes whose receipt never came",
        "tokens_disabled": "tokens disabled",
        "calls_given_up": "calls that hung and were given up",
    },
    after="dispatch",
    waiting=lambda backlog: Phrase("receipts are due") if backlog.receipts else "",
    paused=N_("%(who)s paused asking for receipts."),
    resumed=N_("%(who)s resumed asking for receipts after %(time)s."),
)
_log = structlog.get_logger("relevo.receipt")

_PROJECTS_AT_ONCE = 8
_LEAST_PAUSE_S = 1.0
_PATIENCE_S = 1.0
_SENT_TOGETHER = 100  # at most; they are claimed and settled together
_MOST_TRIES = 16
_ASKED_AGAIN_MS, _LEFT_ALONE_MS = 1_000, 15 * 60_000  # receipts that could not be written with others, and alone

_COUNTED = {
    "ok": "notifications_confirmed",
    "invalid": "notifications_invalidated",
    "failed": "notifications_failed",
    "retryable": "notifications_retryable",
    "pending": "notifications_postponed",
    "expired": "notifications_expired",
    "unconfirmed": "notifications_unconfirmed",
}


def cycles(given: Assembled) -> list[Cycle]:
    """Return receipt for the schedule: on every replica."""
    timing = Every(given.settings.receipt_interval_minutes * 60_000)
    return [Cycle.of(FACTS, timing, lambda run: _Receipts(given.services, run).go())]


@dataclass
class _Receipts:
    """One busy period: whose receipts are due, and which projects' requests are under way."""

    services: WorkerServices
    run: Run
    under_way: dict[Future[None], _Wave] = field(default_factory=dict)
    not_before: dict[str, float] = field(default_factory=dict)
    """When a project may be asked about again, by the monotonic clock."""
    due: list[DueReceipts] = field(default_factory=list)
    looked_at: float = -math.inf
    claimed: int = 0
    report: Report = field(default_factory=Report)

    def go(self) -> Step:
        """Ask for what is due, wave by wave, the projects beside each other; one that hangs keeps no other waiting."""
        self.not_before |= self.run.resting("receipts")
        try:
            while self._fill() or self.under_way:
                self._collect()
        except DatabaseUnavailableError as error:  # what was under way is counted all the same
            self.report.add(normalise_error(error, 200))
        finally:
            while self.under_way:
                self._collect()
        rests, now = self.run.resting("receipts"), time.monotonic()
        later = [
            max(each.due_in_s, _LEAST_PAUSE_S, rests.get(each.project, 0.0) - now, self._unreachable_s(each.project))
            for each in self.due
        ]
        return Step(
            {name: count for name, count in self.report.counts.items() if count},
            self.claimed,
            problems=tuple(self.report.problems),
            more=not self._may_claim() and any(each.due_in_s <= 0 for each in self.due),
            due_in_s=min(later, default=None),
        )

    def _unreachable_s(self, project: str) -> float:
        return self.services.projects.unreachable.rest_s(project)

    def _may_claim(self) -> bool:
        return self.run.may_go_on() and self.run.items_left > self.claimed

    def _fill(self) -> bool:
        """Begin a wave for each project whose receipts are due, if there is room; return whether to come back."""
        if not self._may_claim():
            return False
        self._look()
        for project in self._open():
            if self._room():
                wave = _Wave(self.services, self.services.pools[project], self.run, project)
                self.under_way[threads.start("relevo-receipt", wave.ask)] = wave
        return any(True for _ in self._open())

    def _look(self) -> None:
        if time.monotonic() - self.looked_at < _LEAST_PAUSE_S:
            return
        try:
            self.due = self.services.projects.due_receipts(self.run.now)
        except psycopg.Error as error:
            self.report.add(f"what is due could not be read: {normalise_error(error, 200)}")
        self.looked_at = time.monotonic()

    def _open(self) -> Iterator[str]:
        busy = {wave.project for wave in self.under_way.values()}
        for due in self.due:
            rests = self.not_before.get(due.project, 0.0) > time.monotonic() or self._unreachable_s(due.project) > 0
            if due.due_in_s <= 0 and due.project not in busy and not rests:
                yield due.project

    def _room(self) -> bool:
        """Return whether another project may begin; those that take longer than a request may are in nobody's way."""
        usual_s = self.services.settings.push_request_timeout_ms / 1000 + _PATIENCE_S
        going = [wave for wave in self.under_way.values() if time.monotonic() - wave.begun_at < usual_s]
        return len(going) < _PROJECTS_AT_ONCE

    def _collect(self) -> None:
        """Wait a moment for a wave to end, and count what it came to."""
        if not self.under_way:
            return
        wait(self.under_way, timeout=_PATIENCE_S / 4, return_when=FIRST_COMPLETED)
        for future in [each for each in self.under_way if each.done()]:
            wave = self.under_way.pop(future)
            self.report.include(wave.report)
            self.claimed += wave.claimed
            if wave.claimed:
                self.run.begin_work()
            if not wave.full or wave.failed:  # whatever falls due next is worth a look, but not at once
                self.not_before[wave.project] = time.monotonic() + _LEAST_PAUSE_S
                self.due = [each for each in self.due if each.project != wave.project]
            self._note(wave, future.exception() or wave.error)

    def _note(self, wave: _Wave, error: BaseException | None) -> None:
        """Leave a project alone whose receipts met an error; the others are asked about."""
        thing = Thing("receipts", wave.project)
        if error is None:
            self.run.troubles.went_well(thing)
        elif is_own(error):
            self.run.leave_alone(thing, error)
            self.not_before[wave.project] = math.inf  # in this run
        else:
            self.report.add(f"receipts of {wave.project}: {normalise_error(error, 200)}")
            self.not_before[wave.project] = math.inf


@dataclass
class _Wave:
    """The requests of one project that are asked at once."""

    services: WorkerServices
    pool: RequestPool
    run: Run
    project: str
    begun_at: float = field(default_factory=time.monotonic)
    claimed: int = 0
    full: bool = False
    failed: bool = False
    """Whether a request failed, so that going on at once would help nobody."""
    answered: bool = False
    error: BaseException | None = None
    """The counts and errors of the run so far."""
    pause_ms: int = 0
    """How long the project's receipts rest after a request that failed."""
    report: Report = field(default_factory=Report)

    def ask(self) -> None:
        """Claim, ask and settle on this worker's share of the connections, and leave them to others."""
        try:
            self._ask()
        finally:
            with suppress(DatabaseUnavailableError, psycopg.Error):  # their lease ends by itself
                in_flight = self.pool.in_flight()
                self.services.projects.drop_connections(self.project, "receipt", in_flight=in_flight)

    def _fail(self, error: BaseException) -> None:
        self.failed, self.error = True, self.error or error

    def _ask(self) -> None:
        if self.pool.is_full_of_hung():
            return
        pool = PoolUse(self.pool.in_flight(), self.pool.capacity)
        allowance = self.services.projects.lease_connections(self.project, pool, self.run.now)
        if not allowance.connections:
            return
        self.pool.resize(allowance.connections)
        posts = [(claim, self._submit(claim)) for claim in self._claim(allowance.connections)]
        for claim, post in posts:
            try:
                if post is None or not self._wait_for(claim, post):
                    self.services.claims.hand_back(claim, self.run.now)
                else:
                    self._settle(claim, post.result(), allowance)
            except OwnershipLostError as lost:
                _log.warning("claim_given_up", claim=str(claim.token), reason=lost.reason)
            except (Exception, SystemExit) as error:  # noqa: BLE001 one request's surprise must not lose the others'
                self._fail(error)
                self.services.claims.hand_back(claim, self.run.now)

    def _submit(self, claim: Claim) -> PoolCall[ReceiptReply] | None:
        try:
            return self.pool.submit("bulk", partial(self._post, claim))
        except RuntimeError as error:  # no thread could be started
            self._fail(error)
            return None

    def _wait_for(self, claim: Claim, post: PoolCall[ReceiptReply]) -> bool:
        """Wait for an answer as long as the claim can be held; then give the request up, for it can be asked again."""
        request_s = self.services.settings.push_request_timeout_ms / 1000
        while not wait([post], timeout=_PATIENCE_S / 4).done:
            stop_at = (post.taken_at + request_s + _PATIENCE_S) if post.taken_at else 0.0
            if time.monotonic() > (min(claim.give_up_at, stop_at) if self.run.stopping.is_set() else claim.give_up_at):
                self._give_up(claim, post)
                return False
            self.pool.staff()
        return True

    def _give_up(self, claim: Claim, post: PoolCall[ReceiptReply]) -> None:
        self.failed = True
        claim.lose("error", "Its request hangs and was given up.")
        if post.taken_at is not None:
            hung = self.services.hung
            call = hung.add(SERVICE, self.project, post.taken_at, claim.lasts_s, post)
            self.report.add_hung(hung.give_up(call))
        self.pool.leave(post, connected_s=claim.lasts_s)

    def _claim(self, most: int) -> list[Claim]:
        claims: list[Claim] = []
        for _ in range(most):
            limit = min(self._most_at_once, self.run.items_left - self.claimed)
            if limit <= 0:
                break
            try:
                claim = self.services.claims.claim_awaiting(
                    self.project, limit=limit, shard=self.run.shard, now=self.run.now
                )
            except (DatabaseUnavailableError, psycopg.Error) as error:  # what is claimed is asked for all the same
                self._fail(error)
                break
            # where more were due, what comes next did not fit
            self.full = claim is not None and len(claim.deliveries) + _SENT_TOGETHER > limit
            if claim is not None:
                claims.append(claim)
                self.claimed += len(claim.deliveries)
            if not self.full:
                break
        return claims

    @property
    def _most_at_once(self) -> int:
        """How many receipts one request asks for at most."""
        most = self.services.settings.receipt_chunk_size
        return min(most, self.services.provider_of(self.project).max_receipts or most)

    def _post(self, claim: Claim) -> ReceiptReply:
        """Ask for what the claim holds, in as many requests as that takes; one that fails for all is the last."""
        tickets, size = [each.ticket_id for each in _awaited(claim)], self._most_at_once
        if not self.services.provider_of(self.project).max_receipts:
            # it returns none: what it took is delivered, and is awaited only because its ticket came late
            return ReceiptReply("answered", {ticket: Ticket("ok", id=ticket) for ticket in tickets})
        reply = ReceiptReply("answered")
        for start in range(0, len(tickets), size):
            told = self._fetch(claim, tickets[start : start + size])
            reply = _joined(reply, told)
            if told.kind not in ("answered", "rejected", "too_many"):
                break
        return reply

    def _fetch(self, claim: Claim, ticket_ids: Sequence[str]) -> ReceiptReply:
        """Ask for receipts, in halves where the push service finds them too many at once."""
        claim.check(self.services.settings.push_request_timeout_ms)
        if not self.services.projects.connections.may_connect(self.project):
            raise OwnershipLostError("error", "The lease of its connection ran out.")
        provider, metrics = self.services.provider_of(self.project), self.services.metrics
        with metrics.request_seconds.labels(provider.name, "receipts").time():
            reply = checked_receipts(provider.fetch_receipts(ticket_ids, self.project))
        if reply is None:
            raise TypeError(f"the adapter of {provider.name} returned no reply to a question for receipts")
        if reply.kind != "too_many" or len(ticket_ids) == 1:
            return reply
        half = len(ticket_ids) // 2
        return _joined(self._fetch(claim, ticket_ids[:half]), self._fetch(claim, ticket_ids[half:]))

    def _settle(self, claim: Claim, reply: ReceiptReply, allowance: Allowance) -> None:
        """Write down what the receipts say; a request that failed changes nothing but when to ask again."""
        if reply.kind != "answered":
            self.failed = True
            self.report.add(f"receipts of {self.project} were not told: {reply.kind} {reply.code or ''}".strip())
            if is_unreached(reply) and self.services.projects.unreachable.met(self.project, reason(reply)):
                self.services.claims.hand_back(claim, self.run.now)  # another worker asks for them
                return
            self._note_failure(reply)
        blocked = self._note_credentials(claim, reply, watched=allowance.watched)
        answers = self._not_gone([self._answer(each, reply, blocked=blocked) for each in _awaited(claim)])
        settlement = self._write(claim, answers)
        if self.services.tracing is not None:
            provider = self.services.provider_of(self.project).name
            self.services.tracing.received(claim, answers, {"relevo.provider": provider})
        if reply.kind == "answered" and not self.answered:
            self.answered = True
            self.services.projects.unreachable.reached(self.project)
            self.services.projects.resume_receipts(self.project)
        if allowance.troubled:
            self._note_arrivals(claim, reply)
        self.report.add(*alerts(reply.receipts.values()))
        self._measure(reply, answers)
        self.report.counts["receipts_processed"] += len(reply.receipts)
        self.report.counts["receipts_missing"] += len(claim.deliveries) - len(reply.receipts)
        for status, name in _COUNTED.items():
            self.report.counts[name] += settlement.written.get(status, 0)
        self.report.counts["tokens_disabled"] += settlement.tokens_disabled

    def _write(self, claim: Claim, answers: Sequence[ReceiptAnswer]) -> Settlement:
        """Write down what receipts say; if that cannot be done together, some of it, and ask for the others again.

        So what cannot be written is soon asked for alone, and waits for longer.
        """
        try:
            return self._write_some(claim, answers, answers)
        except Exception as error:
            if not is_of_rows(error):
                raise
            self._fail(error)
        size, tries = (len(answers) + 1) // 2, 0
        while tries < _MOST_TRIES and len(answers) > 1:
            for start in range(0, len(answers), size):
                tries += 1
                with suppress(psycopg.Error):
                    return self._write_some(claim, answers, answers[start : start + size])
            if size == 1:
                break
            size = (size + 1) // 2
        return self._write_some(claim, answers, ())

    def _write_some(self, claim: Claim, answers: Sequence[ReceiptAnswer], some: Sequence[ReceiptAnswer]) -> Settlement:
        """Write some of what receipts say; the others wait, longer if nothing of it can be written."""
        written = {answer.awaiting.id for answer in some}
        pause_ms = _ASKED_AGAIN_MS if some else _LEFT_ALONE_MS
        return self.services.claims.settle_receipts(
            claim,
            [
                answer
                if answer.awaiting.id in written
                else ReceiptAnswer(answer.awaiting, "waiting", paced=False, retry_after_ms=pause_ms)
                for answer in answers
            ],
            self.run.now,
            may_prune=lambda c, p: not self.services.projects.pruning_stopped(c, p, self.run.now),
        )

    def _measure(self, reply: ReceiptReply, answers: Sequence[ReceiptAnswer]) -> None:
        metrics, name = self.services.metrics, self.services.provider_of(self.project).name
        metrics.count_codes(metrics.receipts, (receipt.code for receipt in reply.receipts.values()), name)
        retried = (answer.error_code or "unknown" for answer in answers if answer.status == "retryable")
        metrics.count_codes(metrics.retries, retried)

    def _answer(self, awaiting: Awaiting, reply: ReceiptReply, *, blocked: bool) -> ReceiptAnswer:
        receipt = reply.receipts.get(awaiting.ticket_id)
        if receipt is not None:
            return _said(awaiting, receipt, blocked=blocked)
        pause_ms = 0 if reply.kind == "answered" else max(self.pause_ms, reply.retry_after_ms)
        return ReceiptAnswer(awaiting, "waiting", paced=False, retry_after_ms=pause_ms)

    def _not_gone(self, answers: list[ReceiptAnswer]) -> list[ReceiptAnswer]:
        """Return answers in which the push to a former token that is gone is tried again with the phone's new one."""
        gone = [each.awaiting for each in answers if each.status == "invalid"]
        if not gone:
            return answers
        moved: dict[tuple[UUID, int | None], bool] = {}
        with self.report.in_passing(self.project):
            moved = self.services.claims.returned([(each.installation_id, each.token_version, None) for each in gone])
        return [
            replace(each, status="retryable", error_code="token_changed")
            if each.status == "invalid" and (each.awaiting.installation_id, each.awaiting.token_version) in moved
            else each
            for each in answers
        ]

    def _note_failure(self, reply: ReceiptReply) -> None:
        if not self.pause_ms:  # the requests of one wave are one failure
            self.pause_ms = self.services.projects.pause_receipts(self.project, reply.retry_after_ms, self.run.now)
        if reply.kind == "unauthorised":
            self.services.projects.failed(self.project, f"{reply.code}", credential=True, now=self.run.now)
        elif reply.kind == "throttled":
            self.services.projects.throttled(self.project, reply.retry_after_ms, self.run.now)

    def _note_credentials(self, claim: Claim, reply: ReceiptReply, *, watched: bool) -> bool:
        """Note which phones met a credential fault, if that is news; return whether it is the project's."""
        said = [(each, receipt) for each in _awaited(claim) if (receipt := reply.receipts.get(each.ticket_id))]
        met = [(each, receipt) for each, receipt in said if receipt.fate == "credential"]
        if not met and not (said and watched):
            return False
        # a retry that meets the fault again is no news: else a few bad phones, tried again together, look like all
        heard = {each.installation_id: False for each, receipt in said if receipt.fate == "ok"}
        heard |= {each.installation_id: True for each, _ in met if each.attempt_count <= 1}
        sent_at = max((each.sent_at for each, _ in met if each.sent_at), default=None)
        why = next((reason(receipt) for _, receipt in met), None)
        return self.services.projects.heard(self.project, heard, why, by="receipt", sent_at=sent_at, now=self.run.now)

    def _note_arrivals(self, claim: Claim, reply: ReceiptReply) -> None:
        """Close a breaker that a receipt opened, once a newer push arrived."""
        arrived = [
            each.sent_at
            for each in _awaited(claim)
            if each.sent_at and (said := reply.receipts.get(each.ticket_id)) and said.fate == "ok"
        ]
        if arrived:
            self.services.projects.succeeded(self.project, "receipt", max(arrived), self.run.now)


def _joined(first: ReceiptReply, second: ReceiptReply) -> ReceiptReply:
    """Return what two requests for the same claim came to: all receipts, and the failure if one failed."""
    failed = next((each for each in (first, second) if each.kind != "answered"), first)
    return replace(failed, receipts={**first.receipts, **second.receipts})


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
        case "not_sent":
            return ReceiptAnswer(awaiting, "retryable", -1, error_code=code, error_message=message)
        case "unclear":
            return ReceiptAnswer(awaiting, "waiting", paced=False)
        case "invalid" | "failed" | "retryable":
            return ReceiptAnswer(awaiting, receipt.fate, error_code=code, error_message=message)
