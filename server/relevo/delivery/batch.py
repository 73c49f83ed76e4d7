"""The way of one claimed batch: compose, journal, send, decide, settle. It reads in that order."""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import structlog
from psycopg import errors as pg
from psycopg_pool import PoolClosed

from relevo import queries
from relevo.config import Settings
from relevo.db import BUSY, Database, array
from relevo.delivery import rendering
from relevo.delivery.claims import Claim, Claims
from relevo.delivery.projects import Projects
from relevo.delivery.sending import PushContext, PushMiddleware, RequestPool, RequestPools, send
from relevo.errors import DatabaseUnavailableError, OwnershipLostError, Reschedule
from relevo.logs import normalise_error
from relevo.model import (
    Answer,
    Content,
    Delivery,
    Lane,
    Message,
    Obstacle,
    PushRequest,
    Reply,
    Status,
    Ticket,
    Verdict,
)
from relevo.ports import Composer, PushProvider
from relevo.runtime.runs import Run

_SQL = queries.load("dispatch")
EXPO = "expo"
_log = structlog.get_logger("relevo.dispatch")

_ENDED = ("event_gone", "event_ended", "handled_elsewhere")
_LIGHT_BYTES = 3_000  # of the 4096 that every push service bears; what a delivery adds is far below the rest
_SETTLE_AGAIN_S = 0.5
_NOT_SENT_PAUSE_MS = 5_000
_ENOUGH_BAD_MESSAGES = 2
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
    probe: bool = False
    """Whether only one may be sent, to learn how the project is; the others are handed back."""
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    messages: dict[int, Message] = field(default_factory=dict)
    drafts: dict[tuple[int, bool], tuple[rendering.Draft, bool]] = field(default_factory=dict)
    settled: int = 0
    tokens: int = 0
    """How much of the project's rate was reserved for it and is not used yet."""
    surprised: bool = False
    busy: BaseException | None = None
    """What stood in its way: a lock, or a statement that took too long."""
    isolating: bool = False
    """Whether a bad message is looked for: one request at a time then, so that what one tells spares the next."""
    bad_messages: Counter[int] = field(default_factory=Counter)
    """How many messages of an event the push service found bad, one by one."""
    taken: set[int] = field(default_factory=set)
    """The events of which it took a message."""

    def reserve(self, tokens: int) -> int:
        """Keep as many tokens as there are deliveries that may be sent, and tell how many that are."""
        self.tokens = min(tokens, sum(delivery.obstacle is None for delivery in self._deliveries))
        return self.tokens

    @property
    def provider(self) -> PushProvider:
        """The push service its deliveries go to."""
        return self.services.provider_of(self.claim.project)

    def deliver(self) -> None:
        """Bring every delivery of the claim as far as it comes, and leave none claimed."""
        try:
            ready, answers = self._compose()
            self._settle(answers, {}, finish=not ready)
            self._send_all(self._probing(ready) if self.probe else ready)
            self._give_tokens_back()
        except OwnershipLostError as lost:
            self.counts["claims_lost"] += 1
            _log.warning("batch_given_up", claim=str(self.claim.token), reason=lost.reason)
        except BUSY as error:
            self.busy = error
            _log.warning("batch_handed_back", claim=str(self.claim.token), error=normalise_error(error, 200))
            self._give_tokens_back()
        except (DatabaseUnavailableError, psycopg.Error):
            raise
        except Exception:
            self.surprised = True  # whoever surprises us again and again is set apart, as one that kills the worker
            raise
        finally:
            if self.settled < len(self.claim.deliveries):
                self._hand_back()

    def _give_tokens_back(self) -> None:
        with self._in_passing():
            self.services.projects.give_back(self.claim.project, self.lane, self.tokens, self.run.now)

    # Compose: nothing that kills the worker here was journalled.

    def _compose(self) -> tuple[list[Delivery], list[Answer]]:
        """Write every delivery's message; what must not be sent is answered already."""
        contents = self._read_contents()
        ready: list[Delivery] = []
        answers: list[Answer] = []
        for delivery in self._deliveries:
            answer = _obstructed(delivery, delivery.obstacle) or self._compose_one(delivery, contents)
            if answer is None:
                ready.append(delivery)
            else:
                answers.append(answer)
        return ready, answers

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
            return _answer(delivery, "failed", code="MalformedMessage", message=normalise_error(error))
        message: Message = draft.message(delivery, services.settings.push_ttl_s)
        composer = services.composers.get(delivery.event_type)
        if composer is not None:
            light = False
            try:
                message = _composed(composer, message, delivery)
            except Reschedule as wish:
                reply = Reply("held_back", code="rescheduled", message=str(wish)[:300], not_before=wish.at)
                return _not_attempted(delivery, reply, _LEAST_PAUSE_MS)
            except Exception as error:  # noqa: BLE001 a composer may raise anything; attempts bound it
                return _answer(delivery, "retryable", code="composer_failed", message=normalise_error(error))
        refused = self.provider.refuse_token(delivery.token) if light else self.provider.refuse(message)
        if refused is not None:
            return _ticketed(delivery, refused, attempted=False)
        self.messages[delivery.id] = message
        return None

    def _draft(self, content: Content, *, ios: bool) -> tuple[rendering.Draft, bool]:
        """Return an event's draft, and whether it is so light that its messages need not be weighed one by one."""
        key = (content.id, ios)
        if key not in self.drafts:
            draft = rendering.draft(content, self.lane, ios=ios)
            weight = len(json.dumps([draft.fields, draft.data], ensure_ascii=False, allow_nan=False).encode())
            self.drafts[key] = draft, weight < _LIGHT_BYTES
        return self.drafts[key]

    # Journal, send, decide, settle: wave by wave.

    def _probing(self, ready: Sequence[Delivery]) -> Sequence[Delivery]:
        """Return the one to send; if there is none, what was found stale in its way must not cost the probe."""
        if not ready:
            self.services.projects.cancel_probe(self.claim.project, self.run.now)
        return ready[:1]

    def _send_all(self, ready: Sequence[Delivery]) -> None:
        waiting = deque(_chunks(ready, min(self.services.settings.push_chunk_size, self.provider.max_messages)))
        while waiting and not self._is_halted():
            size = min(len(waiting), 1 if self.isolating else self.pool.capacity)
            places = self.pool.enter(self.lane, size, lambda: self._is_halted() or self.claim.loss is not None)
            if not places:
                self.claim.check()
                continue
            wave = [waiting.popleft() for _ in range(places)]
            waiting.extendleft(reversed(self._send_wave(wave, last=not waiting)))

    def _is_halted(self) -> bool:
        return self.pool.halted or self.run.stopping.is_set()

    def _send_wave(self, chunks: Sequence[Sequence[Delivery]], *, last: bool) -> list[Sequence[Delivery]]:
        """Journal some requests, send them at once, settle what was answered; return what is to be sent in parts."""
        wave = [PushRequest(uuid4(), tuple(chunk)) for chunk in chunks]
        try:
            answers, requests = self._journal(wave)
            posts = [(request, self.pool.submit(self.lane, partial(self._post, request))) for request in requests]
        finally:
            self.pool.leave(self.lane, len(wave))
        again: list[Sequence[Delivery]] = []
        outcomes: dict[UUID, str] = {}
        lost: OwnershipLostError | None = None
        unsent: list[UUID] = []
        for request, post in posts:
            reply, gone = _result(post)
            lost = lost or gone
            if reply is None:
                unsent.append(request.id)
                continue
            outcomes[request.id] = reply.kind
            again += self._decide(request, reply, answers)
        self._mark_unsent(unsent)
        if self.probe and not requests:
            with self._in_passing():
                self.services.projects.cancel_probe(self.claim.project, self.run.now)
        self._settle(answers, outcomes, finish=last and not again)
        if lost is not None:
            raise lost
        return again

    def _mark_unsent(self, requests: Sequence[UUID]) -> None:
        if requests:
            with self._in_passing():
                self.services.claims.mark_unsent(self.claim, requests, self.run.now)

    def _journal(self, wave: Sequence[PushRequest]) -> tuple[list[Answer], list[PushRequest]]:
        """Write down what is about to be sent; what the journal holds back is answered already."""
        try:
            verdicts = {v.id: v for v in self.services.claims.journal(self.claim, wave, self.run.now)}
        except (DatabaseUnavailableError, psycopg.Error):  # it may stand there all the same; nothing of it was sent
            self._mark_unsent([request.id for request in wave])
            raise
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

    def _post(self, request: PushRequest) -> Reply:
        """Send one request, on a pool thread; nothing is sent once the claim or the project may not be used."""
        context = PushContext(
            request.id, self.claim.project, self.lane, len(request.deliveries), self.services.worker_id
        )
        messages = [self.messages[delivery.id] for delivery in request.deliveries]
        return send(self.provider, messages, context, self.services.middlewares, self._may_send)

    def _may_send(self) -> bool:
        """Tell, in the last moment before a request, whether it may still be sent; raises if the claim is gone."""
        self.claim.check(self.services.settings.push_request_timeout_ms)
        return not self._is_halted()

    def _decide(self, request: PushRequest, reply: Reply, answers: list[Answer]) -> list[Sequence[Delivery]]:
        """Turn a reply into answers, and tell the project how it went; return the parts to send again."""
        self.counts["push_requests"] += 1
        if reply.kind not in ("held_back", "not_sent"):  # what the push service never saw does not count for its rate
            self.tokens = max(0, self.tokens - len(request.deliveries))
        with self._in_passing():
            self._tell_project(reply)
        deliveries, floor_ms = request.deliveries, self.services.settings.push_request_timeout_ms
        if reply.kind == "answered" and len(reply.tickets) != len(deliveries):
            reply = Reply("unclear", code="MismatchedTickets", message=f"{len(reply.tickets)} for {len(deliveries)}")
        match reply.kind:
            case "answered":
                answers += [_ticketed(d, t, floor_ms) for d, t in zip(deliveries, reply.tickets, strict=True)]
                self.taken.update(d.notification_event_id for d in deliveries)
                self.problems += alerts(reply.tickets, self.problems)
            case "unclear":
                answers += [_ambiguous(d, reply, max(floor_ms, reply.retry_after_ms)) for d in deliveries]
            case "mixed_projects" if moved := self._moved(deliveries, reply):
                answers += [_not_attempted(d, reply)._replace(project=moved.get(d.id)) for d in deliveries]
            case "too_many" | "rejected" | "mixed_projects":
                return self._split(deliveries, reply, answers)
            case _:
                answers += [_not_attempted(d, reply, self._pause_ms(reply)) for d in deliveries]
        return []

    def _split(self, deliveries: Sequence[Delivery], reply: Reply, answers: list[Answer]) -> list[Sequence[Delivery]]:
        """Return the parts of a refused request: by event, then by halves, down to the culprit.

        An event of which two were found bad one by one, and none was taken, is bad in every push of it.
        """
        self.isolating = self.isolating or reply.kind == "rejected"
        events = dict.fromkeys(d.notification_event_id for d in deliveries)
        if len(events) > 1 and reply.kind == "rejected":
            return [[d for d in deliveries if d.notification_event_id == event] for event in events]
        event = deliveries[0].notification_event_id
        hopeless = (
            reply.kind == "rejected" and event not in self.taken and self.bad_messages[event] >= _ENOUGH_BAD_MESSAGES
        )
        if len(deliveries) > 1 and not hopeless:
            half = len(deliveries) // 2
            return [deliveries[:half], deliveries[half:]]
        self.bad_messages[event] += 1
        answers += [_answer(d, "failed", code=reply.code, message=reply.message) for d in deliveries]
        return []

    def _pause_ms(self, reply: Reply) -> int:
        """Return how long what was not sent waits; the project's own pause comes on top."""
        if reply.kind == "not_sent":
            return max(reply.retry_after_ms, _NOT_SENT_PAUSE_MS)
        if reply.code == "rescheduled":
            return _LEAST_PAUSE_MS
        if reply.code == "middleware_failed":
            self.problems.append(f"a middleware held a request back: {reply.message}")
            return self.services.settings.outbox_retry_base_ms
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

    def _tell_project(self, reply: Reply) -> None:
        """Tell the project how a request went; one that may not send any more halts its request pool at once."""
        projects, project, now = self.services.projects, self.claim.project, self.run.now
        credential = next((t for t in reply.tickets if t.fate == "credential"), None)
        if credential is not None or reply.kind == "unauthorised":
            code, message = (credential.code, credential.message) if credential else (reply.code, reply.message)
            why = f"{code}: {message}" if message else str(code)
            self.pool.halted |= projects.failed(project, why, credential=True, now=now)
        elif reply.kind in ("unclear", "not_sent"):
            why = f"{reply.code}: {reply.message}" if reply.message else str(reply.code)
            self.troubled = True
            self.pool.halted |= projects.failed(project, why, credential=False, now=now)
        elif reply.kind == "held_back":
            if self.probe:
                projects.cancel_probe(project, now)
        else:  # whatever it said, the service is there and knows us
            if self.troubled:
                self.troubled = False
                projects.succeeded(project, now=now)
            if reply.kind == "throttled":
                self.pool.halted = True
                projects.throttled(project, reply.retry_after_ms, now)

    def _settle(self, answers: Sequence[Answer], outcomes: Mapping[UUID, str], *, finish: bool = False) -> None:
        """Write the answers down, waiting for the database if need be: they are all that tells what was sent."""
        if not answers and not outcomes:
            return
        done = self.settled + len(answers)
        give_up = time.monotonic() + 3 * self.claim.lease_ms / 1000
        while True:
            try:
                settlement = self.services.claims.settle(
                    self.claim,
                    answers,
                    outcomes,
                    self.run.now,
                    finish=finish and done == len(self.claim.deliveries),
                    may_prune=lambda c, p: not self.services.projects.pruning_stopped(c, p, self.run.now),
                )
            except (DatabaseUnavailableError, *BUSY) as error:
                if time.monotonic() > give_up or isinstance(error.__cause__, PoolClosed):
                    tickets = sum(answer.ticket_id is not None for answer in answers)
                    _log.error("answers_not_recorded", claim=str(self.claim.token), tickets=tickets, error=str(error))
                    raise
                time.sleep(_SETTLE_AGAIN_S)
            else:
                break
        self.settled = done
        for status, count in settlement.written.items():
            self.counts[_COUNTED.get(status, f"notifications_{status}")] += count
        self.counts["late_tickets"] += settlement.closed_late + settlement.kept_as_evidence
        self.counts["tokens_disabled"] += settlement.tokens_disabled

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


