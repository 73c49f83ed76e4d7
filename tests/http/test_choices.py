"""Choices over HTTP: the app's server for its owners, a phone for its own owner and nobody else's."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest
import requests

import relevo
from support.http_server import Client, Served

TEXTS = {"en": {"name": "Offers", "sentence": "Once a week."}, "es": {"name": "Ofertas"}}


@pytest.fixture
def offers(served: Served) -> str:
    """A category that is off, made over HTTP."""
    made = put(served.client("operator"), "/v1/categories/offers", {"rule": "off", "texts": TEXTS})
    assert (made.status_code, made.json()) == (200, {"category": "offers", "warnings": []})
    return "offers"


def put(caller: Client, path: str, body: dict[str, Any]) -> requests.Response:
    """Put a body at a place."""
    return caller.call("PUT", path, json=body)


def registered(served: Served, owner: str | None, project: str = "default") -> tuple[str, str]:
    """Register a phone; return its id and its secret."""
    installation = str(uuid4())
    body = {"token": f"ExponentPushToken[{installation}]", "project": project}
    made = put(served.client("app"), f"/v1/installations/{installation}", body | ({"owner": owner} if owner else {}))
    return installation, made.json()["secret"]


def test_a_phone_chooses_for_its_owner(served: Served, conn: psycopg.Connection[Any], offers: str) -> None:
    """A phone reads the categories in its language and chooses; it holds for all phones of its owner, and is recorded as a phone's."""
    phone, secret = registered(served, "ana")
    other, _ = registered(served, "ana")
    device = Client(served.server.url, secret)
    [found] = device.get(f"/v1/installations/{phone}/choices", params={"locale": "es-CL"}).json()["items"]
    assert (found["name"], found["rule"], found["push"], found["chosen_at"]) == ("Ofertas", "off", False, None)
    chosen = {"wanted": True, "words": "Sí, quiero ofertas.", "locale": "es-CL"}
    assert put(device, f"/v1/installations/{phone}/choices/offers", chosen).json() == {"changed": True}
    assert put(device, f"/v1/installations/{phone}/choices/offers", chosen).json() == {"changed": False}
    accepted = dict(conn.execute("select installation_id::text, accepted from relevo.device_installations").fetchall())
    assert accepted == {phone: ["offers"], other: ["offers"]}
    kept = relevo.export_owner(conn, "choices", owner="ana").items
    assert [(item["face"], item["words"]) for item in kept] == [("phone", "Sí, quiero ofertas.")] * 2


def test_a_phone_has_a_budget_of_choices(served: Served, conn: psycopg.Connection[Any], offers: str) -> None:
    """The phones of an owner change a category ten times within a day, then 429 names the limit; the same choice again is free, and a withdrawal
    is never refused. Another category, another owner, the app's server, and the phone a day later are not refused."""
    relevo.set_category(conn, "news")
    phones = [registered(served, owner) for owner in ("ana", "ana", "eva")]
    devices = [(f"/v1/installations/{phone}/choices", Client(served.server.url, secret)) for phone, secret in phones]

    def answer(device: int, wanted: bool, category: str = "offers") -> requests.Response:
        place, client = devices[device]
        return put(client, f"{place}/{category}", {"wanted": wanted, "words": "x" * 2_000})

    assert [answer(n % 2, n % 2 == 0).status_code for n in range(10)] == [200] * 10
    refused = answer(0, True)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "3600")
    assert "may change category offers 10 times within 24 hours" in refused.json()["detail"]
    assert answer(1, False).json() == {"changed": False}
    assert answer(0, True, "news").json() == {"changed": True}
    assert answer(2, True).json() == {"changed": True}
    body = {"owner": "ana", "category": "offers", "wanted": True}
    assert served.client("app").post("/v1/owners/choices", body).json() == {"changed": True}
    assert answer(0, False).json() == {"changed": True}
    place, client = devices[0]
    assert put(client, f"{place}/offers", {"wanted": False, "words": "Still no."}).status_code == 429
    assert answer(0, True).status_code == 429
    conn.execute("update relevo.consents set chosen_at = chosen_at - interval '1 day'")
    assert answer(0, True).json() == {"changed": True}


