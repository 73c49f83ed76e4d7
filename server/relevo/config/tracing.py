"""OpenTelemetry's own environment variables, as far as they decide whether this process exports spans."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dotenv.parser import parse_stream

from relevo.config.loading import ENV_FILE

_PREFIX = "OTEL_"


def wants_spans(env_file: Path | None = ENV_FILE) -> bool:
    """Return whether an exporter is configured: OTEL_TRACES_EXPORTER=otlp, or an endpoint for spans.

    The SDK reads the other variables from the environment itself, so those of `.env` are added to it.
    """
    if env_file is not None and env_file.is_file():
        for name, value in _in_file(env_file).items():
            os.environ.setdefault(name, value)
    return is_wanted(os.environ)


def is_wanted(given: Mapping[str, str]) -> bool:
    """Return whether these variables configure an exporter."""
    if given.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = given.get("OTEL_TRACES_EXPORTER", "").strip()
    endpoint = given.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or given.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    return exporter == "otlp" or (not exporter and bool(endpoint))


def obstacle() -> str | None:
    """Return what in the environment keeps spans from being exported as it asks for; None if nothing does."""
    given = os.environ
    protocol = given.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or given.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol not in (None, "", "http/protobuf"):
        return f"Relevo exports by http/protobuf, not by {protocol[:40]}"
    return None


def _in_file(path: Path) -> dict[str, str]:
    with path.open(encoding="utf-8-sig") as file:
        found = {each.key: each.value for each in parse_stream(file)}
    return {name: value for name, value in found.items() if name and value and name.startswith(_PREFIX)}
