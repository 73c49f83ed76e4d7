"""An inbox is the owner's: what came stays in it, whatever becomes of the phone by which it came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, Installation, Owners
from support.inboxes import counts, read_all, sent, titles
from support.phones import add_phones, fan_out_to_the_end

TOKEN = "ExponentPushToken[{}]"
THREE = ["c", "b", "a"]


def pass_on(conn: psycopg.Connection[Any], phone: UUID, owner: str | None, **more: Any) -> None:
    """Register a phone for another owner, or for nobody."""
    given = {"installation_id": str(phone), "owner": owner, **more}
    conn.execute("select relevo.register_installation(%s)", [Jsonb(given)])


def leave(conn: psycopg.Connection[Any], phone: UUID) -> None:
    """Have cleanup delete the phone, as it does with one that is dead for long."""
    conn.execute("delete from relevo.device_installations where installation_id = %s", [phone])


@pytest.fixture
def phone(conn: psycopg.Connection[Any]) -> UUID:
    """A phone of ana's by which three items came; eva has a phone, too."""
    [made], [other] = add_phones(conn, 1, owner="ana"), add_phones(conn, 1, owner="eva")
    for title in reversed(THREE):
        sent(conn, [made], title)
    sent(conn, [other], "eva's")
    return made


LIVES: dict[str, Callable[[psycopg.Connection[Any], UUID], object]] = {
    "another owner": lambda conn, phone: pass_on(conn, phone, "bea"),
    "nobody": lambda conn, phone: pass_on(conn, phone, None),
    "unregistered": relevo.unregister,
    "all unregistered": lambda conn, _: relevo.unregister(conn, owner="ana"),
    "another project": lambda conn, phone: pass_on(conn, phone, "ana", project="other"),
    "deleted": leave,
}


@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
def test_items_stay_whatever_becomes_of_the_phone(conn: psycopg.Connection[Any], phone: UUID, life: Any) -> None:
    """Ana reads, counts and marks her three items after the phone left; nobody else sees them."""
    life(conn, phone)
    assert titles(conn, owner="ana", project="default") == THREE
    assert counts(conn, owner="ana", project="default") == (3, 3)
    newest = relevo.inbox(conn, owner="ana", project="default").items[0].event_id
    assert relevo.mark_inbox(conn, newest, "read", owner="ana", project="default")
    assert counts(conn, owner="ana", project="default") == (2, 2)
    assert relevo.mark_inbox_before(conn, owner="ana", project="default")
    assert counts(conn, owner="ana", project="default") == (0, 0)
    assert titles(conn, owner="bea") == []
    assert titles(conn, owner="ana", project="other") == []
    assert titles(conn, owner="eva") == ["eva's"]


def test_a_phone_that_comes_back(conn: psycopg.Connection[Any], phone: UUID) -> None:
    """Ana, bea, ana: each has the items of both of her times, page by page and counted, and none of the other's."""
    pass_on(conn, phone, "bea")
    for n in range(60):
        sent(conn, [phone], f"bea's {n}")
    pass_on(conn, phone, "ana")
    sent(conn, [phone], "d")
    for limit in (1, 2, 50):
        assert read_all(conn, owner="ana", limit=limit) == ["d", *THREE]
    assert len(read_all(conn, owner="bea", limit=7)) == 60
    assert (counts(conn, owner="ana"), counts(conn, owner="bea")) == ((4, 4), (60, 60))


def test_a_phone_without_owner_brings_nothing_along(conn: psycopg.Connection[Any]) -> None:
    """What came while a phone had no owner is neither its first owner's nor shown after the owner left."""
    [phone] = add_phones(conn, 1)
    sent(conn, [phone], "nobody's")
    pass_on(conn, phone, "ana")
    sent(conn, [phone], "ana's")
    assert titles(conn, owner="ana") == ["ana's"]
    pass_on(conn, phone, None)
    sent(conn, [phone], "nobody's again")
    assert titles(conn, installation_id=phone) == ["nobody's again"]
    assert titles(conn, owner="ana") == ["ana's"]


def test_all_has_what_is_archived(conn: psycopg.Connection[Any], phone: UUID) -> None:
    """What is listed as archived is in `all`, too, after the phone changed hands, and in neither once it was ana's again and forgotten."""
    oldest = relevo.inbox(conn, owner="ana").items[-1].event_id
    assert relevo.mark_inbox(conn, oldest, "archive", owner="ana")
    pass_on(conn, phone, "bea")
    assert titles(conn, owner="ana", status="archived") == ["a"]
    assert titles(conn, owner="ana", status="all") == THREE
    assert titles(conn, owner="ana") == ["c", "b"]
    [other] = add_phones(conn, 1, owner="ana")
    pass_on(conn, phone, "ana")
    relevo.forget(conn, phone)
    assert titles(conn, owner="ana", status="archived") == titles(conn, owner="ana", status="all") == []
    assert sent(conn, [other], "e")
    assert titles(conn, owner="ana") == ["e"]


