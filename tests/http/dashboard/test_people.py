"""What support people ask of a person or a phone at the dashboard: what it got, what not, and why."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import quote
from uuid import UUID, uuid4

from relevo.client import values, verbs
from support.dashboard_events import Connection, make_event, make_phone, text_of
from support.dashboard_person import Person
from support.http_server import Served
from support.phones import add_phones, fan_out


def test_a_person_and_why_they_got_nothing(served: Served, conn: Connection, person: Person) -> None:
    """People are listed by name; a person's page tells of the latest events why each came or not; lists say names, not ids."""
    one = make_phone(conn, owner="ana")
    make_phone(conn, owner="<b>benja</b>")
    conn.execute("update relevo.device_installations set permission = 'denied' where owner = '<b>benja</b>'")
    number = make_event(conn, "order-21", "everyone")
    fan_out(served.app)
    listed = text_of(person, "/dashboard/people")
    assert listed.index("<b>benja</b>") < listed.index("ana")
    assert "none of their phones may get pushes" in listed
    assert "<b>benja" not in person.get("/dashboard/people").text
    assert "benja" not in text_of(person, "/dashboard/people?name=a")
    assert "No owner has this name" in text_of(person, "/dashboard/people?name=zoe")
    assert "Not yet. It waits to be sent." in text_of(person, "/dashboard/owners/ana")
    assert "No. Pushes may not go to this phone: the phone does not permit" in text_of(
        person, f"/dashboard/owners/{quote('<b>benja</b>')}"
    )
    assert f'title="{one}">ana</a>' in person.get(f"/dashboard/events/{number}").text
    assert f'title="{one}">ana</a>' in person.get("/dashboard/compose?audience=owners&whom=ana").text
    assert "Phone of ana" in text_of(person, f"/dashboard/installations/{one}")


def test_people_come_page_by_page_each_once(served: Served, conn: Connection, person: Person) -> None:
    """The list leads from page to page by a link; everybody is on one of them, and nobody on two. A name begins it, itself included."""
    names = [f"p{number:02}" for number in range(60)]
    for name in names:
        add_phones(conn, 1, owner=name)
    seen: list[str] = []
    path = "/dashboard/people"
    for _ in range(3):
        page = person.get(path).text
        seen += re.findall(r">(p\d\d)</a>", page)
        path = "/dashboard/people?" + unescape("".join(re.findall(r'href="[^"?]*\?([^"]*)"[^>]*rel="next"', page)))
    assert seen == names
    assert re.findall(r">(p\d\d)</a>", person.get("/dashboard/people?name=p58").text) == ["p58", "p59"]


WHY = [
    ({"permission": "denied"}, {}, "No. Pushes may not go to this phone: the phone does not permit notifications."),
    ({"opt_outs": ["ads"]}, {"category": "ads"}, "No. This phone opted out of the event's category, ads."),
    ({}, {"audience": "others"}, "No. The event is for others: it names neither this phone nor its owner."),
    ({}, {"audience": "matching"}, "No. None of this phone's preferences matches: mine: another region."),
    ({}, {}, "Not yet. The event is for everyone."),
]


def test_why_not(served: Served, conn: Connection, person: Person) -> None:
    """The rule that decided is told for one phone and for its owner, by the event's id or its key."""
    for owner, (phone_is, event_is, answer) in zip(("a/b c", "d/e", "f g", "h", "ñ"), WHY, strict=True):
        one = make_phone(conn, owner=owner, **phone_is)
        verbs.set_preference(conn, one, "default", None)
        verbs.set_preference(conn, one, "mine", values.TenderPreference(region="Valparaíso"))
        audience = {"others": add_phones(conn, 1), "matching": values.TenderMatching(region="Maule")}.get(
            event_is.get("audience", ""), "everyone"
        )
        number = make_event(conn, f"of {owner}", audience, category=event_is.get("category"))
        fan_out(served.app)
        assert answer in text_of(person, f"/dashboard/installations/{one}?event={number}"), phone_is
        assert answer in text_of(person, f"/dashboard/owners/{quote(owner, safe='')}?event={quote(f'of {owner}')}")


