"""A push that shows nothing, named for browsers alone, is refused where it is enqueued."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

import relevo
from relevo import Event, Installation, Owners
from relevo.core.errors import InvalidInputError
from support import push_tokens

REFUSED = (
    "title must be given, or body: all phones of this event get it by Web Push, and browsers must be shown something"
)


def browser(conn: Any, name: str, **more: Any) -> UUID:
    """Register a browser."""
    return relevo.register(
        conn,
        Installation(
            push_tokens.subscription(f"https://push.example.com/{name}"), provider="webpush", platform="web", **more
        ),
    )


def silent(key: str, audience: Any, **more: Any) -> Event:
    """Return an event with data alone."""
    return Event("sync", key, data={"box": 7}, audience=audience, **more)


def test_given_browsers_alone(conn) -> None:
    """It is refused by the field that is missing; with a word, or with another phone among them, it is taken."""
    first, second = browser(conn, "ana"), browser(conn, "eva")
    phone = relevo.register(conn, Installation("ExponentPushToken[ana]"))
    for audience in ([first], [first, second]):
        with pytest.raises(InvalidInputError, match=f"^{REFUSED}"), conn.transaction():
            relevo.enqueue(conn, silent("1", audience))
    assert relevo.enqueue(conn, silent("1", [first, phone])).created
    assert relevo.enqueue(conn, silent("2", [first], body="Hi")).created
    assert relevo.enqueue(conn, silent("3", "everyone")).created
    assert relevo.enqueue(conn, silent("4", [])).created


def test_owners_of_browsers_alone(conn) -> None:
    """Owners are their active phones; one whom no phone is known of may get one, and is taken."""
    browser(conn, "ana", owner="ana")
    old = relevo.register(conn, Installation("ExponentPushToken[old]", owner="ana"))
    assert relevo.enqueue(conn, silent("1", Owners("ana"))).created
    relevo.unregister(conn, old)
    with pytest.raises(InvalidInputError, match=f"^{REFUSED}"), conn.transaction():
        relevo.enqueue(conn, silent("2", Owners("ana")))
    relevo.register(conn, Installation("ExponentPushToken[eva]", owner="eva"))
    assert relevo.enqueue(conn, silent("2", Owners("ana", "eva"))).created
    assert relevo.enqueue(conn, silent("3", Owners("nobody"))).created


def test_the_same_again_is_the_same(conn) -> None:
    """An event that was taken is not refused later, whatever its phones have become."""
    phone = relevo.register(conn, Installation("ExponentPushToken[ana]", owner="ana"))
    made = relevo.enqueue(conn, silent("1", Owners("ana")))
    relevo.unregister(conn, phone)
    browser(conn, "ana", owner="ana")
    again = relevo.enqueue(conn, silent("1", Owners("ana")))
    assert (again.event_id, again.created) == (made.event_id, False)


def test_one_of_many_is_named_by_its_place(conn) -> None:
    """SQL and Python use the same words, and nothing of a refused list is kept."""
    ana = browser(conn, "ana")
    events = [{"type": "t", "key": str(n), "audience": "installations", "installations": [str(ana)]} for n in range(3)]
    events = [events[0] | {"title": "Hi"}, events[1] | {"data": {"a": 1}}, events[2] | {"data": {"a": 1}}]
    with pytest.raises(Exception, match=f"events.1: {REFUSED}"), conn.transaction():
        conn.execute("select * from relevo.enqueue_many(%s)", [json.dumps(events)])
    assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (0,)
