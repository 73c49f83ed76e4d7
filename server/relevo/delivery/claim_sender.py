"""The steps of one claim, in order: compose, journal, send, decide, settle."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple
from uuid import UUID, uuid4

import psycopg
import structlog

from relevo.core.errors import DatabaseUnavailableError, OwnershipLostError
from relevo.core.logs import normalise_error
from relevo.core.model import SHADOW, Accepted, Answer, Delivery, PushRequest, Reply, SentRequest, Ticket
from relevo.database.outages import BUSY
from relevo.delivery.claiming.claim import Claim
from relevo.delivery.composing.messages import MessageBuilder
from relevo.delivery.sending.bad_messages import BadMessageSearch
from relevo.delivery.sending.in_flight import InFlightRequests, RequestResult
from relevo.delivery.settling.outcomes import judged
from relevo.delivery.settling.recorder import Recorder
from relevo.delivery.settling.replies import Handled, ReplyHandler
from relevo.delivery.worker_services import ClaimContext
from relevo.runtime import threads

_log = structlog.get_logger("relevo.dispatch")


class _Journalled(NamedTuple):
    """The journal's answer for a wave: the requests to send, and the answers of held deliveries."""

    requests: list[PushRequest]
    answers: list[Answer]


@dataclass
class ClaimSender:
    """Brings the deliveries of a claim to the push service."""

    context: ClaimContext
    tokens: int = field(init=False)
    """How much of the project's rate was reserved for what may be sent of it, and is not used yet."""
    surprised: bool = False
    busy: BaseException | None = None
    """The obstacle: a lock, or a statement that took too long."""
    hanging: bool = False
    """Whether all that is left of it hangs in code of others, so that it is in nobody's way."""
    recorder: Recorder = field(init=False)
    bad_messages: BadMessageSearch = field(init=False)
    builder: MessageBuilder = field(init=False)
    replies: ReplyHandler = field(init=False)
    in_flight: InFlightRequests = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing known of its messages, and a place for its requests."""
        allowance = self.context.allowance
        reserved = 0 if self.context.probe else allowance.grant.count
        self.tokens = min(reserved, sum(delivery.obstacle is None for delivery in self._deliveries))
        most = min(self.context.rules.chunk, self.context.provider.max_messages)
        self.recorder = Recorder(self.context)
        self.bad_messages = BadMessageSearch(most)
        self.builder = MessageBuilder(self.context)
        self.replies = ReplyHandler(self.context, self.bad_messages, allowance.troubled, allowance.watched)
        self.in_flight = InFlightRequests(
            self.context, self.builder.messages, self.recorder.hand_in, self.recorder.record_accepted
        )

    @property
    def claim(self) -> Claim:
        """The deliveries that the claim holds."""
        return self.context.claim

    @property
    def overdue_at(self) -> float:
        """When even its own thread must hang: what waits for the database has its own end."""
        begun = max(self.claim.taken_at, self.recorder.settling_since or 0.0)
        return begun + self.claim.lasts_s + self.claim.lease_ms / 1000

    def deliver(self) -> None:
        """Bring every delivery of the claim as far as it comes, and leave none claimed."""
        tracing = self.context.services.tracing
        if tracing is None:
            self._deliver()
            return
        common = {"relevo.provider": self.context.provider.name, "relevo.lane": self.context.lane}
        with tracing.dispatch(self.claim, common) as self.context.spans:
            self._deliver()

    def _deliver(self) -> None:
        try:
            built = self.builder.build(self._deliveries)
            self.recorder.settle(built.answers, {})
            self._send_all(self._probing(built.ready) if self.context.probe else built.ready)
            self._wait_for_rest()
            self.recorder.settle([self.replies.unproven(*each) for each in self.bad_messages.endings()], {})
            self._give_tokens_back()
        except OwnershipLostError as lost:
            self.context.report.counts["claims_lost"] += 1
            _log.warning("claim_given_up", claim=str(self.claim.token), reason=lost.reason)
        except BUSY as error:
            self.busy = error
            _log.warning("claim_handed_back", claim=str(self.claim.token), error=normalise_error(error, 200))
            self._give_tokens_back()
        except (DatabaseUnavailableError, psycopg.Error, threads.NoThreadError):
            raise
        except BaseException:
            self.surprised = True  # whoever surprises us again and again is set apart, as one that kills the worker
            raise
        finally:
            self._drop_rest()
            if not self.recorder.is_complete:
                self.context.services.claims.hand_back(self.claim, self.context.now, lapsed=self.surprised)

    def _give_tokens_back(self) -> None:
        with self.context.report.in_passing(self.context.project):
            self.context.projects.give_back(self.context.project, self.context.lane, self.tokens, self.context.now)

    # Journal, send, decide, settle: wave by wave.

    def _probing(self, ready: Sequence[Delivery]) -> Sequence[Delivery]:
        """Return the one to send; if there is none, what was found stale in its way must not cost the probe."""
        if not ready:
            self.context.projects.cancel_probe(self.context.project, self.context.now)
        return ready[:1]

    def _send_all(self, ready: Sequence[Delivery]) -> None:
        size = self.bad_messages.most
        self._send_chunks(ready[start : start + size] for start in range(0, len(ready), size))

    def _send_chunks(self, chunks: Iterable[Sequence[Delivery]]) -> None:
        waiting = deque(chunks)
        while waiting and not self.context.is_halted:
            size = min(len(waiting), 1 if self.bad_messages.active else self.context.pool.capacity)
            places = self.context.enter_pool(size, within_s=self.context.patience_s if self.in_flight.going else None)
            if not places:
                self.claim.check()
                waiting.extend(self._take_results(self.in_flight.look_at_slow(), []))
                continue
            wave = [chunk for _ in range(places) if (chunk := self.bad_messages.next_of(waiting))]
            waiting.extendleft(reversed(self._send_wave(wave, places)))
            if not waiting:
                waiting.extend(self._take_results(self.in_flight.wait_for_slow(), []))
            if not waiting:
                waiting.extend(self.bad_messages.last_tries())
        self._take_results(self.in_flight.wait_for_slow(), [])

    def _send_wave(self, chunks: Sequence[Sequence[Delivery]], places: int) -> list[Sequence[Delivery]]:
        """Journal some requests, send them at once, settle what was answered; return what is to be sent in parts."""
        with ExitStack() as entered:
            entered.callback(self.context.pool.exit, self.context.lane, places)
            if not chunks:
                return []
            wave = [PushRequest(uuid4(), tuple(chunk)) for chunk in chunks]
            journalled = self._journal(wave)
            results = self.in_flight.send_all(journalled.requests, submitted=entered.close)
        if self.context.probe and not journalled.requests:
            with self.context.report.in_passing(self.context.project):
                self.context.projects.cancel_probe(self.context.project, self.context.now)
        return self._take_results(results, journalled.answers)

    def _take_results(self, results: Sequence[RequestResult], answers: list[Answer]) -> list[Sequence[Delivery]]:
        """Settle what became of requests; return what is to be sent in parts."""
        if not results and not answers:
            return []
        if not answers and (sent := self._all_sent(results)):
            return self._take_sent(sent)
        again: list[Sequence[Delivery]] = []
        outcomes: dict[UUID, str] = {}
        for request, reply in ((each.request, each.reply) for each in results if each.reply is not None):
            outcomes[request.id] = reply.kind
            self._count_request(self._seen(request, reply))
            self._measure(reply.kind, reply.tickets)
            handled = self._handle(request, reply)
            again += handled.again
            answers += [a if a.status in ("sent", "ok") else a._replace(request=request.id) for a in handled.answers]
        self.recorder.mark_unsent([each.request.id for each in results if each.reply is None])
        requests = [each.request for each in results]
        left = self.recorder.settle_sent_part(requests, answers, outcomes)
        self.recorder.settle(answers, left, requests)
        if lost := next((each.lost for each in results if each.lost), None):
            raise lost
        return again

    def _all_sent(self, results: Sequence[RequestResult]) -> list[SentRequest]:
        """Return requests with their tickets if everything in all of them was accepted, and none was settled before.

        It earns 9 % of the row dispatch of `make bench ARGS="--only dispatch"`, run with it and without in turns: then
        `_take_results` looks at each ticket.
        """
        sent: list[SentRequest] = []
        fates: set[str] = set()
        for request, reply in ((each.request, each.reply) for each in results):
            if reply is None or reply.kind != "answered" or not isinstance(reply.tickets, Accepted):
                return []
            if len(reply.tickets) != len(request.deliveries):
                return []
            settled = self.recorder.settled
            if settled and not settled.isdisjoint(delivery.id for delivery in request.deliveries):
                return []
            fates.add(reply.tickets.fate)
            sent.append(SentRequest(request, reply.tickets.ids, fate=reply.tickets.fate))
        return sent if len(fates) == 1 else []

    def _take_sent(self, sent: Sequence[SentRequest]) -> list[Sequence[Delivery]]:
        """Settle requests of which everything was sent; return what is to be tried again for that."""
        again: list[Sequence[Delivery]] = []
        self.context.report.answered.add(self.context.project)
        for each in sent:
            deliveries, tickets = each.request.deliveries, Accepted(each.tickets, each.fate)
            self._count_request(len(each.request.deliveries))
            self._measure("answered", tickets)
            with self.context.report.in_passing(self.context.project):
                self.replies.report_tickets(deliveries, tickets)
            self.replies.forget_turned_away(deliveries)
            again += self.bad_messages.took(deliveries)
        self.recorder.settle_sent(sent)
        return again

    def _wait_for_rest(self) -> None:
        """Wait for what hangs in code of others, for as long as the claim can be held; then give it up."""
        while self.builder.hanging or self.in_flight.hanging:
            self.hanging = True
            left_s = self.claim.give_up_at - time.monotonic()
            if left_s <= 0 or self.context.run.stopping.is_set():
                return self._give_up()
            pause_s = min(left_s, self.context.patience_s)
            if self.builder.hanging:
                built = self.builder.returned(pause_s)
                self.recorder.settle(built.answers, {})
                self._send_all([] if self.context.probe else built.ready)
            if self.in_flight.hanging:
                self._send_chunks(self._take_results(self.in_flight.returned(pause_s), []))
        return None

    def _give_up(self) -> None:
        """Settle what is known of what hangs: a composer that hangs costs an attempt, a middleware before it none.

        A process that stops hands back what was not begun as it was.
        """
        if self.context.run.stopping.is_set():
            return
        answers = self.builder.give_up()
        self._take_results(self.in_flight.give_up(), answers)

    def _drop_rest(self) -> None:
        """Leave nothing behind that could still be sent, whatever ended it."""
        for result in self.in_flight.give_up():
            if result.reply is None:
                self.recorder.mark_unsent([result.request.id])
            else:
                self.recorder.hand_in(result.request, result.reply)

    def _journal(self, wave: Sequence[PushRequest]) -> _Journalled:
        """Write down what is about to be sent; what the journal holds back is answered already."""
        try:
            verdicts = self.context.services.claims.journal(self.claim, wave, self.context.now)
        except (DatabaseUnavailableError, psycopg.Error):  # it may stand there all the same; nothing of it was sent
            self.recorder.mark_unsent([request.id for request in wave])
            raise
        if verdicts.all_go:
            return _Journalled(list(wave), [])
        verdict_of = {verdict.id: verdict for verdict in verdicts}
        journalled = _Journalled([], [])
        for request in wave:
            going: list[Delivery] = []
            for delivery in request.deliveries:
                verdict = verdict_of.get(delivery.id)
                if verdict is None:
                    continue  # not ours any more
                answer = judged(delivery, verdict)
                if answer is None:
                    going.append(delivery)
                else:
                    journalled.answers.append(answer)
            if going:
                journalled.requests.append(PushRequest(request.id, tuple(going)))
        return journalled

    def _count_request(self, seen: int) -> None:
        """Count a request, and so many messages for its rate: those that the push service never saw do not count."""
        self.context.report.counts["push_requests"] += 1
        self.tokens = max(0, self.tokens - seen)

    def _measure(self, outcome: str, tickets: Sequence[Ticket]) -> None:
        metrics, name = self.context.services.metrics, self.context.provider.name
        metrics.requests.labels(name, outcome).inc()
        if isinstance(tickets, Accepted):
            metrics.tickets.labels(name, "ok").inc(len(tickets))
        else:
            metrics.count_codes(metrics.tickets, (ticket.code for ticket in tickets), name)

    def _handle(self, request: PushRequest, reply: Reply) -> Handled:
        """Return what a reply means; of a request that shadow mode kept, that it was not sent."""
        if not self._is_shadow(reply):
            return self.replies.handle(request, reply)
        self.context.report.counts["notifications_shadow"] += len(request.deliveries)
        return self.replies.handle_shadow(request)

    def _is_shadow(self, reply: Reply) -> bool:
        return self.claim.in_shadow and (reply.kind, reply.code) == ("held_back", SHADOW)

    def _seen(self, request: PushRequest, reply: Reply) -> int:
        """Return how many messages of a request its push service saw, or would have seen but for shadow mode."""
        if reply.kind in ("held_back", "not_sent"):
            return len(request.deliveries) if self._is_shadow(reply) else 0
        return _seen(request, reply.tickets)

    @cached_property
    def _deliveries(self) -> list[Delivery]:
        return [delivery for delivery in self.claim.deliveries if isinstance(delivery, Delivery)]


def _seen(request: PushRequest, tickets: Sequence[Ticket]) -> int:
    """Return how many messages of a request its push service saw."""
    if isinstance(tickets, Accepted):
        return len(request.deliveries)
    return len(request.deliveries) - sum(ticket.fate == "not_sent" for ticket in tickets)
