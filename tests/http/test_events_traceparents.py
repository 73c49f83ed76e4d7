"""The header `traceparent` of a request that enqueues an event."""

from __future__ import annotations

import pytest
import structlog
from structlog.testing import capture_logs

from relevo.core.traceparents import EXAMPLE
from support.dashboard_person import Person
from support.http_server import EVENT, Served

OTHER = f"00-{'a' * 32}-{'b' * 16}-00"


def kept(conn, event_id: int) -> str | None:
    """Return the traceparent that is kept with an event."""
    return conn.execute("select traceparent from relevo.notification_events where id = %s", [event_id]).fetchone()[0]


@pytest.mark.parametrize("path", ["/v1/events", "/v1/events/batch"])
def test_the_header_is_kept_with_the_event(served: Served, conn, path: str) -> None:
    """The header's trace is the event's, unless the body names one; a later version is read as version 00."""
    app = served.client("app")

    def enqueue(key: str, header: str, **more: object) -> str | None:
        event = {**EVENT, "key": key, **more}
        body = {"events": [event]} if path.endswith("batch") else event
        answer = app.post(path, body, headers={"traceparent": header})
        assert answer.status_code in (200, 201), answer.text
        told = answer.json()
        return kept(conn, told["items"][0]["event_id"] if "items" in told else told["event_id"])

    assert enqueue("1", EXAMPLE) == EXAMPLE
    assert enqueue("2", EXAMPLE, traceparent=OTHER) == OTHER
    assert enqueue("3", EXAMPLE, traceparent=None) == EXAMPLE
    assert enqueue("4", "01" + EXAMPLE[2:] + "-more") == EXAMPLE


@pytest.mark.parametrize("header", ["", "x", EXAMPLE + "-more", EXAMPLE.upper(), "ff" + EXAMPLE[2:], "\xff"])
def test_a_bad_header_is_ignored(served: Served, conn, header: str) -> None:
    """An invalid header is as none, as the W3C asks; an invalid field of the body is refused by name."""
    answer = served.client("app").post("/v1/events", EVENT, headers={"traceparent": header.encode("latin-1")})
    assert answer.status_code == 201
    assert kept(conn, answer.json()["event_id"]) is None
    refused = served.client("app").post("/v1/events", {**EVENT, "key": "2", "traceparent": "x"})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "traceparent")


def test_the_page_has_the_trace_id(person: Person, served: Served) -> None:
    """The page of an event shows the id of its trace, and that of an event without a trace shows none."""
    shown = []
    for key, headers in (("1", {"traceparent": EXAMPLE}), ("2", {})):
        made = served.client("app").post("/v1/events", {**EVENT, "key": key}, headers=headers).json()
        shown.append(person.get(f"/dashboard/events/{made['event_id']}").text)
    assert [EXAMPLE[3:35] in page for page in shown] == [True, False]


def test_the_log_line_has_the_trace_id(served: Served) -> None:
    """The line of a request with a trace carries its id, and that of any other none."""
    with capture_logs([structlog.contextvars.merge_contextvars]) as lines:
        served.client("app").post("/v1/events", EVENT, headers={"traceparent": EXAMPLE})
        served.client("app").post("/v1/events", {**EVENT, "key": "2"})
    told = [each.get("trace_id") for each in lines if each["event"] == "http_request" and each["method"] == "POST"]
    assert told == [EXAMPLE[3:35], None]
