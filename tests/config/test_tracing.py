"""OpenTelemetry's own variables: when spans are exported, and when they are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relevo.config import tracing

HERE = "http://127.0.0.1:4318"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the developer's reaches these tests, nor any of theirs another."""
    for name in [each for each in os.environ if each.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "shop"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": HERE}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, False),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, False),
        ({"OTEL_SDK_DISABLED": "false", "OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, True),
    ],
)
def test_when_spans_are_exported(given: dict[str, str], wanted: bool) -> None:
    """An exporter or an endpoint switches it on; `none`, another exporter and the SDK's switch keep it off."""
    assert tracing.is_wanted(given) is wanted


def test_the_file_counts_where_the_environment_is_silent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Variables of `.env` reach the SDK, which reads the environment alone; the environment wins."""
    file = tmp_path / ".env"
    file.write_text(f"OTEL_EXPORTER_OTLP_ENDPOINT={HERE}\nOTEL_SERVICE_NAME=of-file\nOTHER=1\n")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    assert not tracing.wants_spans(tmp_path / "none")
    assert tracing.wants_spans(file)
    assert (os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"], os.environ["OTEL_SERVICE_NAME"]) == (HERE, "shop")
    assert "OTHER" not in os.environ


@pytest.mark.parametrize(("protocol", "is_good"), [("http/protobuf", True), ("", True), ("grpc", False)])
def test_a_protocol_that_is_not_ours(monkeypatch: pytest.MonkeyPatch, protocol: str, is_good: bool) -> None:
    """Spans go by http/protobuf; where another protocol is asked for, the obstacle names it."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    assert tracing.obstacle() is None if is_good else "grpc" in (tracing.obstacle() or "")
