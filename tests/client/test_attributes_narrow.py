"""Attributes beside another audience narrow it: the same phones in preview, explanation and fan-out, and nobody else in an inbox."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, Everyone, Installation, Matching, Owners, Phones, Preference, Topic
from support.phones import fan_out_to_the_end

PRO = {"plan": "pro"}


@pytest.fixture
def phones(conn: psycopg.Connection[Any]) -> dict[str, UUID]:
    """Phones of two people of the same plan by their owners, of which one phone has another of its own; some ask for a topic."""
    given = {"ana": "ana", "ana_tablet": "ana", "bea": "bea", "cleo": "cleo"}
    made = {
        name: relevo.register(conn, Installation(f"ExponentPushToken[{name}]", owner=owner))
        for name, owner in given.items()
    }
    for owner in ("ana", "bea"):
        relevo.set_attributes(conn, PRO, owner=owner)
    relevo.set_attributes(conn, {"plan": "free"}, installation_id=made["ana_tablet"])
    for name in ("ana", "ana_tablet", "cleo"):
        relevo.set_preference(conn, made[name], "sport", Preference(topics=["football"]))
    relevo.set_preference(conn, made["ana"], "later", Preference(topics=["football"], delivery="daily 08:00"))
    return made


AUDIENCES = {
    "topic": (lambda _: Topic("football", where=PRO), {"ana"}),
    "owners": (lambda _: Owners("ana", "cleo", where=PRO), {"ana"}),
    "phones": (lambda known: Phones(known["ana_tablet"], known["bea"], where=PRO), {"bea"}),
    "everyone": (lambda _: Everyone(where=PRO), {"ana", "bea"}),
    "several": (lambda _: Owners("ana", where={"plan": ["pro", "free"]}), {"ana", "ana_tablet"}),
    "none": (lambda _: Owners("ana", "bea", where={"plan": "none"}), set()),
}


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("name", AUDIENCES)
def test_who_is_meant(build: Any, conn: psycopg.Connection[Any], phones: dict[str, UUID], name: str, size: int) -> None:
    """Preview, explanation and fan-out agree on the phones that the audience names and that have the attributes, in slices of any size."""
    make, names = AUDIENCES[name]
    event = Event("news", "1", "A goal", audience=make(phones))
    right = {phones[each] for each in names}
    found = relevo.preview(conn, event, sample=100)
    assert (set(found.sample), found.count) == (right, len(right))
    assert {phone for phone in phones.values() if relevo.explain(conn, event, phone).gets_it} == right
    done = relevo.enqueue(conn, event)
    fan_out_to_the_end(build(fanout_slice_size=size))
    rows = conn.execute(
        "select installation_id from relevo.notification_deliveries where notification_event_id = %s", [done.event_id]
    )
    assert sorted(row[0] for row in rows.fetchall()) == sorted(right)
    assert conn.execute("select state, targets_selected from relevo.notification_events").fetchall() == [
        ("fanned", len(right))
    ]


def test_text_and_attributes(build: Any, conn: psycopg.Connection[Any], phones: dict[str, UUID]) -> None:
    """Words and attributes stand together in Matching, and the explanation names the attribute that differs first."""
    relevo.set_preference(conn, phones["ana"], "words", Preference(keywords=["goal"]))
    relevo.set_preference(conn, phones["cleo"], "words", Preference(keywords=["goal"]))
    event = Event("news", "1", "Hello", audience=Matching(text="a goal", where=PRO))
    told = relevo.explain(conn, event, phones["cleo"])
    assert (told.gets_it, told.rule) == (False, "attribute_differs")
    relevo.enqueue(conn, event)
    fan_out_to_the_end(build())
    rows = conn.execute("select installation_id from relevo.notification_deliveries").fetchall()
    assert phones["ana"] in {row[0] for row in rows}
    assert phones["cleo"] not in {row[0] for row in rows}


def test_a_worker_of_0_3_narrows_too(conn: psycopg.Connection[Any], phones: dict[str, UUID]) -> None:
    """The functions that a worker of 0.3 fans out by narrow an audience, and small events that are narrowed go alone."""
    done = relevo.enqueue(conn, Event("news", "1", "Hello", audience=Owners("ana", where=PRO)))
    small = (
        "select count(*) from relevo.pick_small_events_2('bulk', '', date_trunc('hour', now()), 100, 100, '{}', now())"
    )
    assert conn.execute(small).fetchone() == (0,)
    conn.execute(
        "update relevo.notification_events set fanout_upto = 1000000, fanout_started_at = now(), event_day = now()::date, state = 'fanning'"
    )
    row = conn.execute(
        "select (relevo.next_targets_3(e, 100)).phones from relevo.notification_events e where e.id = %s",
        [done.event_id],
    ).fetchone()
    assert row == ([phones["ana"]],)


def test_the_inbox_of_who_has_no_phone(build: Any, conn: psycopg.Connection[Any], phones: dict[str, UUID]) -> None:
    """An owner without a phone finds the event if the owner's attributes fit; who is left out by attributes finds nothing."""
    conn.execute("insert into relevo.event_types (event_type, inbox_days) values ('news', 30) on conflict do nothing")
    relevo.set_attributes(conn, PRO, owner="dora")
    relevo.enqueue(conn, Event("news", "1", "Hello", audience=Owners("ana", "cleo", "dora", "ed", where=PRO)))
    fan_out_to_the_end(build())
    placed = conn.execute("select owner from relevo.event_owners where inbox_place is not null").fetchall()
    assert placed == [("dora",)]


