"""The way of one claimed batch: compose, journal, send, decide, settle. It reads in that order."""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar
from uuid import UUID, uuid4

import psycopg
import structlog
from psycopg import errors as pg
from psycopg_pool import PoolClosed

from relevo import queries
from relevo.config import Settings
from relevo.db import BUSY, Database, array, storable
from relevo.delivery import rendering, runaway
from relevo.delivery.claims import Claim, Claims
from relevo.delivery.isolating import ENOUGH, Ending, Isolation
from relevo.delivery.limits import Judgement
from relevo.delivery.posts import Posted, Posts
from relevo.delivery.projects import Projects
from relevo.delivery.sending import PushContext, PushMiddleware, RequestPool, RequestPools, Sending, send
from relevo.errors import DatabaseUnavailableError, OwnershipLostError, Reschedule
from relevo.logs import normalise_error
from relevo.metrics import Metrics
from relevo.model import (
    Accepted,
    Answer,
    Content,
    Delivery,
    Lane,
    Message,
    Obstacle,
    PushRequest,
    Reply,
    SentRequest,
    Settlement,
    Status,
    Ticket,
    Verdict,
)
from relevo.ports import Composer, PushProvider
from relevo.runtime import threads
from relevo.runtime.hung import MOST_CALLS, HungCall, HungCalls
from relevo.runtime.runs import Run

T = TypeVar("T")

_SQL = queries.load("dispatch")
EXPO = "expo"
_log = structlog.get_logger("relevo.dispatch")

_ENDED = ("event_gone", "event_ended", "handled_elsewhere")
_LIGHT_BYTES = 3_000  # of the 4096 that every push service bears; what a delivery adds is far below the rest
_SETTLE_AGAIN_S = 0.5
_NOT_SENT_PAUSE_MS = 5_000
_MALFORMED = "MalformedMessage"  # our own word: such a message cannot even be written
_PATIENCE_S = 1.0  # so long the others of a batch wait for one whose composer or middleware takes its time
_MOST_HUNG_HERE = 4
_LONGEST_TICKET = 200
_LEAST_PAUSE_MS = 1_000  # whoever wishes for the past is not asked again and again in the same moment
_COUNTED: Mapping[str, str] = {
    "sent": "notifications_sent",
    "retryable": "notifications_retryable",
    "pending": "notifications_postponed",
    "failed": "notifications_failed",
    "invalid": "notifications_invalidated",
}


@dataclass(frozen=True)
class Services:
    """What every batch of a worker needs."""

    settings: Settings
    database: Database
    worker_id: str
    claims: Claims
    projects: Projects
    providers: Mapping[str, PushProvider]
    """The push services by name; expo is always among them."""
    middlewares: Sequence[PushMiddleware] = ()
    composers: Mapping[str, Composer] = field(default_factory=dict)
    pools: RequestPools = field(default_factory=RequestPools)
    hung: HungCalls = field(default_factory=HungCalls)
    metrics: Metrics = field(default_factory=Metrics)
    hanging: dict[Future[None], Batch] = field(default_factory=dict)
    """Batches that outlasted their run, because all that is left of them hangs."""

    def provider_of(self, project: str) -> PushProvider:
        """Return the push service of a project, as deliveries name it."""
        return self.providers[provider_name(project)]

    def serves(self, project: str) -> bool:
        """Tell whether this process has the push service of a project."""
        return provider_name(project) in self.providers


def provider_name(project: str) -> str:
    """Return the provider of a project as deliveries name it: Expo's projects have their own name alone."""
    name, colons, _ = project.partition("::")
    return name if colons else EXPO


class _Composing(NamedTuple):
    """A delivery whose composer takes its time."""

    delivery: Delivery
    call: HungCall
    answer: Future[Answer | None]


