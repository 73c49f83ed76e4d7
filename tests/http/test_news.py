"""News over HTTP: subscribe, read, acknowledge; each project for itself."""

from __future__ import annotations

from typing import Any

import psycopg

from support.http_server import Client, Served, phone
from support.news_subscriptions import reap


def unregister(conn: psycopg.Connection[Any], project: str = "default") -> str:
    """Have a phone be unregistered, which is news."""
    made = phone(conn, project)
    conn.execute("select relevo.unregister_installation(%s)", [made])
    return str(made)


def read(client: Client, name: str, **asked: Any) -> Any:
    """Read a subscription's news."""
    return client.get(f"/v1/news/{name}", params=asked).json()["items"]


def test_news_are_read_until_they_are_acknowledged(served: Served, conn: psycopg.Connection[Any]) -> None:
    """What Python offers: subscribe once, read from where one was, acknowledge, and go on."""
    app = served.client("app")
    made = app.call("PUT", "/v1/news/shop", json={})
    assert (made.status_code, made.json()) == (201, {"subscription": "shop", "created": True})
    assert app.call("PUT", "/v1/news/shop", json={"kinds": ["installation.unregistered"]}).status_code == 200
    gone = [unregister(conn) for _ in range(2)]
    reap(served.app)
    first = read(app, "shop")
    assert [(each["kind"], each["installation_id"]) for each in first] == [
        ("installation.unregistered", each) for each in gone
    ]
    assert app.get("/v1/news/shop", params={"limit": 1}).json()["next"] == first[0]["position"]
    assert read(app, "shop", after=first[0]["position"]) == first[1:]
    upto = {"position": first[0]["position"]}
    assert app.post("/v1/news/shop/acknowledge", upto).json() == {"acknowledged": True}
    assert app.post("/v1/news/shop/acknowledge", upto).json() == {"acknowledged": False}
    assert read(app, "shop") == first[1:]
    assert app.post("/v1/news/shop/acknowledge", {"position": 10**9}).json()["errors"][0]["field"] == "position"


def test_a_project_hears_of_its_own_phones_alone(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A token of one project subscribes for that project, and reads and acknowledges nobody else's news."""
    shop, app = served.client("app", project="shop"), served.client("app")
    assert shop.call("PUT", "/v1/news/shop", json={}).status_code == 201
    assert app.call("PUT", "/v1/news/all", json={}).status_code == 201
    mine, other = unregister(conn, "shop"), unregister(conn)
    reap(served.app)
    assert [each["installation_id"] for each in read(shop, "shop")] == [mine]
    assert {each["installation_id"] for each in read(app, "all")} == {mine, other}
    assert shop.get("/v1/news/all").status_code == 404
    assert shop.post("/v1/news/all/acknowledge", {"position": 1}).status_code == 404
    assert shop.call("PUT", "/v1/news/mine", json={"project": "other"}).status_code == 403
    refused = shop.call("PUT", "/v1/news/mine", json={"kinds": ["event.finished"]})
    assert (refused.status_code, "event.finished goes with no project" in refused.text) == (400, True)


def test_equal_names_of_two_projects_are_two_subscriptions(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Two projects and the fleet subscribe by one name: each hears its own, and none hinders or changes another's."""
    shop, bank, app = served.client("app", project="shop"), served.client("app", project="bank"), served.client("app")
    for client in (shop, bank, app):
        assert client.call("PUT", "/v1/news/feed", json={}).status_code == 201
    for client in (shop, bank, app):
        assert client.call("PUT", "/v1/news/feed", json={"kinds": ["installation.unregistered"]}).status_code == 200
    mine, other = unregister(conn, "shop"), unregister(conn, "bank")
    reap(served.app)
    for client, heard in ((shop, {mine}), (bank, {other}), (app, {mine, other})):
        assert {each["installation_id"] for each in read(client, "feed")} == heard
    last = read(shop, "feed")[-1]["position"]
    assert shop.post("/v1/news/feed/acknowledge", {"position": last}).json() == {"acknowledged": True}
    assert read(shop, "feed") == []
    assert len(read(bank, "feed")) == 1
    app.call("PUT", "/v1/news/given", json={"project": "shop"})
    assert [shop.get("/v1/news/given").status_code, bank.get("/v1/news/given").status_code] == [200, 404]


def test_what_is_left_out_stays(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Of a fleet's and a project's subscription a call changes what it names alone; null removes the webhook."""

    def stored() -> list[tuple[Any, ...]]:
        return conn.execute(
            "select kinds, project, webhook from relevo.news_subscriptions order by created_at"
        ).fetchall()

    app, shop = served.client("app"), served.client("app", project="shop")
    given = {"kinds": ["token.disabled"], "webhook": "crm"}
    app.call("PUT", "/v1/news/a", json=given | {"project": "bank"})
    shop.call("PUT", "/v1/news/b", json=given)
    for client, name in ((app, "a"), (shop, "b")):
        assert client.call("PUT", f"/v1/news/{name}", json={}).status_code == 200
    assert stored() == [(["token.disabled"], "bank", "crm"), (["token.disabled"], "shop", "crm")]
    for client, name in ((app, "a"), (shop, "b")):
        client.call("PUT", f"/v1/news/{name}", json={"webhook": None})
    assert stored() == [(["token.disabled"], "bank", None), (["token.disabled"], "shop", None)]
    app.call("PUT", "/v1/news/a", json={"project": None})
    shop.call("PUT", "/v1/news/b", json={"project": None, "kinds": None})
    usual = ["delivery.failed", "installation.unregistered", "token.disabled"]
    assert stored() == [(["token.disabled"], None, None), (usual, "shop", None)]


def test_what_cannot_be_heard_is_named(served: Served) -> None:
    """A subscription that is not there, unknown kinds, null and names that are none."""
    app = served.client("app")
    for answer in (app.get("/v1/news/nobody"), app.post("/v1/news/nobody/acknowledge", {"position": 1})):
        assert (answer.status_code, "PUT /v1/news/NAME" in answer.text) == (404, True)
    for body, field in (
        ({"kinds": ["x"]}, "kinds.0"),
        ({"kinds": []}, "kinds"),
        ({"webhook": 5}, "webhook"),
        ({"x": 1}, "x"),
    ):
        refused = app.call("PUT", "/v1/news/a", json=body)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, field)
    assert app.call("PUT", "/v1/news/%20", json={}).status_code == 400
    assert served.client("viewer").get("/v1/news/nobody").status_code == 403
