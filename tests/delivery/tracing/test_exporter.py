"""The official SDK: loaded for the first traced event alone, and in nobody's way."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from relevo.delivery.tracing import exporter
from relevo.delivery.tracing.exporter import Exporter
from support.otlp_collector import OtlpCollector

WORKER = """
import os, sys
from relevo import app, config
settings = config.load(env_file=None)
with app.build(settings, role="tick") as built:
    from relevo.app import service
    reports = service.tick(built, ["fanout", "dispatch"])
    assert all(report.outcome in ("ok", "idle") for report in reports), reports
loaded = [each for each in sys.modules if each.startswith("opentelemetry")]
print(len(loaded), "opentelemetry.sdk" in loaded)
"""
"""A worker that fans out and sends what is due, and prints which parts of OpenTelemetry it has loaded."""


def loaded_by_worker(dsn: str, expo: str, **variables: str) -> str:
    """Return how many modules of OpenTelemetry a worker's process loads, and whether the SDK is among them."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    given |= {"DATABASE_URL": dsn, "EXPO_BASE_URL": expo, "RELEVO_INSTANCE": "tests", **variables}
    done = subprocess.run(
        [sys.executable, "-c", WORKER], env=given, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_off_loads_nothing(relay, dsn: str) -> None:
    """Without an exporter a worker loads no module of OpenTelemetry, even for traced events; with one the SDK for these alone."""
    worker = relay()
    worker.register("ana")

    def enqueue(traceparent: str | None) -> None:
        worker.enqueue(audience=[worker.phones["ana"]], traceparent=traceparent)

    with OtlpCollector() as collector:
        on = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        enqueue(f"00-{'a' * 32}-{'b' * 16}-01")
        assert loaded_by_worker(dsn, worker.sandbox.url) == "0 False"
        assert loaded_by_worker(dsn, worker.sandbox.url, **on, OTEL_SDK_DISABLED="true") == "0 False"
        enqueue(None)
        assert loaded_by_worker(dsn, worker.sandbox.url, **on).endswith(" False")
        assert not collector.spans
        enqueue(f"00-{'c' * 32}-{'b' * 16}-01")
        assert loaded_by_worker(dsn, worker.sandbox.url, **on).endswith(" True")
        assert {each.trace for each in collector.spans if not each.name.endswith("batch")} == {"c" * 32}
    assert worker.received("ana") == 3


def test_what_keeps_spans_from_being_exported_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exporter that is asked for and cannot be had is one warning that says why; the process goes on without spans."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    assert Exporter.configured() is not None
    with capture_logs() as lines:
        monkeypatch.setattr(exporter, "find_spec", lambda _name: None)
        assert Exporter.configured() is None
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        assert Exporter.configured() is None
    assert [each["event"] for each in lines] == ["spans_not_exported"] * 2
    assert "extra otel" in lines[0]["why"]
    assert "grpc" in lines[1]["why"]


def test_the_service_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans are those of the service `relevo`, unless OTEL_SERVICE_NAME names another."""
    for variable, name in (("", "relevo"), ("shop-pushes", "shop-pushes")):
        with OtlpCollector() as collector:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            monkeypatch.setenv("OTEL_SERVICE_NAME", variable)
            made = Exporter.configured()
            assert made is not None
            made.begin("a span", None, 1, kind="CLIENT", attributes={}).end()
            made.stop()
            assert collector.one("a span").resource["service.name"] == name