@dataclass
class Batch:
    """A claim on its way to the push service."""

    services: Services
    run: Run
    claim: Claim
    lane: Lane
    pool: RequestPool
    troubled: bool
    """Whether the project failed lately, so that a success is news."""
    watched: bool = False
    """Whether credential faults were met lately, so that it is news who did not meet one."""
    probe: bool = False
    """Whether only one may be sent, to learn how the project is; the others are handed back."""
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    messages: dict[int, Message] = field(default_factory=dict)
    drafts: dict[tuple[int, bool], tuple[rendering.Draft, bool]] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)
    """The deliveries whose outcome was written, by id."""
    tokens: int = 0
    """How much of the project's rate was reserved for it and is not used yet."""
    surprised: bool = False
    busy: BaseException | None = None
    """What stood in its way: a lock, or a statement that took too long."""
    isolation: Isolation = field(init=False)
    composing: list[_Composing] = field(default_factory=list)
    hanging: bool = False
    """Whether all that is left of it hangs in code of others, so that it is in nobody's way."""
    settling_since: float | None = None
    posts: Posts = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing known of its messages, and a place for its requests."""
        settings = self.services.settings
        self.isolation = Isolation(min(settings.push_chunk_size, self.provider.max_messages))
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
            ready, answers = self._compose()
            self._settle(answers, {})
            self._send_all(self._probing(ready) if self.probe else ready)
            self._wait_for_rest()
            self._settle([self._unproven(*each) for each in self.isolation.endings()], {})
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
        with self._in_passing():
            self.services.projects.give_back(self.claim.project, self.lane, self.tokens, self.run.now)

    # Compose: nothing that kills the worker here was journalled.

    def _compose(self) -> tuple[list[Delivery], list[Answer]]:
        """Write every delivery's message; what must not be sent is answered already."""
        contents = self._read_contents()

        def compose(delivery: Delivery) -> Answer | None:
            return (
                _obstructed(delivery, delivery.obstacle)
                or self._held_up(delivery)
                or self._compose_one(delivery, contents)
            )

        composed = threads.in_turn(
            "relevo-composing", self._deliveries, compose, patience_s=self._patience_s, leave=self._leave_composing
        )
        return _sorted_by_answer(composed)

    def _composer_of(self, delivery: Delivery) -> str:
        """Name whose code writes a delivery's message, for people."""
        known = delivery.event_type in self.services.composers
        return f"the composer of {delivery.event_type}" if known else "the check of the push service"

    def _held_up(self, delivery: Delivery) -> Answer | None:
        """Return the answer of a delivery whose composer hangs so often that it is not asked any more."""
        if self.services.hung.none and not self.composing:
            return None
        what = self._composer_of(delivery)
        here = sum(each.call.what == what for each in self.composing)
        if here < _MOST_HUNG_HERE and self.services.hung.count(what) < MOST_CALLS:
            return None
        reply = Reply("held_back", code="composer_hung", message=f"Calls of {what} have not come back.")
        return _not_attempted(delivery, reply, self.services.settings.outbox_retry_base_ms)

    def _leave_composing(self, delivery: Delivery, since: float, answer: Future[Answer | None]) -> None:
        """Leave a delivery to its composer, and go on with the others."""
        what = self._composer_of(delivery)
        call = self.services.hung.add(what, self.claim.project, since, self._lasts_s, answer)
        self.composing.append(_Composing(delivery, call, answer))

    def _read_contents(self) -> dict[int, Content]:
        events = {delivery.notification_event_id for delivery in self._deliveries}
        with self.services.database.connection() as connection:
            rows = connection.execute(_SQL["read_contents"], {"events": array(events)}).fetchall()
        return {row[0]: Content(row[0], row[1], row[2], _json(row[3]), _json(row[4])) for row in rows}

    def _compose_one(self, delivery: Delivery, contents: Mapping[int, Content]) -> Answer | None:
        services = self.services
        content = contents.get(delivery.notification_event_id)
        if content is None:
            return _answer(delivery, "cancelled", code="event_gone")
        try:
            draft, light = self._draft(content, ios=delivery.platform == "ios")
        except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
            return _answer(delivery, "failed", code=_MALFORMED, message=normalise_error(error))
        message: Message = draft.message(delivery, services.settings.push_ttl_s)
        composer = services.composers.get(delivery.event_type)
        if composer is not None:
            light = False
            try:
                message = _composed(composer, message, delivery)
            except Reschedule as wish:
                reply = Reply("held_back", code="rescheduled", message=str(wish)[:300], not_before=wish.at)
                return _not_attempted(delivery, reply, _LEAST_PAUSE_MS)
            except (Exception, SystemExit) as error:  # noqa: BLE001 a composer may raise anything; attempts bound it
                return _answer(delivery, "retryable", code="composer_failed", message=normalise_error(error))
        refused = self.provider.refuse_token(delivery.token) if light else self.provider.refuse(message)
        if refused is not None:
            return _ticketed(delivery, refused, attempted=False)
        self.messages[delivery.id] = message
        return None

    def _draft(self, content: Content, *, ios: bool) -> tuple[rendering.Draft, bool]:
        """Return an event's draft, and whether it is so light that its messages need not be weighed one by one."""
        known = self.drafts.get((content.id, ios))
        if known is None:
            draft = rendering.draft(content, self.lane, ios=ios)
            weight = len(json.dumps([draft.fields, draft.data], ensure_ascii=False, allow_nan=False).encode())
            known = self.drafts[content.id, ios] = draft, weight < _LIGHT_BYTES
        return known

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
            with self._in_passing():
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
                again += self._decide(request, reply, decided)
                answers += [a._replace(request=request.id) if a.status == "retryable" else a for a in decided]
        self._mark_unsent([each.request.id for each in posted if each.reply is None])
        self._settle(answers, outcomes)
        if lost := next((each.lost for each in posted if each.lost), None):
            raise lost
        return again

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
        for request, tickets in sent:
            self._count_request(request)
            self._measure("answered", Accepted(tickets))
            with self._in_passing():
                self._tell_of_tickets(request.deliveries, Accepted(tickets))
            again += self.isolation.took(request.deliveries)
        done = self.settled.union(delivery.id for each in sent for delivery in each.request.deliveries)
        finish = len(done) == len(self.claim.deliveries)
        settlement = self._persist(
            lambda: self.services.claims.settle_sent(self.claim, sent, self.run.now, finish=finish), tickets=len(done)
        )
        if settlement is None:
            answers = [
                _ticketed(delivery, ticket)
                for request, tickets in sent
                for delivery, ticket in zip(request.deliveries, Accepted(tickets), strict=True)
            ]
            self._settle(answers, dict.fromkeys((each.request.id for each in sent), "answered"))
        else:
            self.settled = done
            self._count(settlement)
        return again

    def _wait_for_rest(self) -> None:
        """Wait for what hangs in code of others, for as long as the claim can be held; then give it up."""
        while self.composing or self.posts.hanging:
            self.hanging = True
            left_s = self._give_up_at - time.monotonic()
            if left_s <= 0 or self.run.stopping.is_set():
                return self._give_up()
            pause_s = min(left_s, self._patience_s)
            if self.composing:
                self._take_composed(pause_s)
            if self.posts.hanging:
                self._send_chunks(self._take_posted(self.posts.returned(pause_s), []))
        return None

    def _take_composed(self, timeout_s: float) -> None:
        """Send what its composer brought after all."""
        wait([each.answer for each in self.composing], timeout=timeout_s, return_when=FIRST_COMPLETED)
        back = [each for each in self.composing if each.answer.done()]
        self.composing = [each for each in self.composing if each not in back]
        ready, answers = _sorted_by_answer([(each.delivery, each.answer.result()) for each in back])
        self._settle(answers, {})
        if not self.probe:
            self._send_all(ready)

    def _give_up(self) -> None:
        """Settle what is known of what hangs: a composer that hangs costs an attempt, a middleware before it none.

        A process that stops hands back what was not begun as it was.
        """
        if self.run.stopping.is_set():
            return
        composing, self.composing = self.composing, []
        self._tell_of_hung([self.services.hung.give_up(each.call) for each in composing])
        answers = [
            _answer(each.delivery, "retryable", code="composer_hung", message=f"{each.call.what} did not return")
            for each in composing
        ]
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
        answers = [_ticketed(d, t) for d, t in zip(request.deliveries, reply.tickets, strict=True)]
        try:
            self._write(answers, {request.id: reply.kind})
        except Exception as error:  # noqa: BLE001 whatever it is, nobody waits for this thread
            _log.error("late_answers_failed", claim=str(self.claim.token), error=normalise_error(error))

    def _mark_unsent(self, requests: Sequence[UUID]) -> None:
        if requests:
            with self._in_passing():
                self.services.claims.mark_unsent(self.claim, requests, self.run.now)

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
                answer = _judged(delivery, verdict)
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
        messages = [self.messages[delivery.id] for delivery in request.deliveries]
        with self.services.metrics.request_seconds.labels(self.provider.name, "send").time():
            return send(self.provider, messages, context, self.services.middlewares, sending)

    def _may_send(self) -> bool:
        """Tell, in the last moment before a request, whether it may still be sent; raises if the claim is gone."""
        self.claim.check(self.services.settings.push_request_timeout_ms)
        return not self._is_halted()

    def _decide(self, request: PushRequest, reply: Reply, answers: list[Answer]) -> list[Sequence[Delivery]]:
        """Turn a reply into answers, and tell the project how it went; return the parts to send again."""
        self._count_request(request, seen=reply.kind not in ("held_back", "not_sent"))
        self._measure(reply.kind, reply.tickets)
        deliveries, floor_ms = request.deliveries, self.services.settings.push_request_timeout_ms
        if reply.kind == "answered" and len(reply.tickets) != len(deliveries):
            reply = Reply("unclear", code="MismatchedTickets", message=f"{len(reply.tickets)} for {len(deliveries)}")
        blocked = True  # unless the project was told and knows better
        with self._in_passing():
            blocked = self._tell_project(deliveries, reply)
        match reply.kind:
            case "answered":
                pairs = zip(deliveries, reply.tickets, strict=True)
                answers += [_ticketed(d, t, floor_ms, blocked=blocked) for d, t in pairs]
                self.problems += alerts(reply.tickets, self.problems)
                return self.isolation.took(deliveries)
            case "unclear":
                answers += [_ambiguous(d, reply, max(floor_ms, reply.retry_after_ms)) for d in deliveries]
            case "mixed_projects" if moved := self._moved(deliveries, reply):
                answers += [_not_attempted(d, reply)._replace(project=moved.get(d.id)) for d in deliveries]
            case "too_many" | "rejected" | "mixed_projects":
                if len(deliveries) > 1:
                    return self.isolation.split(deliveries, reply.kind)
                answers += self._refused(deliveries[0], reply)
            case _:
                answers += [_not_attempted(d, reply, self._pause_ms(reply)) for d in deliveries]
        return []

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

    def _refused(self, delivery: Delivery, reply: Reply) -> list[Answer]:
        """Return the answer for a message that was refused alone, if it is to blame; if not, that is decided later."""
        bad = reply.code == _MALFORMED
        if not bad:
            judgement = Judgement(is_bad=False, is_quiet=False, is_open=False, own_taken=False, since_s=0.0)
            with self._in_passing():
                judgement = self.services.projects.refused(
                    self.claim.project, delivery.notification_event_id, reason(reply), self.run.now
                )
            self.troubled = True
            self.pool.halted |= judgement.is_open
            bad = self.isolation.refused(delivery, reply, judgement)
        return [_answer(delivery, "failed", code=reply.code, message=reply.message)] if bad else []

    def _unproven(self, delivery: Delivery, reply: Reply, ending: Ending) -> Answer:
        """Return the answer for what was refused, or set aside with its event, and could not be judged before."""
        settings = self.services.settings
        match ending:
            case "bad":
                return _answer(delivery, "failed", code=reply.code, message=reply.message)
            case "given_up":
                why = f"Not tried: {ENOUGH} messages of its event were refused one by one. {reply.message or ''}"
                return _answer(delivery, "failed", code=reply.code, message=why)._replace(attempted=False)
            case "refused" if not self.pool.halted:
                return _answer(delivery, "retryable", code=reply.code, message=reply.message)
            case "refused":
                return _not_attempted(delivery, reply, _LEAST_PAUSE_MS)
            case "untried":  # as long again as it has been refused
                pause_ms = max(settings.outbox_retry_base_ms, int(self.isolation.since_s * 1000))
                return _not_attempted(delivery, reply, min(pause_ms, settings.outbox_retry_max_ms))

    def _pause_ms(self, reply: Reply) -> int:
        """Return how long what was not sent waits; the project's own pause comes on top."""
        if reply.kind == "not_sent":
            return max(reply.retry_after_ms, _NOT_SENT_PAUSE_MS)
        if reply.code == "rescheduled":
            return _LEAST_PAUSE_MS
        if reply.code == "middleware_failed":
            self.problems.append(f"a middleware held a request back: {reply.message}")
            return self.services.settings.outbox_retry_base_ms
        if reply.code == "middleware_hung":
            return self.services.settings.outbox_retry_base_ms
        if reply.code == "no_thread":
            return _NOT_SENT_PAUSE_MS
        return reply.retry_after_ms

    def _moved(self, deliveries: Sequence[Delivery], reply: Reply) -> dict[int, str]:
        """Return the deliveries that belong to another project than was thought, and remember their tokens' project."""
        named = {d.id: reply.projects.get(str(d.token)) for d in deliveries}
        moved = {key: home for key, home in named.items() if home and home != self.claim.project}
        if moved:
            with self._in_passing():
                self.services.projects.move_tokens(self.claim.project, reply.projects, self.run.now)
        return moved

    @contextmanager
    def _in_passing(self) -> Iterator[None]:
        """Let nothing that the project is told cost the answers of a wave: they are settled after it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 whatever it is, the answers come first
            self.problems.append(f"project {self.claim.project} was not told: {normalise_error(error, 200)}")

    def _tell_project(self, deliveries: Sequence[Delivery], reply: Reply) -> bool:
        """Tell the project how a request went; one that may not send any more halts its request pool at once.

        Returns whether a credential fault in it is the project's, not the phones'.
        """
        projects, project, now = self.services.projects, self.claim.project, self.run.now
        match reply.kind:
            case "answered":
                return self._tell_of_tickets(deliveries, reply.tickets)
            case "unauthorised":
                self.pool.halted |= projects.failed(project, reason(reply), credential=True, now=now)
            case "unclear" | "not_sent":
                self.troubled = True
                self.pool.halted |= projects.failed(project, reason(reply), credential=False, now=now)
            case "held_back":
                if self.probe:
                    projects.cancel_probe(project, now)
            case "throttled":
                self._tell_of_success()
                self.pool.halted = True
                projects.throttled(project, reply.retry_after_ms, now)
            case _:
                pass  # refused: neither well nor ill, until it is known which of its messages is
        return False

    def _tell_of_tickets(self, deliveries: Sequence[Delivery], tickets: Sequence[Ticket]) -> bool:
        if self._tell_of_credentials(deliveries, tickets):
            self.pool.halted = True
            return True
        self._tell_of_success({d.notification_event_id for d in deliveries})
        return False

    def _tell_of_success(self, events: Collection[int] = ()) -> None:
        if self.troubled:
            self.troubled = False
            self.services.projects.succeeded(self.claim.project, now=self.run.now, taken=events)

    def _tell_of_credentials(self, deliveries: Sequence[Delivery], tickets: Sequence[Ticket]) -> bool:
        """Tell which phones met a credential fault, if that is news; return whether it is the project's."""
        fault = None
        if not isinstance(tickets, Accepted):
            fault = next((ticket for ticket in tickets if ticket.fate == "credential"), None)
        if fault is None and not self.watched:
            return False
        said = [(d, t) for d, t in zip(deliveries, tickets, strict=True) if t.fate in ("sent", "ok", "credential")]
        if not said:
            return False
        self.watched = True
        # a retry that meets the fault again is no news: else a few bad phones, tried again together, look like all
        heard = {
            d.installation_id: t.fate == "credential" for d, t in said if t.fate != "credential" or not d.attempt_count
        }
        why = reason(fault) if fault else None
        return self.services.projects.heard(self.claim.project, heard, why, now=self.run.now)

    def _settle(self, answers: Sequence[Answer], outcomes: Mapping[UUID, str]) -> None:
        """Write the answers down, the first one for each delivery, and end the claim with the last of them."""
        answers = [answer for answer in answers if answer.id not in self.settled]
        if not answers and not outcomes:
            return
        done = self.settled.union(answer.id for answer in answers)
        settlement = self._write(answers, outcomes, finish=len(done) == len(self.claim.deliveries))
        self.settled = done
        retried = (answer.error_code or "unknown" for answer in answers if answer.status == "retryable")
        self.services.metrics.count_codes(self.services.metrics.retries, retried)
        self._count(settlement)

    def _count(self, settlement: Settlement) -> None:
        for status, count in settlement.written.items():
            self.counts[_COUNTED.get(status, f"notifications_{status}")] += count
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
            tickets=sum(answer.ticket_id is not None for answer in answers),
        )

    def _persist(self, write: Callable[[], T], tickets: int) -> T:
        """Write answers down, waiting for the database if need be: they are all that tells what was sent."""
        self.settling_since = time.monotonic()
        give_up = time.monotonic() + 3 * self.claim.lease_ms / 1000
        while True:
            try:
                return write()
            except (DatabaseUnavailableError, *BUSY) as error:
                if time.monotonic() > give_up or isinstance(error.__cause__, PoolClosed):
                    _log.error("answers_not_recorded", claim=str(self.claim.token), tickets=tickets, error=str(error))
                    raise
                time.sleep(_SETTLE_AGAIN_S)

    def _hand_back(self) -> None:
        """Give back what was not begun; if the database is away, a reaper does."""
        try:
            self.services.claims.release(self.claim, self.run.now, lapsed=self.surprised)
        except (DatabaseUnavailableError, pg.OperationalError):
            _log.warning("claim_not_handed_back", claim=str(self.claim.token))

    @property
    def _deliveries(self) -> Iterator[Delivery]:
        return (delivery for delivery in self.claim.deliveries if isinstance(delivery, Delivery))


