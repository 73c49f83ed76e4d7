"""Makes the spans of one step: one for the whole batch, with links, and one for each traced event, in its own trace."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import structlog

from relevo.core.logs import normalise_error
from relevo.core.traceparents import trace_id_of
from relevo.delivery.tracing.exporter import Attributes, Exporter, Kind

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext

MOST_TRACED = 100
"""How many traced events of one batch get a span of their own, and how many the batch's span links to."""
MOST_FORMER = 10
"""How many former attempts of an event's deliveries one span links to."""
_CODE = re.compile(r"[\w.:-]{1,100}")
_log = structlog.get_logger("relevo.tracing")
T = TypeVar("T")


def span_id(*of: object) -> int:
    """Return the id of a span that another process may have to name: the same for the same request or attempt."""
    return int.from_bytes(hashlib.blake2b(repr(of).encode(), digest_size=8).digest(), "big") or 1


def in_ns(monotonic_s: float) -> int:
    """Return a moment of the monotonic clock as spans have it: nanoseconds since 1970."""
    return time.time_ns() - int((time.monotonic() - monotonic_s) * 1e9)


def contained(make: Callable[[], T]) -> T | None:
    """Do what spans need; an error there is logged, and stops nothing that is traced."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 whatever the SDK or the database meets, pushes go on
        _log.warning("spans_failed", error=normalise_error(error, 200))
        return None


@dataclass
class Step:
    """The spans of one batch that are open, by event."""

    exporter: Exporter
    name: str
    kind: Kind
    traces: Mapping[int, str]
    """The traceparents of its traced events."""
    began_ns: int
    common: Attributes
    """What is true of the whole batch."""
    parents: Mapping[int, SpanContext] = field(default_factory=dict)
    """Of spans that are no child of the app's: the parent of each, by event."""
    batch_parent: SpanContext | None = None
    batch: Span | None = field(default=None, init=False)
    of_event: dict[int, Span] = field(default_factory=dict, init=False)

    def begin(
        self,
        attributes: Mapping[int, Attributes],
        *,
        links: Mapping[int, Sequence[SpanContext]] | None = None,
        ids: Mapping[int, int] | None = None,
    ) -> None:
        """Begin the spans of the batch and of the events whose attributes are given."""
        links, ids = links or {}, ids or {}
        traced = {event: app_span(self.traces[event]) for event in attributes if event in self.traces}
        sampled = [context for context in traced.values() if context.trace_flags.sampled]
        if sampled:
            self.batch = self.exporter.begin(
                f"{self.name} batch",
                self.batch_parent,
                self.began_ns,
                kind=self.kind,
                attributes={**self.common, "relevo.traced_events": len(traced)},
                links=sampled[:MOST_TRACED],
            )
        for event, context in traced.items():
            batch = [self.batch.get_span_context()] if self.batch else []
            self.of_event[event] = self.exporter.begin(
                self.name,
                self.parents.get(event, context),
                self.began_ns,
                kind=self.kind,
                attributes={**self.common, "relevo.event_id": event, **attributes[event]},
                links=[*batch, *links.get(event, ())],
                span_id=ids.get(event),
            )

    def fail(self, event: int, code: str | None) -> None:
        """Mark an event's span as failed, with the code of the error."""
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415

        known = code if code and _CODE.fullmatch(code) else "unknown"
        self.of_event[event].set_attribute("error.type", known)
        self.of_event[event].set_status(Status(StatusCode.ERROR, known))

    def end(self, ended_ns: int | None = None) -> None:
        """End all spans."""
        for span in (*self.of_event.values(), *([self.batch] if self.batch else [])):
            with suppress(Exception):
                span.end(ended_ns)


def app_span(traceparent: str) -> SpanContext:
    """Return the span that a traceparent names."""
    return span_of(traceparent, int(traceparent[36:52], 16))


def span_of(traceparent: str, number: int) -> SpanContext:
    """Return a span of the same trace, by its id."""
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415

    flags = TraceFlags(int(traceparent[53:55], 16))
    return SpanContext(int(trace_id_of(traceparent), 16), number, is_remote=True, trace_flags=flags)
