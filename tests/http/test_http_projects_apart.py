"""Nothing crosses from one project to another: every route, called by everybody, beside a project of equal names."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import requests
from fastapi.routing import APIRoute

import relevo
from relevo import Installation
from relevo.http import api
from relevo.operators import events, owners
from relevo.operators.audience import Nobody
from support.api_routes import ROLES, ROUTES, Route, body_of, filled
from support.http_phones import Phones, sign
from support.http_server import Client, Served, fan_out
from support.two_projects import MARKS, SNAPSHOT, Side, plant

OPERATED = ("/v1/ops", "/dashboard", "/metrics")


def served_routes() -> Iterator[tuple[str, str]]:
    """Yield method and path of everything that can be reached."""
    for router in api.ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            yield from ((method, route.path) for method in route.methods)


def test_every_route_is_on_the_list() -> None:
    """Whoever adds a route says in tests/support/api_routes.py who gets in: the list is no copy of the rules."""
    assert set(served_routes()) == set(ROUTES)


@pytest.mark.parametrize(
    ("role", "scope"), [(None, None), ("wrong", None), *product(("app", "viewer", "operator"), ("shop", None))]
)
def test_each_door_opens_for_whom_it_should(phones: Phones, role: str | None, scope: str | None) -> None:
    """Each caller gets past each door, or meets 401 or 403, as the list says; the ids are nobody's."""
    served = phones.served
    if role in (None, "wrong"):
        client = Client(served.server.url, "relevo_nobody" if role else None)
    else:
        client = served.client(role, project=scope)
    for (method, path), route in ROUTES.items():
        if route.door in ("open", "login") or (role == "operator" and scope is None and path.startswith(OPERATED)):
            continue
        answer = _call(client, method, path, route, 1, str(uuid4()), 1)
        assert _came_to(answer) == _expected(route, role, scope), (method, path, answer.status_code, answer.text[:200])
    client.close()


def _expected(route: Route, role: str | None, scope: str | None) -> str:
    if role in (None, "wrong"):
        return "401"
    roles, scoped = ROLES[route.door]
    return "in" if role in roles and (scoped or scope is None) else "403"


def test_a_phone_gets_in_by_its_own_door_alone(phones: Phones) -> None:
    """A phone's secret opens its own routes and its inbox: not another phone's, and nothing that asks for a token."""
    for (method, path), route in ROUTES.items():
        if route.door in ("open", "login"):
            continue
        mine, secret = phones.new(owner="ana", token=f"ExponentPushToken[{uuid4().hex}]")
        other, _ = phones.new(owner="ana", token=f"ExponentPushToken[{uuid4().hex}]", project="bank")
        client = Client(phones.served.server.url, secret)
        asked = Route(route.door, fills=route.fills, body=None if route.door == "reader" else route.body)
        for phone in (other, mine):
            answer = _call(client, method, path, asked, 1, str(phone), 1)
            is_in = route.door in ("reader", "tenders") or (route.door == "phone" and phone == mine)
            assert _came_to(answer) == ("in" if is_in else "401"), (method, path, answer.status_code, answer.text[:200])
        client.close()


def test_a_signature_opens_registration_alone(phones: Phones) -> None:
    """What the app's server signs for a phone is good for its registration, and for nothing else."""
    for (method, path), route in ROUTES.items():
        if route.door in ("open", "login"):
            continue
        phone = uuid4()
        headers = {"X-Relevo-Signature": sign(phone)}
        address, body = filled(path, route, 1, str(phone), 1), body_of(route, 1)
        body = {} if path.endswith("{installation_id}") else body
        answer = phones.client.call(method, address, json=body, headers=headers)
        registers = (method, path) == ("PUT", "/v1/installations/{installation_id}")
        assert _came_to(answer) == ("in" if registers else "401"), (method, path, answer.status_code, answer.text[:200])


def _call(
    client: Client, method: str, path: str, route: Route, event: int, phone: str, delivery: int
) -> requests.Response:
    return client.call(method, filled(path, route, event, phone, delivery), json=body_of(route, delivery))


def _came_to(answer: requests.Response) -> str:
    assert answer.status_code not in (405, 500), answer.text[:300]
    return str(answer.status_code) if answer.status_code in (401, 403) else "in"