def test_what_came_by_two_phones(conn: psycopg.Connection[Any], phone: UUID) -> None:
    """An event that came by a former phone and by one of today is one item; it stays when ana has that phone again and forgets it."""
    [other] = add_phones(conn, 1, owner="ana")
    sent(conn, [phone, other], "both")
    pass_on(conn, phone, "bea")
    assert titles(conn, owner="ana") == ["both", *THREE]
    assert counts(conn, owner="ana") == (4, 4)
    pass_on(conn, phone, "ana")
    relevo.forget(conn, phone)
    assert titles(conn, owner="ana") == ["both"]


@pytest.mark.parametrize("end", [relevo.complete, relevo.cancel, None])
def test_an_event_whose_phones_are_forgotten(
    conn: psycopg.Connection[Any], phone: UUID, build: Callable[..., Any], end: Any
) -> None:
    """An event that named phones which are all forgotten since is in no inbox, nor is anything in its place, however it ended."""
    event = relevo.enqueue(conn, Event("t", "named", "for this phone alone", audience=[phone])).event_id
    fan_out_to_the_end(build())
    assert titles(conn, owner="ana") == ["for this phone alone", *THREE]
    pass_on(conn, phone, "bea")
    if end is not None:
        assert end(conn, event)
    relevo.forget(conn, phone)
    assert titles(conn, owner="ana", status="all") == THREE
    assert counts(conn, owner="ana") == (3, 3)


def test_the_only_phone_of_an_owner_is_forgotten(conn: psycopg.Connection[Any]) -> None:
    """Nothing says whose the phone was, and the inbox that nothing else leads to goes with it."""
    [only] = add_phones(conn, 1, owner="ida")
    sent(conn, [only], "hers")
    relevo.forget(conn, only)
    for table in ("inboxes where owner = 'ida'", "former_phones"):
        assert conn.execute(f"select count(*) from relevo.{table}".encode()).fetchone() == (0,), table


def test_an_owner_who_is_forgotten(conn: psycopg.Connection[Any], phone: UUID) -> None:
    """Nothing is left of the inbox, though the phone is another's by now; a new owner of that name begins with nothing."""
    pass_on(conn, phone, "bea")
    sent(conn, [phone], "bea's")
    relevo.forget(conn, owner="ana")
    assert titles(conn, owner="ana") == []
    for table in ("inboxes where owner = 'ana'", "former_phones", "inbox_marks"):
        assert conn.execute(f"select count(*) from relevo.{table}".encode()).fetchone() == (0,), table
    assert titles(conn, owner="bea") == ["bea's"]
    pass_on(conn, phone, "ana")
    assert titles(conn, owner="ana") == []


def test_what_is_from_before(conn: psycopg.Connection[Any]) -> None:
    """Deliveries of before 0.4.0 name no inbox: they are shown by their phone, since it has its owner."""
    [phone] = add_phones(conn, 1, owner="ana")
    sent(conn, [phone], "old", with_inbox=False)
    assert titles(conn, owner="ana") == ["old"]
    pass_on(conn, phone, "bea")
    assert titles(conn, owner="bea") == titles(conn, owner="ana") == []


def test_equal_names_in_two_projects(conn: psycopg.Connection[Any]) -> None:
    """Two anas have two inboxes; a phone that moves from one project to the other leaves its items where they came."""
    [here], [there] = (add_phones(conn, 1, owner="ana", project=project) for project in ("one", "two"))
    sent(conn, [here], "here")
    sent(conn, [there], "there")
    pass_on(conn, here, "ana", project="two")
    sent(conn, [here], "moved")
    assert titles(conn, owner="ana", project="one") == ["here"]
    assert titles(conn, owner="ana", project="two") == ["moved", "there"]


def test_what_an_export_has(conn: psycopg.Connection[Any], phone: UUID) -> None:
    """The export of an owner has what came by former phones, and not what these get for others."""
    pass_on(conn, phone, "bea")
    sent(conn, [phone], "bea's")
    exported = {
        owner: [item["title"] for item in relevo.export_owner(conn, "deliveries", owner=owner).items]
        for owner in ("ana", "bea")
    }
    assert exported == {"ana": ["a", "b", "c"], "bea": ["bea's"]}


@pytest.mark.parametrize("how", ["opted out", "refused"])
def test_a_refused_category(conn: psycopg.Connection[Any], build: Any, how: str) -> None:
    """An event that names its owner is in the inbox whatever the owner refused; one for everyone, or that names the phone, is not."""
    relevo.set_category(conn, "news")
    phones = {}
    for owner in ("ana", "eva"):
        refuses = ["news"] if (owner, how) == ("ana", "opted out") else []
        phones[owner] = relevo.register(conn, Installation(TOKEN.format(uuid4()), owner=owner, opt_outs=refuses))
    if how == "refused":
        relevo.choose(conn, "news", owner="ana", wanted=False)
    audiences = {"named": Owners("ana", "eva"), "everyone": "everyone", "phones": list(phones.values())}
    for title, audience in audiences.items():
        relevo.enqueue(conn, Event("t", title, title, audience=audience, category="news"))
    fan_out_to_the_end(build())
    assert titles(conn, owner="ana") == ["named"]
    assert sorted(titles(conn, owner="eva")) == ["everyone", "named", "phones"]
