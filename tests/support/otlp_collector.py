"""A collector of OpenTelemetry: OTLP over HTTP on loopback, read by the official protobuf definitions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from support.fake_http_server import Answer, Asked, FakeServer
from support.processes import PATIENCE_S


@dataclass(frozen=True)
class CollectedSpan:
    """One span as it arrived."""

    name: str
    trace: str
    id: str
    parent: str
    links: list[tuple[str, str]]
    attributes: dict[str, Any]
    failed: bool
    began_ns: int
    ended_ns: int
    resource: dict[str, Any] = field(repr=False)


class OtlpCollector(FakeServer):
    """Takes spans at /v1/traces; `status` and `delay_s` make it answer badly."""

    def __init__(self) -> None:
        super().__init__()
        self.status, self.delay_s = 200, 0.0
        self.spans: list[CollectedSpan] = []

    def answer(self, asked: Asked) -> Answer:
        """Take the spans of one request."""
        assert (asked.method, asked.path) == ("POST", "/v1/traces"), asked
        if self.status == 200:
            self.spans += _spans_in(ExportTraceServiceRequest.FromString(asked.body))
        return Answer(self.status, delay_s=self.delay_s)

    def named(self, name: str) -> list[CollectedSpan]:
        """Return the spans of a name, in the order of their beginning."""
        return sorted((each for each in self.spans if each.name == name), key=lambda span: span.began_ns)

    def wait(self, until: Callable[[], object]) -> None:
        """Wait for spans to arrive."""
        over = time.monotonic() + PATIENCE_S
        while not until():
            assert time.monotonic() < over, [(each.name, each.attributes) for each in self.spans]
            time.sleep(0.02)

    def one(self, name: str) -> CollectedSpan:
        """Wait for the only span of a name."""
        self.wait(lambda: self.named(name))
        [found] = self.named(name)
        return found


def _spans_in(request: ExportTraceServiceRequest) -> list[CollectedSpan]:
    return [
        CollectedSpan(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
            _values(span.attributes),
            span.status.code == Status.STATUS_CODE_ERROR,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            _values(of_resource.resource.attributes),
        )
        for of_resource in request.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
