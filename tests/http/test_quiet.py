"""Quiet hours and caps over HTTP: the app's server for owners and its project, a phone for itself and its owner alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg

from relevo.operators import quiet_channel
from support.http_server import Client, Served

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
    hours = {"owner": "ana", "windows": NIGHT, "zone": "Europe/Madrid"}
    assert app.post("/v1/owners/quiet", json=hours).json()["changed"] is True
    weekend = {"windows": ["sat,sun 00:00-24:00"], "zone": "America/Santiago"}
    assert app.call("PUT", "/v1/quiet", json=weekend).json()["changed"] is True
    assert app.get("/v1/quiet").json()["windows"] == ["sat,sun 00:00-24:00"]
    assert app.call("PUT", "/v1/caps", json={"per": "day", "most": 5}).json() == {"changed": True}
    [cap] = app.get("/v1/caps").json()["items"]
    assert cap == {"project": "default", "category": None, "per": "day", "most": 5, "over": "skip"}
    assert app.call("PUT", "/v1/caps", json={"per": "day", "most": None}).json() == {"changed": True}
    assert app.get("/v1/caps").json()["items"] == []
    for path, body, named in (
        ("/v1/quiet", {"windows": NIGHT, "project": "new"}, "zone must be given"),
        ("/v1/quiet", {"windows": ["22-7"]}, "windows"),
        ("/v1/quiet", {"windows": NIGHT, "zone": "Mars/Base"}, "Mars/Base"),
        ("/v1/caps", {"per": "day", "most": 0}, "most"),
    ):
        refused = app.call("PUT", path, json=body)
        assert refused.status_code in (400, 422)
        assert named in refused.text


def test_a_field_that_is_left_out_stays(served: Served) -> None:
    """Hours and caps stay as they are where a body leaves them out, null removes them, and a body without any is refused."""
    app = served.client("app")
    phone, device = registered(served, "ana")
    own = f"/v1/installations/{phone}/quiet"
    for caller, method, path, whose in (
        (app, "PUT", "/v1/quiet", {}),
        (app, "POST", "/v1/owners/quiet", {"owner": "eva"}),
        (device, "PUT", own, {}),
        (device, "PUT", own, {"all_phones": True}),
    ):
        given = {"windows": NIGHT, "zone": "Europe/Madrid"} | whose
        assert caller.call(method, path, json=given).json()["changed"] is True, path
        refused = caller.call(method, path, json=whose)
        assert (refused.status_code, "null to remove" in refused.text) == (400, True), refused.text
        assert caller.call(method, path, json=given).json()["changed"] is False, "they stayed"
        for changed in ({"zone": "Asia/Kathmandu"}, {"windows": ["21:00-06:00"]}):
            assert caller.call(method, path, json=changed | whose).json()["changed"] is True, (path, changed)
        both = {"windows": ["21:00-06:00"], "zone": "Asia/Kathmandu"} | whose
        assert caller.call(method, path, json=both).json()["changed"] is False, "each kept the other"
        assert caller.call(method, path, json={"windows": None} | whose).json()["changed"] is True
        assert caller.call(method, path, json={"windows": None} | whose).json()["changed"] is False
    assert app.call("PUT", "/v1/caps", json={"per": "day", "most": 5, "over": "digest"}).json() == {"changed": True}
    refused = app.call("PUT", "/v1/caps", json={"per": "day"})
    assert (refused.status_code, "most" in refused.text) == (400, True)
    assert app.call("PUT", "/v1/caps", json={"per": "day", "most": 6}).json() == {"changed": True}
    [cap] = app.get("/v1/caps").json()["items"]
    assert (cap["most"], cap["over"]) == (6, "digest")


def test_a_phone_gives_its_zone_to_all_phones_of_its_owner(served: Served) -> None:
    """Hours that a phone sets for all phones of its owner go by its own time zone on those that registered none."""
    _, device = registered(served, "ana")
    phone, device = registered(served, "ana")
    path = f"/v1/installations/{phone}/quiet"
    assert device.call("PUT", path, json={"windows": NIGHT, "all_phones": True}).json() == {"changed": True}
    other = str(uuid4())
    body = {"token": f"ExponentPushToken[{other}]", "owner": "ana"}
    served.client("app").call("PUT", f"/v1/installations/{other}", json=body)
    found = served.client("app").get(f"/v1/installations/{other}/quiet").json()
    assert (found["zone"], found["zone_of"]) == ("America/Santiago", "owner")


def test_a_category_has_a_rule_for_quiet_hours(served: Served) -> None:
    """It is set, stays while a body leaves it out, and null leaves it to the event type again."""
    app = served.client("operator")

    def rule() -> Any:
        [found] = [each for each in app.get("/v1/categories").json()["items"] if each["category"] == "alarms"]
        return found["quiet"]

    for body, expected in (
        ({"rule": "mandatory", "quiet": "ignore"}, "ignore"),
        ({"rule": "on"}, "ignore"),
        ({"quiet": "silent"}, "silent"),
        ({"quiet": None}, None),
    ):
        assert app.call("PUT", "/v1/categories/alarms", json=body).status_code == 200
        assert rule() == expected
    assert app.call("PUT", "/v1/categories/alarms", json={"quiet": "loud"}).status_code == 400


def test_a_token_of_one_project_sets_hours_there_alone(served: Served, conn: psycopg.Connection[Any]) -> None:
    """It sets an owner's hours in its own project, and may name no other; who brings no good token is told what to bring."""
    asked = {"owner": "ana", "windows": NIGHT, "project": "other", "zone": "UTC"}
    mine = served.client("app", project="mine")
    assert mine.post("/v1/owners/quiet", json=asked).status_code == 403
    hours = {"owner": "ana", "windows": NIGHT, "zone": "UTC"}
    assert mine.post("/v1/owners/quiet", json=hours).json()["changed"] is True
    assert conn.execute("select project from relevo.owner_rules where owner = 'ana'").fetchall() == [("mine",)]
    stranger = Client(served.server.url, "relevo_nobody")
    for refused in (stranger.post("/v1/owners/quiet", json=asked), stranger.get(f"/v1/installations/{uuid4()}/quiet")):
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="relevo"')


