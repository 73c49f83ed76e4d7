"""Which events of a batch are traced, and the spans of each step of theirs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import structlog

from relevo.core import queries
from relevo.core.model import Accepted, Awaiting, Delivery, PushRequest, ReceiptAnswer, Reply, Ticket
from relevo.core.traceparents import trace_id_of
from relevo.database.arrays import array
from relevo.database.pool import Database
from relevo.delivery.claiming import columns
from relevo.delivery.claiming.claim import Claim
from relevo.delivery.tracing.exporter import Attributes, Exporter
from relevo.delivery.tracing.spans import MOST_FORMER, MOST_TRACED, Step, contained, in_ns, span_id, span_of

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

_SQL = queries.load("tracing")


class _FormerAttempt(NamedTuple):
    """The last failed attempt of a delivery."""

    delivery: int
    attempt: int
    found_by: str
    request: UUID | None


@dataclass(frozen=True)
class Tracing:
    """Makes the spans of a worker; each batch costs one statement more, and one more if any of it was tried before."""

    database: Database
    exporter: Exporter

    def traces_of(self, events: Iterable[int]) -> dict[int, str]:
        """Return the traceparents of those of some events that are traced, of so many at most."""
        asked = {"events": array(events), "most": MOST_TRACED}
        rows = contained(lambda: self.database.execute(_SQL["read_traceparents"], asked, "bound_by_key").fetchall())
        return dict(rows or ())

    def fanned_out(self, events: Mapping[int, Attributes], began_ns: int) -> None:
        """Tell of a fan-out that is committed: of each of its events, or of a slice of one."""
        if traces := self.traces_of(events):
            contained(partial(self._fanned_out, events, traces, began_ns))

    def _fanned_out(self, events: Mapping[int, Attributes], traces: Mapping[int, str], began_ns: int) -> None:
        step = Step(self.exporter, "relevo.fanout", "CONSUMER", traces, began_ns, {})
        step.begin(events)
        step.end()

    @contextmanager
    def dispatch(self, claim: Claim, common: Attributes) -> Iterator[ClaimSpans | None]:
        """Trace the deliveries of a claim while they are sent; None if no event of it is traced."""
        deliveries = [each for each in claim.deliveries if isinstance(each, Delivery)]
        traces = self.traces_of({each.notification_event_id for each in deliveries})
        spans = contained(partial(self._begin, claim, deliveries, traces, common)) if traces else None
        if spans is None:
            yield None
            return
        try:
            with structlog.contextvars.bound_contextvars(**spans.log_names):
                yield spans
        finally:
            contained(spans.step.end)

    def _begin(
        self, claim: Claim, deliveries: Sequence[Delivery], traces: Mapping[int, str], common: Attributes
    ) -> ClaimSpans:
        step = Step(self.exporter, "relevo.dispatch", "CONSUMER", traces, in_ns(claim.taken_at), common)
        traced = [each for each in deliveries if each.notification_event_id in traces]
        step.begin(_facts_of(traced))
        return ClaimSpans(step, self._former_attempts(traced, traces))

    def _former_attempts(
        self, traced: Sequence[Delivery], traces: Mapping[int, str]
    ) -> dict[int, tuple[int, SpanContext]]:
        """Return the span of the last failed attempt of deliveries that are tried again, of a few of each event."""
        seen, tried = Counter[int](), list[Delivery]()
        for each in traced:
            seen[each.notification_event_id] += each.attempt_count > 0
            if each.attempt_count > 0 and seen[each.notification_event_id] <= MOST_FORMER:
                tried.append(each)
        if not tried:
            return {}
        rows = self.database.execute(_SQL["read_former_attempts"], columns.keys(tried), "bound_by_key").fetchall()
        event_of = {each.id: each.notification_event_id for each in tried}
        former: dict[int, tuple[int, SpanContext]] = {}
        for row in (_FormerAttempt(*each) for each in rows):
            event = event_of[row.delivery]
            if row.found_by == "receipt":
                former[row.delivery] = event, span_of(traces[event], span_id("receipt", row.delivery, row.attempt))
            elif row.request is not None:
                former[row.delivery] = event, span_of(traces[event], span_id("request", row.request, event))
        return former

    def received(self, claim: Claim, answers: Sequence[ReceiptAnswer], common: Attributes) -> None:
        """Tell of receipts that are written: one span for what arrived of an event, one for each failure."""
        contained(partial(self._received, claim, [each for each in answers if each.status != "waiting"], common))

    def _received(self, claim: Claim, answers: Sequence[ReceiptAnswer], common: Attributes) -> None:
        asked = columns.keys([each.awaiting for each in answers])
        rows = self.database.execute(_SQL["read_traceparents_of_deliveries"], asked, "bound_by_key").fetchall()
        if not rows:
            return
        event_of = {delivery: (event, kind) for delivery, event, kind, _ in rows}
        traces = {event: traceparent for _, event, _, traceparent in rows}
        began_ns = in_ns(claim.taken_at)
        arrived = Counter(event_of[each.awaiting.id] for each in answers if _has_arrived(each, event_of))
        step = Step(self.exporter, "relevo.receipt", "CLIENT", traces, began_ns, common)
        step.begin(
            {
                event: {"relevo.event_type": kind, "relevo.deliveries": count, "relevo.outcome": "ok"}
                for (event, kind), count in arrived.most_common(MOST_TRACED)
            }
        )
        step.end()
        failed = [each for each in answers if each.awaiting.id in event_of and each.status != "ok"]
        for each in failed[:MOST_TRACED]:
            event, kind = event_of[each.awaiting.id]
            step = Step(self.exporter, "relevo.receipt", "CLIENT", traces, began_ns, common)
            facts: Attributes = {"relevo.event_type": kind, "relevo.deliveries": 1, "relevo.outcome": each.status}
            attempt = max(0, each.awaiting.attempt_count + each.spent)
            step.begin({event: facts}, ids={event: span_id("receipt", each.awaiting.id, attempt)})
            step.fail(event, each.error_code)
            step.end()


@contextmanager
def configured(database: Database) -> Iterator[Tracing | None]:
    """Make spans if an exporter is configured, and send the last ones at the end; None if there is no exporter."""
    exporter = Exporter.configured()
    try:
        yield Tracing(database, exporter) if exporter else None
    finally:
        if exporter is not None:
            exporter.stop()


@dataclass
class Requested:
    """The answer of a request that is traced, once it is there."""

    reply: Reply = field(default_factory=lambda: Reply("held_back"))


@dataclass
class ClaimSpans:
    """The spans of one claim's events, which its requests are children of."""

    step: Step
    former: Mapping[int, tuple[int, SpanContext]]
    """Event and span of the former attempt of each delivery that is tried again."""
    log_names: dict[str, str] = field(init=False)
    """What log lines carry while the claim is sent: the trace id, if all of it is of one trace."""

    def __post_init__(self) -> None:
        """Find the trace that all of it belongs to, if there is one."""
        ids = {trace_id_of(each) for each in self.step.traces.values()}
        self.log_names = {"trace_id": ids.pop()} if len(ids) == 1 else {}

    @contextmanager
    def requested(self, request: PushRequest) -> Iterator[Requested]:
        """Trace a request, on a thread of its own; one that was held back has no span."""
        began_ns, requested = time.time_ns(), Requested()
        with structlog.contextvars.bound_contextvars(**self.log_names):
            yield requested
        if requested.reply.kind != "held_back":
            contained(partial(self._requested, request, requested.reply, began_ns, time.time_ns()))

    def _requested(self, request: PushRequest, reply: Reply, began_ns: int, ended_ns: int) -> None:
        traced = [each for each in request.deliveries if each.notification_event_id in self.step.of_event]
        if not traced:
            return
        parents = {event: span.get_span_context() for event, span in self.step.of_event.items()}
        batch = self.step.batch.get_span_context() if self.step.batch else None
        common = {**self.step.common, "relevo.request_id": str(request.id), "relevo.outcome": reply.kind}
        step = Step(self.step.exporter, "relevo.request", "CLIENT", self.step.traces, began_ns, common, parents, batch)
        facts = _facts_of(traced)
        step.begin(
            facts, links=self._former_of(traced), ids={each: span_id("request", request.id, each) for each in facts}
        )
        for event, code in _failures(request, reply).items():
            if event in step.of_event:
                step.fail(event, code)
        step.end(ended_ns)

    def _former_of(self, traced: Sequence[Delivery]) -> dict[int, list[SpanContext]]:
        links: dict[int, dict[int, SpanContext]] = {}
        for event, context in (self.former[each.id] for each in traced if each.id in self.former):
            links.setdefault(event, {})[context.span_id] = context
        return {event: list(of.values()) for event, of in links.items()}