def alerts(tickets: Iterable[Ticket], known: Collection[str]) -> list[str]:
    """Return what operators have to mend and were not told of yet; of credential faults the breaker tells."""
    found = {f"{t.code}: {t.message}" for t in tickets if t.alert and t.fate != "credential"}
    return sorted(found.difference(known))


def _json(text: str) -> dict[str, Any]:
    """Read an event's JSON; what cannot be read says so when it is written, and fails that event alone."""
    try:
        read: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        return {"unreadable": float("nan")}
    return read


def _chunks(deliveries: Sequence[Delivery], size: int) -> Iterator[Sequence[Delivery]]:
    return (deliveries[start : start + size] for start in range(0, len(deliveries), size))


def _answer(
    delivery: Delivery, status: Status, *, code: str | None, message: str | None = None, ticket: str | None = None
) -> Answer:
    attempted = status in ("failed", "retryable")
    return Answer(delivery.event_day, delivery.id, status, attempted, ticket, code, message)


def _sorted_by_answer(
    composed: Iterable[tuple[Delivery, Answer | None]],
) -> tuple[list[Delivery], list[Answer]]:
    """Tell what is ready to be sent from what is answered already."""
    ready: list[Delivery] = []
    answers: list[Answer] = []
    for delivery, answer in composed:
        if answer is None:
            ready.append(delivery)
        else:
            answers.append(answer)
    return ready, answers


