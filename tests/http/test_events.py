"""Events over HTTP: enqueue once, wait, cancel, see what became of each delivery."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
import requests

from relevo.core.model import Answer
from support.http_server import EVENT, Served, end, fan_out, phone
from support.processes import eventually


def test_an_event_is_enqueued_once(served: Served, conn: psycopg.Connection[Any]) -> None:
    """The first call makes it, the second finds it; the key may come as a header, and the answer says where it is."""
    app = served.client("app")
    first = app.post("/v1/events", EVENT)
    assert first.status_code == 201
    assert first.json()["created"] is True
    assert first.headers["location"] == f"/v1/events/{first.json()['event_id']}"
    bare = {name: value for name, value in EVENT.items() if name != "key"}
    second = app.post("/v1/events", bare, headers={"Idempotency-Key": "order-17"})
    assert second.status_code == 200
    assert (second.json()["event_id"], second.json()["created"]) == (first.json()["event_id"], False)
    assert second.json()["same_content"] is True
    [count] = conn.execute("select count(*) from relevo.notification_events").fetchall()
    assert count == (1,)


REFUSED = [
    ({"key": None}, {}, "key"),
    ({}, {"Idempotency-Key": "another"}, "Idempotency-Key"),
    ({"title": "x\0y"}, {}, "title"),
    ({"title": "\ud800"}, {}, "title"),
    ({"title": "x" * 501}, {}, "title"),
    ({"lane": "fast"}, {}, "lane"),
    ({"title": "\u3000", "body": "\n"}, {}, "title"),
    ({"audience": "everyone", "matching": {"region": "Maule"}}, {}, "matching"),
    ({"colour": "red"}, {}, "colour"),
    ({"audience": "installations", "installations": ["x"]}, {}, "installations"),
]


def test_what_is_wrong_is_named(served: Served) -> None:
    """A bad event is a 400 problem that names field and reason, whoever found it: the route or the SQL door."""
    for change, headers, field in REFUSED:
        given = {name: value for name, value in {**EVENT, **change}.items() if value is not None}
        answer = served.client("app").post("/v1/events", given, headers=headers)
        assert answer.status_code == 400, answer.text
        assert answer.headers["content-type"] == "application/problem+json", field
        assert answer.json()["errors"][0]["field"] == field, field
        assert answer.json()["errors"][0]["reason"], field
        assert answer.json()["request_id"] == answer.headers["x-request-id"], field


@pytest.mark.parametrize("project", [None, "mine"])
def test_other_content_under_a_known_key(served: Served, project: str | None) -> None:
    """It is a 409 that names what differs, alone and in a batch; asked to keep what is there it is a 200 that says so."""
    app = served.client("app", project=project)
    first = app.post("/v1/events", EVENT).json()
    other = {**EVENT, "title": "Something else"}
    refused = app.post("/v1/events", other)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:relevo:other-content")
    assert 'given "Something else"' in refused.json()["detail"]
    assert '"on_conflict": "keep"' in refused.json()["hint"]
    batch = app.post("/v1/events/batch", {"events": [{**EVENT, "key": "new"}, other]})
    assert (batch.status_code, batch.json()["detail"][:9]) == (409, "events.1:")
    kept = app.post("/v1/events", {**other, "on_conflict": "keep"})
    assert kept.status_code == 200
    assert (kept.json()["event_id"], kept.json()["created"], kept.json()["same_content"]) == (
        first["event_id"],
        False,
        False,
    )
    assert app.post("/v1/events", {**EVENT, "on_conflict": "replace"}).status_code == 400
    mixed = app.post("/v1/events/batch", {"events": [{**EVENT, "key": "new"}, {**other, "on_conflict": "keep"}]})
    assert [(each["created"], each["same_content"]) for each in mixed.json()["items"]] == [(True, True), (False, False)]


def test_a_batch_is_taken_whole_or_not_at_all(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Several events in one call; one that is bad keeps all of them out."""
    app = served.client("app")
    events = [{**EVENT, "key": f"k-{number}"} for number in range(3)]
    done = app.post("/v1/events/batch", {"events": events})
    assert done.status_code == 200
    assert [each["created"] for each in done.json()["items"]] == [True] * 3
    bad = app.post("/v1/events/batch", {"events": [{**EVENT, "key": "k-9"}, {**EVENT, "key": "k-10", "lane": "fast"}]})
    assert bad.status_code == 400
    assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (3,)