def _facts_of(traced: Sequence[Delivery]) -> dict[int, Attributes]:
    """Return the attributes of each event's span: its type, how many deliveries, and which attempt."""
    count = Counter(each.notification_event_id for each in traced)
    attempt: dict[int, int] = {}
    for each in traced:
        attempt[each.notification_event_id] = max(attempt.get(each.notification_event_id, 0), each.attempt_count + 1)
    kinds = {each.notification_event_id: each.event_type for each in traced}
    return {
        event: {"relevo.event_type": kind, "relevo.deliveries": count[event], "relevo.attempt": attempt[event]}
        for event, kind in kinds.items()
    }


def _failures(request: PushRequest, reply: Reply) -> dict[int, str | None]:
    """Return the events of a request of which something was not taken, each with the code of the first failure."""
    if isinstance(reply.tickets, Accepted):
        return {}
    if reply.kind != "answered":
        return {each.notification_event_id: reply.code or reply.kind for each in request.deliveries}
    failures: dict[int, str | None] = {}
    for delivery, ticket in zip(request.deliveries, reply.tickets, strict=False):
        if _is_failure(ticket):
            failures.setdefault(delivery.notification_event_id, ticket.code or ticket.fate)
    return failures


def _is_failure(ticket: Ticket) -> bool:
    return ticket.fate not in ("sent", "ok")


def _has_arrived(answer: ReceiptAnswer, event_of: Mapping[int, tuple[int, str]]) -> bool:
    awaiting: Awaiting = answer.awaiting
    return answer.status == "ok" and awaiting.id in event_of