def test_the_same_event(conn: psycopg.Connection[Any], phones: dict[str, UUID]) -> None:
    """Everyone with some attributes is the audience of these attributes; other attributes make another event, by name."""
    first = relevo.enqueue(conn, Event("news", "1", "Hello", audience=Everyone(where=PRO)))
    again = relevo.enqueue(conn, Event("news", "1", "Hello", audience=Matching(where=PRO)))
    assert (again.event_id, again.created, again.same_content) == (first.event_id, False, True)
    relevo.enqueue(conn, Event("news", "2", "Hello", audience=Owners("ana", where=PRO)))
    for other in ({"plan": "free"}, None):
        with pytest.raises(relevo.EventConflictError, match="where differs in plan"):
            relevo.enqueue(conn, Event("news", "2", "Hello", audience=Owners("ana", where=other)))
    assert relevo.change(conn, Event("news", "2", "Hello", audience=Owners("ana")))
    assert conn.execute("select match_where from relevo.notification_events where event_key = '2'").fetchone() == (
        None,
    )


def test_an_exact_number(conn: psycopg.Connection[Any], phones: dict[str, UUID]) -> None:
    """A Decimal is taken where it is set, registered and asked for, and means the number."""
    relevo.set_attributes(conn, {"age": Decimal("41.0"), "rate": Decimal("0.5")}, owner="ana")
    relevo.register(conn, Installation("ExponentPushToken[x]", owner="ed", attributes={"age": Decimal(41)}))
    assert relevo.get_attributes(conn, owner="ana") == {**PRO, "age": 41, "rate": 0.5}
    assert relevo.preview(conn, Event("news", "1", "Hello", audience=Everyone(where={"age": Decimal(41)}))).count == 3
    for wrong in (Decimal("NaN"), Decimal("1e15"), Decimal("Infinity")):
        with pytest.raises(relevo.InvalidInputError, match="age"):
            relevo.set_attributes(conn, {"age": wrong}, owner="ana")
        with pytest.raises(relevo.InvalidInputError, match="age"):
            relevo.preview(conn, Event("news", "1", "Hello", audience=Everyone(where={"age": wrong})))


@pytest.mark.parametrize("audience", ["everyone", "owners", "matching", "installations"])
def test_sql_refuses_what_python_does(conn: psycopg.Connection[Any], audience: str) -> None:
    """Attributes beside any audience are checked by SQL in the words of Python."""
    beside = {"owners": {"owners": ["a"]}, "matching": {"topics": ["a"]}, "installations": {"installations": []}}
    event = {"type": "a", "key": "b", "title": "c", "audience": audience, **beside.get(audience, {})}
    for where, complaint in (
        ({}, "where must name an attribute"),
        ({"a": None}, "where.a must be text"),
        ([], "where"),
    ):
        with pytest.raises(psycopg.errors.DataError, match=complaint):
            conn.execute("select relevo.enqueue(%s)", [Jsonb(event | {"where": where})])
    conn.execute("select relevo.enqueue(%s)", [Jsonb(event | {"where": None})])
