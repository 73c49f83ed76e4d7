"""Operators write an event and send it: looked at first, once, with the number of many phones typed, and recorded."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from html import unescape
from typing import Any

import psycopg
import pytest

import relevo
from relevo.http.dashboard import compose
from relevo.http.dashboard.actions import FormInput
from relevo.operators import audit
from support.dashboard_events import make_phone as register
from support.dashboard_person import Person
from support.http_server import Served, phone

WORDS: dict[str, Any] = {
    "type": "order.shipped",
    "default": "en",
    "arguments": {"count": 2},
    "texts": {
        "en": {"title": "{count, plural, one {# parcel} other {# parcels}}", "subtitle": "for you"},
        "es": {"title": "{count, plural, one {# paquete} other {# paquetes}}"},
    },
}
EVENTS = "select event_type, title, arguments, lane, scheduled_at from relevo.notification_events"


def operator(served: Served) -> Person:
    """Log an operator in."""
    person = Person(served)
    person.log_in()
    return person


def asked(page: Any) -> dict[str, str]:
    """Return the fields of the question whether to send it."""
    form = re.findall(r'action="/dashboard/compose/send">(.*?)</form>', page.text, re.S)[0]
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form)
    return {name: unescape(value) for name, value in fields if name != "form"}


def test_an_event_for_owners_of_one_project(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Owners with phones in another project alone are reached once the project is named; the page says so, and a form sends once."""
    person = operator(served)
    for project in ("shop", "news"):
        register(conn, owner="ana", project=project)
    page = person.send("/dashboard/compose", audience="owners", whom="ana", title="Hello")
    assert "The phones of these owners belong to other projects: enter their project." in unescape(page.text)
    page = person.send("/dashboard/compose", audience="owners", whom="ana", title="Hello", project="shop")
    assert "other projects" not in page.text
    answers = [person.send("/dashboard/compose/send", **asked(page)) for _ in range(2)]
    assert [each.status_code for each in answers] == [303, 303]
    made = conn.execute("select project, state from relevo.notification_events").fetchall()
    assert made == [("shop", "waiting")]


def test_data_alone_can_be_sent(served: Served, conn: psycopg.Connection[Any]) -> None:
    """What says nothing to its reader may have something for the app; what has neither is not sent."""
    person = operator(served)
    phone(conn)
    nothing = person.send("/dashboard/compose", audience="everyone").text
    assert "/dashboard/compose/send" not in nothing
    page = person.send("/dashboard/compose", audience="everyone", data='{"screen": "offers"}')
    assert person.send("/dashboard/compose/send", **asked(page)).status_code == 303
    assert conn.execute("select title, data from relevo.notification_events").fetchall() == [("", {"screen": "offers"})]


