"""What is wrong with a request is told as problem+json that names the field, the reason and the next step."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from support.http_server import Served

GOOD = {"type": "t", "key": "k", "title": "Hello", "audience": "everyone"}
WHOLE: list[tuple[dict[str, Any], list[str]]] = [
    ({"title": "a\0b"}, ["title"]),
    ({"push": {"badge": "x"}}, ["push.badge"]),
    ({"push": {"nope": 1}}, ["push.nope"]),
    ({"push": {"sound": {"nope": 1}}}, ["push.sound.nope"]),
    ({"nope": 1}, ["nope"]),
    ({"topics": ["a"]}, ["topics"]),
    ({"at_most_once": "yes"}, ["at_most_once"]),
    ({"deadline_at": "2001-01-01T00:00:00Z"}, ["deadline_at"]),
    ({"type": "relevo.x"}, ["type"]),
    ({"title": "", "body": ""}, ["title", "body", "data"]),
    ({"data": {"x": "y" * 5_000}}, ["title", "body", "data", "push"]),
]


@pytest.fixture
def post(served: Served) -> Any:
    """Post to a server: `post("/v1/events", json={})`; return status and body."""
    client = served.client("app")

    def call(path: str, **given: Any) -> tuple[int, Any]:
        answer = client.call("POST", path, **given)
        return answer.status_code, answer.json()

    return call


def test_an_event_is_refused_by_the_names_of_its_fields(post) -> None:
    """Whatever finds the fault, the complaint names the fields it is about, in a batch with the event's place."""
    for wrong, fields in WHOLE:
        status, told = post("/v1/events", json=GOOD | wrong)
        assert (status, [each["field"] for each in told["errors"]]) == (400, fields), wrong
        status, told = post("/v1/events/batch", json={"events": [GOOD, GOOD | {"key": "2"} | wrong]})
        placed = [f"events.1.{field}" for field in fields]
        assert (status, [each["field"] for each in told["errors"]]) == (400, placed), wrong


def test_a_reason_says_what_is_right_and_what_was_given(post, served: Served) -> None:
    """Kinds, choices and written forms are told in plain words with the value; no pattern, no word of a library."""
    told = {}
    for wrong in ({"audience": None}, {"owners": "ana"}, {"lane": "fast"}, {"at_most_once": "so"}):
        body = {key: value for key, value in (GOOD | wrong).items() if value is not None}
        ((field, reason),) = (each.values() for each in post("/v1/events", json=body)[1]["errors"])
        told[field] = reason
    assert told == {
        "audience": "must be given",
        "owners": "must be a list",
        "lane": "must be 'urgent' or 'bulk', got \"fast\"",
        "at_most_once": 'must be true or false, got "so"',
    }
    app, phone = served.client("app"), uuid4()
    app.call("PUT", f"/v1/installations/{phone}", json={"token": "ExponentPushToken[a]"})
    answer = app.call("PUT", f"/v1/installations/{phone}/preferences/default", json={"delivery": "daily 8"}).json()
    assert answer["detail"] == 'delivery: must be now, hourly, daily 08:00 or weekly mon 08:00, got "daily 8"'
    answer = app.call("POST", "/v1/owners/quiet", json={"owner": "ana", "windows": ["22-7"], "zone": "UTC"}).json()
    assert answer["detail"] == 'windows.0: must be like 22:00-07:00 or sat,sun 07:00-10:00, got "22-7"'
    assert app.call("GET", "/v1/events/abc").json()["detail"] == 'event_id: must be a whole number, got "abc"'
    assert app.call("POST", "/v1/events", json=[]).json()["detail"] == "body: must be a JSON object"


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b'{"type": "t",}'])
def test_what_is_no_json_is_a_fault_of_the_body(post, body: bytes) -> None:
    """The place where JSON ends is no name of a field."""
    status, told = post("/v1/events", data=body, headers={"Content-Type": "application/json"})
    assert (status, [each["field"] for each in told["errors"]]) == (400, ["body"])


def test_bad_json_says_where_it_ends(post) -> None:
    """Who wrote it by hand is told the place."""
    _, told = post("/v1/events", data=b'{"type": "t" "key"}', headers={"Content-Type": "application/json"})
    assert told["detail"] == "body: is not JSON: Expecting ',' delimiter, at character 13"


def test_an_event_of_a_batch_has_its_key_in_the_body(post) -> None:
    """The header that may hold the key of one event is not named where it does not help."""
    keyless = {name: value for name, value in GOOD.items() if name != "key"}
    assert "Idempotency-Key" in post("/v1/events", json=keyless)[1]["detail"]
    assert post("/v1/events/batch", json={"events": [keyless]})[1]["detail"] == "events.0.key: must be given"


def test_a_query_parameter_that_does_not_exist_is_refused(post, served: Served) -> None:
    """A slip is told with what was meant, or with what there is, and nothing is enqueued by it."""
    status, told = post("/v1/events?wait=5", json=GOOD)
    assert (status, told["errors"][0]["field"], told["hint"]) == (400, "wait", "Did you mean wait_ms?")
    assert post("/v1/events?colour=red", json=GOOD)[1]["hint"] == "This route takes wait_ms, until, waitMs."
    assert post("/v1/events/batch?a=1", json={"events": [GOOD]})[1]["hint"] == "This route takes none."
    assert served.client(None).call("POST", "/v1/events?wait=5", json=GOOD).status_code == 401
    assert post("/v1/events", json=GOOD)[0] == 201


def test_a_wrong_method_is_told_the_right_ones(served: Served) -> None:
    """All that an address takes are named, whichever route has them."""
    answer = served.client("app").call("PATCH", "/v1/installations/018f3c1e-7c1a-4a58-9d43-6a2f0c9b1d11")
    assert (answer.status_code, answer.json()["detail"]) == (405, "This address takes DELETE or PUT.")
    assert answer.headers["allow"] == "DELETE, PUT"


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain"])
def test_json_that_is_not_called_json(post, kind: str) -> None:
    """Whoever forgets the header, as curl does for them, is told about it."""
    status, told = post("/v1/events", data=b'{"type": "t"}', headers={"Content-Type": kind})
    assert (status, told["errors"][0]["field"]) == (400, "body")
    assert "Content-Type: application/json" in told["hint"]


def test_which_dead_letters(served: Served) -> None:
    """A redrive of nothing in particular says what it needs."""
    answer = served.client("operator").call("POST", "/v1/ops/redrive", json={})
    assert (answer.status_code, answer.json()["detail"]) == (400, "No dead letters are selected.")
    assert "project" in answer.json()["hint"]


def test_a_call_without_a_token_says_where_it_goes(served: Served) -> None:
    """Nothing of the sentence is taken for a secret and struck out."""
    told = served.client(None).call("GET", "/v1/ops/stats").json()
    assert told["detail"] == "A token is needed, in the header Authorization after the word Bearer."


def test_a_surprise_is_a_problem_too(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody thought of is answered in the same form, with the id by which the log has it, and not what it said."""

    def fail(_found: object) -> bool:
        raise ArithmeticError("hunter2")

    monkeypatch.setattr("relevo.http.health.is_ready", fail)
    answer = served.client().get("/health/ready", headers={"X-Request-Id": "abc"})
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert (answer.json()["type"], answer.json()["request_id"]) == ("urn:relevo:internal-error", "abc")
    assert "hunter2" not in answer.text
