"""Quiet hours and caps over HTTP: the app's server for owners and its project, a phone for itself and its owner alone."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg

from serving import Client, Served

NIGHT = ["22:00-07:00"]


def registered(served: Served, owner: str) -> tuple[str, Client]:
    """Register a phone; return its id, and a caller with its secret."""
    installation = str(uuid4())
    body = {"token": f"ExponentPushToken[{installation}]", "owner": owner, "timezone": "America/Santiago"}
    made = served.client("app").call("PUT", f"/v1/installations/{installation}", json=body)
    return installation, Client(served.server.url, made.json()["secret"])


def test_a_phone_sets_its_hours_and_its_owners(served: Served) -> None:
    """It sets its own, or those of all phones of its owner; it reads what holds, and whose; another's it may not touch."""
    phone, device = registered(served, "ana")
    other, _ = registered(served, "ana")
    place = f"/v1/installations/{phone}/quiet"
    assert device.call("PUT", place, json={"windows": NIGHT, "all_phones": True}).json() == {"changed": True}
    found = served.client("app").get(f"/v1/installations/{other}/quiet").json()
    assert (found["windows"], found["zone"], found["hours_of"], found["zone_of"]) == (
        NIGHT,
        "America/Santiago",
        "owner",
        "phone",
    )
    assert device.call("PUT", place, json={"windows": []}).json() == {"changed": True}
    assert device.get(place).json()["hours_of"] == "phone"
    assert device.call("PUT", f"/v1/installations/{other}/quiet", json={"windows": NIGHT}).status_code in (
        401,
        403,
        404,
    )


def test_the_apps_server_sets_hours_and_caps(served: Served) -> None:
    """Of owners, of its project, and caps; what is no window, no zone or no number is refused, and names the field."""
    app = served.client("app")
    assert app.post("/v1/owners/quiet", json={"owner": "ana", "windows": NIGHT, "zone": "Europe/Madrid"}).json() == {
        "changed": True
    }
    assert app.call("PUT", "/v1/quiet", json={"windows": ["sat,sun 00:00-24:00"]}).json() == {"changed": True}
    assert app.get("/v1/quiet").json()["windows"] == ["sat,sun 00:00-24:00"]
    assert app.call("PUT", "/v1/caps", json={"per": "day", "most": 5}).json() == {"changed": True}
    [cap] = app.get("/v1/caps").json()["items"]
    assert cap == {"project": "default", "category": None, "per": "day", "most": 5, "over": "skip"}
    assert app.call("PUT", "/v1/caps", json={"per": "day"}).json() == {"changed": True}
    for path, body, named in (
        ("/v1/quiet", {"windows": ["22-7"]}, "windows"),
        ("/v1/quiet", {"windows": NIGHT, "zone": "Mars/Base"}, "Mars/Base"),
        ("/v1/caps", {"per": "day", "most": 0}, "most"),
    ):
        refused = app.call("PUT", path, json=body)
        assert refused.status_code in (400, 422)
        assert named in refused.text


def test_a_token_of_one_project_sets_hours_there_alone(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Whatever project it names, an owner's hours are set in its own; who brings no good token is told what to bring."""
    asked = {"owner": "ana", "windows": NIGHT, "project": "other"}
    assert served.client("app", project="mine").post("/v1/owners/quiet", json=asked).json() == {"changed": True}
    assert conn.execute("select project from relevo.owner_rules where owner = 'ana'").fetchall() == [("mine",)]
    stranger = Client(served.server.url, "relevo_nobody")
    for refused in (stranger.post("/v1/owners/quiet", json=asked), stranger.get(f"/v1/installations/{uuid4()}/quiet")):
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="relevo"')
