"""Attributes over HTTP: the app's server sets any in its project, a phone of itself those that begin with device."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from support.http_server import Client, Served


def registered(served: Served, caller: Client, **more: Any) -> tuple[str, Client]:
    """Register a phone; return its id, and a caller with its secret."""
    installation = str(uuid4())
    body = {"token": f"ExponentPushToken[{installation}]", "owner": "ana", **more}
    made = caller.call("PUT", f"/v1/installations/{installation}", json=body)
    return installation, Client(served.server.url, made.json()["secret"])


def test_the_apps_server_sets_them(served: Served) -> None:
    """Of an owner and of a phone, as it registers, too: what is left out stays, null removes, and a phone's go first."""
    app = served.client("app")
    phone, _ = registered(served, app, attributes={"city": "Talca", "plan": "trial"})
    place = f"/v1/installations/{phone}/attributes"
    assert app.post(
        "/v1/owners/attributes", json={"owner": "ana", "attributes": {"plan": "pro", "age": 41}}
    ).json() == {"changed": True}
    assert app.get(place).json() == {"attributes": {"plan": "trial", "age": 41, "city": "Talca"}}
    assert app.post(place, json={"attributes": {"plan": None}}).json() == {"changed": True}
    assert app.post(place, json={"attributes": {"plan": None, "city": "Talca"}}).json() == {"changed": False}
    assert app.get(place).json() == {"attributes": {"plan": "pro", "age": 41, "city": "Talca"}}
    again = {"token": f"ExponentPushToken[{phone}]", "attributes": {"city": None}}
    assert app.call("PUT", f"/v1/installations/{phone}", json=again).status_code == 200
    assert app.get(place).json() == {"attributes": {"plan": "pro", "age": 41}}
    event = {"type": "a", "key": "b", "title": "c", "audience": "owners", "owners": ["ana"], "where": {"plan": "pro"}}
    assert app.post("/v1/events/preview", json=event).json()["count"] == 1


def test_a_phone_says_what_it_may_of_itself(served: Served) -> None:
    """With its secret it sets and reads device.…; it claims no plan, not even as it registers, sees none, and touches no other phone."""
    app = served.client("app")
    phone, device = registered(served, app)
    other, _ = registered(served, app)
    place = f"/v1/installations/{phone}/attributes"
    app.post("/v1/owners/attributes", json={"owner": "ana", "attributes": {"risk": "high"}})
    assert device.post(place, json={"attributes": {"device.theme": "dark", "device.old": None}}).json() == {
        "changed": True
    }
    assert device.get(place).json() == {"attributes": {"device.theme": "dark"}}
    for attributes in ({"plan": "pro"}, {"device.theme": "light", "risk": None}, {"devicetheme": "x"}):
        refused = device.post(place, json={"attributes": attributes})
        assert refused.status_code == 403
        body = {"token": f"ExponentPushToken[{phone}]", "owner": "ana", "attributes": attributes}
        assert device.call("PUT", f"/v1/installations/{phone}", json=body).status_code == 403
    assert app.get(place).json() == {"attributes": {"risk": "high", "device.theme": "dark"}}
    for who, status in ((device, (401, 403, 404)), (Client(served.server.url), (401,))):
        for method, body in (("GET", None), ("POST", {"attributes": {"device.theme": "x"}})):
            answer = who.call(method, f"/v1/installations/{other}/attributes", **({"json": body} if body else {}))
            assert answer.status_code in status


def test_another_projects_token_sees_nothing(served: Served) -> None:
    """A token of one project neither reads nor sets attributes of a phone of another, as if it were not there."""
    phone, _ = registered(served, served.client("app", project="bank"), attributes={"plan": "pro"})
    place = f"/v1/installations/{phone}/attributes"
    shop = served.client("app", project="shop")
    assert shop.get(place).status_code == 404
    assert shop.post(place, json={"attributes": {"plan": None}}).status_code == 404
    assert served.client("app", project="bank").get(place).json() == {"attributes": {"plan": "pro"}}


REFUSED: list[Any] = [{"a": {"b": 1}}, {"a": ""}, {"a": [1]}, {"1": "x"}, {f"a{n}": 1 for n in range(51)}, [], None]


@pytest.mark.parametrize("given", REFUSED)
def test_what_is_no_attribute_is_refused(served: Served, given: Any) -> None:
    """It is refused by the name of its field, and nothing is kept."""
    app = served.client("app")
    phone, _ = registered(served, app)
    for path in (f"/v1/installations/{phone}/attributes", "/v1/owners/attributes"):
        whose = {} if "installations" in path else {"owner": "ana"}
        answer = app.post(path, json={**whose, "attributes": given})
        assert answer.status_code == 400
        assert "attributes" in answer.text
    assert app.get(f"/v1/installations/{phone}/attributes").json() == {"attributes": {}}
