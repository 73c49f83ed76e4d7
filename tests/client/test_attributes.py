"""Attributes of owners and phones: set, read, found by an audience, previewed, explained, exported and forgotten; each project's are its own."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, Installation, Matching, Owners, Phones, Topic
from relevo.client import checks
from support.phones import fan_out, fan_out_to_the_end

PHONES = {
    "ana": ("shop", "ana"),
    "ana_tablet": ("shop", "ana"),
    "bea": ("shop", "bea"),
    "ana_bank": ("bank", "ana"),
    "lone": ("shop", None),
}


def wanted(project: str | None = None, **where: Any) -> Event:
    """Make an event for phones with some attributes."""
    return Event("news", "1", "Hello", audience=Matching(where=where), project=project)


@pytest.fixture
def phones(conn: psycopg.Connection[Any]) -> dict[str, UUID]:
    """Phones of owners of one name in two projects, and one of nobody."""
    return {
        name: relevo.register(conn, Installation(f"ExponentPushToken[{name}]", owner=owner, project=project))
        for name, (project, owner) in PHONES.items()
    }


@pytest.fixture
def known(conn: psycopg.Connection[Any], phones: dict[str, UUID]) -> dict[str, UUID]:
    """The same, with attributes of their owners and of some of them."""
    relevo.set_attributes(conn, {"plan": "pro", "age": 41, "tags": ["a", "b"]}, owner="ana", project="shop")
    relevo.set_attributes(conn, {"plan": "free", "vip": True}, owner="bea", project="shop")
    relevo.set_attributes(conn, {"plan": "pro"}, owner="ana", project="bank")
    relevo.set_attributes(conn, {"city": "Talca", "plan": "trial"}, installation_id=phones["ana_tablet"])
    relevo.set_attributes(conn, {"city": "Curicó"}, installation_id=phones["lone"])
    return phones


CASES: list[tuple[dict[str, Any], str | None, set[str]]] = [
    ({"plan": "pro"}, None, {"ana", "ana_bank"}),
    ({"plan": "pro"}, "shop", {"ana"}),
    ({"plan": "pro"}, "bank", {"ana_bank"}),
    ({"plan": ["pro", "free"]}, "shop", {"ana", "bea"}),
    ({"plan": "trial", "tags": "b"}, "shop", {"ana_tablet"}),
    ({"tags": ["b", "z"]}, "shop", {"ana", "ana_tablet"}),
    ({"age": 41.0}, "shop", {"ana", "ana_tablet"}),
    ({"vip": True}, "shop", {"bea"}),
    ({"vip": "true"}, "shop", set()),
    ({"city": ["Talca", "Curicó"]}, "shop", {"ana_tablet", "lone"}),
    ({"city": "Talca"}, "bank", set()),
    ({"plan": "pro", "city": "Talca"}, "shop", set()),
    ({"nothing": "x"}, None, set()),
]


@pytest.mark.parametrize(("where", "project", "names"), CASES)
def test_who_is_meant(
    build: Any,
    conn: psycopg.Connection[Any],
    known: dict[str, UUID],
    where: dict[str, Any],
    project: str | None,
    names: set[str],
) -> None:
    """Preview, explanation and fan-out agree on the phones that have one of the values of each attribute."""
    event = wanted(project, **where)
    right = {known[name] for name in names}
    found = relevo.preview(conn, event, sample=100)
    assert (set(found.sample), found.count, found.exact) == (right, len(right), True)
    assert {phone for phone in known.values() if relevo.explain(conn, event, phone).gets_it} == right
    done = relevo.enqueue(conn, event)
    fan_out(build())
    rows = conn.execute(
        "select installation_id from relevo.notification_deliveries where notification_event_id = %s", [done.event_id]
    )
    assert {row[0] for row in rows.fetchall()} == right
    assert {phone for phone in known.values() if relevo.explain(conn, done.event_id, phone).gets_it} == right


@pytest.mark.parametrize("size", [1, 2, 3])
def test_small_slices(build: Any, conn: psycopg.Connection[Any], known: dict[str, UUID], size: int) -> None:
    """An audience of several slices reaches each phone once, also one that has two of the values."""
    relevo.set_attributes(conn, {"plan": ["pro", "free"]}, installation_id=known["ana"])
    done = relevo.enqueue(conn, wanted("shop", plan=["pro", "free", "trial"]))
    fan_out_to_the_end(build(fanout_slice_size=size))
    rows = conn.execute(
        "select installation_id from relevo.notification_deliveries where notification_event_id = %s", [done.event_id]
    )
    right = sorted(known[name] for name in ("ana", "ana_tablet", "bea"))
    assert sorted(row[0] for row in rows.fetchall()) == right
    state = conn.execute("select state, targets_selected from relevo.notification_events").fetchall()
    assert state == [("fanned", 3)]


def test_set_and_read(conn: psycopg.Connection[Any], known: dict[str, UUID]) -> None:
    """What is left out stays, None removes, and the same again changes nothing; a phone's own go before its owner's."""
    assert relevo.get_attributes(conn, owner="ana", project="shop") == {"plan": "pro", "age": 41, "tags": ["a", "b"]}
    assert relevo.get_attributes(conn, installation_id=known["ana_tablet"]) == {
        "plan": "trial",
        "age": 41,
        "tags": ["a", "b"],
        "city": "Talca",
    }
    assert not relevo.set_attributes(conn, {"plan": "pro", "gone": None}, owner="ana", project="shop")
    assert relevo.set_attributes(conn, {"age": None, "tags": None, "plan": None}, owner="ana", project="shop")
    assert relevo.get_attributes(conn, owner="ana", project="shop") == {}
    assert relevo.get_attributes(conn, owner="ana", project="bank") == {"plan": "pro"}
    assert conn.execute("select from relevo.owner_rules where owner = 'ana' and project = 'shop'").fetchall() == []
    words = conn.execute(
        "select word from relevo.attribute_index x join relevo.device_installations i using (seq) where i.project = 'shop' and i.owner = 'ana'"
    )
    assert sorted(row[0] for row in words.fetchall()) == ['city="Talca"', 'plan="trial"']


def test_an_owner_of_all_projects(conn: psycopg.Connection[Any], phones: dict[str, UUID]) -> None:
    """Where equal owner names are one person, attributes for all projects hold in each, behind those of the project; read as they hold."""
    conn.execute("delete from relevo.owner_sharing")
    conn.execute("insert into relevo.owner_sharing (shared) values (true)")
    relevo.set_attributes(conn, {"plan": "pro", "age": 41}, owner="ana")
    relevo.set_attributes(conn, {"plan": "trial"}, owner="ana", project="shop")
    assert relevo.get_attributes(conn, owner="ana") == {"plan": "pro", "age": 41}
    for project, phone, plan in (("shop", "ana", "trial"), ("bank", "ana_bank", "pro")):
        right = {"plan": plan, "age": 41}
        assert relevo.get_attributes(conn, owner="ana", project=project) == right
        assert relevo.get_attributes(conn, installation_id=phones[phone]) == right


def test_a_worker_of_0_3_reaches_the_same_phones(conn: psycopg.Connection[Any], known: dict[str, UUID]) -> None:
    """The function that a worker of 0.3 fans out by finds the phones that have the attributes, and no others."""
    done = relevo.enqueue(conn, wanted("shop", plan=["pro", "free"]))
    conn.execute(
        "update relevo.notification_events set fanout_upto = 1000000, fanout_started_at = now(), event_day = now()::date, state = 'fanning'"
    )
    row = conn.execute(
        "select (relevo.next_targets_3(e, 100)).phones from relevo.notification_events e where e.id = %s",
        [done.event_id],
    ).fetchone()
    assert row is not None
    assert set(row[0]) == {known["ana"], known["bea"]}


def test_they_follow_the_owner(conn: psycopg.Connection[Any], known: dict[str, UUID]) -> None:
    """A phone that is registered for another owner has the new owner's attributes and none of its own, and a new phone has its owner's at once."""
    relevo.register(
        conn, Installation("ExponentPushToken[ana_tablet]", known["ana_tablet"], owner="bea", project="shop")
    )
    assert relevo.get_attributes(conn, installation_id=known["ana_tablet"]) == {"plan": "free", "vip": True}
    new = relevo.register(conn, Installation("ExponentPushToken[new]", owner="bea", project="shop"))
    assert relevo.preview(conn, wanted("shop", vip=True)).count == 3
    relevo.forget(conn, new)
    relevo.forget(conn, owner="bea")
    assert relevo.preview(conn, wanted("shop", vip=True)).count == 0
    assert conn.execute("select from relevo.attribute_index where word like 'vip%'").fetchall() == []
    assert relevo.get_attributes(conn, owner="bea", project="shop") == {}


def test_registration_sets_them(conn: psycopg.Connection[Any], phones: dict[str, UUID]) -> None:
    """A registration sets attributes of its phone, keeps what it does not name, and begins anew for another owner."""
    token, phone = "ExponentPushToken[lone]", phones["lone"]
    for given, right in (
        ({"plan": "pro", "age": 3}, {"plan": "pro", "age": 3}),
        (None, {"plan": "pro", "age": 3}),
        ({"age": None, "city": "Talca"}, {"plan": "pro", "city": "Talca"}),
    ):
        relevo.register(conn, Installation(token, phone, project="shop", attributes=given))
        assert relevo.get_attributes(conn, installation_id=phone) == right
    relevo.register(conn, Installation(token, phone, project="shop", owner="ana", attributes={"age": 4}))
    relevo.register(conn, Installation(token, phone, project="shop", owner="bea", attributes={"age": 5}))
    assert relevo.get_attributes(conn, installation_id=phone) == {"age": 5}
    (new,) = relevo.register_many(conn, [Installation("ExponentPushToken[new]", attributes={"vip": True})])
    assert relevo.preview(conn, wanted(vip=True)).sample == (new,)
    with pytest.raises(relevo.InvalidInputError, match="a must be text"):
        relevo.register(conn, Installation(token, attributes={"a": {}}))


@pytest.mark.parametrize("owner", ["ana", None])
def test_they_stay_in_their_project(conn: psycopg.Connection[Any], owner: str | None) -> None:
    """A phone that moves to another project leaves its own attributes behind; what it sets there holds there."""
    phone = relevo.register(
        conn, Installation("ExponentPushToken[x]", owner=owner, project="shop", attributes={"a": 1})
    )
    relevo.register(conn, Installation("ExponentPushToken[x]", phone, project="shop"))
    assert relevo.get_attributes(conn, installation_id=phone) == {"a": 1}
    relevo.register(conn, Installation("ExponentPushToken[x]", phone, owner=owner, project="bank"))
    assert relevo.get_attributes(conn, installation_id=phone) == {}
    assert relevo.preview(conn, wanted("bank", a=1)).count == 0
    relevo.register(conn, Installation("ExponentPushToken[x]", phone, project="shop", attributes={"b": 2}))
    assert relevo.get_attributes(conn, installation_id=phone) == {"b": 2}
    assert conn.execute("select word from relevo.attribute_index").fetchall() == [("b=2",)]


def test_a_number_of_thousands_of_digits(conn: psycopg.Connection[Any]) -> None:
    """A number with more digits than the index has room for is kept as it is, and found; one that differs from it at the end is not."""
    digits = str(3**8400)  # ends in 1
    phone = relevo.register(conn, Installation("ExponentPushToken[x]"))
    said = f'{{"installation": "{phone}", "attributes": {{"a": 0.{digits}}}}}'
    conn.execute("select relevo.set_attributes(%s::jsonb)", [said])
    for end, count in (("1", 1), ("2", 0)):
        event = f'{{"type": "a", "key": "b", "title": "c", "audience": "attributes", "where": {{"a": 0.{digits[:-1]}{end}}}}}'
        found = conn.execute("select relevo.preview(%s::jsonb) ->> 'count'", [event]).fetchone()
        assert found == (str(count),)


def test_a_push_goes_to_no_other_owner(build: Any, conn: psycopg.Connection[Any], known: dict[str, UUID]) -> None:
    """Once it was made for an owner by their attributes, it is not sent to who has the phone since."""
    done = relevo.enqueue(conn, wanted("shop", plan="pro"))
    fan_out(build())
    relevo.register(conn, Installation("ExponentPushToken[ana]", known["ana"], owner="bea", project="shop"))
    told = relevo.explain(conn, done.event_id, known["ana"])
    assert (told.gets_it, told.rule) == (False, "owner_changed")


def test_what_holds_when_it_looks(build: Any, conn: psycopg.Connection[Any], known: dict[str, UUID]) -> None:
    """Fan-out goes by the attributes of its moment, whatever they were at the enqueue; later ones take nothing back and add nobody."""
    done = relevo.enqueue(conn, wanted("shop", plan="pro"))
    relevo.set_attributes(conn, {"plan": "free"}, owner="ana", project="shop")
    relevo.set_attributes(conn, {"plan": "pro"}, owner="bea", project="shop")
    fan_out(build())
    relevo.set_attributes(conn, {"plan": "free"}, owner="bea", project="shop")
    relevo.set_attributes(conn, {"plan": "pro"}, owner="ana", project="shop")
    fan_out(build())
    rows = conn.execute(
        "select installation_id, status from relevo.notification_deliveries where notification_event_id = %s",
        [done.event_id],
    )
    assert rows.fetchall() == [(known["bea"], "pending")]
    assert relevo.explain(conn, done.event_id, known["bea"]).gets_it


def test_a_change_between_slices_reaches_nobody_twice(
    build: Any, conn: psycopg.Connection[Any], known: dict[str, UUID]
) -> None:
    """A phone that has the value, loses it and has it again while slices go out gets one delivery at most."""
    done = relevo.enqueue(conn, wanted(None, plan=["pro", "free", "trial"]))
    app = build(fanout_slice_size=1)
    for plan in ("none", "pro", "none", "pro", "pro", "pro"):
        fan_out(app)
        relevo.set_attributes(conn, {"plan": plan}, owner="ana", project="shop")
    fan_out_to_the_end(app)
    rows = conn.execute(
        "select installation_id from relevo.notification_deliveries where notification_event_id = %s", [done.event_id]
    ).fetchall()
    assert len(rows) == len(set(rows))
    assert {known["bea"], known["ana_tablet"], known["ana_bank"]} <= {row[0] for row in rows}


def test_why_not(conn: psycopg.Connection[Any], known: dict[str, UUID]) -> None:
    """The explanation names the attribute, what it is and what the event is for."""
    told = relevo.explain(conn, wanted("shop", plan="pro"), known["bea"])
    assert (told.gets_it, told.rule, told.reason) == (
        False,
        "attribute_differs",
        'Its attribute plan is "free", and the event is for "pro".',
    )
    told = relevo.explain(conn, wanted("shop", plan="pro"), known["lone"])
    assert told.reason == 'Its attribute plan is not given, and the event is for "pro".'


def test_the_same_event(conn: psycopg.Connection[Any]) -> None:
    """Orders of lists and forms of numbers make no other event; other attributes do."""
    first = relevo.enqueue(conn, wanted(None, plan=["b", "a"], age=1))
    assert relevo.enqueue(conn, wanted(None, age=1.0, plan=["a", "b"])).event_id == first.event_id
    with pytest.raises(relevo.EventConflictError, match="where differs in plan"):
        relevo.enqueue(conn, wanted(None, plan=["a"], age=1))
    assert relevo.change(conn, wanted(None, plan="c"))
    assert conn.execute("select match_where from relevo.notification_events").fetchall() == [({"plan": "c"},)]


def test_an_export_has_them(conn: psycopg.Connection[Any], known: dict[str, UUID]) -> None:
    """An owner's export has the attributes of owner and phones."""
    rules = relevo.export_owner(conn, "rules", owner="ana", project="shop").items
    assert [each["attributes"] for each in rules] == [{"plan": "pro", "age": 41, "tags": ["a", "b"]}]
    phones = relevo.export_owner(conn, "installations", owner="ana", project="shop").items
    assert [each["attributes"] for each in phones] == [None, {"city": "Talca", "plan": "trial"}]


