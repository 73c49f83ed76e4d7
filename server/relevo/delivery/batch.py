"""The way of one claimed batch: compose, journal, send, decide, settle. It reads in that order."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar
from uuid import UUID, uuid4

import psycopg
import structlog
from psycopg_pool import PoolClosed

from relevo.core.errors import DatabaseUnavailableError, OwnershipLostError
from relevo.core.logs import normalise_error
from relevo.core.model import Accepted, Answer, Delivery, Lane, PushRequest, Reply, SentRequest, Settlement, Ticket
from relevo.core.ports import PushProvider
from relevo.database.outages import BUSY, is_passing, is_unavailable
from relevo.delivery.answers import judged, ticketed
from relevo.delivery.claim import Claim
from relevo.delivery.composing import Composing
from relevo.delivery.deciding import Deciding
from relevo.delivery.isolating import Isolation
from relevo.delivery.posts import Posted, Posts
from relevo.delivery.sending import PushContext, RequestPool, Sending, send
from relevo.delivery.services import Services, is_news_project
from relevo.runtime import threads
from relevo.runtime.runs import Run
from relevo.runtime.troubles import Thing, is_own

T = TypeVar("T")

_log = structlog.get_logger("relevo.dispatch")

_SETTLE_AGAIN_S = 0.5
_MOST_LEFT = 10  # of the answers that cannot be written; the others are not looked for one by one
_PATIENCE_S = 1.0  # so long the others of a batch wait for one whose composer or middleware takes its time
_COUNTED: Mapping[str, str] = {
    "sent": "notifications_sent",
    "retryable": "notifications_retryable",
    "pending": "notifications_postponed",
    "failed": "notifications_failed",
    "invalid": "notifications_invalidated",
}
_NEWS_COUNTED: Mapping[str, str] = {"ok": "news_taken", "sent": "news_taken", "pending": "news_postponed"}


@dataclass
class Batch:
    """A claim on its way to the push service."""

    services: Services
    run: Run
    claim: Claim
    lane: Lane
    pool: RequestPool
    troubled: bool
    """Whether the project failed lately."""
    watched: bool = False
    """Whether credential faults were met lately."""
    probe: bool = False
    """Whether only one may be sent, to learn how the project is; the others are handed back."""
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    settled: set[int] = field(default_factory=set)
    """The deliveries whose outcome was written, by id."""
    tokens: int = 0
    """How much of the project's rate was reserved for it and is not used yet."""
    surprised: bool = False
    busy: BaseException | None = None
    """What stood in its way: a lock, or a statement that took too long."""
    isolation: Isolation = field(init=False)
    composing: Composing = field(init=False)
    deciding: Deciding = field(init=False)
    hanging: bool = False
    """Whether all that is left of it hangs in code of others, so that it is in nobody's way."""
    settling_since: float | None = None
    posts: Posts = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing known of its messages, and a place for its requests."""
        settings = self.services.settings
        self.isolation = Isolation(min(settings.push_chunk_size, self.provider.max_messages))
        self.composing = Composing(
            self.services,
            self.provider,
            self.claim.project,
            self.lane,
            self._patience_s,
            self._lasts_s,
            self.claim.contents,
        )
        self.deciding = Deciding(
            self.services,
            self.claim.project,
            self.pool,
            self.isolation,
            self.run.now,
            self.troubled,
            self.watched,
            self.probe,
            self.problems,
        )
        self.posts = Posts(
            self.pool,
            self.lane,
            self.claim.project,
            self.services.hung,
            patience_s=self._patience_s,
            request_s=settings.push_request_timeout_ms / 1000,
            lasts_s=self._lasts_s,
            give_up_at=self._give_up_at,
            stopping=self.run.stopping,
            send=self._post,
            may_send=self._may_send,
            hand_in=self._hand_in,
        )

    @property
    def _lasts_s(self) -> float:
        """How long anything may take before it is given up (RULE-020-051)."""
        return 3 * self.claim.lease_ms / 1000

    @property
    def _patience_s(self) -> float:
        return min(_PATIENCE_S, self.claim.lease_ms / 4000)

    @property
    def _give_up_at(self) -> float:
        """A beat before the heartbeat lets go of a claim held for three leases: it can still be settled then."""
        return self.claim.taken_at + self._lasts_s - self.claim.lease_ms / 4000

    @property
    def overdue_at(self) -> float:
        """When even its own thread must hang: what waits for the database has its own end."""
        begun = max(self.claim.taken_at, self.settling_since or 0.0)
        return begun + self._lasts_s + self.claim.lease_ms / 1000

    def reserve(self, tokens: int) -> None:
        """Keep as many tokens as there are deliveries that may be sent."""
        self.tokens = min(tokens, sum(delivery.obstacle is None for delivery in self._deliveries))

    @cached_property
    def provider(self) -> PushProvider:
        """The push service its deliveries go to."""
        return self.services.provider_of(self.claim.project)

    def deliver(self) -> None:
        """Bring every delivery of the claim as far as it comes, and leave none claimed."""
        try:
            ready, answers = self.composing.compose(self._deliveries)
            self._settle(answers, {})
            self._send_all(self._probing(ready) if self.probe else ready)
            self._wait_for_rest()
            self._settle([self.deciding.unproven(*each) for each in self.isolation.endings()], {})
            self._give_tokens_back()
        except OwnershipLostError as lost:
            self.counts["claims_lost"] += 1
            _log.warning("batch_given_up", claim=str(self.claim.token), reason=lost.reason)
        except BUSY as error:
            self.busy = error
            _log.warning("batch_handed_back", claim=str(self.claim.token), error=normalise_error(error, 200))
            self._give_tokens_back()
        except (DatabaseUnavailableError, psycopg.Error, threads.NoThreadError):
            raise
        except BaseException:
            self.surprised = True  # whoever surprises us again and again is set apart, as one that kills the worker
            raise
        finally:
            self._drop_rest()
            if len(self.settled) < len(self.claim.deliveries):
                self._hand_back()

    def _give_tokens_back(self) -> None:
        with self.deciding.in_passing():
            self.services.projects.give_back(self.claim.project, self.lane, self.tokens, self.run.now)

    # Journal, send, decide, settle: wave by wave.

    def _probing(self, ready: Sequence[Delivery]) -> Sequence[Delivery]:
        """Return the one to send; if there is none, what was found stale in its way must not cost the probe."""
        if not ready:
            self.services.projects.cancel_probe(self.claim.project, self.run.now)
        return ready[:1]

    def _send_all(self, ready: Sequence[Delivery]) -> None:
        self._send_chunks(_chunks(ready, self.isolation.most))

    def _send_chunks(self, chunks: Iterable[Sequence[Delivery]]) -> None:
        waiting = deque(chunks)
        while waiting and not self._is_halted():
            size = min(len(waiting), 1 if self.isolation.active else self.pool.capacity)
            places = self.pool.enter(self.lane, size, lambda: self._is_halted() or self.claim.loss is not None)
            if not places:
                self.claim.check()
                continue
            wave = [chunk for _ in range(places) if (chunk := self.isolation.next_of(waiting))]
            waiting.extendleft(reversed(self._send_wave(wave, places)))
            if not waiting:
                waiting.extend(self.isolation.last_tries())

    def _is_halted(self) -> bool:
        return self.pool.halted or self.run.stopping.is_set()

    def _send_wave(self, chunks: Sequence[Sequence[Delivery]], places: int) -> list[Sequence[Delivery]]:
        """Journal some requests, send them at once, settle what was answered; return what is to be sent in parts."""
        with ExitStack() as entered:
            entered.callback(self.pool.exit, self.lane, places)
            if not chunks:
                return []
            wave = [PushRequest(uuid4(), tuple(chunk)) for chunk in chunks]
            answers, requests = self._journal(wave)
            posted = self.posts.send_all(requests, submitted=entered.close)
        if self.probe and not requests:
            with self.deciding.in_passing():
                self.services.projects.cancel_probe(self.claim.project, self.run.now)
        return self._take_posted(posted, answers)

    def _take_posted(self, posted: Sequence[Posted], answers: list[Answer]) -> list[Sequence[Delivery]]:
        """Settle what became of requests; return what is to be sent in parts."""
        if not answers and (sent := self._all_sent(posted)):
            return self._take_sent(sent)
        again: list[Sequence[Delivery]] = []
        outcomes: dict[UUID, str] = {}
        for request, reply, _ in posted:
            if reply is not None:
                outcomes[request.id] = reply.kind
                decided: list[Answer] = []
                self._count_request(request, seen=reply.kind not in ("held_back", "not_sent"))
                self._measure(reply.kind, reply.tickets)
                again += self.deciding.decide(request, reply, decided)
                answers += [a if a.status in ("sent", "ok") else a._replace(request=request.id) for a in decided]
        self._mark_unsent([each.request.id for each in posted if each.reply is None])
        self._settle(*self._settle_sent_of(posted, answers, outcomes), [each.request for each in posted])
        if lost := next((each.lost for each in posted if each.lost), None):
            raise lost
        return again

    def _settle_sent_of(
        self, posted: Sequence[Posted], answers: list[Answer], outcomes: dict[UUID, str]
    ) -> tuple[list[Answer], dict[UUID, str]]:
        """Settle, of a wave most of which was sent, that part as usual; return what is left to be settled.

        Beforehand and by itself: a crash in between leaves the rest journalled and unanswered, as if it came sooner.
        """
        new = [a for a in answers if a.id not in self.settled]
        tickets = {a.id: a.ticket_id for a in new if a.status == "sent" and a.attempted and a.ticket_id}
        if 2 * len(tickets) <= len(new) or len(tickets) == len(new):
            return answers, outcomes
        sent = list(filter(None, (_sent_of(each.request, tickets) for each in posted)))
        gone = {delivery.id for each in sent for delivery in each.request.deliveries}
        held = [delivery.id for delivery in self.claim.deliveries if delivery.id not in self.settled]
        last = max((place for place, held_id in enumerate(held) if held_id in gone), default=-1)
        unsent = [place for place, held_id in enumerate(held[: last + 1], 1) if held_id not in gone]
        settlement = self._write_sent(sent, unsent=unsent)
        if settlement is None:
            return answers, outcomes
        self.settled = self.settled | gone
        self._count(settlement)
        whole = {each.request.id for each in sent if each.whole}
        rest = {request: kind for request, kind in outcomes.items() if request not in whole}
        return [answer for answer in answers if answer.id not in gone], rest

    def _all_sent(self, posted: Sequence[Posted]) -> list[SentRequest]:
        """Return requests with their tickets if everything in all of them was accepted, and none was settled before."""
        sent: list[SentRequest] = []
        for request, reply, _ in posted:
            if reply is None or reply.kind != "answered" or not isinstance(reply.tickets, Accepted):
                return []
            if len(reply.tickets) != len(request.deliveries):
                return []
            if self.settled and not self.settled.isdisjoint(delivery.id for delivery in request.deliveries):
                return []
            sent.append(SentRequest(request, reply.tickets.ids))
        return sent

    def _take_sent(self, sent: Sequence[SentRequest]) -> list[Sequence[Delivery]]:
        """Settle requests of which everything was sent; return what is to be tried again for that."""
        again: list[Sequence[Delivery]] = []
        for request, tickets, _ in sent:
            self._count_request(request)
            self._measure("answered", Accepted(tickets))
            with self.deciding.in_passing():
                self.deciding.tell_of_tickets(request.deliveries, Accepted(tickets))
            again += self.isolation.took(request.deliveries)
        done = self.settled.union(delivery.id for each in sent for delivery in each.request.deliveries)
        finish = len(done) == len(self.claim.deliveries)
        settlement = self._write_sent(sent, finish=finish)
        if settlement is None:
            requests = [each.request for each in sent]
            self._settle(_tickets_of(sent), dict.fromkeys((each.id for each in requests), "answered"), requests)
        else:
            self.settled = done
            self._count(settlement)
        return again

    def _wait_for_rest(self) -> None:
        """Wait for what hangs in code of others, for as long as the claim can be held; then give it up."""
        while self.composing.hanging or self.posts.hanging:
            self.hanging = True
            left_s = self._give_up_at - time.monotonic()
            if left_s <= 0 or self.run.stopping.is_set():
                return self._give_up()
            pause_s = min(left_s, self._patience_s)
            if self.composing.hanging:
                self._take_composed(pause_s)
            if self.posts.hanging:
                self._send_chunks(self._take_posted(self.posts.returned(pause_s), []))
        return None

    def _take_composed(self, timeout_s: float) -> None:
        """Send what its composer brought after all."""
        ready, answers = self.composing.returned(timeout_s)
        self._settle(answers, {})
        if not self.probe:
            self._send_all(ready)

    def _give_up(self) -> None:
        """Settle what is known of what hangs: a composer that hangs costs an attempt, a middleware before it none.

        A process that stops hands back what was not begun as it was.
        """
        if self.run.stopping.is_set():
            return
        answers, reported = self.composing.give_up()
        self._tell_of_hung(reported)
        posted, reported = self.posts.give_up()
        self._tell_of_hung(reported)
        self._take_posted(posted, answers)

    def _tell_of_hung(self, reported: Sequence[str]) -> None:
        self.counts["calls_given_up"] += len(reported)
        self.problems += reported

    def _drop_rest(self) -> None:
        """Leave nothing behind that could still be sent, whatever ended the batch."""
        posted, reported = self.posts.give_up()
        self._tell_of_hung(reported)
        for request, reply, _ in posted:
            if reply is None or reply.kind == "held_back":
                self._mark_unsent([request.id])
            else:
                self._hand_in(request, reply)

    def _hand_in(self, request: PushRequest, reply: Reply) -> None:
        """Keep the tickets of a request that nobody waits for any more."""
        if reply.kind != "answered" or len(reply.tickets) != len(request.deliveries):
            return
        answers = [ticketed(d, t) for d, t in zip(request.deliveries, reply.tickets, strict=True)]
        try:
            self._write(answers, {request.id: reply.kind})
        except Exception as error:  # noqa: BLE001 whatever it is, nobody waits for this thread
            _log.error("late_answers_failed", claim=str(self.claim.token), error=normalise_error(error))

    def _mark_unsent(self, requests: Sequence[UUID]) -> None:
        """Note that requests were not begun, waiting for the database if need be: nobody else can tell."""
        if requests:
            with self.deciding.in_passing():
                claims = self.services.claims
                self._persist(lambda: claims.mark_unsent(self.claim, requests, self.run.now), list)

    def _journal(self, wave: Sequence[PushRequest]) -> tuple[list[Answer], list[PushRequest]]:
        """Write down what is about to be sent; what the journal holds back is answered already."""
        try:
            said = self.services.claims.journal(self.claim, wave, self.run.now)
        except (DatabaseUnavailableError, psycopg.Error):  # it may stand there all the same; nothing of it was sent
            self._mark_unsent([request.id for request in wave])
            raise
        if said.all_go:
            return [], list(wave)
        verdicts = {verdict.id: verdict for verdict in said}
        answers: list[Answer] = []
        requests: list[PushRequest] = []
        for request in wave:
            going: list[Delivery] = []
            for delivery in request.deliveries:
                verdict = verdicts.get(delivery.id)
                if verdict is None:
                    continue  # not ours any more
                answer = judged(delivery, verdict)
                if answer is None:
                    going.append(delivery)
                else:
                    answers.append(answer)
            if going:
                requests.append(PushRequest(request.id, tuple(going)))
        return answers, requests

    def _post(self, request: PushRequest, sending: Sending) -> Reply:
        """Send one request, on a pool thread; nothing is sent once the claim or the project may not be used."""
        context = PushContext(
            request.id, self.claim.project, self.lane, len(request.deliveries), self.services.worker_id
        )
        messages = [self.composing.messages[delivery.id] for delivery in request.deliveries]
        with self.services.metrics.request_seconds.labels(self.provider.name, "send").time():
            return send(self.provider, messages, context, self.services.middlewares, sending)

    def _may_send(self) -> bool:
        """Tell, in the last moment before a request, whether it may still be sent; raises if the claim is gone."""
        self.claim.check(self.services.settings.push_request_timeout_ms)
        return not self._is_halted() and self.services.projects.may_connect(self.claim.project)

    def _count_request(self, request: PushRequest, *, seen: bool = True) -> None:
        """Count a request; one that the push service never saw does not count for its rate."""
        self.counts["push_requests"] += 1
        if seen:
            self.tokens = max(0, self.tokens - len(request.deliveries))

    def _measure(self, outcome: str, tickets: Sequence[Ticket]) -> None:
        metrics, name = self.services.metrics, self.provider.name
        metrics.requests.labels(name, outcome).inc()
        if isinstance(tickets, Accepted):
            metrics.tickets.labels(name, "ok").inc(len(tickets))
        else:
            metrics.count_codes(metrics.tickets, (ticket.code for ticket in tickets), name)

    def _settle(
        self, answers: Sequence[Answer], outcomes: Mapping[UUID, str], requests: Sequence[PushRequest] = ()
    ) -> None:
        """Write the answers down, the first one for each delivery, and end the claim with the last of them."""
        answers = [answer for answer in answers if answer.id not in self.settled]
        if not answers and not outcomes:
            return
        try:
            self._settle_part(answers, outcomes)
        except Exception as error:
            if not is_own(error) or is_passing(error):
                raise
            self._settle_apart(answers, outcomes, requests, error)

    def _settle_part(self, answers: Sequence[Answer], outcomes: Mapping[UUID, str]) -> None:
        done = self.settled.union(answer.id for answer in answers)
        settlement = self._write(answers, outcomes, finish=len(done) == len(self.claim.deliveries))
        self.settled = done
        retried = (answer.error_code or "unknown" for answer in answers if answer.status == "retryable")
        if not self._of_news:
            self.services.metrics.count_codes(self.services.metrics.retries, retried)
        self._count(settlement)

    @property
    def _of_news(self) -> bool:
        return is_news_project(self.claim.project)

    def _settle_apart(
        self,
        answers: Sequence[Answer],
        outcomes: Mapping[UUID, str],
        requests: Sequence[PushRequest],
        error: Exception,
    ) -> None:
        """Settle in halves, down to single deliveries, what cannot be settled together.

        What cannot be written is that delivery's own trouble. It stays in the claim and its request unanswered, so
        that whoever ends the claim finds its ticket, or takes it for one whose answer was not seen.
        """
        left: dict[int, Exception] = {}
        parts = deque([answers] if answers else ())
        while parts:
            part = parts.popleft()
            try:
                if part is not answers:  # that was tried already
                    self._settle_part(part, {})
                    continue
            except Exception as met:
                if not is_own(met) or is_passing(met):
                    raise
                error = met
            if len(part) > 1 and len(left) < _MOST_LEFT:
                parts.extendleft((part[len(part) // 2 :], part[: len(part) // 2]))
            else:
                left |= dict.fromkeys((answer.id for answer in part), error)
        whole = {each.id for each in requests if left.keys().isdisjoint(d.id for d in each.deliveries)}
        with self.deciding.in_passing():
            self._settle_part([], {request: kind for request, kind in outcomes.items() if request in whole})
        self._tell_of_left(left)

    def _tell_of_left(self, left: Mapping[int, Exception]) -> None:
        """Tell of deliveries whose answers could not be written."""
        if not left:
            return
        self.counts["answers_not_written"] += len(left)
        named, error = ", ".join(map(str, list(left)[:5])), next(iter(left.values()))
        self.problems.append(
            f"what became of {len(left)} deliveries of {self.claim.project} could not be written ({named}): "
            f"{normalise_error(error, 200)}; those with a ticket are not sent again"
        )
        for delivery, met in list(left.items())[:5]:
            self.run.troubles.met(Thing("delivery", str(delivery)), met)

    def _write_sent(
        self, sent: Sequence[SentRequest], *, unsent: Sequence[int] = (), finish: bool = False
    ) -> Settlement | None:
        """Write down what was sent of some requests; None if it has to be settled otherwise."""
        claims = self.services.claims
        try:
            return self._persist(
                lambda: claims.settle_sent(self.claim, sent, self.run.now, unsent=unsent, finish=finish),
                lambda: _tickets_of(sent),
            )
        except Exception as error:
            if not is_own(error) or is_passing(error):
                raise
            return None

    def _count(self, settlement: Settlement) -> None:
        for status, count in settlement.written.items():
            name = _COUNTED.get(status, f"notifications_{status}")
            self.counts[_NEWS_COUNTED.get(status, f"news_{status}") if self._of_news else name] += count
        self.counts["late_tickets"] += settlement.closed_late + settlement.kept_as_evidence
        self.counts["tokens_disabled"] += settlement.tokens_disabled

    def _write(self, answers: Sequence[Answer], outcomes: Mapping[UUID, str], *, finish: bool = False) -> Settlement:
        """Write answers down."""
        return self._persist(
            lambda: self.services.claims.settle(
                self.claim,
                answers,
                outcomes,
                self.run.now,
                finish=finish,
                may_prune=lambda c, p: not self.services.projects.pruning_stopped(c, p, self.run.now),
            ),
            lambda: answers,
        )

    def _persist(self, write: Callable[[], T], answers: Callable[[], Sequence[Answer]]) -> T:
        """Write answers down, waiting for the database if need be: they are all that tells what was sent.

        Tickets are kept as soon as that fails, so that nothing of it is sent again, whatever comes next.
        """
        self.settling_since = time.monotonic()
        give_up = time.monotonic() + 3 * self.claim.lease_ms / 1000
        kept = False
        while True:
            try:
                return write()
            except Exception as error:
                kept = kept or self._keep_tickets(error, answers())
                if not is_passing(error):
                    raise
                if time.monotonic() > give_up or isinstance(error.__cause__, PoolClosed):
                    _log.error("answers_not_recorded", claim=str(self.claim.token), tickets_kept=kept, error=str(error))
                    raise
                time.sleep(_SETTLE_AGAIN_S)

    def _keep_tickets(self, error: Exception, answers: Sequence[Answer]) -> bool:
        """Keep the tickets of answers that cannot be written; tell whether that was done."""
        if is_unavailable(error):
            return False
        try:
            self.services.claims.keep_tickets(self.claim, answers, self.run.now)
        except (DatabaseUnavailableError, psycopg.Error) as met:
            _log.error("tickets_not_kept", claim=str(self.claim.token), error=normalise_error(met))
            return False
        return True

    def _hand_back(self) -> None:
        """Give back what was not begun; if that cannot be done, a reaper does."""
        try:
            self.services.claims.release(self.claim, self.run.now, lapsed=self.surprised)
        except (DatabaseUnavailableError, psycopg.Error) as error:
            _log.warning("claim_not_handed_back", claim=str(self.claim.token), error=normalise_error(error))

    @cached_property
    def _deliveries(self) -> list[Delivery]:
        return [delivery for delivery in self.claim.deliveries if isinstance(delivery, Delivery)]


def _sent_of(request: PushRequest, tickets: Mapping[int, str]) -> SentRequest | None:
    """Return what was sent of a request; None if nothing was."""
    sent = [delivery for delivery in request.deliveries if delivery.id in tickets]
    if not sent:
        return None
    whole = len(sent) == len(request.deliveries)
    return SentRequest(PushRequest(request.id, tuple(sent)), [tickets[d.id] for d in sent], whole)


def _tickets_of(sent: Sequence[SentRequest]) -> list[Answer]:
    """Return the answers of requests of which everything was sent."""
    return [
        ticketed(delivery, ticket)
        for request, tickets, _ in sent
        for delivery, ticket in zip(request.deliveries, Accepted(tickets), strict=True)
    ]


def _chunks(deliveries: Sequence[Delivery], size: int) -> Iterator[Sequence[Delivery]]:
    return (deliveries[start : start + size] for start in range(0, len(deliveries), size))
