"""What a traceparent is: W3C Trace Context, in Python and in SQL."""

from __future__ import annotations

import pytest
from opentelemetry import trace

from relevo.core.traceparents import EXAMPLE, current, is_traceparent, read_header, trace_id_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
BAD = [
    "",
    "00",
    f"00-{TRACE}-{SPAN}",
    f"00-{TRACE}-{SPAN}-1",
    f"00-{TRACE}-{SPAN}-01-more",
    f"00-{TRACE.upper()}-{SPAN}-01",
    f"00-{'0' * 32}-{SPAN}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"ff-{TRACE}-{SPAN}-01",
    f"00-{TRACE}-{SPAN}-01\n",
    f" 00-{TRACE}-{SPAN}-01",
    f"0x-{TRACE}-{SPAN}-01",
]


@pytest.mark.parametrize("header", BAD)
def test_what_is_no_traceparent(header: str, conn) -> None:
    """An invalid one is none, for Python as for SQL."""
    assert read_header(header) is None
    assert not is_traceparent(header)
    assert conn.execute("select relevo.is_traceparent(%s)", [header]).fetchone() == (False,)


def test_what_is_one(conn) -> None:
    """A good one stays as it is; of a later version what version 00 has is kept, and only version 00 is taken as an argument."""
    for good in (EXAMPLE, f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-ff"):
        assert read_header(good) == good
        assert is_traceparent(good)
        assert conn.execute("select relevo.is_traceparent(%s)", [good]).fetchone() == (True,)
    for later in (f"01-{TRACE}-{SPAN}-03", f"cc-{TRACE}-{SPAN}-01-more-of-it"):
        assert read_header(later) == f"00-{TRACE}-{SPAN}-01"
        assert not is_traceparent(later)
        assert conn.execute("select relevo.is_traceparent(%s)", [later]).fetchone() == (False,)
    assert trace_id_of(EXAMPLE) == TRACE


def test_the_active_span() -> None:
    """The active span's traceparent is found; without one there is none."""
    assert current() is None
    context = trace.SpanContext(int(TRACE, 16), int(SPAN, 16), is_remote=False, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)):
        assert current() == EXAMPLE
    assert current() is None
