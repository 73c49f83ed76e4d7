"""Spans of traced events, as a collector gets them over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
import structlog
from structlog.testing import capture_logs

from relevo import Owners
from relevo.delivery.tracing import spans
from support.otlp_collector import OtlpCollector
from support.sending_worker import Relay


def traceparent(flags: str = "01") -> str:
    """Return the traceparent of a new trace."""
    return f"00-{uuid4().hex}-{uuid4().hex[:16].replace('0', '1')}-{flags}"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpCollector]:
    """A collector that this process's workers export to."""
    with OtlpCollector() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield running


def test_one_trace_from_the_app_to_the_receipt(relay, collector) -> None:
    """Fan-out, dispatch and receipt are children of the app's span, the request is a child of the dispatch; nothing in them names a person."""
    worker: Relay = relay()
    worker.register("ana", owner="ana@example.com")
    given = traceparent()
    event = worker.enqueue(
        audience=Owners("ana@example.com"), key="order-of-ana", title="secret title", traceparent=given
    )
    worker.fan_out()
    worker.dispatch()
    worker.ask()
    app, of_trace = given[36:52], given[3:35]
    fanout, dispatch = collector.one("relevo.fanout"), collector.one("relevo.dispatch")
    request, receipt = collector.one("relevo.request"), collector.one("relevo.receipt")
    assert {each.trace for each in (fanout, dispatch, request, receipt)} == {of_trace}
    assert (fanout.parent, dispatch.parent, receipt.parent) == (app, app, app)
    assert request.parent == dispatch.id
    assert not any(each.failed for each in collector.spans)
    assert fanout.attributes == {"relevo.event_id": event, "relevo.phones": 1, "relevo.outcome": "fanned_out"}
    assert dispatch.attributes == {
        "relevo.event_id": event,
        "relevo.event_type": "notice",
        "relevo.deliveries": 1,
        "relevo.attempt": 1,
        "relevo.provider": "expo",
        "relevo.lane": "bulk",
    }
    assert request.attributes["relevo.outcome"] == "answered"
    assert receipt.attributes["relevo.outcome"] == "ok"
    assert fanout.began_ns <= fanout.ended_ns <= dispatch.ended_ns
    assert dispatch.began_ns <= request.began_ns <= request.ended_ns <= dispatch.ended_ns
    assert fanout.resource["service.name"] == "relevo"
    told = json.dumps([(each.attributes, each.resource) for each in collector.spans])
    for secret in ("ana", "secret", "ExponentPushToken", str(worker.phones["ana"])):
        assert secret not in told


def test_each_batch_has_a_span_that_links_to_its_events(relay, collector) -> None:
    """A span of the batch, in a trace of its own, links to the apps' spans, and each event's span to that of its batch."""
    worker: Relay = relay()
    worker.register("ana", "bob", "eve")
    given = [traceparent(), traceparent()]
    for name, each in zip(("ana", "bob"), given, strict=True):
        worker.enqueue(audience=[worker.phones[name]], traceparent=each)
    worker.enqueue(audience=[worker.phones["eve"]])
    worker.fan_out()
    worker.dispatch()
    for step in ("relevo.fanout", "relevo.dispatch", "relevo.request"):
        batch = collector.one(f"{step} batch")
        assert sorted(batch.links) == sorted((each[3:35], each[36:52]) for each in given), step
        assert batch.attributes["relevo.traced_events"] == 2
        assert batch.trace not in {each[3:35] for each in given}
        collector.wait(lambda step=step: len(collector.named(step)) == 2)
        assert all((batch.trace, batch.id) in each.links for each in collector.named(step))
    assert collector.one("relevo.request batch").parent == collector.one("relevo.dispatch batch").id


def test_a_retry_links_to_the_attempt_before(relay, sandbox, collector) -> None:
    """Each attempt is a span of its own; the second one links to the first, which failed, though another process may have made it."""
    worker: Relay = relay()
    sandbox.add_fault("500", times=1)
    given = traceparent()
    worker.tell("ana", traceparent=given)
    worker.dispatch()
    worker.travel(hours=1)
    worker.dispatch()
    collector.wait(lambda: len(collector.named("relevo.request")) == 2)
    first, second = collector.named("relevo.request")
    assert (first.failed, second.failed) == (True, False)
    assert (first.attributes["relevo.attempt"], second.attributes["relevo.attempt"]) == (1, 2)
    assert (first.trace, first.id) in second.links
    assert first.trace == second.trace == given[3:35]