def test_a_phone_has_a_budget_of_all_categories(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A hundred changes within a day are enough for all categories together."""
    for number in range(11):
        relevo.set_category(conn, f"c{number}")
    phone, secret = registered(served, "ana")
    many = """insert into relevo.consents (owner, project, category, channel, wanted, face, chosen_at)
    select 'ana', 'default', 'c' || n % 10, 'push', n / 10 % 2 = 0, 'phone', now() - n * interval '1 minute' from generate_series(0, 99) n"""
    conn.execute(many)
    device, place = Client(served.server.url, secret), f"/v1/installations/{phone}/choices/c10"
    refused = put(device, place, {"wanted": True})
    assert (refused.status_code, "may change categories 100 times" in refused.text) == (429, True)
    assert put(device, place, {"wanted": False}).json() == {"changed": True}


def test_the_caller_does_not_choose_its_face(served: Served, conn: psycopg.Connection[Any], offers: str) -> None:
    """A choice is recorded as the app's, the phone's or an operator's by what the caller proved; a body cannot claim one."""
    phone, secret = registered(served, "ana")
    place = f"/v1/installations/{phone}/choices/offers"
    callers = [
        (Client(served.server.url, secret), "phone"),
        (served.client("app"), "app"),
        (served.client("operator"), "operator"),
    ]
    for number, (caller, face) in enumerate(callers):
        assert (
            put(caller, place, {"wanted": True, "channel": "push", "words": f"On a page, {face}."}).status_code == 200
        )
        assert put(caller, place, {"wanted": True, "face": "operator"}).status_code == 400
        if face != "phone":
            body = {"owner": "ana", "category": "offers", "wanted": bool(number % 2), "channel": "web"}
            assert caller.post("/v1/owners/choices", body).status_code == 200
            assert caller.post("/v1/owners/choices", body | {"face": "operator"}).status_code == 400
    faces = conn.execute("select channel, face from relevo.consents order by id").fetchall()
    assert faces == [("push", "phone"), ("push", "app"), ("web", "app"), ("push", "operator"), ("web", "operator")]


def test_a_phone_chooses_for_nobody_else(served: Served, conn: psycopg.Connection[Any], offers: str) -> None:
    """Another phone's id, another's secret, no secret, a body that names an owner, a phone without owner: nothing is written."""
    ana, _ = registered(served, "ana")
    _, secret = registered(served, "eva")
    nobodys, own = registered(served, None)
    place, body = f"/v1/installations/{ana}/choices/offers", {"wanted": True}
    assert put(Client(served.server.url, secret), place, body).status_code == 401
    assert put(served.client(), place, body).status_code == 401
    assert Client(served.server.url, secret).get(f"/v1/installations/{ana}/choices").status_code == 401
    mine = Client(served.server.url, own)
    assert put(mine, f"/v1/installations/{nobodys}/choices/offers", {**body, "owner": "ana"}).status_code == 400
    refused = put(mine, f"/v1/installations/{nobodys}/choices/offers", body)
    assert (refused.status_code, "has no owner" in refused.text) == (403, True)
    assert conn.execute("select count(*) from relevo.consents").fetchone() == (0,)


def test_the_app_chooses_blocks_and_exports(served: Served, conn: psycopg.Connection[Any], offers: str) -> None:
    """A token of one project does all of it there; an operator's is recorded without the name."""
    relevo.register(conn, relevo.Installation("ExponentPushToken[a]", owner="ana", project="shop"))
    relevo.register(conn, relevo.Installation("ExponentPushToken[b]", owner="ana"))
    shop = served.client("app", project="shop")
    assert shop.post("/v1/owners/choices", {"owner": "ana", "category": "offers", "wanted": True}).json() == {
        "changed": True
    }
    [listed] = shop.get("/v1/categories", params={"owner": "ana"}).json()["items"]
    assert listed["push"] is True
    [elsewhere] = served.client("app").get("/v1/categories", params={"owner": "ana"}).json()["items"]
    assert elsewhere["push"] is False
    assert shop.post("/v1/owners/block", {"owner": "ana", "reason": "asked"}).json() == {"installations": 1}
    blocked = conn.execute("select project from relevo.device_installations where blocked").fetchall()
    assert blocked == [("shop",)]
    page = shop.post("/v1/owners/export", {"owner": "ana", "kind": "installations"}).json()
    assert [item["project"] for item in page["items"]] == ["shop"]
    assert "ExponentPushToken" not in str(page)
    assert served.client("operator").post("/v1/owners/unblock", {"owner": "ana"}).json() == {"installations": 2}
    [(target,)] = conn.execute("select target::text from relevo.audit_log where action = 'unblock_owner'").fetchall()
    assert "ana" not in target


def test_what_is_wrong_is_named(served: Served) -> None:
    """A wrong field is refused by name; a category that is not there is told in a sentence."""
    for path, body, field in [
        ("/v1/owners/choices", {"owner": "ana", "category": "offers"}, "wanted"),
        ("/v1/owners/choices", {"owner": "ana", "category": "offers", "wanted": 1}, "wanted"),
        ("/v1/owners/choices", {"owner": "ana", "category": "offers", "wanted": True, "channel": "mail"}, "channel"),
        ("/v1/owners/export", {"owner": "ana", "kind": "all"}, "kind"),
        ("/v1/owners/block", {"reason": "no owner"}, "owner"),
    ]:
        told = served.client("app").post(path, body)
        assert (told.status_code, told.json()["errors"][0]["field"]) == (400, field), path
        unknown = served.client("app").post("/v1/owners/choices", {"owner": "ana", "category": "none", "wanted": True})
        assert (unknown.status_code, "there is no category none" in unknown.text) == (400, True), path
