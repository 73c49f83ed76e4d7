"""What looks like an event and would go out empty, or break on its way, is refused at the door in words, or taken as it is meant."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, Installation, Preference
from relevo.client import checks, consent
from relevo.core.errors import InvalidInputError
from relevo.core.model import Content
from relevo.delivery.composing.rendering import draft

BLANK = ["", " ", "\n", "\r\n\t", "\u00a0", "\u3000", "\u200b", "\ufeff", " \u2003\u2060 "]
PLAIN = {"type": "t", "key": "1", "title": "t", "audience": "everyone"}
EMPTY = "an event must say something: give it a title, a body or data"


def refusal(conn: psycopg.Connection[Any], event: object) -> str:
    """Enqueue in plain SQL what is refused; return the sentence."""
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused, conn.transaction():
        conn.execute("select relevo.enqueue(%s)", [Jsonb(event)])
    return refused.value.diag.message_primary or ""


def nested(levels: int) -> dict[str, Any]:
    """Make an object that is so many levels deep."""
    value: Any = 1
    for n in range(levels - 1):
        value = [value] if n % 2 else {"a": value}
    return {"a": value}


class TestNothingToShow:
    """A push without a visible character."""

    def test_refused(self, conn) -> None:
        """In SQL and in Python, in title and body, in the same words; with a word in either it is taken."""
        for blank in BLANK:
            for event in (
                PLAIN | {"title": blank},
                PLAIN | {"title": blank, "body": blank},
                PLAIN | {"title": "", "body": blank},
            ):
                assert refusal(conn, event) == EMPTY, blank
            with pytest.raises(InvalidInputError, match="an event must say something"):
                relevo.enqueue(conn, Event("t", "1", blank, blank, audience="everyone"))
            assert relevo.enqueue(conn, Event("t", repr(blank), blank, "Hello", audience="everyone")).created, blank

    def test_silent(self) -> None:
        """With data and no visible character it is a push for the app alone, which shows nothing."""
        for blank in BLANK:
            content = Content(1, blank, blank, {"a": 1}, {})
            assert "title" not in draft(content, "bulk", ios=True, default_ttl_s=60).fields, blank

    def test_the_same_characters_on_both_sides(self, conn) -> None:
        """PostgreSQL and Python agree on each character; what Python calls white space is blank."""
        letters = [chr(n) for n in range(1, 0xFFFF) if not 0xD800 <= n <= 0xDFFF]
        row = conn.execute(
            "select array_agg(u.c order by u.n) from unnest(%s::text[]) with ordinality as u(c, n) where relevo.is_blank(u.c)",
            [letters],
        ).fetchone()
        assert row[0] == [each for each in letters if checks.is_blank(each)]
        assert {each for each in letters if each.isspace()} <= set(row[0])


class TestDepth:
    """Nested data."""

    @pytest.mark.parametrize("levels", [101, 1200])
    def test_refused_at_the_door(self, conn, levels: int) -> None:
        """Before it is written, in SQL and in Python, one or many."""
        deep = PLAIN | {"data": nested(levels)}
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(20_000)
        try:
            assert "nested too deeply" in refusal(conn, deep)
            assert "nested too deeply" in refusal(conn, deep | {"title": "", "lane": "urgent"})
            with pytest.raises(InvalidInputError, match="nested too deeply"):
                relevo.enqueue(conn, Event("t", "1", "t", data=nested(levels), audience="everyone"))
        finally:
            sys.setrecursionlimit(limit)

    @pytest.mark.parametrize(
        "wrap", [lambda v: [v], lambda v: (v,), lambda v: {"a": v}], ids=["lists", "tuples", "objects"]
    )
    def test_each_kind_is_counted(self, wrap: Any) -> None:
        """Lists, tuples and objects alike: what is deeper is refused by its name before anything else meets its depth."""
        value: Any = 1
        for level in range(1, 3_000):
            value = wrap(value)
            if level == 100:
                checks.check_storable("data", value)
        with pytest.raises(InvalidInputError, match="nested too deeply"):
            checks.check_storable("data", value)

    def test_as_deep_as_may_be(self, conn) -> None:
        """A hundred levels, and many beside each other, are taken."""
        for data in (nested(100), {str(n): [] for n in range(200)}):
            assert relevo.enqueue(conn, Event("t", str(len(data)), "t", data=data, audience="everyone")).created
            assert conn.execute(
                "select created from relevo.enqueue(%s)", [Jsonb(PLAIN | {"key": f"s{len(data)}", "data": data})]
            ).fetchone() == (True,)


class TestTwoAudiences:
    """For whom an event is, said twice."""

    @pytest.mark.parametrize("audience", [{"audience": "everyone"}, {"audience": "owners", "owners": ["ana"]}])
    def test_matching_beside_another(self, conn, audience: dict[str, Any]) -> None:
        """Whoever narrows an event by matching does not tell everyone."""
        said = "matching says for whom an event is: with matching, audience must be matching"
        assert refusal(conn, PLAIN | audience | {"matching": {"region": "Maule"}}) == said
        for nothing in ({}, None):
            event = PLAIN | audience | {"matching": nothing, "on_conflict": "keep"}
            conn.execute("select relevo.enqueue(%s)", [Jsonb(event)])


class TestPython:
    """Values of Python that JSON has no word for."""

    def test_mappings(self, conn) -> None:
        """Any mapping is an object, at any depth."""
        data = MappingProxyType({"a": MappingProxyType({"b": (1, 2)})})
        made = relevo.enqueue(
            conn, Event("t", "1", "t", data=data, push=MappingProxyType({"badge": 1}), audience="everyone")
        )
        row = conn.execute(
            "select data, push from relevo.notification_events where id = %s", [made.event_id]
        ).fetchone()
        assert row == ({"a": {"b": [1, 2]}}, {"badge": 1})
        assert relevo.enqueue_json(conn, [MappingProxyType(PLAIN | {"key": "2", "data": data})])[0].created

    def test_keys(self, conn) -> None:
        """A key that is no text is refused by the name of its field."""
        for key in [("a", "b"), b"a", object()]:
            with pytest.raises(InvalidInputError, match=r"^data has a key that is no text"):
                relevo.enqueue(conn, Event("t", "1", "t", data={key: 1}, audience="everyone"))
            with pytest.raises(InvalidInputError, match=r"^data\.a has a key that is no text"):
                relevo.enqueue_json(conn, [PLAIN | {"data": {"a": {key: 1}}}])

    def test_long_numbers(self, conn) -> None:
        """A number of thousands of digits is refused by the name of its field."""
        for number in [10**5000, -(10**5000)]:
            with pytest.raises(InvalidInputError, match=r"^data\.n is a number of too many digits"):
                relevo.enqueue(conn, Event("t", "1", "t", data={"n": number}, audience="everyone"))
            with pytest.raises(InvalidInputError, match=r"^data\.n is a number of too many digits"):
                relevo.enqueue_json(conn, [PLAIN | {"data": {"n": number}}])
            with pytest.raises(InvalidInputError):
                relevo.enqueue(conn, Event("t", "1", "t", ttl_s=number, audience="everyone"))
            with pytest.raises(InvalidInputError):
                relevo.get(conn, number)

    def test_raw_cursors(self, dsn: str, conn) -> None:
        """A connection whose cursors take $1 is used all the same, and so is one that binds on the client."""
        for factory in (psycopg.RawCursor, psycopg.ClientCursor):
            with psycopg.connect(dsn, cursor_factory=factory) as app:
                made = relevo.enqueue(app, Event("t", factory.__name__, "50 % off", audience="everyone"))
                assert relevo.get(app, made.event_id) is not None

    def test_raw_cursors_awaited(self, dsn: str, conn) -> None:
        """The asynchronous ones, too."""

        async def live() -> bool:
            async with await psycopg.AsyncConnection.connect(dsn, cursor_factory=psycopg.AsyncRawCursor) as app:
                return (await relevo.aio.enqueue(app, Event("t", "1", "t", audience="everyone"))).created

        assert asyncio.run(live())


class TestEncodings:
    """A connection that speaks LATIN1."""

    def test_reading(self, dsn: str, conn) -> None:
        """What it has no letters for is said as that; nothing is said of writing."""
        made = relevo.enqueue(conn, Event("t", "ключ", "Привет", audience="everyone"))
        with psycopg.connect(dsn, client_encoding="LATIN1", autocommit=True) as app:
            with pytest.raises(InvalidInputError) as refused:
                relevo.get(app, made.event_id)
            assert "nothing was" not in str(refused.value).lower()
            assert "client_encoding" in refused.value.hint
            with pytest.raises(InvalidInputError, match="encoding") as refused:
                relevo.get(app, ("t", "ключ"))
            assert "client_encoding" in refused.value.hint
            assert relevo.enqueue(app, Event("t", "ключ", "Привет", audience="everyone")).event_id == made.event_id


class TestLongNames:
    """Names of fields that nobody has."""

    def test_are_cut(self, conn) -> None:
        """The complaint is short, however long a name is or however many there are."""
        for call in [
            "select relevo.enqueue(%s)",
            "select relevo.register_installation(%s)",
            "select relevo.set_preference(gen_random_uuid(), 'a', %s)",
            "select relevo.subscribe_news(%s)",
        ]:
            for given in ({"://:" * 40_000: 1}, {f"field {n}": n for n in range(10_000)}):
                with pytest.raises(psycopg.errors.InvalidParameterValue, match="has no field") as refused:
                    conn.execute(call.encode(), [Jsonb(given)])
                assert len(refused.value.diag.message_primary or "") < 1_100, call

    def test_in_python(self) -> None:
        """The same where Python finds it."""
        with pytest.raises(InvalidInputError, match="an event has no field") as refused:
            checks.check_event({f"field {n}" * 100: 1 for n in range(10_000)} | PLAIN)
        assert len(refused.value.message) < 1_100


def test_a_silent_push_says_content_available() -> None:
    """Expo calls it contentAvailable; the name with a dash below ahead of it is of before."""
    content = Content(1, "", "", {"a": 1}, {})
    fields = draft(content, "bulk", ios=True, default_ttl_s=60).fields
    assert fields["contentAvailable"] is True
    assert "_contentAvailable" not in fields


def test_registering_odd_values(conn) -> None:
    """An installation's fields are looked at in the same way."""
    with pytest.raises(InvalidInputError, match=r"^platform must be"):
        relevo.register(conn, Installation("ExponentPushToken[a]", platform=json))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        relevo.enqueue(conn, Event("t", "1", "t", data={"at": datetime.now(UTC)}, audience="everyone"))


@pytest.mark.parametrize("text", ["a\0", "a\ud800"])
def test_what_no_column_holds_is_refused_by_its_name(conn, text: str) -> None:
    """Of a phone, a category and an owner alike, before the database has seen it: the transaction goes on."""
    calls: dict[str, Callable[[], object]] = {
        "owner": lambda: relevo.register(conn, Installation("ExponentPushToken[a]", owner=text)),
        "category": lambda: consent.set_category(conn, text),
        "reason": lambda: consent.block(conn, owner="ana", reason=text),
        "topics": lambda: relevo.set_preference(conn, uuid4(), "a", Preference(topics=[text])),
    }
    with conn.transaction():
        for name, call in calls.items():
            with pytest.raises(InvalidInputError, match=f"^{name} holds "):
                call()
        assert conn.execute("select 1").fetchone() == (1,)
