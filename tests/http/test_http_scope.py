"""A token of one project reaches that project's phones and events, and nothing of anybody else's."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from support.http_server import EVENT, Client, Served, fan_out, phone


@pytest.mark.parametrize("audience", ["everyone", "installations"])
def test_a_project_pushes_to_its_own_phones_alone(served: Served, conn: psycopg.Connection[Any], audience: str) -> None:
    """Whatever the audience says, only phones of the token's project get the event; a token of all reaches all."""
    mine, others = phone(conn, "mine"), phone(conn, "other")
    named = {"audience": audience} | (
        {"installations": [str(mine), str(others)]} if audience == "installations" else {}
    )
    client, anyone = served.client("app", project="mine"), served.client("app")
    for each, key, reached in ((client, "a", {mine}), (anyone, "b", {mine, others})):
        event_id = each.post("/v1/events", {**EVENT, **named, "key": key}).json()["event_id"]
        fan_out(served)
        found = conn.execute(
            "select installation_id from relevo.notification_deliveries where notification_event_id = %s", [event_id]
        ).fetchall()
        assert {row[0] for row in found} == reached


def test_anothers_phone_is_like_one_that_is_not_there(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A token of one project does not learn which ids are phones of others: they are told as unknown, as strange ids are."""
    mine, others, nobody = phone(conn, "mine"), phone(conn, "other"), uuid4()
    named = {"audience": "installations", "installations": [str(each) for each in (mine, others, nobody)]}
    given = {"type": "x", "title": "Hello", **named}
    for project, unknown in (("mine", {others, nobody}), (None, {nobody})):
        client = served.client("app", project=project)
        answers = [
            client.post("/v1/events/preview", given).json(),
            client.post("/v1/events", {**given, "key": f"one {project}"}).json(),
            client.post("/v1/events/batch", {"events": [{**given, "key": f"two {project}"}]}).json()["items"][0],
        ]
        told = [sorted(each["unknown_installations"]) for each in answers]
        assert told == [sorted(map(str, unknown))] * 3


def test_a_project_previews_its_own_phones_alone(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A preview counts and names what the same token's event would reach, enqueues nothing, and refuses by name as ever."""
    mine, others = phone(conn, "mine"), phone(conn, "other")
    given = {"type": "x", "title": "Hello", "audience": "installations", "installations": [str(mine), str(others)]}
    client = served.client("app", project="mine")
    for asked in (given, {"type": "x", "title": "Hello", "audience": "everyone"}):
        seen = client.post("/v1/events/preview", asked).json()
        assert (seen["count"], seen["exact"], seen["sample"]) == (1, True, [str(mine)])
    assert served.client("app").post("/v1/events/preview", given).json()["count"] == 2
    assert client.post("/v1/events/preview", {**given, "ttl_s": 0}).json()["errors"][0]["field"] == "ttl_s"
    assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (0,)


def test_nobody_sees_or_changes_another_projects_event(served: Served, conn: psycopg.Connection[Any]) -> None:
    """To a token of another project an event is not there: not to read, to cancel, or to find by its key."""
    owner, stranger = served.client("app", project="mine"), served.client("app", project="other")
    unowned = served.client("app").post("/v1/events", {**EVENT, "key": "unowned"}).json()["event_id"]
    event_id = owner.post("/v1/events", EVENT).json()["event_id"]
    for hidden in (event_id, unowned):
        assert _codes(stranger, hidden) == [404, 404, 404]
    assert _codes(served.client("operator", project="other"), event_id) == [404, 404, 404]
    assert owner.post("/v1/events", EVENT).json() == {
        "event_id": event_id,
        "created": False,
        "same_content": True,
        "unknown_installations": [],
    }
    assert _codes(owner, event_id) == [202, 200, 200]


def test_equal_keys_of_two_projects_are_two_events(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Whoever takes a key in one project neither learns of it in another nor hinders it: both make their own event."""
    mine, other, anyone = (
        served.client("app", project="mine"),
        served.client("app", project="other"),
        served.client("app"),
    )
    made = [
        each.post("/v1/events", {**EVENT, "title": title}) for each, title in ((mine, "A"), (other, "B"), (anyone, "C"))
    ]
    assert [each.status_code for each in made] == [201, 201, 201]
    batch = other.post("/v1/events/batch", {"events": [{**EVENT, "key": "new"}, {**EVENT, "title": "B"}]})
    assert [each["created"] for each in batch.json()["items"]] == [True, False]
    by_key = "/v1/events?type=order.shipped&key=order-17&wait_ms=0"
    for client, title in ((mine, "A"), (other, "B"), (anyone, "C")):
        assert client.get(by_key).json()["event"]["title"] == title
        assert client.call("PUT", "/v1/events", json={**EVENT, "title": f"{title}2"}).status_code == 200
    for project, title in (("mine", "A2"), ("other", "B2")):
        assert anyone.get(f"{by_key}&project={project}").json()["event"]["title"] == title
        assert served.client("app", project=project).get(by_key).json()["event"]["title"] == title
    assert mine.get(f"{by_key}&project=other").status_code == 403
    assert mine.post("/v1/events", {**EVENT, "key": "x", "project": "other"}).status_code == 403
    conn.execute("delete from relevo.notification_events where project is null")
    several = anyone.get(by_key)
    assert (several.status_code, "mine, other" in several.text) == (400, True)


def test_an_open_transaction_on_a_key_makes_no_other_project_wait(
    served: Served, conn: psycopg.Connection[Any]
) -> None:
    """What one project is about to commit under a key is neither seen nor waited for by another."""
    with psycopg.connect(conn.info.dsn, password=conn.info.password) as app:
        app.execute("select relevo.enqueue(%s)", [Jsonb({**EVENT, "project": "mine"})])
        conn.execute("set lock_timeout = '2s'")
        [made] = conn.execute(
            "select created from relevo.enqueue(%s)", [Jsonb({**EVENT, "project": "other"})]
        ).fetchone()
        assert made
        assert served.client("app", project="third").post("/v1/events", EVENT).status_code == 201


def _codes(client: Client, event_id: int) -> list[int]:
    return [
        client.get(f"/v1/events/{event_id}?wait_ms=0").status_code,
        client.get(f"/v1/events/{event_id}/deliveries").status_code,
        client.post(f"/v1/events/{event_id}/cancel").status_code,
    ]