def test_an_event_for_nobody_is_done(served: Served) -> None:
    """Once it is fanned out and nobody was to get it, the wait ends with 200 and no counts."""
    app = served.client("app")
    event_id = app.post("/v1/events", EVENT).json()["event_id"]
    assert app.get(f"/v1/events/{event_id}?wait_ms=0").status_code == 202
    fan_out(served)
    answer = app.get(f"/v1/events/{event_id}")
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["counts"]) == ("DONE", {})


@pytest.mark.parametrize(
    ("became", "code", "word", "progress"),
    [
        ({"sent": 2}, 200, "DONE", "sent"),
        ({"ok": 1, "failed": 1}, 200, "DONE", "finished"),
        ({"failed": 1, "invalid": 1}, 422, "FAILED", "finished"),
        ({"retryable": 1, "failed": 1}, 202, "PENDING", "sending"),
    ],
)
def test_the_answer_follows_the_deliveries(
    served: Served, conn: psycopg.Connection[Any], became: dict[str, int], code: int, word: str, progress: str
) -> None:
    """200 when nothing is left and some was sent, 422 when nothing was, 202 else; counts and a word of progress always."""
    phone(conn), phone(conn)
    app = served.client("app")
    event_id = app.post("/v1/events", EVENT).json()["event_id"]
    fan_out(served)
    end(conn, event_id, **became)
    answer = app.get(f"/v1/events/{event_id}?wait_ms=0")
    assert (answer.status_code, answer.json()["status"]) == (code, word)
    assert (answer.json()["counts"], answer.json()["progress"]) == (became, progress)
    assert answer.json()["event"]["progress"] == progress, "the SQL door says the same"
    if code == 202:
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["retry_after_ms"] > 0
    if code == 422:
        assert answer.json()["error"] == "EVENT_NOT_SENT"


def test_a_wait_ends_when_the_event_does(served: Served, conn: psycopg.Connection[Any]) -> None:
    """`POST ?wait_ms` makes the event and answers once it was sent, and so does everybody else who waits for it."""
    phone(conn)
    app, viewer = served.client("app"), served.client("viewer")
    with ThreadPoolExecutor(4) as callers:
        posted = callers.submit(app.post, "/v1/events?wait_ms=30000", EVENT)
        event_id = eventually(
            lambda: (conn.execute("select max(id) from relevo.notification_events").fetchone() or [0])[0]
        )
        others = [callers.submit(viewer.get, f"/v1/events/{event_id}?wait_ms=30000") for _ in range(3)]
        fan_out(served)
        end(conn, event_id, sent=1)
        answers = [posted.result(), *(each.result() for each in others)]
    assert [each.status_code for each in answers] == [200] * 4
    assert answers[0].json()["enqueued"]["created"] is True
    assert {str(each.json()["counts"]) for each in answers} == {"{'sent': 1}"}


def test_a_cancelled_event_is_not_sent(served: Served) -> None:
    """Cancel answers whether it was in time; the wait then says that nothing was sent; a second one changes nothing."""
    app = served.client("app")
    event_id = app.post("/v1/events", EVENT).json()["event_id"]
    assert app.post(f"/v1/events/{event_id}/cancel", {"reason": "a slip"}).json()["cancelled"] is True
    assert app.post(f"/v1/events/{event_id}/cancel").json()["cancelled"] is False
    answer = app.get(f"/v1/events/{event_id}?wait_ms=0")
    assert answer.status_code == 422
    assert answer.json()["event"]["end_reason"] == "a slip"


