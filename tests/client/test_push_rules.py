"""What a push may carry: one table in Python and one in SQL that say the same, and pushes without a word."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo import Event
from relevo.client import push_rules
from relevo.core.errors import InvalidInputError
from relevo.core.model import Content
from relevo.delivery.composing import rendering

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 0.5, 1.5, 2.0, 2**31, 10**13, "", "x", "default", "high", "critical", "x" * 65, "x" * 101, "x" * 201, "x" * 501,
    "x" * 2001, [], ["x"], {}, {"image": "https://x"}, {"image": 7}, {"name": "a", "critical": True, "volume": 0.5}, {"volume": 2}, {"x": 1},
]  # fmt: skip


def test_both_tables_are_one(conn) -> None:
    """The package's table is the database's."""
    assert conn.execute("select relevo.push_fields()").fetchone() == (push_rules.PUSH_FIELDS,)


def test_both_say_the_same(conn) -> None:
    """Whatever is given in whichever field: Python and SQL have the same complaint, or none."""
    pushes = [{name: value} for name in [*push_rules.PUSH_FIELDS, "title", "to", "Badge"] for value in VALUES]
    ask = "select relevo.push_complaint(p) from jsonb_array_elements(%s) with ordinality as g(p, n) order by n"
    told = [row[0] for row in conn.execute(ask, [Jsonb(pushes)]).fetchall()]
    assert told == [push_rules.push_complaint(push) for push in pushes]
    assert told.count(None) > 60


NESTED: list[Any] = [
    None, True, 7, "x", [], [None], ["x"], ["x", None], ["x", ["x"]], ["x"] * 11, [7], [7, 10_001], [0.5], {}, {"x": 1}, [{}], [{"id": "a"}],
    [{"id": "a", "title": "A"}], [{"id": "a", "title": "A", "link": "/a", "icon": "/i.png"}], [{"id": "a", "title": "A", "x": 1}],
    [{"id": "a", "title": None}], [{"id": "a", "title": "A"}, {"id": "a", "title": "B"}], [{"id": str(n), "title": "A"} for n in range(5)],
    [{"id": "a", "title": "A"}, 7], "#2244ff", "#2244fg", "2244ff", "#2244ff0", "PUBLIC", "auto", "very-low", "high", "unread", 5, 253_402_300_799_000,
]  # fmt: skip


def test_both_say_the_same_of_lists_and_platforms(conn) -> None:
    """Lists, their entries and the fields of one platform are checked alike, and a complaint names the place."""
    pushes = [
        *({"actions": value} for value in NESTED),
        *({platform: value} for platform in push_rules.OVERRIDES for value in NESTED),
        *(
            {platform: {name: value}}
            for platform, fields in push_rules.OVERRIDES.items()
            for name in [*fields, "ttl"]
            for value in NESTED
        ),
    ]
    ask = "select relevo.push_complaint(p) from jsonb_array_elements(%s) with ordinality as g(p, n) order by n"
    told = [row[0] for row in conn.execute(ask, [Jsonb(pushes)]).fetchall()]
    assert told == [push_rules.push_complaint(push) for push in pushes]
    assert told.count(None) > 100
    for push, complaint in (
        ({"actions": [{"id": "a", "title": "A"}, {"id": "b"}]}, "push.actions.1.title must be given"),
        ({"actions": [{"id": "a", "title": "A"}] * 2}, "push.actions must have another id in each entry"),
        ({"android": {"color": "red"}}, "push.android.color must be a color such as #2244ff"),
        ({"web": {"vibrate": []}}, "push.web.vibrate must be a list of 1 to 20 entries"),
        ({"apns": {"badge": "unread"}}, "push.apns.badge must be a whole number between 0 and 2147483647"),
    ):
        assert push_rules.push_complaint(push) == complaint


def test_it_is_refused_before_a_statement_is_sent(dsn: str) -> None:
    """A bad field raises, and the caller's transaction stands."""
    with psycopg.connect(dsn) as app:
        relevo.enqueue(app, Event("t", "1", "t", audience="everyone"))
        for wrong in (
            {"push": {"badge": "7"}}, {"type": "relevo.x"}, {"title": ""}, {"lane": "fast"}, {"ttl_s": 0}, {"data": {"x": "y" * 4_000}},
            {"topics": ["a"]}, {"category": ""}, {"body": "x" * 2_001},
        ):  # fmt: skip
            with pytest.raises(InvalidInputError, match="Nothing was sent to the database"):
                relevo.enqueue(app, Event(**{"type": "t", "key": "2", "title": "t", "audience": "everyone"} | wrong))  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="platform must be"):
            relevo.register(app, relevo.Installation("ExpoPushToken[a]", platform="symbian"))  # type: ignore[arg-type]
        assert app.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS


def test_an_event_without_a_word_is_silent(conn) -> None:
    """It is taken if it carries data, and its message shows and plays nothing: on iOS it wakes the app."""
    made = relevo.enqueue(conn, Event("sync", "1", data={"box": 7}, audience="everyone"))
    row = conn.execute("select title, body, data, push from relevo.notification_events").fetchone()
    assert row == ("", "", {"box": 7}, {})
    content = Content(made.event_id, "", "", {"box": 7}, {"badge": 3})
    assert rendering.draft(content, "bulk", ios=True, default_ttl_s=60).fields == {
        "contentAvailable": True, "priority": "normal", "badge": 3,
    }  # fmt: skip
    assert rendering.draft(content, "urgent", ios=False, default_ttl_s=60).fields == {"priority": "high", "badge": 3}
    body = rendering.draft(Content(1, "", "Hi", {}, {}), "bulk", ios=False, default_ttl_s=60).fields
    assert (body["body"], body["sound"]) == ("Hi", "default")
