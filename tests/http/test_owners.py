"""Owners over HTTP: their phones, log-out, what they handled, and forgetting them; each project for itself."""

from __future__ import annotations

from typing import Any

import psycopg

import relevo
from relevo.client import verbs
from support.http_server import Client, Served


def phone_of(conn: psycopg.Connection[Any], owner: str, project: str = "default") -> str:
    """Register a phone of somebody."""
    token = f"ExponentPushToken[{owner}-{project}]"
    return str(verbs.register(conn, relevo.Installation(token, owner=owner, project=project)))


def active(conn: psycopg.Connection[Any]) -> set[tuple[str, str]]:
    """Return owner and project of each phone that may receive."""
    return set(conn.execute("select owner, project from relevo.device_installations where active").fetchall())


def test_the_app_lists_an_owner_s_phones(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Newest first, as Python tells them; a token of one project sees those that are there."""
    mine, other = phone_of(conn, "ana"), phone_of(conn, "ana", "shop")
    phone_of(conn, "eva")
    app, shop = served.client("app"), served.client("app", project="shop")
    listed = app.get("/v1/installations", params={"owner": "ana"})
    assert (listed.status_code, [each["installation_id"] for each in listed.json()["items"]]) == (200, [other, mine])
    assert {each["receives"] for each in listed.json()["items"]} == {True}
    assert "ExponentPushToken" not in listed.text
    one = app.get("/v1/installations", params={"owner": "ana", "limit": 1}).json()["items"]
    assert [each["installation_id"] for each in one] == [other]
    seen = shop.get("/v1/installations", params={"owner": "ana"}).json()["items"]
    assert [each["project"] for each in seen] == ["shop"]
    assert app.get("/v1/installations", params={"owner": "nobody"}).json() == {"items": [], "next": None}
    assert app.get("/v1/installations").json()["errors"][0]["field"] == "owner"


def test_phones_of_other_projects_hide_none_of_one_s_own(served: Served, conn: psycopg.Connection[Any]) -> None:
    """An owner with 1,000 newer phones in another project is listed with the one in the caller's."""
    mine = phone_of(conn, "ana", "shop")
    conn.execute(
        "insert into relevo.device_installations (owner, token, project) "
        "select 'ana', 'ExponentPushToken[' || n || ']', 'other' from generate_series(1, 1000) n"
    )
    seen = served.client("app", project="shop").get("/v1/installations", params={"owner": "ana"}).json()["items"]
    assert [each["installation_id"] for each in seen] == [mine]


def test_an_owner_is_logged_out(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Every phone of theirs; a token of one project logs out the phones there, and nobody else's."""
    for owner, project in (("ana", "default"), ("ana", "shop"), ("eva", "shop")):
        phone_of(conn, owner, project)
    shop = served.client("app", project="shop")
    assert shop.post("/v1/owners/log-out", {"owner": "ana"}).json() == {"installations": 1}
    assert active(conn) == {("ana", "default"), ("eva", "shop")}
    assert served.client("app").post("/v1/owners/log-out", {"owner": "ana"}).json() == {"installations": 1}
    assert active(conn) == {("eva", "shop")}


def test_an_owner_has_handled_everything(served: Served, conn: psycopg.Connection[Any]) -> None:
    """What was before is not sent to their phones any more; of one project, to the phones there."""
    phone_of(conn, "ana")
    phone_of(conn, "ana", "shop")
    handled = "select project from relevo.device_installations where handled_before is not null order by 1"
    shop, app = served.client("app", project="shop"), served.client("app")
    assert shop.post("/v1/owners/complete", {"owner": "ana", "reason": "read"}).json() == {"completed": True}
    assert conn.execute(handled).fetchall() == [("shop",)]
    assert app.post("/v1/owners/complete", {"owner": "ana"}).json() == {"completed": True}
    assert conn.execute(handled).fetchall() == [("default",), ("shop",)]
    assert app.post("/v1/owners/complete", {"owner": "nobody"}).json() == {"completed": False}


def test_an_owner_is_forgotten(served: Served, conn: psycopg.Connection[Any]) -> None:
    """With the phones and what was said to them alone; one project's token leaves what others know of the name."""
    for project in ("default", "shop"):
        phone_of(conn, "ana", project)
    shop, app = served.client("app", project="shop"), served.client("app")
    event = {"type": "t", "title": "For Ana", "audience": "owners", "owners": ["ana"]}
    theirs = shop.post("/v1/events", {**event, "key": "shop"}).json()["event_id"]
    ours = app.post("/v1/events", {**event, "key": "all"}).json()["event_id"]
    assert shop.post("/v1/owners/forget", {"owner": "ana"}).json() == {"installations": 1}
    assert active(conn) == {("ana", "default")}
    titles = "select id, title from relevo.notification_events order by id"
    assert dict(conn.execute(titles).fetchall()) == {theirs: "forgotten", ours: "For Ana"}
    assert app.post("/v1/owners/forget", {"owner": "ana"}).json() == {"installations": 1}
    assert dict(conn.execute(titles).fetchall()) == {theirs: "forgotten", ours: "forgotten"}
    assert active(conn) == set()
    assert conn.execute("select count(*) from relevo.event_owners").fetchone() == (0,)
    assert app.post("/v1/owners/forget", {"owner": "ana"}).json() == {"installations": 0}


def test_what_an_operator_does_is_recorded_without_the_name(served: Served, conn: psycopg.Connection[Any]) -> None:
    """An operator's log-out and forgetting are in the record, by a hash of the name; the app's everyday verbs are not."""
    phone_of(conn, "ana")
    served.client("app").post("/v1/owners/complete", {"owner": "ana"})
    operator = served.client("operator")
    for verb in ("log-out", "complete", "forget"):
        assert operator.post(f"/v1/owners/{verb}", {"owner": "ana"}).status_code == 200
    assert [row[:2] for row in done(conn)] == [
        ("log_out_owner", "ok"),
        ("complete_owner", "ok"),
        ("forget_owner", "ok"),
    ]


def test_exports_blocks_and_forgetting_by_any_token_are_recorded(served: Served, conn: psycopg.Connection[Any]) -> None:
    """The record names token, action, project, kind and count of what tokens read of a person or delete, and nothing of the person; a phone
    that forgets itself is not in it."""
    phone, _shops = phone_of(conn, "ana"), phone_of(conn, "ana", "shop")
    other = str(verbs.register(conn, relevo.Installation("ExponentPushToken[second]", owner="ana")))
    shop, everywhere = served.client("app", project="shop"), served.client("app")
    for caller in (shop, everywhere):
        assert caller.post("/v1/owners/export", {"owner": "ana", "kind": "installations"}).status_code == 200
        assert caller.post("/v1/owners/block", {"owner": "ana", "reason": "of ana"}).status_code == 200
    assert everywhere.call("DELETE", f"/v1/installations/{phone}").status_code == 204
    assert everywhere.call("DELETE", f"/v1/installations/{phone}").status_code == 404
    secret = everywhere.call("PUT", f"/v1/installations/{other}", json={"renew_secret": True}).json()["secret"]
    assert Client(served.server.url, secret).call("DELETE", f"/v1/installations/{other}").status_code == 204
    for caller in (shop, everywhere):
        assert caller.post("/v1/owners/forget", {"owner": "ana"}).status_code == 200
    rows = done(conn)
    assert [row[0] for row in rows] == [
        *("export_owner", "block_owner") * 2,
        *("forget", "forget", "forget_owner", "forget_owner"),
    ]
    assert [row[1] for row in rows] == ["ok"] * 5 + ["failed"] + ["ok"] * 2
    assert [row[3] for row in rows][:4] == [{"items": 1}, {"answer": 1}, {"items": 3}, {"answer": 3}]
    assert [row[2].get("project") for row in rows][:4] == ["shop", "shop", None, None]
    assert rows[0][2]["kind"] == "installations"
    assert all(row[4].startswith("a app (") for row in rows)
    assert "ana" not in str(rows)


def test_an_export_of_many_pages_is_one_entry(served: Served, conn: psycopg.Connection[Any]) -> None:
    """The first page of a kind is an entry, the pages after it are not; whoever begins in the middle is recorded, too, and each token by itself."""
    for number in range(5):
        verbs.register(conn, relevo.Installation(f"ExponentPushToken[{number}]", owner="ana"))
    app, other = served.client("app"), served.client("app")

    def page(caller: Client, **asked: Any) -> Any:
        return caller.post("/v1/owners/export", {"owner": "ana", "kind": "installations", "limit": 1, **asked}).json()

    after, items = None, 0
    while after is not None or not items:
        found = page(app, **({"after": after} if after else {}))
        after, items = found["next"], items + len(found["items"])
    assert (items, len(done(conn))) == (5, 1)
    page(app)
    page(other, after="1")
    page(other, after="1")
    page(other, after="1", owner="eva")
    assert len(done(conn)) == 4


def done(conn: psycopg.Connection[Any]) -> list[Any]:
    """Return the audit log without tokens that were made."""
    asked = (
        "select action, outcome, target, result, actor from relevo.audit_log where action <> 'make_token' order by id"
    )
    return conn.execute(asked).fetchall()


def test_an_owner_that_is_none_is_refused(served: Served) -> None:
    """Null, nothing, too long and unknown fields are named."""
    app = served.client("app")
    for verb in ("log-out", "complete", "forget"):
        for body in ({"owner": None}, {}, {"owner": ""}, {"owner": "x" * 201}, {"owner": "\0"}):
            refused = app.post(f"/v1/owners/{verb}", body)
            assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "owner"), body
        refused = app.post(f"/v1/owners/{verb}", {"owner": "ana", "project": "shop"})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "project")
