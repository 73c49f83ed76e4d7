"""What operators and tests see: phones, totals, settings, the page; and that all of it is bounded."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import asdict
from html import unescape
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from relevo.core.errors import InvalidInputError, RelevoError
from relevo.sandbox import Sandbox, Settings, phones, projects, tickets
from relevo.sandbox.faults import tokens
from relevo.sandbox.faults.expo import parse
from relevo.sandbox.phone_apps import PhoneApp
from support.fake_http_server import Answer, FakeServer

ANA, EVA = "ExponentPushToken[ana]", "ExponentPushToken[eva]"


def test_duplicates_are_counted(sandbox: Sandbox, client: Any) -> None:
    """The same delivery twice on one phone is a duplicate; another delivery or another phone is none."""
    for token, delivery in ((ANA, "d1"), (ANA, "d1"), (ANA, "d2"), (EVA, "d1"), (ANA, "d1")):
        client.tickets(token, data={"notificationDeliveryId": delivery})
    assert sandbox.phones() == {ANA: {"received": 4, "distinct": 2}, EVA: {"received": 1, "distinct": 1}}
    assert sandbox.totals()["duplicates"] == 2


def test_without_a_delivery_the_text_tells(sandbox: Sandbox, client: Any) -> None:
    """Messages without a delivery's id are told apart by title and body, and are no duplicates."""
    for body in ("a", "b", "a"):
        client.tickets(ANA, body=body)
    assert sandbox.phones()[ANA] == {"received": 3, "distinct": 2}
    assert sandbox.totals()["duplicates"] == 0


def test_phones_in_pages(client: Any) -> None:
    """Phones come in the order they were reached, a page at a time, until there is no next."""
    names = [f"ExponentPushToken[{number}]" for number in range(5)]
    client.tickets(*names)
    seen, after = [], 0
    while after is not None:
        page = client.call("GET", f"/sandbox/phones?limit=2&after={after}").json()
        seen += [phone["token"] for phone in page["phones"]]
        after = page["next"]
    assert seen == names


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=1001", "after=-1", "limit=", "after=٣", "after=1e3"])
def test_pages_that_do_not_exist(client: Any, query: str) -> None:
    """A wrong limit or position is told."""
    response = client.call("GET", f"/sandbox/phones?{query}")
    assert response.status_code == 400
    assert "whole number" in response.json()["errors"][0]["message"]


def test_one_phone(sandbox: Sandbox, client: Any) -> None:
    """A phone shows its last messages as they were sent, no more than are kept; an unknown one is a 404."""
    token = "ExponentPushToken[ana!project=@acme/other]"
    sandbox.set(keep_messages=3)
    for number in range(5):
        client.tickets(token, title=f"n {number}")
    phone = client.call("GET", f"/sandbox/phones/{quote(token, safe='')}").json()
    assert (phone["received"], phone["distinct"]) == (5, 5)
    assert [each["message"]["title"] for each in phone["messages"]] == ["n 2", "n 3", "n 4"]
    assert sandbox.received(token)[-1] == {"to": token, "title": "n 4"}
    assert sandbox.received(EVA) == []
    assert client.call("GET", f"/sandbox/phones/{EVA}").status_code == 404


def test_only_counters(sandbox: Sandbox, client: Any) -> None:
    """With keep_messages 0 nothing is kept but the counters, and the page still stands."""
    sandbox.set(keep_messages=0)
    client.tickets(ANA, ANA)
    assert sandbox.received(ANA) == []
    assert sandbox.phones()[ANA] == {"received": 2, "distinct": 1}
    assert "not kept" in client.call("GET", "/").text


def test_totals_and_reset(sandbox: Sandbox, client: Any) -> None:
    """Totals tell what happened, and a reset starts them anew while receipts stay."""
    good, _ = client.tickets(ANA, "ExponentPushToken[x!ExpoError]")
    client.receipts([good["id"], "x"])
    totals = client.call("GET", "/sandbox/totals").json()
    assert totals == sandbox.totals()
    assert {name: totals[name] for name in totals if name != "peakConnections"} == {
        "requests": 2,
        "sendRequests": 1,
        "receiptRequests": 1,
        "messages": 2,
        "delivered": 1,
        "duplicates": 0,
        "phones": 1,
        "tickets": 2,
        "errorTickets": 1,
        "receiptsAsked": 2,
        "receiptsGiven": 1,
        "rateLimited": 0,
    }
    reset = client.call("DELETE", "/sandbox/phones").json()
    assert (reset["requests"], reset["tickets"], reset["phones"]) == (0, 0, 0)
    assert sandbox.phones() == {}
    assert list(client.receipts([good["id"]]).json()["data"]) == [good["id"]]


