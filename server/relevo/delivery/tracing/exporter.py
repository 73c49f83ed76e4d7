"""The official OpenTelemetry SDK, loaded when the first traced event needs a span."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import structlog

from relevo.config import tracing
from relevo.core.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, SpanContext, Tracer

Kind = Literal["CONSUMER", "CLIENT"]
Attributes = Mapping[str, "str | int | bool"]
_STOP_S = 3.0
_log = structlog.get_logger("relevo.tracing")
_chosen_id: ContextVar[int | None] = ContextVar("chosen_id", default=None)


class Loaded(NamedTuple):
    """The parts of the SDK that spans are made with."""

    provider: TracerProvider
    tracer: Tracer


class Exporter:
    """Sends spans to a collector from a thread of the SDK: whoever ends a span never waits for the collector."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._loaded: Loaded | None = None

    @classmethod
    def configured(cls) -> Exporter | None:
        """Return an exporter if the environment asks for one and the extra `otel` is installed."""
        if not tracing.wants_spans():
            return None
        why = tracing.obstacle()
        if why is None and not (find_spec("opentelemetry.sdk") and find_spec("opentelemetry.exporter.otlp.proto.http")):
            why = "the extra otel is not installed"
        if why is None:
            return cls()
        _log.warning("spans_not_exported", why=why)
        return None

    def begin(
        self,
        name: str,
        parent: SpanContext | None,
        began_ns: int,
        *,
        kind: Kind,
        attributes: Attributes,
        links: Sequence[SpanContext] = (),
        span_id: int | None = None,
    ) -> Span:
        """Begin a span, with a given id if another process has to be able to name it."""
        from opentelemetry import trace  # noqa: PLC0415
        from opentelemetry.context import Context  # noqa: PLC0415

        context = trace.set_span_in_context(trace.NonRecordingSpan(parent), Context()) if parent else Context()
        token = _chosen_id.set(span_id)
        try:
            return self._load().tracer.start_span(
                name,
                context=context,
                kind=trace.SpanKind[kind],
                attributes=dict(attributes),
                links=[trace.Link(each) for each in links],
                start_time=began_ns,
            )
        finally:
            _chosen_id.reset(token)

    def stop(self) -> None:
        """Send what waits, for a few seconds at most: a collector that does not answer keeps no process from ending."""
        if self._loaded is not None:
            stopping = threading.Thread(target=self._loaded.provider.shutdown, name="relevo-spans", daemon=True)
            stopping.start()
            stopping.join(_STOP_S)
            if stopping.is_alive():
                _log.warning("spans_lost", why="the collector did not take them in time")

    def _load(self) -> Loaded:
        with self._guard:
            if self._loaded is None:
                self._loaded = _load()
            return self._loaded


def _load() -> Loaded:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator  # noqa: PLC0415

    class Ids(RandomIdGenerator):
        """Random ids, but for a span whose id was chosen."""

        def generate_span_id(self) -> int:
            chosen = _chosen_id.get()
            return chosen if chosen is not None else int(super().generate_span_id())

    resource = Resource.create({"service.version": __version__})
    named: Any = resource.attributes.get("service.name", "")
    if str(named).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "relevo"}))
    provider = TracerProvider(resource=resource, id_generator=Ids(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Loaded(provider, provider.get_tracer("relevo", __version__))
