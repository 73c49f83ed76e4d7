"""Recording what became of a claim's deliveries: the only knowledge of what was sent, so it waits for the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

import psycopg
import structlog
from psycopg_pool import PoolClosed

from relevo.core.errors import DatabaseUnavailableError
from relevo.core.logs import normalise_error
from relevo.core.model import Accepted, Answer, PushRequest, Reply, SentRequest, Settlement, TakenFate, Ticket
from relevo.database.outages import is_passing, is_unavailable
from relevo.delivery.claiming.claim import Claim
from relevo.delivery.settling.outcomes import ticketed
from relevo.delivery.worker_services import ClaimContext, is_news_project
from relevo.runtime.halving import is_of_rows, write_in_halves
from relevo.runtime.troubles import Thing

T = TypeVar("T")

_log = structlog.get_logger("relevo.dispatch")

_SETTLE_AGAIN_S = 0.5
_COUNTED: Mapping[str, str] = {"pending": "notifications_postponed", "invalid": "notifications_invalidated"}
_NEWS_COUNTED: Mapping[str, str] = {"ok": "news_taken", "sent": "news_taken", "pending": "news_postponed"}


@dataclass
class Recorder:
    """Writes what became of one claim's deliveries, the first answer of each, and ends the claim with the last."""

    context: ClaimContext
    settled: set[int] = field(default_factory=set)
    """The deliveries whose outcome was written, by id."""
    settling_since: float | None = None

    @property
    def _claim(self) -> Claim:
        return self.context.claim

    @property
    def is_complete(self) -> bool:
        """Whether every delivery of the claim is settled."""
        return len(self.settled) >= len(self._claim.deliveries)

    def settle_sent(self, sent: Sequence[SentRequest]) -> None:
        """Settle requests of which everything was sent, by one statement and without an answer for each delivery.

        `settle` does it where this cannot; what this earns stands in settle_sent.sql.
        """
        if not self._write_sent(sent):
            requests = [each.request for each in sent]
            self.settle(_answers_of(sent), dict.fromkeys((each.id for each in requests), "answered"), requests)

    def settle_sent_part(
        self, requests: Sequence[PushRequest], answers: Sequence[Answer], outcomes: Mapping[UUID, str]
    ) -> Mapping[UUID, str]:
        """Settle, of requests most of which was sent, that part as `settle_sent` does; return which outcomes are left.

        On an ordinary day a few of most waves are refused: without this all of such a wave would be settled one by one.
        Beforehand and by itself: a crash in between leaves the rest journalled and unanswered, as if it came sooner.
        """
        new = [a for a in answers if a.id not in self.settled]
        fate: TakenFate = "ok" if any(a.status == "ok" for a in new) else "sent"  # one push service gives one of them
        tickets = {a.id: a.ticket_id for a in new if a.status == fate and a.attempted and a.ticket_id}
        if 2 * len(tickets) <= len(new) or len(tickets) == len(new):
            return outcomes
        sent = [each for request in requests if (each := _sent_of(request, tickets, fate)) is not None]
        gone = {delivery.id for each in sent for delivery in each.request.deliveries}
        if not self._write_sent(sent, self._places_between(gone)):
            return outcomes
        whole = {each.request.id for each in sent if each.whole}
        return {request: kind for request, kind in outcomes.items() if request not in whole}

    def _places_between(self, gone: set[int]) -> list[int]:
        """Return the places, from 1 on, of what the claim still holds before and between deliveries that are gone."""
        held = [delivery.id for delivery in self._claim.deliveries if delivery.id not in self.settled]
        last = max((place for place, held_id in enumerate(held) if held_id in gone), default=-1)
        return [place for place, held_id in enumerate(held[: last + 1], 1) if held_id not in gone]

    def _write_sent(self, sent: Sequence[SentRequest], unsent: Sequence[int] = ()) -> bool:
        """Write down what was sent of some requests; False if it has to be settled otherwise."""
        done = self.settled.union(delivery.id for each in sent for delivery in each.request.deliveries)
        finish, claims = len(done) == len(self._claim.deliveries), self.context.services.claims
        try:
            settlement = self._persist(
                lambda: claims.settle_sent(self._claim, sent, self.context.now, unsent=unsent, finish=finish),
                lambda: _answers_of(sent),
            )
        except Exception as error:
            if not is_of_rows(error):
                raise
            return False
        if settlement is None:
            return False
        self.settled = done
        self._count(settlement)
        return True

    def record_accepted(self, request: PushRequest, tickets: Mapping[int, Ticket]) -> None:
        """Settle what was accepted of a request, by place, while others of it are not answered yet.

        The request stays unanswered in the journal, so that a crash leaves only the others ambiguous.
        """
        self.settle([ticketed(request.deliveries[place], ticket) for place, ticket in tickets.items()], {})

    def settle(
        self, answers: Sequence[Answer], outcomes: Mapping[UUID, str], requests: Sequence[PushRequest] = ()
    ) -> None:
        """Write the answers down, the first one for each delivery, and end the claim with the last of them."""
        answers = [answer for answer in answers if answer.id not in self.settled]
        if not answers and not outcomes:
            return
        try:
            self._settle_part(answers, outcomes)
        except Exception as error:
            if not is_of_rows(error):
                raise
            self._settle_apart(answers, outcomes, requests, error)

    def _settle_part(self, answers: Sequence[Answer], outcomes: Mapping[UUID, str]) -> None:
        done = self.settled.union(answer.id for answer in answers)
        settlement = self._write(answers, outcomes, finish=len(done) == len(self._claim.deliveries))
        self.settled = done
        retried = (answer.error_code or "unknown" for answer in answers if answer.status == "retryable")
        if not self._of_news:
            self.context.services.metrics.count_codes(self.context.services.metrics.retries, retried)
        self._count(settlement)

    def _settle_apart(
        self, answers: Sequence[Answer], outcomes: Mapping[UUID, str], requests: Sequence[PushRequest], error: Exception
    ) -> None:
        """Settle in halves, down to single deliveries, what cannot be settled together.

        What cannot be written is that delivery's own trouble. It stays in the claim and its request unanswered, so
        that whoever ends the claim finds its ticket, or takes it for one whose answer was not seen.
        """
        unwritten = write_in_halves(answers, lambda part: self._settle_part(part, {}), error)
        left = {answer.id: met for answer, met in unwritten.items()}
        whole = {each.id for each in requests if left.keys().isdisjoint(d.id for d in each.deliveries)}
        with self.context.report.in_passing(self.context.project):
            self._settle_part([], {request: kind for request, kind in outcomes.items() if request in whole})
        self._report_left(left)

    def _report_left(self, left: Mapping[int, Exception]) -> None:
        """Report deliveries whose answers could not be written."""
        if not left:
            return
        self.context.report.counts["answers_not_written"] += len(left)
        named, error = ", ".join(map(str, list(left)[:5])), next(iter(left.values()))
        self.context.report.add(
            f"what became of {len(left)} deliveries of {self._claim.project} could not be written ({named}): "
            f"{normalise_error(error, 200)}; those with a ticket are not sent again"
        )
        for delivery, met in list(left.items())[:5]:
            self.context.run.troubles.met(Thing("delivery", str(delivery)), met)

    def _count(self, settlement: Settlement) -> None:
        for status, count in settlement.written.items():
            name = _COUNTED.get(status, f"notifications_{status}")
            self.context.report.counts[_NEWS_COUNTED.get(status, f"news_{status}") if self._of_news else name] += count
        self.context.report.counts["late_tickets"] += settlement.closed_late + settlement.kept_as_evidence
        self.context.report.counts["tokens_disabled"] += settlement.tokens_disabled
        self.context.report.counts["notifications_silent"] += settlement.silent

    @property
    def _of_news(self) -> bool:
        return is_news_project(self._claim.project)

    def _write(self, answers: Sequence[Answer], outcomes: Mapping[UUID, str], *, finish: bool = False) -> Settlement:
        """Write answers down."""
        return self._persist(
            lambda: self.context.services.claims.settle(
                self._claim,
                answers,
                outcomes,
                self.context.now,
                finish=finish,
                may_prune=lambda c, p: not self.context.projects.pruning_stopped(c, p, self.context.now),
            ),
            lambda: answers,
        )

    def _persist(self, write: Callable[[], T], answers: Callable[[], Sequence[Answer]]) -> T:
        """Write answers down, waiting for the database if need be: nothing else knows what was sent.

        Tickets are kept as soon as that fails, so that nothing of it is sent again, whatever comes next.
        """
        self.settling_since = time.monotonic()
        give_up = time.monotonic() + self._claim.lasts_s
        kept = False
        while True:
            try:
                return write()
            except Exception as error:
                kept = kept or self._keep_tickets(error, answers())
                if not is_passing(error):
                    raise
                if time.monotonic() > give_up or isinstance(error.__cause__, PoolClosed):
                    _log.error(
                        "answers_not_recorded", claim=str(self._claim.token), tickets_kept=kept, error=str(error)
                    )
                    raise
                time.sleep(_SETTLE_AGAIN_S)

    def _keep_tickets(self, error: Exception, answers: Sequence[Answer]) -> bool:
        """Keep the tickets of answers that cannot be written; return whether that was done."""
        if is_unavailable(error):
            return False
        try:
            self.context.services.claims.keep_tickets(self._claim, answers, self.context.now)
        except (DatabaseUnavailableError, psycopg.Error) as met:
            _log.error("tickets_not_stored", claim=str(self._claim.token), error=normalise_error(met))
            return False
        return True

    def mark_unsent(self, requests: Sequence[UUID], outcome: str = "held_back") -> None:
        """Note that requests were certainly not taken, waiting for the database if need be: nobody else knows it."""
        if requests:
            with self.context.report.in_passing(self.context.project):
                claims = self.context.services.claims
                self._persist(lambda: claims.mark_unsent(self._claim, requests, self.context.now, outcome), list)

    def hand_in(self, request: PushRequest, reply: Reply) -> None:
        """Keep what is known of a request that nobody waits for any more: its tickets, or that it was not taken."""
        try:
            if reply.kind not in ("answered", "unclear"):
                self.mark_unsent([request.id], reply.kind)
            elif len(reply.tickets) == len(request.deliveries):
                pairs = zip(request.deliveries, reply.tickets, strict=True)
                self._write([ticketed(d, t)._replace(request=request.id) for d, t in pairs], {request.id: reply.kind})
        except Exception as error:  # noqa: BLE001 whatever it is, nobody waits for this thread
            _log.error("late_answers_failed", claim=str(self._claim.token), error=normalise_error(error))


def _sent_of(request: PushRequest, tickets: Mapping[int, str], fate: TakenFate) -> SentRequest | None:
    """Return what was sent of a request; None if nothing was."""
    sent = [delivery for delivery in request.deliveries if delivery.id in tickets]
    if not sent:
        return None
    whole = len(sent) == len(request.deliveries)
    return SentRequest(PushRequest(request.id, tuple(sent)), [tickets[d.id] for d in sent], whole, fate)


def _answers_of(sent: Sequence[SentRequest]) -> list[Answer]:
    """Return the answers of requests of which everything was sent."""
    return [
        ticketed(delivery, ticket)
        for each in sent
        for delivery, ticket in zip(each.request.deliveries, Accepted(each.tickets, each.fate), strict=True)
    ]