def test_attributes_narrow_every_audience(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Beside each audience the preview counts the phones that have the attributes, and the event goes to these alone."""
    person = operator(served)
    pro, free = (register(conn, owner=owner) for owner in ("ana", "ben"))
    relevo.set_attributes(conn, {"plan": "pro"}, owner="ana")
    relevo.set_attributes(conn, {"plan": "free"}, owner="ben")
    where = '{"plan": "pro"}'
    for audience, whom in (("everyone", ""), ("owners", "ana\nben"), ("installations", f"{pro}\n{free}")):
        page = person.send("/dashboard/compose", audience=audience, whom=whom, title="Hello", where=where)
        assert ("Send to 1 phone" in page.text, str(pro) in page.text) == (True, True), audience
        assert "besides phones whose preferences or attributes do not match" in page.text
        assert person.send("/dashboard/compose/send", **asked(page)).status_code == 303
    sent = conn.execute("select audience, match_where from relevo.notification_events order by id").fetchall()
    kept = ("attributes", "installations", "installations")  # as the row of an event names them
    assert sent == [(audience, {"plan": "pro"}) for audience in kept]


@pytest.mark.parametrize("where", ["[1]", "{}", '{"plan": null}', '{"plan": {"a": 1}}', '{"1plan": "pro"}', "{"])
def test_attributes_are_refused_as_over_http(served: Served, conn: psycopg.Connection[Any], where: str) -> None:
    """What HTTP refuses as `where` the page refuses, whatever else the form has, and sends to nobody."""
    person = operator(served)
    phone(conn)
    body = {"type": "t", "key": "k", "title": "Hello", "audience": "everyone"}
    with suppress(ValueError):
        body["where"] = json.loads(where)
    assert where == "{" or served.client("app").post("/v1/events/preview", body).status_code == 400
    page = person.send("/dashboard/compose", audience="everyone", title="Hello", where=where)
    assert (page.status_code, 'role="alert"' in page.text) == (400, True)
    assert "/dashboard/compose/send" not in page.text


def test_many_phones_take_their_number_and_a_form_sends_once(
    served: Served, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent without the number of many phones as it is by now, whatever number a form says was shown; the same
    form twice is one event."""
    assert compose.MOST_UNCONFIRMED == 1_000
    monkeypatch.setattr(compose, "MOST_UNCONFIRMED", 2)
    person = operator(served)
    for _ in range(3):
        phone(conn)
    page = person.send("/dashboard/compose", audience="everyone", title="Hello", lane="urgent")
    fields = asked(page)
    assert "type 3 to confirm" in page.text
    for typed, said in (("", "goes"), ("4", "now goes"), ("2", "now goes"), ("9" * 30, "now goes")):
        for made_up in ({}, {"reaches": typed or "3"}):
            refused = person.send("/dashboard/compose/send", **fields, **made_up, confirm=typed)
            assert (refused.status_code, f"The event {said} to 3 phones: type this number" in refused.text) == (
                400,
                True,
            )
    phone(conn)
    by_now = person.send("/dashboard/compose/send", **fields, confirm="3")
    assert (by_now.status_code, "The event now goes to 4 phones" in by_now.text) == (400, True)
    assert conn.execute(EVENTS).fetchall() == []
    fields = asked(by_now)
    answers = [person.send("/dashboard/compose/send", **fields, confirm="4") for _ in range(2)]
    assert [each.status_code for each in answers] == [303, 303]
    assert len({each.headers["location"] for each in answers}) == 1
    assert [row[:4] for row in conn.execute(EVENTS).fetchall()] == [("announcement", "Hello", None, "urgent")]
    [entry] = audit.latest(served.app.database, action="enqueue_event")
    assert (entry["target"]["phones"], "Hello" in str(entry)) == (4, False)


def test_a_type_speaks_in_its_languages(served: Served, conn: psycopg.Connection[Any]) -> None:
    """With its arguments it can be sent, later and in the operator's zone; without, the sample is shown, and no button."""
    served.client("app").post("/v1/words", WORDS)
    phone(conn)
    person = operator(served)
    some = person.send("/dashboard/compose", words="order.shipped")
    assert ("2 paquetes" in some.text, "To send the event, enter all arguments." in some.text) == (True, True)
    assert "/dashboard/compose/send" not in some.text
    given = {"words": "order.shipped", "arguments": '{"count": 7}'}
    page = person.send("/dashboard/compose", **given, scheduled_at="2027-01-01T09:00", timezone="America/Santiago")
    assert ("7 parcels" in page.text, "7 paquetes" in page.text) == (True, True)
    assert person.send("/dashboard/compose/send", **asked(page)).status_code == 303
    [(event_type, _title, arguments, _lane, at)] = conn.execute(EVENTS).fetchall()
    assert (event_type, arguments, at) == ("order.shipped", {"count": 7}, datetime(2027, 1, 1, 12, tzinfo=UTC))


def test_what_is_wrong_is_said_and_nothing_is_sent(served: Served, conn: psycopg.Connection[Any]) -> None:
    """It is told above the form, which keeps what was typed; no event is made."""
    phone(conn)
    person = operator(served)
    usual = {"audience": "everyone", "title": "Typed <b>", "key": "00000000-0000-0000-0000-000000000007"}
    for wrong, told in (
        ({"audience": "topics"}, "No topic is entered."),
        ({"audience": "matching", "monto": "sNaN"}, "sNaN is not an amount."),
        ({"scheduled_at": "tomorrow"}, "tomorrow is not a time."),
        ({"deadline_at": "2020-01-01T00:00"}, "deadline_at must lie after now"),
        ({"timezone": "Mars/Base", "scheduled_at": "2027-01-01T00:00"}, "There is no time zone Mars/Base."),
        ({"words": "order.shipped"}, "The event has the texts of order.shipped and also a title or body."),
        ({"data": "["}, "The data is not a JSON object."),
        ({"push": '{"no": 1}'}, "push has no field no"),
        ({"audience": "owners", "whom": "nobody"}, "The event would reach no phone."),
        ({"key": ""}, "Preview the event first."),
    ):
        page = person.send("/dashboard/compose/send", **usual | wrong)
        text = unescape(page.text)
        assert (page.status_code, told in text, 'value="Typed <b>"' in text) == (400, True, True), wrong
    assert compose.read_draft(FormInput({"audience": "matching", "monto": "0"}), "k")["matching"] == {
        "monto": 0
    }  # an amount
    assert conn.execute(EVENTS).fetchall() == []


def test_only_an_operators_own_form_sends(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A viewer may look and is refused where it is sent; so is a form without the session's mark; neither makes an event."""
    phone(conn)
    viewer, person = Person(served, "viewer"), operator(served)
    viewer.log_in()
    page = viewer.send("/dashboard/compose", audience="everyone", title="Hello")
    assert (page.status_code, "1 phone" in page.text, "/dashboard/compose/send" in page.text) == (200, True, False)
    fields = asked(person.send("/dashboard/compose", audience="everyone", title="Hello"))
    assert viewer.send("/dashboard/compose/send", **fields).status_code == 403
    assert person.post("/dashboard/compose/send", **fields).status_code == 403
    assert person.post("/dashboard/compose", **fields).status_code == 403
    assert conn.execute(EVENTS).fetchall() == []