def why(person: Person, one: UUID, number: int) -> str:
    """Ask why a phone got an event, or not, and return the answer, in words."""
    said = text_of(person, f"/dashboard/installations/{one}?event={number}")
    return said.split(" Explain ", 1)[1].split(" Preferences ")[0]


def test_what_changed_since_is_told(served: Served, conn: Connection, person: Person) -> None:
    """A past event is judged by today's phone: what was registered, disabled, changed since is said with its time, nothing else."""
    quiet, disabled, other, wish, gone = (make_phone(conn, owner="ana") for _ in range(5))
    region = values.TenderMatching(region="Maule")
    everyone, matching, named = (
        make_event(conn, "1", "everyone"),
        make_event(conn, "2", region),
        make_event(conn, "3", [quiet]),
    )
    owned = make_event(conn, "4", values.Owners("ana"))
    for each in (quiet, wish, gone):
        verbs.set_preference(conn, each, "default", values.TenderPreference(region="Ñuble"))
    fan_out(served.app)
    late = make_phone(conn, owner="ana")
    conn.execute(
        "update relevo.device_installations set invalidated_at = now(), invalid_reason = 'DeviceNotRegistered' where installation_id = %s",
        [disabled],
    )
    verbs.register(conn, values.Installation(None, installation_id=other, permission="denied"))
    verbs.register(conn, values.Installation(None, installation_id=gone, owner="bea"))
    verbs.set_preference(conn, wish, "default", values.TenderPreference(region="Maule"))
    for number in (everyone, matching, owned):
        assert "No. The phone was registered after the event went out (registered: 20" in why(person, late, number)
    assert "No. The event is for others" in why(person, late, named)
    assert ". This has been so since 20" in why(person, disabled, everyone)
    assert "UTC , after the event went out. The earlier state is not kept." in why(person, disabled, everyone)
    assert "The phone was changed or registered again later ( 20" in why(person, other, everyone)
    assert "Its preferences were changed later ( 20" in why(person, wish, matching)
    assert "UTC ). This answer uses those of today." in why(person, wish, matching)
    assert "Removed preferences are not kept: one of them may have matched then." in why(person, quiet, matching)
    assert "This phone belongs to another owner now, or to none." in why(person, gone, owned)
    for number in (everyone, named, owned):
        assert "since" not in why(person, quiet, number)
    assert "The phone was a target when the event went out: fan-out created a delivery." in why(person, other, everyone)


def test_a_phone_and_its_owner(served: Served, conn: Connection, person: Person) -> None:
    """What a phone asks for in words, its history page by page, its token shortened; its owner has them all."""
    token = f"ExponentPushToken[{uuid4().hex[:22]}]"
    one = make_phone(conn, owner="ana", token=token)
    wish = values.TenderPreference(keywords=["agua"], region="Maule", monto_min=1000000, moneda="CLP")
    verbs.set_preference(conn, one, "mine", wish)
    for n in range(27):
        make_event(conn, f"e-{n}", "everyone")
    make_phone(conn, owner="bo", provider="fcm", token=f"{uuid4().hex}:{'a' * 120}")
    fan_out(served.app)
    assert " bo FCM pending" in text_of(person, "/dashboard/events/1")
    for path in (f"/dashboard/installations/{one}", "/dashboard/owners/ana"):
        said = text_of(person, path)
        assert "Push service Expo" in said
        assert "mine : with one of the words agua; region Maule; from 1,000,000 CLP" in said
        assert token not in person.get(path).text
        more = re.search(r'href="([^"]+before=[^"]+)"', person.get(path).text)
        assert more is not None
        assert len(re.findall('href="/dashboard/deliveries/', person.get(unescape(more[1])).text)) == 2
    assert "There is no event with this id or key." in text_of(person, f"/dashboard/installations/{one}?event=nothing")
    assert person.get(f"/dashboard/installations/{UUID(int=9)}").status_code == 404
    assert person.get("/dashboard/owners/nobody").status_code == 404
    verbs.forget(conn, one)
    assert "This phone was forgotten" in text_of(person, f"/dashboard/installations/{one}")
