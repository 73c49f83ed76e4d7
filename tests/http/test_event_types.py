"""What differs for event types can be read and set over HTTP; left out stays, null follows the settings again."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import psycopg

from relevo.operators.event_types import TypeSettings
from support.http_server import Served

EVERYTHING: dict[str, Any] = {
    "lease_ms": 90_000,
    "max_attempts": 4,
    "retry_base_ms": 1_000,
    "retry_max_ms": 60_000,
    "retry_jitter_ms": 100,
    "retry_multiplier": 1.5,
    "ttl_s": 3_600,
    "lane": "urgent",
    "at_most_once": True,
    "inbox": True,
    "inbox_days": 7,
    "opens": True,
    "complete_on": "read",
    "quiet": "silent",
    "quiet_max_wait_s": 600,
    "quiet_deadline": "expired",
    "quiet_spread_s": 60,
    "batch_window_s": 300,
    "batch_longest_s": 600,
    "batch_first": True,
}


def test_every_setting_is_set_read_and_removed_by_itself(served: Served) -> None:
    """Each setting of the command is one over HTTP: set, listed, left alone by other calls, and removed by null alone."""
    operator, app = served.client("operator"), served.client("app")
    assert set(EVERYTHING) == {each.name for each in fields(TypeSettings)}
    for name in ("a", "b"):
        assert operator.call("PUT", f"/v1/event-types/{name}", json=EVERYTHING).status_code == 200
    assert operator.call("PUT", "/v1/event-types/a", json={}).json().items() >= EVERYTHING.items()
    for name, value in EVERYTHING.items():
        kept = EVERYTHING.items() - {(name, value)}
        told = operator.call("PUT", "/v1/event-types/a", json={name: None}).json()
        assert told[name] is None
        assert told.items() >= kept
        operator.call("PUT", "/v1/event-types/a", json={name: value})
    listed = {row["event_type"]: row for row in app.get("/v1/event-types").json()["items"]}
    assert listed["a"].items() >= EVERYTHING.items()
    assert listed["b"].items() >= EVERYTHING.items()
    assert [operator.call("DELETE", "/v1/event-types/a").json() for _ in range(2)] == [
        {"changed": True},
        {"changed": False},
    ]
    left = [row["event_type"] for row in app.get("/v1/event-types").json()["items"]]
    assert left == ["b", "b.batch"]


def test_what_cannot_be_set_is_refused_by_name(served: Served) -> None:
    """Bounds, kinds, unknown names, a lease shorter than requests, a first pause above the longest: 400, by name."""
    operator = served.client("operator")
    for body in (
        {"ttl_s": 0},
        {"ttl_s": "60"},
        {"opens": 1},
        {"lane": "fast"},
        {"color": "red"},
        {"lease_ms": 200},
        {"retry_base_ms": 5_000, "retry_max_ms": 1_000},
    ):
        answer = operator.call("PUT", "/v1/event-types/a", json=body)
        assert answer.status_code == 400, (body, answer.text)
        named = [each["field"] for each in answer.json().get("errors", [])]
        assert named in ([], list(body)), (body, answer.text)
    assert operator.get("/v1/event-types").json()["items"] == []


def test_only_operators_of_the_fleet_set_it(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A type's settings hold for all projects: neither the app nor a token of one project changes them; it is recorded."""
    for client in (served.client("app"), served.client("viewer"), served.client("operator", project="shop")):
        assert client.call("PUT", "/v1/event-types/a", json={"ttl_s": 60}).status_code == 403
        assert client.call("DELETE", "/v1/event-types/a").status_code == 403
    served.client("operator").call("PUT", "/v1/event-types/a", json={"ttl_s": 60, "opens": None})
    assert [row["ttl_s"] for row in served.client("app").get("/v1/event-types").json()["items"]] == [60]
    [recorded] = conn.execute("select target from relevo.audit_log where action = 'set_event_type'").fetchall()
    assert recorded[0]["event_type"] == "a"


def test_a_type_that_tells_batches_follows_its_type_again(served: Served) -> None:
    """What was set for TYPE.batch itself and is removed is that of TYPE again."""
    operator = served.client("operator")
    operator.call("PUT", "/v1/event-types/a", json={"batch_window_s": 60, "ttl_s": 100})
    assert operator.call("PUT", "/v1/event-types/a.batch", json={"ttl_s": 200}).json()["ttl_s"] == 200
    assert operator.call("PUT", "/v1/event-types/a.batch", json={"ttl_s": None}).json()["ttl_s"] == 100