def test_a_finished_event_is_not_cancelled(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Of one that is through, nothing is withdrawn; it stays what it was, and the answer says so."""
    app = served.client("app")
    phone(conn)
    event_id = app.post("/v1/events", EVENT).json()["event_id"]
    first = app.post("/v1/events", EVENT | {"key": "other"}).json()["event_id"]
    assert app.post(f"/v1/events/{first}/cancel").json()["withdrawn"] is True
    fan_out(served)
    end(conn, event_id, ok=1)
    answer = app.post(f"/v1/events/{event_id}/cancel").json()
    assert answer == {
        "cancelled": False,
        "withdrawn": False,
        "event_id": event_id,
        "deliveries": {"ok": 1},
        "counts": {"ok": 1},
    }
    assert app.get(f"/v1/events/{event_id}").json()["event"]["state"] == "fanned"


def test_deliveries_are_paged(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Every delivery is on exactly one page, by installation."""
    phones = sorted(str(phone(conn)) for _ in range(5))
    app = served.client("app")
    event_id = app.post("/v1/events", EVENT).json()["event_id"]
    fan_out(served)
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = app.get(f"/v1/events/{event_id}/deliveries", params={"limit": "2", **cursor}).json()
        found += [each["installation_id"] for each in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert found == phones


def test_a_delivery_tells_each_attempt_that_failed(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Oldest first, with what was said of it and what became of it; of one that was never tried nothing."""
    phone(conn)
    app = served.client("app")
    event_id = app.post("/v1/events", EVENT).json()["event_id"]
    fan_out(served)
    place = f"/v1/events/{event_id}/deliveries"
    (item,) = app.get(place).json()["items"]
    assert item["failed_attempts"] == []
    claim = served.app.claims.claim("dispatch", "default", "bulk")
    assert claim is not None
    (push,) = claim.deliveries
    said = Answer(push.event_day, push.id, "retryable", error_code="HTTP_500", error_message="oops")
    served.app.claims.settle(claim, [said])
    (item,) = app.get(place).json()["items"]
    (failed,) = item["failed_attempts"]
    assert failed.pop("at") == item["last_attempt_at"]
    assert failed == {
        "attempt": 1,
        "found_by": "dispatch",
        "status": "retryable",
        "error_code": "HTTP_500",
        "error_message": "oops",
    }


def test_what_is_not_there_is_not_there(served: Served) -> None:
    """An unknown event is a 404 problem, by every verb."""
    app = served.client("app")
    for method, path in (("GET", ""), ("GET", "/deliveries"), ("POST", "/cancel")):
        answer = app.call(method, f"/v1/events/999{path}")
        assert answer.status_code == 404
        assert answer.json()["type"] == "urn:relevo:not-found"
    assert app.get("/nowhere").json()["status"] == 404


def test_a_hundred_waiters_cost_a_connection_or_two(
    serve: Callable[..., Served], conn: psycopg.Connection[Any]
) -> None:
    """While a hundred callers wait, the pool of two is free for others; when they leave, nobody looks any more."""
    served = serve(http_pool_size=2, http_pool_wait_ms=30_000)
    app = served.client("app")
    event_id = app.post("/v1/events", EVENT).json()["event_id"]
    url, headers = f"{served.server.url}/v1/events/{event_id}?wait_ms=30000", {"Authorization": f"Bearer {app.token}"}
    waiters = served.server.api.state.waiters
    answers: list[int] = []

    def wait() -> None:
        with requests.Session() as session:
            answers.append(session.get(url, headers=headers, timeout=60).status_code)

    threads = [threading.Thread(target=wait) for _ in range(100)]
    for thread in threads:
        thread.start()
    eventually(lambda: waiters.places.count == 100, "all of them wait")
    assert app.get("/v1/events/999").status_code == 404
    connections = "select count(*) from pg_stat_activity where application_name like 'relevo http%' and datname = current_database()"
    assert conn.execute(connections).fetchone()[0] <= 2
    fan_out(served)
    for thread in threads:
        thread.join(60)
    assert answers == [200] * 100
    assert waiters.places.count == 0


def test_a_wait_stops_when_the_caller_leaves(served: Served) -> None:
    """A caller that hangs up is not waited for any longer."""
    app = served.client("app")
    event_id = app.post("/v1/events", EVENT).json()["event_id"]
    waiters = served.server.api.state.waiters
    with pytest.raises(requests.Timeout):
        requests.get(
            f"{served.server.url}/v1/events/{event_id}?wait_ms=30000",
            headers={"Authorization": f"Bearer {app.token}"},
            timeout=0.3,
        )
    eventually(lambda: waiters.places.count == 0, "it left")


@pytest.mark.parametrize(
    "data", ['{"a": NaN}', '{"a": [1e400]}', '{"a": -Infinity}', '{"\\ud800": 1}', '{"a": "\\ud800"}']
)
def test_what_cannot_be_kept_is_refused_and_not_changed(
    served: Served, conn: psycopg.Connection[Any], data: str
) -> None:
    """Numbers that are none, and halves of characters, in values and in names, are named; nothing else is kept for them."""
    app = served.client("app")
    event = f'{{"type": "x", "key": "k", "title": "t", "audience": "everyone", "data": {data}}}'
    headers = {"Authorization": f"Bearer {app.token}", "Content-Type": "application/json"}
    for path, body in (("", event), ("/preview", event), ("/batch", f'{{"events": [{event}]}}')):
        answer = requests.post(f"{served.server.url}/v1/events{path}", data=body, headers=headers, timeout=60)
        assert answer.status_code == 400, (path, answer.text)
        assert "data" in answer.json()["detail"]
    assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (0,)


def test_an_event_is_previewed(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A preview tells how many it would reach, and enqueues nothing; what is wrong with it is named as ever."""
    phones = {str(phone(conn)) for _ in range(3)}
    app = served.client("app")
    given = {"type": "x", "title": "Hello", "audience": "everyone"}
    seen = app.post("/v1/events/preview?sample=5", given)
    assert (seen.status_code, seen.json()["count"], seen.json()["exact"]) == (200, 3, True)
    assert set(seen.json()["sample"]) == phones
    assert app.post("/v1/events/preview", {**given, "ttl_s": 0}).json()["errors"][0]["field"] == "ttl_s"
    assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (0,)


def test_an_event_is_found_by_type_and_key(served: Served) -> None:
    """By what the app knows, whatever is in the key; another project's is not there."""
    app, shop = served.client("app"), served.client("app", project="shop")
    key = "order/17?&%"
    made = app.post("/v1/events", {**EVENT, "key": key}).json()["event_id"]
    asked = {"type": EVENT["type"], "key": key}
    found = app.get("/v1/events", params=asked)
    assert (found.status_code, found.json()["event_id"]) == (202, made)
    assert served.client("viewer").get("/v1/events", params=asked).json()["event_id"] == made
    assert shop.get("/v1/events", params=asked).status_code == 404
    assert app.get("/v1/events", params=asked | {"key": "other"}).status_code == 404
    assert app.get("/v1/events", params={"type": "t"}).json()["errors"][0]["field"] == "key"
    fan_out(served)
    assert app.get("/v1/events", params=asked | {"wait_ms": 5000}).json()["status"] == "DONE"


def test_an_event_is_changed_until_it_begins(served: Served, conn: psycopg.Connection[Any]) -> None:
    """What is sent takes the place of what was there, whole; what has begun stays, and another project's is not there."""
    app, shop = served.client("app"), served.client("app", project="shop")
    made = app.post("/v1/events", {**EVENT, "body": "soon", "scheduled_at": "2100-01-01T00:00:00Z"}).json()["event_id"]
    assert shop.call("PUT", "/v1/events", json={**EVENT, "title": "Mine"}).status_code == 404
    changed = app.call("PUT", "/v1/events", json={**EVENT, "title": "Late", "body": None})
    assert (changed.status_code, changed.json()["event_id"]) == (200, made)
    row = "select title, body, scheduled_at < now() + interval '1 hour' from relevo.notification_events"
    assert conn.execute(row).fetchone() == ("Late", "", True)
    assert app.call("PUT", "/v1/events", json={**EVENT, "key": "other"}).status_code == 404
    assert app.call("PUT", "/v1/events", json={**EVENT, "key": None}).json()["errors"][0]["field"] == "key"
    assert app.call("PUT", "/v1/events", json={**EVENT, "ttl_s": 0}).json()["errors"][0]["field"] == "ttl_s"
    fan_out(served)
    begun = app.call("PUT", "/v1/events", json={**EVENT, "title": "Later"})
    assert (begun.status_code, begun.json()["type"]) == (409, "urn:relevo:event-started")
    mine = shop.post("/v1/events", {**EVENT, "key": "shop", "scheduled_at": "2100-01-01T00:00:00Z"}).json()["event_id"]
    done = shop.call("PUT", "/v1/events", json={**EVENT, "key": "shop", "title": "Ours"})
    assert (done.status_code, done.json()["event_id"]) == (200, mine)


def test_an_event_is_completed(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Handled elsewhere, by one owner or for all; an operator's is recorded."""
    app, shop = served.client("app"), served.client("app", project="shop")
    made = app.post("/v1/events", EVENT).json()["event_id"]
    path = f"/v1/events/{made}/complete"
    assert shop.post(path).status_code == 404
    assert app.post("/v1/events/999/complete").status_code == 404
    assert app.post(path, {"owner": None}).json()["errors"][0]["field"] == "owner"
    assert app.post(path, {"owner": "ana", "reason": "read"}).json()["completed"] is True
    assert conn.execute("select owner, reason from relevo.event_completions").fetchall() == [("ana", "read")]
    assert served.client("operator").post(path).json() == {
        "completed": True,
        "event_id": made,
        "deliveries": {},
        "counts": {},
    }
    assert app.post(path).json()["completed"] is False
    assert conn.execute("select state from relevo.notification_events").fetchone() == ("completed",)
    assert conn.execute("select action from relevo.audit_log order by id desc limit 1").fetchone() == (
        "complete_event",
    )


@pytest.mark.parametrize("sources", ["none", "folder"])
def test_tenders_are_spoken_of_where_there_are_any(serve: Callable[..., Served], tmp_path: Path, sources: str) -> None:
    """Without a source of tenders no field leads to one, in answers, in the document or in what is taken."""
    folder = {"folder_source_dir": tmp_path} if sources == "folder" else {}
    served = serve(sources=sources, **folder)
    app = served.client("app")
    made = app.post("/v1/events?wait_ms=0", EVENT).json()
    schemas = app.get("/openapi.json").json()["components"]["schemas"]
    has = [
        "licitacion_id" in made["event"],
        "licitacion_id" in schemas["EventIn"]["properties"],
        "licitacion_id" in schemas["HistoryEntry"]["properties"],
    ]
    assert has == [sources == "folder"] * 3
    refused = app.post("/v1/events", {**EVENT, "key": "tender", "licitacion_id": 7})
    if sources == "none":
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "licitacion_id")
    else:
        assert "no source of tenders" not in refused.text


def test_all_names_are_written_alike(served: Served) -> None:
    """Fields and parameters of the API have one casing; the former name of wait_ms is still taken.

    What a push carries has the names of the push services.
    """
    document = served.client().get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    names = {name for at, each in schemas.items() if at != "PushFields" for name in each.get("properties", {})}
    for operations in document["paths"].values():
        for operation in operations.values():
            names |= {each["name"] for each in operation.get("parameters", []) if each["in"] != "header"}
    assert [each for each in sorted(names) if each != each.lower()] == []
    made = served.client("app").post("/v1/events?waitMs=0", EVENT)
    assert (made.status_code, made.json()["retry_after_ms"]) == (202, 1000)