REFUSED: list[tuple[Any, str]] = [
    ({"1a": "x"}, "attributes has an attribute 1a"),
    ({"a b": "x"}, "attributes has an attribute a b"),
    ({"a": ""}, "attributes.a must be text of 1 to 200"),
    ({"a": "x" * 201}, "attributes.a must be text of 1 to 200"),
    ({"a": {"b": 1}}, "attributes.a must be text of 1 to 200"),
    ({"a": []}, "attributes.a must be text of 1 to 200"),
    ({"a": [1]}, "attributes.a must be text of 1 to 200"),
    ({"a": 10**15}, "attributes.a must be text of 1 to 200"),
    ({f"a{n}": 1 for n in range(51)}, "attributes must have at most 50 attributes"),
    ([1], "attributes must be an object of attributes"),
]


@pytest.mark.parametrize(("given", "complaint"), REFUSED)
def test_what_is_refused(conn: psycopg.Connection[Any], given: Any, complaint: str) -> None:
    """What is no attribute is refused by name, with the same words before the statement and by SQL."""
    with pytest.raises(relevo.InvalidInputError, match=complaint):
        checks.check_attributes("attributes", given)
    with pytest.raises(relevo.InvalidInputError, match=complaint):
        relevo.set_attributes(conn, given, owner="ana")
    with pytest.raises(psycopg.errors.DataError, match=complaint):
        conn.execute("select relevo.set_attributes(%s)", [Jsonb({"owner": "ana", "attributes": given})])