def test_a_retry_links_to_the_receipt_that_failed(relay, collector) -> None:
    """Where a receipt told of the error, the next attempt links to the receipt's span."""
    worker: Relay = relay()
    worker.tell("ana!receipt-MessageRateExceeded", traceparent=traceparent())
    worker.dispatch()
    worker.travel(seconds=1)
    worker.ask()
    failed = collector.one("relevo.receipt")
    assert (failed.failed, failed.attributes["error.type"]) == (True, "MessageRateExceeded")
    worker.travel(hours=1)
    worker.dispatch()
    collector.wait(lambda: len(collector.named("relevo.request")) == 2)
    assert (failed.trace, failed.id) in collector.named("relevo.request")[1].links


def test_a_batch_has_so_many_spans_at_most(relay, collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more traced events than the limit so many get spans, and the batch's span links to no more."""
    monkeypatch.setattr("relevo.delivery.tracing.traced.MOST_TRACED", 3)
    monkeypatch.setattr(spans, "MOST_TRACED", 3)
    worker: Relay = relay()
    worker.register("ana")
    for _ in range(5):
        worker.enqueue(audience=[worker.phones["ana"]], traceparent=traceparent())
    worker.fan_out()
    worker.dispatch()
    assert worker.received("ana") == 5
    worker.app.services.tracing.exporter.stop()
    assert {step: len(collector.named(f"relevo.{step}")) for step in ("fanout", "dispatch", "request")} == {
        "fanout": 3,
        "dispatch": 3,
        "request": 3,
    }
    assert all(len(each.links) == 3 for each in collector.spans if each.name.endswith("batch"))


def test_what_is_not_sampled_makes_no_span(relay, collector) -> None:
    """An app that does not sample a trace gets no spans of it, nor of a batch that holds nothing else."""
    worker: Relay = relay()
    worker.tell("ana", traceparent=traceparent("00"))
    worker.tell("bob")
    worker.dispatch()
    worker.app.services.tracing.exporter.stop()
    assert worker.received("ana") == 1
    assert not collector.spans


@pytest.mark.parametrize("trouble", ["dead", "slow", "500"])
def test_a_bad_collector_stops_no_push(relay, collector, monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    """Whatever the collector does, pushes go out without waiting for it, and the process ends within seconds."""
    if trouble == "dead":
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    collector.delay_s = 30.0 if trouble == "slow" else 0.0
    collector.status = 500 if trouble == "500" else 200
    worker: Relay = relay()
    worker.register("ana")
    began = time.monotonic()
    for _ in range(3):
        worker.tell("ana", traceparent=traceparent())
        worker.dispatch()
    assert worker.received("ana") == 3
    assert time.monotonic() - began < 10
    began = time.monotonic()
    worker.app.services.tracing.exporter.stop()
    assert time.monotonic() - began < 6


def test_an_error_of_tracing_stops_no_push(relay, collector, conn) -> None:
    """What spans need and do not get is one line in the log."""
    worker: Relay = relay()
    conn.execute("update relevo.notification_events set traceparent = null")
    worker.tell("ana", traceparent=traceparent())
    conn.execute("update relevo.notification_events set traceparent = 'broken'")
    with capture_logs() as lines:
        worker.dispatch()
    assert worker.received("ana") == 1
    assert "spans_failed" in {each["event"] for each in lines}


def test_lines_of_a_claim_carry_the_trace_id(relay, sandbox, collector) -> None:
    """A line that the worker logs while it sends one trace's deliveries has its id."""
    given = traceparent()
    noted: list[object] = []

    def middleware(_context: object, send: object) -> object:
        raise RuntimeError("no")

    worker: Relay = relay(push_middlewares=[middleware])
    worker.tell("ana", traceparent=given)
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, lambda _l, _m, e: noted.append(dict(e)) or ""]
    )
    worker.dispatch()
    [line] = [each for each in noted if each["event"] == "push_middleware_failed"]
    assert line["trace_id"] == given[3:35]
