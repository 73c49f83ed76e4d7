"""Ids, cursors, names and waits of another project: they answer as if they were nobody's, and reach nothing."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import requests

import relevo
from relevo.access import api_tokens
from relevo.http import guard, waiting
from support.http_phones import Phones
from support.http_server import EVENT, Client, fan_out
from support.inbox_pollers import Poll
from support.inboxes import sent
from support.two_projects import Side, plant

NOWHERE = 888_000_001
NOBODY = UUID("cccccccc-0000-4000-8000-000000000003")


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look as often as a test can use, and know no token from before."""
    monkeypatch.setattr(waiting, "LOOK_S", 0.02)
    monkeypatch.setattr(waiting, "_REST", 1)
    monkeypatch.setattr(guard, "FRESH_S", 0)


def shape(answer: requests.Response, *ids: object) -> tuple[int, str]:
    """Return what an answer says, without the ids that were asked for."""
    said = answer.text.replace(answer.headers.get("x-request-id", "?"), "")
    for each in ids:
        said = said.replace(str(each), "ID")
    return answer.status_code, said


def alike(
    client: Client, method: str, path: str, foreign: object, nobodys: object, body: Any = None
) -> tuple[int, str]:
    """Call with another project's id and with nobody's; return the answer, which is one and the same."""
    found = []
    for given in (foreign, nobodys):
        filled = {name: given if value == "ID" else value for name, value in (body or {}).items()}
        answer = client.call(method, path.format(given), json=filled if body is not None else None)
        found.append(shape(answer, given))
    assert found[0] == found[1], (method, path)
    return found[0]


def cursor_of(side: Side) -> str:
    """Return the place of the newest item of an inbox."""
    return str(side.app.get("/v1/inbox?owner=ana").json()["newest"])


def test_cursors_of_another_inbox_lead_nowhere(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """A place, a page's cursor or a digest of another project's inbox is to a token and to a phone as one that nobody has."""
    shop, bank = plant(phones.served, conn)
    place = cursor_of(bank)
    phone = Client(phones.served.server.url, shop.secret)
    for client, owner in ((shop.app, "owner=ana&"), (phone, "")):
        assert alike(client, "GET", f"/v1/inbox?{owner}before={{}}", place, int(place) + 5)[0] == 200
        assert alike(client, "GET", f"/v1/inbox?{owner}digest={{}}", bank.event, NOWHERE)[0] == 200
        assert alike(client, "GET", f"/v1/inbox?{owner}after={{}}&wait_ms=1", place, int(place) + 5)[0] == 200
    phone.close()
    assert (
        alike(
            shop.app, "GET", f"/v1/events/{shop.event}/deliveries?cursor={{}}", bank.phone, str(bank.phone)[:-1] + "9"
        )[0]
        == 200
    )
    for kind, mine in (("events", bank.event), ("deliveries", bank.delivery), ("marks", place)):
        told = alike(
            shop.app,
            "POST",
            "/v1/owners/export",
            str(mine),
            str(int(mine) + 1),
            {"owner": "ana", "kind": kind, "after": "ID"},
        )
        assert told[0] == 200


def test_names_in_bodies_are_not_there_either(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """An event or preview for another project's phone, and an inbox of it, answer as for a phone that nobody registered."""
    shop, bank = plant(phones.served, conn)
    for path in ("/v1/events/preview", "/v1/events"):
        seen = []
        for number, phone in enumerate((bank.phone, NOBODY)):
            event = {
                "type": "t",
                "key": f"to-{number}",
                "title": "T",
                "audience": "installations",
                "installations": [str(phone)],
            }
            answer = shop.app.post(path, event)
            told = answer.json()
            told.pop("event_id", None)
            seen.append((answer.status_code, str(told).replace(str(phone), "ID")))
        assert seen[0] == seen[1], path
    for path in ("/v1/inbox?installation_id={}", "/v1/inbox/counts?installation_id={}"):
        assert alike(shop.app, "GET", path, bank.phone, NOBODY)[0] == 404


def test_a_webhook_s_name_is_not_taken_from_another_project(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """Tokens of two projects register webhooks of one name, and neither learns of the other; the same again changes nothing."""
    shop, bank = plant(phones.served, conn)
    hook, ids = {"provider": "webhook", "token": "billing"}, {side.project: uuid4() for side in (bank, shop)}
    for status in (201, 200):
        for side in (bank, shop):
            answer = side.app.call("PUT", f"/v1/installations/{ids[side.project]}", json=hook)
            assert answer.status_code == status, answer.text
    rows = conn.execute(
        "select token, project from relevo.device_installations where provider = 'webhook' order by 1"
    ).fetchall()
    assert rows == [("bank/billing", "bank"), ("shop/billing", "shop")]


def test_a_waiting_caller_is_let_in_anew(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """What comes after a token was revoked, or a phone got another owner, is told to nobody who still waits with it."""
    phone, secret = phones.new(owner="ana")
    revoked, token = api_tokens.make(phones.served.app.database, "gone", "app")
    poll = Poll(phones.served)
    by_token, by_phone = poll.start(revoked, owner="ana"), poll.start(secret)
    event = phones.app.post("/v1/events", EVENT | {"scheduled_at": "2199-01-01T00:00:00Z"}).json()["event_id"]
    waits = poll.ask(revoked, f"/v1/events/{event}", wait_ms=30_000)
    api_tokens.revoke(phones.served.app.database, token.id)
    phones.put(phone, phones.app, owner="bea")
    sent(conn, [phone], "for bea")
    other, _ = phones.new(owner="ana", token="ExponentPushToken[other]")
    sent(conn, [other], "for ana")
    phones.app.post(f"/v1/events/{event}/cancel")
    assert [each.result(30).status_code for each in (by_token, by_phone, waits)] == [401, 401, 401]


def test_a_waiting_caller_is_not_woken_by_an_equal_name(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """An event for an owner of the same name in another project neither ends a wait nor moves its page."""
    shop, _bank = plant(phones.served, conn)
    poll = Poll(phones.served)
    known = cursor_of(shop)
    call = poll.start(shop.app.token, owner="ana", after=known, wait_ms=3_000)
    with conn.transaction():
        relevo.enqueue(conn, relevo.Event("t", "new", "Quokka two", audience=relevo.Owners("ana"), project="bank"))
    fan_out(phones.served)
    assert [item["title"] for item in call.result(30).json()["items"]] == ["Wombat one"]
    assert call.result().json()["newest"] == known