def test_nothing_of_another_project_is_told_or_touched(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """Callers of one project call every route with their own ids and with the other's: no answer has anything of the other
    project in it, and not a row of the other project changes."""
    shop, bank = plant(phones.served, conn)
    before = conn.execute(SNAPSHOT).fetchall()
    assert {row[0] for row in before} >= {"events", "phones", "deliveries", "inboxes", "rules", "caps", "subscriptions"}
    phone = Client(phones.served.server.url, shop.secret)
    told = ""
    for (method, path), route in ROUTES.items():
        for client in (phone, shop.viewer, shop.app, shop.operator):
            for side in (bank, shop):
                told += _told(client, method, path, route, side)
        assert conn.execute(SNAPSHOT).fetchall() == before, (method, path)
    assert "Wombat one" in told
    assert "Wombat missed" not in told
    phone.close()


def _told(client: Client, method: str, path: str, route: Route, side: Side) -> str:
    """Call a route with the ids of a side; return what was said, which has nothing of the second project in it."""
    plain = (
        Route(route.door, fills=route.fills) if route.door == "reader" and client.token.startswith("device") else route
    )
    address, body = filled(path, plain, side.event, str(side.phone), side.delivery), body_of(plain, side.delivery)
    answer = client.call(method, address, json=body)
    said = f"{answer.headers}{answer.text}".replace(answer.headers.get("x-request-id", "?"), "")
    if route.door != "open":
        for mark in MARKS:
            leaks = mark in said.replace(str(side.phone), "").replace(str(side.event), "").replace(
                str(side.delivery), ""
            )
            assert not leaks, (method, path, client.token[:10], mark, said[:2000])
    return said


def test_who_is_forgotten_in_one_project_is_known_in_the_other(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """A token of one project forgets an owner: nothing of that project names the owner any more, and all of the other stays."""
    shop, bank = plant(phones.served, conn)
    for side in (shop, bank):
        assert side.app.post(f"/v1/events/{side.event}/complete", {"owner": "ana"}).status_code == 200
    before, of_shop = conn.execute(SNAPSHOT).fetchall(), SNAPSHOT.replace("'bank'", "'shop'")
    naming = f"select s.kind, s.row::text from ({of_shop}) s(kind, row) where s.row::text like '%%\"ana\"%%'".encode()
    assert {kind for kind, _ in conn.execute(naming)} >= {
        "phones",
        "owners",
        "completions",
        "inboxes",
        "rules",
        "consents",
    }
    assert shop.app.post("/v1/owners/forget", {"owner": "ana"}).json() == {"installations": 1}
    assert conn.execute(naming).fetchall() == []
    assert conn.execute(SNAPSHOT).fetchall() == before


KINDS = ("installations", "events", "deliveries", "digests", "marks", "kept_items", "choices", "rules")


def test_an_export_of_one_project_has_nothing_of_another(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Each kind of an owner's export holds what the token's project has of the name, and nothing of the other project."""
    shop, bank = plant(served, conn)
    found = []
    for kind in KINDS:
        asked = {"owner": "ana", "kind": kind}
        own, other = (side.app.post("/v1/owners/export", asked) for side in (shop, bank))
        assert [mark for mark in MARKS if mark in own.text] == [], kind
        found += [kind] if own.json()["items"] and other.json()["items"] else []
    assert {"installations", "events", "deliveries", "marks", "choices", "rules"} <= set(found)


def test_what_is_not_there_and_what_is_anothers_look_alike(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """To a token of one project another's event, phone, item and subscription are as if they were not there: status and words."""
    shop, bank = plant(phones.served, conn)
    for (method, path), route in ROUTES.items():
        if ("{event_id}" not in path and "{installation_id}" not in path) or route.door not in (
            "app",
            "read",
            "phone",
            "reader",
        ):
            continue
        if (method, path) == ("PUT", "/v1/installations/{installation_id}"):
            continue  # an id that nobody has is registered by it
        nowhere, nobody = 999_999_999, UUID("cccccccc-0000-4000-8000-000000000003")
        seen = [
            _shape(
                shop.app,
                method,
                filled(path, route, event, str(phone), delivery),
                body_of(route, delivery),
                event,
                phone,
            )
            for event, phone, delivery in ((bank.event, bank.phone, bank.delivery), (nowhere, nobody, nowhere))
        ]
        assert seen[0] == seen[1], (method, path)


def _shape(client: Client, method: str, address: str, body: Any, event: int, phone: UUID) -> tuple[int, str]:
    answer = client.call(method, address, json=body)
    said = answer.text.replace(str(event), "EVENT").replace(str(phone), "PHONE")
    return answer.status_code, said.replace(answer.headers.get("x-request-id", "?"), "")


def test_a_phone_of_another_project_is_not_taken_over(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """A token of one project registers neither under another's installation id nor with another's push token."""
    shop, bank = plant(phones.served, conn)
    before = conn.execute(SNAPSHOT).fetchall()
    taken = shop.app.call("PUT", f"/v1/installations/{bank.phone}", json={"owner": "eve"})
    assert taken.status_code == 404
    stolen = shop.app.call("PUT", f"/v1/installations/{uuid4()}", json={"token": "ExponentPushToken[Quokka]"})
    assert stolen.status_code == 403
    assert conn.execute(SNAPSHOT).fetchall() == before


def test_what_is_read_in_one_project_waits_on_in_another(served: Served, conn: psycopg.Connection[Any]) -> None:
    """An event for everyone that an owner read in one project is over on the owner's phones there, and not for an equal name elsewhere."""
    shop, bank = plant(served, conn)
    conn.execute("insert into relevo.event_types (event_type, complete_on) values ('note', 'read')")
    event = served.client("app").post("/v1/events", {"type": "note", "key": "1", "title": "N", "audience": "everyone"})
    fan_out(served)
    assert shop.app.post(f"/v1/inbox/{event.json()['event_id']}/read", {"owner": "ana"}).json() == {"marked": True}
    explain = "select relevo.explain_event(%s, %s) ->> 'rule'"
    rules = [conn.execute(explain, [event.json()["event_id"], each.phone]).fetchone()[0] for each in (shop, bank)]
    assert rules == ["handled_elsewhere", "everyone"]


def test_who_has_no_phone_finds_it_in_the_events_project(served: Served, conn: psycopg.Connection[Any]) -> None:
    """An event that found no phone of its owner is in the inbox of its own project, and in no other."""
    shop, bank = plant(served, conn)
    for client, titles in (
        (shop.app, ["Wombat missed"]),
        (bank.app, ["Quokka missed"]),
        (served.client("app", project="x"), []),
    ):
        assert [item["title"] for item in client.get("/v1/inbox?owner=nobody").json()["items"]] == titles


def test_an_event_for_nobody_says_which_project_to_name(served: Served, conn: psycopg.Connection[Any]) -> None:
    """An event without project for owners whose phones are in other projects tells so, with the next step."""
    shop, _bank = plant(served, conn)
    [told] = conn.execute(
        "select relevo.explain_event(e.id, %s) from relevo.notification_events e where e.project is null", [shop.phone]
    ).fetchone()
    assert (told["gets_it"], told["rule"], "project shop" in told["reason"]) == (False, "not_named", True)
    [event] = conn.execute("select id from relevo.notification_events where project is null").fetchone()
    seen = events.story(served.app.database, event)
    assert seen is not None
    assert seen.nobody == Nobody("owners_elsewhere")


def test_owners_are_one_person_only_if_the_fleet_says_so(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A project's phone under an owner's name gets what is sent to that owner without project only where names are shared."""
    shop, _bank = plant(served, conn)
    inbox = "/v1/inbox?owner=ana"
    assert [item["title"] for item in shop.app.get(inbox).json()["items"]] == ["Wombat one"]
    assert [item["title"] for item in served.client("app", project="default").get(inbox).json()["items"]] == [
        "for default"
    ]
    owners.share(served.app.database, shared=True)
    anyone = served.client("app")
    anyone.post("/v1/events", {"type": "t", "key": "all", "title": "for all", "audience": "owners", "owners": ["ana"]})
    fan_out(served)
    assert "for all" in shop.app.get(inbox).text


@pytest.mark.parametrize("owner", [None, "ana"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_phone_that_moved_leaves_its_past_behind(
    phones: Phones, conn: psycopg.Connection[Any], owner: str | None, shared: bool
) -> None:
    """The app moves a phone to another project in SQL: callers of that project read nothing that came to it in the first."""
    owners.share(phones.served.app.database, shared=shared)
    bank, shop, all_projects = (phones.served.client("app", project=each) for each in ("bank", "shop", None))
    phone, token = uuid4(), f"ExponentPushToken[{uuid4().hex}]"
    body = {"token": token} | ({"owner": owner} if owner else {})
    assert bank.call("PUT", f"/v1/installations/{phone}", json=body).status_code == 201
    _say(bank, phone, "Quokka")
    _say(all_projects, phone, "Quokka of all")
    fan_out(phones.served)
    with conn.transaction():
        relevo.register(conn, Installation(token, owner=owner, project="shop", installation_id=phone))
    history, inbox = f"/v1/installations/{phone}/deliveries", f"/v1/inbox?{_whose(phone, owner)}"
    counts = f"/v1/inbox/counts?{_whose(phone, owner)}"
    assert _titles(shop, history) == _titles(shop, inbox) == []
    assert shop.get(counts).json() == {"unread": 0, "unseen": 0}
    assert _titles(all_projects, history) == ["Quokka of all", "Quokka"]
    _say(shop, phone, "Wombat")
    fan_out(phones.served)
    assert _titles(shop, history) == _titles(shop, inbox) == ["Wombat"]


def _whose(phone: UUID, owner: str | None) -> str:
    return f"owner={owner}" if owner else f"installation_id={phone}"


def _say(client: Client, phone: UUID, title: str) -> None:
    event = {"type": "t", "key": title, "title": title, "audience": "installations", "installations": [str(phone)]}
    assert client.post("/v1/events", event).status_code == 201


def _titles(client: Client, path: str) -> list[str]:
    return [item["title"] for item in client.get(path).json()["items"]]