def _composed(compose: Composer, message: Message, delivery: Delivery) -> Message:
    composed: object = compose(dict(message), delivery)
    if not isinstance(composed, Mapping):
        raise TypeError(f"a composer must return the message, not {type(composed).__name__}")
    return composed


def _judged(delivery: Delivery, verdict: Verdict) -> Answer | None:
    """Return the answer for a delivery that the journal holds back."""
    if verdict.verdict == "send":
        return None
    if verdict.verdict == "sent":
        return _answer(delivery, "sent", ticket=verdict.ticket_id, code=None)
    return _obstructed(delivery, verdict.verdict)


def _obstructed(delivery: Delivery, obstacle: Obstacle | None) -> Answer | None:
    """Return the answer for a delivery that must not be sent any more; to a phone's new token it may be, next time."""
    if obstacle is None:
        return None
    if obstacle == "token_changed":
        return _not_attempted(delivery, Reply("held_back", code=obstacle))
    if obstacle == "repeats_held":
        return runaway.postpone(delivery)
    status: Status = "skipped"
    if obstacle == "deadline_passed":
        status = "expired"
    elif obstacle in _ENDED:
        status = "cancelled"
    return _answer(delivery, status, code=obstacle)


def reason(said: Reply | Ticket) -> str:
    """Return what was said of a fault: its code, and its words if there are any."""
    return f"{said.code}: {said.message}" if said.message else str(said.code)