def test_silent_pushes_without_a_quiet_channel_are_warned_of(
    serve: Callable[..., Served],
) -> None:
    """What lets pushes go silently answers, in the command's words, that Android rings; with a quiet channel nothing."""
    night = {"windows": NIGHT, "zone": "Europe/Madrid"}
    silently = (
        ("PUT", "/v1/event-types/notice", {"quiet": "silent"}),
        ("PUT", "/v1/event-types/notice", {"quiet_deadline": "silent"}),
        ("PUT", "/v1/event-types/notice", {"quiet_max_wait_s": 60}),
        ("PUT", "/v1/categories/bills", {"quiet": "silent"}),
        ("PUT", "/v1/quiet", night),
        ("POST", "/v1/owners/quiet", night | {"owner": "ana"}),
    )
    others = (
        ("PUT", "/v1/event-types/notice", {"quiet": "wait", "quiet_deadline": "expired", "quiet_max_wait_s": None}),
        ("PUT", "/v1/categories/bills", {"quiet": "wait"}),
        ("PUT", "/v1/categories/bills", {"rule": "on"}),
        ("PUT", "/v1/quiet", {"windows": None}),
        ("POST", "/v1/owners/quiet", {"owner": "ana", "windows": []}),
    )
    for channel, expected in (("", quiet_channel.WARNING), ("night", None)):
        operator = serve(push_quiet_channel=channel).client("operator")
        for method, path, body in (*silently, *others):
            told = operator.call(method, path, json=body).json()
            warned = expected and (method, path, body) in silently
            assert told["warnings"] == ([expected] if warned else []), (path, body, told)
