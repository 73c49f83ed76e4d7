"""The trace of an event: given, or that of the active span; kept with the event, beside what it says."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, InvalidInputError
from relevo.core.traceparents import EXAMPLE

OTHER = f"00-{'a' * 32}-{'b' * 16}-00"
OF_EXAMPLE = trace.SpanContext(
    int(EXAMPLE[3:35], 16), int(EXAMPLE[36:52], 16), is_remote=False, trace_flags=trace.TraceFlags(1)
)


def kept(conn, event_id: int) -> str | None:
    """Return the traceparent that is kept with an event."""
    return conn.execute("select traceparent from relevo.notification_events where id = %s", [event_id]).fetchone()[0]


def test_given_or_active_or_none(conn) -> None:
    """The argument wins over the active span; without both the event has no trace; so for many at once."""
    plain = relevo.enqueue(conn, Event("note", "1", "Hello", audience=relevo.Everyone()))
    assert kept(conn, plain.event_id) is None
    given = relevo.enqueue(conn, Event("note", "2", "Hello", audience=relevo.Everyone(), traceparent=OTHER))
    assert kept(conn, given.event_id) == OTHER
    with trace.use_span(trace.NonRecordingSpan(OF_EXAMPLE)):
        active = relevo.enqueue(conn, Event("note", "3", "Hello", audience=relevo.Everyone()))
        many = relevo.enqueue_many(
            conn,
            [
                Event("note", "4", "Hello", audience=relevo.Everyone()),
                Event("note", "5", "Hello", audience=relevo.Owners("ana"), traceparent=OTHER),
            ],
        )
    assert kept(conn, active.event_id) == EXAMPLE
    assert [kept(conn, each.event_id) for each in many] == [EXAMPLE, OTHER]


def test_it_is_no_part_of_what_an_event_says(conn) -> None:
    """The same event from another trace is the same event, which keeps its first trace; so where it is personal."""
    for audience in (relevo.Everyone(), relevo.Owners("ana")):
        key = type(audience).__name__
        first = relevo.enqueue(conn, Event("note", key, "Hello", audience=audience, traceparent=EXAMPLE))
        again = relevo.enqueue(conn, Event("note", key, "Hello", audience=audience, traceparent=OTHER))
        assert (again.event_id, again.created, again.same_content) == (first.event_id, False, True)
        bare = relevo.enqueue(conn, Event("note", key, "Hello", audience=audience))
        assert (bare.event_id, bare.same_content) == (first.event_id, True)
        assert kept(conn, first.event_id) == EXAMPLE


def test_in_sql(conn) -> None:
    """SQL takes it as a field of the event, by the short form and by the careful one; null is none."""
    for number, audience in enumerate(({"audience": "everyone"}, {"audience": "owners", "owners": ["ana"]})):
        for value, expected in ((EXAMPLE, EXAMPLE), (None, None)):
            event = {"type": "note", "key": f"{number}{value}", "title": "Hello", "traceparent": value, **audience}
            [found] = conn.execute("select event_id from relevo.enqueue(%s)", [Jsonb(event)]).fetchone()
            assert kept(conn, found) == expected


@pytest.mark.parametrize("bad", ["", "x", EXAMPLE + "-more", EXAMPLE.upper(), f"00-{'0' * 32}-{'b' * 16}-01", 7])
def test_a_bad_one_is_refused(conn, bad: object) -> None:
    """What is no traceparent gets an error that names the field and a good one, in Python and in SQL."""
    with pytest.raises(InvalidInputError, match=r"traceparent must be .* such as 00-4bf"):
        relevo.enqueue(conn, Event("note", "1", "Hello", audience=relevo.Owners("ana"), traceparent=bad))
    event = {"type": "note", "key": "1", "title": "Hello", "audience": "owners", "owners": ["ana"], "traceparent": bad}
    with pytest.raises(Exception, match=r"traceparent must be .* such as 00-4bf"):
        conn.execute("select relevo.enqueue(%s)", [Jsonb(event)])


def test_a_changed_event_stays_in_its_trace(conn) -> None:
    """A change without a trace leaves the event's; one with a trace puts it there."""
    event = Event("note", "1", "Hello", audience=relevo.Owners("ana"), traceparent=EXAMPLE)
    event_id = relevo.enqueue(conn, event).event_id
    assert relevo.change(conn, Event("note", "1", "Hello again", audience=relevo.Owners("ana")))
    assert kept(conn, event_id) == EXAMPLE
    assert relevo.change(conn, Event("note", "1", "Bye", audience=relevo.Owners("ana"), traceparent=OTHER))
    assert kept(conn, event_id) == OTHER


def test_who_is_forgotten_leaves_no_trace(conn) -> None:
    """Forgetting a person empties the events that were for that person alone, of their trace, too."""
    event = Event("note", "1", "Hello", audience=relevo.Owners("ana"), traceparent=EXAMPLE)
    event_id = relevo.enqueue(conn, event).event_id
    relevo.forget(conn, owner="ana")
    assert kept(conn, event_id) is None


def test_enqueue_imports_no_opentelemetry(dsn: str) -> None:
    """An app without spans does not even load OpenTelemetry's API."""
    program = """
import sys, psycopg, relevo
with psycopg.connect(sys.argv[1]) as conn:
    relevo.enqueue(conn, relevo.Event("note", "1", "Hello", audience=relevo.Everyone()))
assert not [each for each in sys.modules if each.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", program, dsn], check=True, timeout=60)
