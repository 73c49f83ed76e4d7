"""What differs for event types can be set and read in SQL by the app's role: left out stays, null follows the settings again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from relevo.operators.event_types import TypeSettings

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
    "inbox": False,
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
Set = Callable[..., dict[str, Any]]


@pytest.fixture
def set_type(conn: psycopg.Connection[Any]) -> Set:
    """Set what differs for a type as an app does in SQL, and return what the type has then."""

    def call(event_type: str, **given: Any) -> dict[str, Any]:
        asked = json.dumps({"event_type": event_type, **given})
        [(told,)] = conn.execute("select relevo.set_event_type(%s::jsonb)", [asked]).fetchall()
        return dict(told)

    return call


def listed(conn: psycopg.Connection[Any]) -> dict[str, dict[str, Any]]:
    """Return what is listed, by type."""
    [(rows,)] = conn.execute("select relevo.list_event_types()").fetchall()
    return {row["event_type"]: row for row in rows}


def test_each_setting_is_set_kept_and_removed_by_itself(conn: psycopg.Connection[Any], set_type: Set) -> None:
    """Every setting of the command can be set in SQL; a call that leaves it out keeps it, null alone removes it."""
    assert set(EVERYTHING) == set(TypeSettings.__dataclass_fields__)
    for name in ("a", "b"):
        assert set_type(name, **EVERYTHING).items() >= EVERYTHING.items()
    assert set_type("a").items() >= EVERYTHING.items()
    for name, value in EVERYTHING.items():
        told = set_type("a", **{name: None})
        assert told[name] is None
        assert told.items() >= EVERYTHING.items() - {(name, value)}
        set_type("a", **{name: value})
    assert listed(conn)["b"].items() >= EVERYTHING.items()
    assert set_type("a", batch_window_s=0)["batch_window_s"] is None
    reset = "select relevo.reset_event_type('a')"
    assert [conn.execute(reset).fetchone() for _ in range(2)] == [(True,), (False,)]
    assert list(listed(conn)) == ["b", "b.batch"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ttl_s": 0}, "ttl_s must be a whole number between 1 and 2419200"),
        ({"ttl_s": "60"}, "ttl_s must be a whole number between 1 and 2419200"),
        ({"ttl_s": 1.5}, "ttl_s must be a whole number between 1 and 2419200"),
        ({"retry_multiplier": 0.5}, "retry_multiplier must be a number between 1 and 10"),
        ({"opens": 1}, "opens must be true or false"),
        ({"lane": "fast"}, 'lane must be urgent, bulk or null, got "fast"'),
        ({"quiet": 5}, "quiet must be wait, silent, ignore or null, got 5"),
        ({"color": "red"}, "an event type has no field color"),
        ({"own": []}, "an event type has no field own"),
        ({"retry_base_ms": 5_000, "retry_max_ms": 1_000}, "retry_base_ms must not be above retry_max_ms"),
        ({"lease_ms": 59_999}, "lease_ms must be a whole number between 60000 and 3600000"),
        ({"event_type": None}, "event_type must be given"),
        ({"event_type": ""}, "event_type must be text of 1 to 100 characters"),
        ({"event_type": "relevo.news"}, "event_type must not begin with relevo., which is for Relevo itself; digests are relevo.digest"),
        ({"event_type": "x" * 95, "batch_window_s": 60}, "event_type must have at most 94 characters where its events are gathered"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_set_is_refused_by_name(
    conn: psycopg.Connection[Any], set_type: Set, given: dict[str, Any], said: str
) -> None:
    """Bounds, kinds, unknown names, a lease that a request outlasts: an error that names the field, and nothing is set."""
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        set_type(**{"event_type": "a", **given})
    assert refused.value.diag.message_primary == said
    assert listed(conn) == {}


def test_a_type_that_tells_batches_follows_its_type(conn: psycopg.Connection[Any], set_type: Set) -> None:
    """What was set for TYPE.batch itself stays as TYPE changes, and is TYPE's again once it is null."""
    set_type("a", batch_window_s=60, ttl_s=100, quiet="wait")
    assert set_type("a.batch", ttl_s=200)["quiet"] == "wait"
    set_type("a", ttl_s=300, quiet="silent")
    assert (listed(conn)["a.batch"]["ttl_s"], listed(conn)["a.batch"]["quiet"]) == (200, "silent")
    assert set_type("a.batch", ttl_s=None)["ttl_s"] == 300


def test_digests_can_be_set(set_type: Set) -> None:
    """What quiet hours mean for digests is set by their type, as with the command."""
    assert set_type("relevo.digest", quiet="ignore")["quiet"] == "ignore"


def test_it_holds_for_the_next_event(conn: psycopg.Connection[Any], set_type: Set) -> None:
    """A lane and a time to live that are set in SQL are those of the next event of the type."""
    set_type("code", lane="urgent", ttl_s=60)
    event = {"type": "code", "key": "1", "title": "1234", "audience": "everyone"}
    conn.execute("select relevo.enqueue(%s::jsonb)", [json.dumps(event)])
    [row] = conn.execute(
        "select lane, deadline_at between now() + interval '50 s' and now() + interval '61 s' from relevo.notification_events"
    ).fetchall()
    assert row == ("urgent", True)