def _result(post: Future[Reply]) -> tuple[Reply | None, OwnershipLostError | None]:
    try:
        return post.result(), None
    except OwnershipLostError as lost:
        return None, lost
    except BaseException as error:  # noqa: BLE001 one request's surprise must not cost the answers of the others
        _log.error("push_request_failed", exc_info=error)
        return Reply("unclear", code="request_failed", message=normalise_error(error)), None


def _chunks(deliveries: Sequence[Delivery], size: int) -> Iterator[Sequence[Delivery]]:
    return (deliveries[start : start + size] for start in range(0, len(deliveries), size))


def _answer(
    delivery: Delivery, status: Status, *, code: str | None, message: str | None = None, ticket: str | None = None
) -> Answer:
    attempted = status in ("failed", "retryable")
    return Answer(delivery.event_day, delivery.id, status, attempted, ticket, code, message)


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
    status: Status = "skipped"
    if obstacle == "deadline_passed":
        status = "expired"
    elif obstacle in _ENDED:
        status = "cancelled"
    return _answer(delivery, status, code=obstacle)


def _ticketed(delivery: Delivery, ticket: Ticket, floor_ms: int = 0, *, attempted: bool = True) -> Answer:
    """Return what a ticket means for its delivery; a credential fault is not the push's, and costs it nothing."""
    if ticket.fate == "unclear" or (ticket.fate == "sent" and not 0 < len(ticket.id or "") <= _LONGEST_TICKET):
        return _ambiguous(delivery, Reply("unclear", code=ticket.code, message=ticket.message), floor_ms)
    blocked = ticket.fate == "credential"
    status: Status = "retryable" if ticket.fate == "credential" else ticket.fate
    return Answer(
        delivery.event_day,
        delivery.id,
        status,
        attempted and not blocked,
        ticket.id if status in ("sent", "ok") else None,
        ticket.code,
        ticket.message,
        installation_id=delivery.installation_id,
        token_version=delivery.token_version,
    )


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