def test_settings_at_run_time(client: Any) -> None:
    """Settings change while the sandbox runs; the access token is never told."""
    changes = {"rate_per_s": 5, "access_token": "s3cret", "latency_ms": 1, "receipt_delay_s": 2, "time_scale": 60}
    response = client.call("POST", "/sandbox/settings", json=changes)
    assert response.status_code == 200
    for reported in (response, client.call("GET", "/sandbox/settings"), client.call("GET", "/")):
        assert "s3cret" not in reported.text
    settings = client.call("GET", "/sandbox/settings").json()["settings"]
    assert settings == asdict(Settings(**changes)) | {"access_token": "(set)"}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ([], "must be an object"),
        ({"speed": 1}, "no setting speed"),
        ({"rate_per_s": -1}, "rate_per_s"),
        ({"rate_per_s": "fast"}, "rate_per_s"),
        ({"rate_per_s": True}, "rate_per_s"),
        ({"time_scale": 0}, "time_scale"),
        ({"keep_messages": 1.5}, "keep_messages"),
        ({"keep_messages": 10_000_000}, "keep_messages"),
        ({"access_token": ""}, "access_token"),
        ({"access_token": 7}, "access_token"),
        ({"latency_ms": None}, "latency_ms"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit(client: Any, changes: Any, complaint: str) -> None:
    """A wrong setting is told by name, and none of the call is taken."""
    before = client.call("GET", "/sandbox/settings").json()
    given = {"receipt_delay_s": 99, **changes} if isinstance(changes, dict) else changes
    response = client.call("POST", "/sandbox/settings", json=given)
    assert response.status_code == 400
    assert complaint in response.json()["errors"][0]["message"]
    assert client.call("GET", "/sandbox/settings").json() == before


def test_calls_that_do_not_exist(client: Any) -> None:
    """A wrong path is a 404, a wrong method a 405 that names the right ones."""
    assert client.call("GET", "/sandbox/nothing").status_code == 404
    wrong = client.call("PUT", "/sandbox/phones")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, DELETE")
    assert client.call("POST", "/sandbox/faults", data=b"{").status_code == 400


def test_the_page_of_an_empty_sandbox(client: Any) -> None:
    """Before anything arrives the page says how to begin, and loads nothing from elsewhere."""
    page = client.call("GET", "/")
    assert page.status_code == 200
    assert f"EXPO_BASE_URL={client.url}" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.text.count("<script") == page.text.count('<script src="/relevo.js"') == 1
    assert "/dashboard" not in client.call("GET", "/relevo.js").text
    assert client.call("HEAD", "/").content == b""


def test_the_page_escapes_what_others_wrote(sandbox: Sandbox, client: Any) -> None:
    """Whatever a message, a token or a fault holds is shown as text."""
    evil = "<script>alert(1)</script>"
    client.tickets("ExponentPushToken[<b>&amp;]", title=evil, body='"><img src=x onerror=alert(2)>\ud800')
    sandbox.add_fault("500", share=0, project=evil)
    page = client.call("GET", "/", headers={"host": "<i>evil"}).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;b&gt;&amp;amp;" in page
    for raw in ("<script>", "<img", "<b>", "<i>evil"):
        assert raw not in page


def test_the_pages_speak_spanish(client: Any) -> None:
    """The language is the one chosen in the dashboard, else the browser's."""
    assert "Ningún teléfono ha recibido nada" in client.call("GET", "/", headers={"accept-language": "es-CL,en"}).text
    chosen = {"accept-language": "es", "cookie": "a=b; relevo_language=en"}
    assert "No phone has received anything yet" in client.call("GET", "/", headers=chosen).text
    assert '<html lang="en">' in client.call("GET", "/", headers={"accept-language": "fr"}).text


def test_one_click_to_what_a_phone_got(client: Any) -> None:
    """An event, a delivery and a phone have pages of their own; what nobody got says so, with a 404."""
    data = {"notificationEventId": 17, "notificationDeliveryId": 4}
    client.tickets(ANA, title="Puente <b>", body="A message", data=data)
    client.tickets(EVA, title="Puente", data=data | {"notificationDeliveryId": 5})
    client.tickets(EVA, title="Puente", data=data | {"notificationDeliveryId": 5})
    event = client.call("GET", "/events/17").text
    assert "Event 17: it arrived 3 times" in event
    assert event.index("[ana]") < event.index("[eva]")
    assert "Delivery 4: it arrived once" in client.call("GET", "/deliveries/4").text
    assert "Delivery 5: it arrived 2 times" in client.call("GET", "/deliveries/5").text
    [phone] = set(re.findall(r'href="(/phones/[^"]+)"', client.call("GET", "/deliveries/4").text))
    shown = client.call("GET", phone)
    assert "Puente &lt;b&gt;" in shown.text
    assert '"notificationDeliveryId": 4' in unescape(shown.text)
    assert "default-src 'none'; style-src 'self'" in shown.headers["content-security-policy"]
    for nothing in ("/events/18", "/deliveries/x", "/phones/ExponentPushToken[nobody]", "/events/<script>"):
        answer = client.call("GET", nothing)
        assert answer.status_code == 404
        assert "<script>" not in answer.text
    assert client.call("GET", "/relevo.css").text.startswith("/* Relevo's design")


def test_the_page_shows_phones_and_faults(sandbox: Sandbox, client: Any) -> None:
    """The page shows each phone's last notification, how often it was reached, and the faults in force."""
    for _ in range(2):
        client.tickets(ANA, title="Twice", data={"notificationDeliveryId": "d1"})
    client.tickets(EVA, title="Once")
    sandbox.add_fault("504-delivered", share=0.25, times=3, seconds=60, project="@acme/other")
    page = client.call("GET", "/").text
    assert page.index("Once") < page.index("Twice")
    assert "2 times, 1 repeated" in page
    assert "504-delivered · 25 % · 3 times more · @acme/other · for 60 s" in page


def test_phones_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limits the longest known phones, the oldest messages and fingerprints are forgotten."""
    monkeypatch.setattr(phones, "MAX_PHONES", 200)
    monkeypatch.setattr(phones, "MAX_KEPT", 50)
    monkeypatch.setattr(phones, "MAX_FINGERPRINTS", 100)
    known = phones.Phones()
    for number in range(1000):
        known.deliver(f"ExponentPushToken[{number}]", {"title": "a"}, 0.0, 5)
    assert len(known) <= 200
    page, _ = known.page(1000, 0)
    assert page[-1].token == "ExponentPushToken[999]"
    assert sum(len(phone.messages()) for phone in page) == 50
    assert len(known._known) + len(known._known_before) <= 200
    assert known.delivered == 1000
    following, more = known.page(10, 995)
    assert ([phone.token for phone in following], more) == ([f"ExponentPushToken[{n}]" for n in range(995, 1000)], None)


def test_a_busy_phone_keeps_its_last_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgetting old messages in all never takes a newer one from a phone that showed fewer."""
    monkeypatch.setattr(phones, "MAX_KEPT", 10)
    known = phones.Phones()
    for number in range(25):
        known.deliver(ANA, {"title": str(number)}, 0.0, 3)
    phone = known.find(ANA)
    assert phone is not None
    assert [each["message"]["title"] for each in phone.messages()] == ["22", "23", "24"]


def test_tickets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the oldest tickets are forgotten, with what was special about them; the newest are known."""
    monkeypatch.setattr(tickets, "MAX_TICKETS", 1000)
    given = tickets.Tickets(tickets.Clock(1))
    ids = []
    for _ in range(30):
        ids += given.issue(100)
        given.mark(ids[-1], parse("receipt-ExpoError"), "ExponentPushToken[eva]")
    receipts = given.receipts(ids, 0)
    assert 900 <= len(receipts) <= 1000
    assert list(receipts) == ids[-len(receipts) :]
    assert receipts[ids[-1]]["status"] == "error"
    assert len(given._special) <= 10
    assert given.given == 3000


def test_projects_and_counts_of_faults_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Projects at rest are forgotten before one in flight, and so are counts of limited faults."""
    monkeypatch.setattr(projects, "MAX_PROJECTS", 10)
    monkeypatch.setattr(tokens, "_MAX_MET", 10)
    known, met = projects.Projects(), tokens.Met()
    known.enter("@acme/busy")
    for number in range(50):
        known.take(f"@acme/{number}", 1, 600, now=0.0)
        token = f"ExponentPushToken[{number}!500*1]"
        met.pick(token, tokens.words(token), ("request",))
    assert len(known.peaks()) == 10
    assert known.peaks()["@acme/busy"] == 1
    assert len(met._counts) == 10


def test_a_port_in_use() -> None:
    """A port that is taken is a sentence with a next step."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RelevoError, match="in use"):
            Sandbox(port=port).start()


def test_wrong_settings_at_the_start() -> None:
    """A sandbox with a wrong setting is refused before it listens."""
    with pytest.raises(InvalidInputError, match="rate_per_s"):
        Sandbox(rate_per_s=-1)


def test_stopping_twice() -> None:
    """Stopping is safe to repeat, before a start too."""
    never = Sandbox()
    never.stop()
    with Sandbox() as sandbox:
        sandbox.stop()
    assert sandbox.totals()["requests"] == 0


@pytest.mark.parametrize("event", [None, [], {}, "x"])
def test_a_tap_on_what_a_stranger_sent(event: object) -> None:
    """A message whose data names no event, as any sender may send one, is tapped, and nothing is told to Relevo."""
    app = PhoneApp("http://127.0.0.1:9", UUID(int=7), "secret")
    assert app.tap({"notificationDeliveryId": 1, "notificationEventId": event}) == "not told"


BUTTONS = [{"id": "track", "title": "Track it", "link": "/17"}, {"id": "later", "title": "Later"}]


@pytest.mark.parametrize(
    "message",
    [
        {"data": {"actions": BUTTONS}},
        {"data": {"actions": json.dumps(BUTTONS)}},
        {"actions": BUTTONS},
        {"actions": [{"action": each["id"], "title": each["title"]} for each in BUTTONS], "data": {}},
    ],
    ids=["expo", "fcm", "webpush", "declarative"],
)
def test_buttons_of_every_push_service(message: dict[str, Any]) -> None:
    """A phone finds the buttons wherever its push service has them."""
    assert phones.actions_of(message) == [("track", "Track it"), ("later", "Later")]


@pytest.mark.parametrize("odd", [None, 7, "x", "{}", [None, 7, {}, {"id": 1, "title": "a"}], {"id": "a"}])
def test_odd_buttons_are_none(odd: object) -> None:
    """Anybody may send anything as actions."""
    assert phones.actions_of({"data": {"actions": odd}}) == []


def test_a_tap_on_a_button_is_reported_with_its_id(client: Any) -> None:
    """The page shows a push's buttons, and the app tells Relevo which one was pressed."""
    names = {"notificationDeliveryId": 7, "notificationEventId": 9, "reportOpened": True}
    client.tickets(ANA, title="On its way", data=names | {"actions": BUTTONS})
    with FakeServer(lambda _asked: Answer(body=b"{}")) as relevo:
        app = {"url": relevo.url, "installationId": str(UUID(int=7)), "secret": "s"}
        client.call("POST", f"/sandbox/phones/{quote(ANA)}", json={"app": app})
        page = client.call("GET", f"/phones/{quote(ANA)}").text
        assert re.findall(r'name="action" value="([^"]*)"', page) == ["track", "later"]
        form = {"phone": ANA, "delivery": "7", "action": "track"}
        client.call("POST", "/tap", data=form)
        told = {asked.path: json.loads(asked.body) for asked in relevo.asked}
    assert told == {
        f"/v1/installations/{UUID(int=7)}/opened": {"delivery_id": 7, "action": "track"},
        "/v1/inbox/9/read": {},
    }