def test_what_does_not_fit_together(conn: psycopg.Connection[Any], phones: dict[str, UUID]) -> None:
    """An audience by attributes needs some, well named; whose they are is named once; another project's phone is not there."""
    for audience, complaint in (
        (Matching(where={}), "where must name an attribute"),
        (Matching(where={"a": None}), "where.a must be text"),
        (Topic("a", where={"a": {}}), "where.a must be text"),
        (Owners("ana", where={}), "where must name an attribute"),
        (Phones(phones["ana"], where={"a b": 1}), "where has an attribute a b"),
    ):
        with pytest.raises(relevo.InvalidInputError, match=complaint):
            relevo.enqueue(conn, Event("news", "1", "Hello", audience=audience))
    with pytest.raises(psycopg.errors.DataError, match="where must name attributes when audience is attributes"):
        conn.execute(
            "select relevo.enqueue(%s)",
            [Jsonb({"type": "a", "key": "b", "title": "c", "audience": "attributes"})],
        )
    for whose in ({}, {"owner": "ana", "installation_id": phones["ana"]}):
        with pytest.raises(relevo.InvalidInputError, match="owner or installation must be given"):
            relevo.set_attributes(conn, {"a": 1}, **whose)
    with pytest.raises(relevo.InvalidInputError, match="there is no installation"):
        relevo.set_attributes(conn, {"a": 1}, installation_id=phones["ana"], project="bank")
    relevo.set_attributes(conn, {f"a{n}": "x" * 140 for n in range(50)}, owner="ana")
    with pytest.raises(relevo.InvalidInputError, match="at most 50"):
        relevo.set_attributes(conn, {"more": 1}, owner="ana")
    assert relevo.preview(conn, Event("news", "1", "Hello", audience=Owners("ana"), project="shop")).count == 2