def _ticketed(
    delivery: Delivery, ticket: Ticket, floor_ms: int = 0, *, attempted: bool = True, blocked: bool = False
) -> Answer:
    """Return what a ticket means for its delivery; a credential fault of the project costs it nothing."""
    fate, ticket_id, code, message, _ = ticket
    accepted = fate in ("sent", "ok")
    if fate == "unclear" or (accepted and not _is_usable(ticket_id)):
        return _ambiguous(delivery, Reply("unclear", code=code, message=message), floor_ms)
    blocked = blocked and fate == "credential"
    return Answer(
        delivery.event_day,
        delivery.id,
        "retryable" if fate == "credential" else fate,
        attempted and not blocked,
        ticket_id if accepted else None,
        code,
        message,
        _LEAST_PAUSE_MS if blocked else 0,  # behind those that wait already
        delivery.installation_id,
        delivery.token_version,
    )


def _is_usable(ticket_id: object) -> bool:
    """Tell whether a ticket's id can be written down as it is."""
    return isinstance(ticket_id, str) and ticket_id != "" and storable(ticket_id, _LONGEST_TICKET) == ticket_id


def _ambiguous(delivery: Delivery, reply: Reply, floor_ms: int) -> Answer:
    """Return what an answer that was not seen means: at most once is rather none than two."""
    status: Status = "unknown" if delivery.at_most_once else "retryable"
    return Answer(
        delivery.event_day, delivery.id, status, True, None, reply.code, reply.message, retry_after_ms=floor_ms
    )


def _not_attempted(delivery: Delivery, reply: Reply, pause_ms: int = 0) -> Answer:
    """Return the answer for a push that was definitely not accepted, through no fault of its own."""
    return Answer(
        delivery.event_day,
        delivery.id,
        "retryable",
        attempted=False,
        error_code=reply.code,
        error_message=reply.message,
        retry_after_ms=pause_ms,
        not_before=reply.not_before,
    )
