"""The trace that an event belongs to, as W3C Trace Context writes it: a traceparent. Needs no library."""

from __future__ import annotations

import re
import sys

EXAMPLE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
_PARTS = re.compile("(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def is_traceparent(text: str) -> bool:
    """Return whether a text is a traceparent of version 00; relevo.is_traceparent says the same in SQL."""
    return text.startswith("00-") and read_header(text) == text


def read_header(header: str) -> str | None:
    """Return the traceparent of an HTTP header as version 00 writes it; None if the header is invalid.

    Of a later version only the parts that version 00 has are read, as the W3C asks.
    """
    found = _PARTS.fullmatch(header)
    if found is None or (found[1] == "00" and found[5]):
        return None
    flags = found[4] if found[1] == "00" else f"{int(found[4], 16) & 1:02x}"
    return f"00-{found[2]}-{found[3]}-{flags}"


def trace_id_of(traceparent: str) -> str:
    """Return the trace id of a traceparent."""
    return traceparent[3:35]


def current() -> str | None:
    """Return the traceparent of the span that is active here; None if there is none.

    It imports nothing: where a span is active, the app has imported opentelemetry-api.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is None or not hasattr(api, "get_current_span"):
        return None
    span = api.get_current_span().get_span_context()
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags & 0xFF:02x}" if span.is_valid else None
