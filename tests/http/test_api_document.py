"""The OpenAPI document is one that clients can be made of: each route has a name, a proof and a typed error."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import jsonschema_rs
import pytest

import http_docs
from relevo.client import push_rules
from relevo.http.rules import RULES


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document; no database is asked for it."""
    return http_docs.document()


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return every operation by method and path."""
    return {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_every_route_has_a_name_of_its_own(document: dict[str, Any]) -> None:
    """Every operation id is a verb and a noun, short enough for a method's name, and no two routes share one."""
    names = Counter(each["operationId"] for each in operations(document).values())
    assert [name for name, times in names.items() if times > 1] == []
    assert [name for name in names if not re.fullmatch(r"[a-z]+([A-Z][a-z]*)+", name) or len(name) > 30] == []


def test_names_that_clients_use_stay(document: dict[str, Any]) -> None:
    """The routes that apps and phones call most are called what their clients call them."""
    names = {key: each["operationId"] for key, each in operations(document).items()}
    assert names["POST", "/v1/events"] == "enqueueEvent"
    assert names["PUT", "/v1/installations/{installation_id}"] == "registerInstallation"
    assert names["POST", "/v1/installations/{installation_id}/log-out"] == "logOutInstallation"
    assert names["PUT", "/v1/installations/{installation_id}/preferences/{name}"] == "setPreference"
    assert names["GET", "/v1/inbox"] == "readInbox"
    assert names["POST", "/v1/inbox/{event_id}/{mark}"] == "markInboxItem"


def test_every_route_says_which_proofs_it_takes(document: dict[str, Any]) -> None:
    """A route names the proofs that let a caller in; only what is open to anybody names none."""
    schemes = document["components"]["securitySchemes"]
    for key, operation in operations(document).items():
        rule, taken = RULES[key], {name for each in operation.get("security", ()) for name in each}
        assert taken <= schemes.keys(), key
        assert ("appToken" in taken) == (bool(rule.roles) or rule.own_check), key
        assert ("deviceSecret" in taken) == rule.own_check, key
    assert schemes["signature"] == schemes["signature"] | {"in": "header", "name": "X-Relevo-Signature"}


def test_every_error_is_a_typed_problem(document: dict[str, Any]) -> None:
    """Each answer of 400 and above is problem+json with the schema of a problem, unless it is a state of its own."""
    problem = {"$ref": "#/components/schemas/ProblemBody"}
    states = {("GET", "/health/ready", "503")}
    for (method, path), operation in operations(document).items():
        for code, answer in operation["responses"].items():
            if int(code) < 400 or (method, path, code) in states or code == "422":
                continue
            assert answer["content"] == {"application/problem+json": {"schema": problem}}, (method, path, code)


def test_every_answer_has_a_named_schema(document: dict[str, Any]) -> None:
    """What a route answers with is a schema with a name, so that a client has a type for it."""
    schemas = document["components"]["schemas"]
    for key, operation in operations(document).items():
        for code, answer in operation["responses"].items():
            for kind, content in answer.get("content", {}).items():
                choices = content["schema"].get("anyOf", [content["schema"]]) if "json" in kind else []
                assert {each.get("$ref", "").rsplit("/", 1)[-1] for each in choices} <= schemas.keys(), (key, code)
    assert not schemas.keys() & {"HTTPValidationError", "ValidationError"}


def test_a_push_is_described_as_it_is_checked(document: dict[str, Any]) -> None:
    """The document allows a push if the check of events does; that ids of actions differ is beyond a schema."""
    schemas = document["components"]["schemas"]
    described = jsonschema_rs.Draft202012Validator(
        {"$ref": "#/components/schemas/PushFields", "components": {"schemas": schemas}}
    )
    action = {"id": "a", "title": "A"}
    values: list[Any] = [
        *(None, True, 0, -1, 0.5, 7, 2.0, 2**31, "", "x", "high", "unread", "critical", "x" * 2_001, "#2244ff", "#12"),
        *(
            [],
            ["x"],
            [7],
            [None],
            [action],
            [{"id": "a"}],
            [action | {"x": 1}],
            [action | {"icon": None}],
            {},
            {"x": 1},
        ),
        *({"name": "a", "volume": 1}, {"name": "a", "volume": 2}, {"image": "/a.png"}, {"image": 7}),
    ]
    inner = [({platform: fields}, platform) for platform, fields in push_rules.OVERRIDES.items()]
    pushes = [{name: value} for name in [*push_rules.PUSH_FIELDS, "title"] for value in values]
    pushes += [{at: {name: value}} for told, at in inner for name in [*told[at], "ttl"] for value in values]
    for push in pushes:
        assert described.is_valid(push) == (push_rules.push_complaint(push) is None), push
    events = [
        each for each in schemas.values() if "audience" in each.get("properties", {}) and "push" in each["properties"]
    ]
    assert len(events) >= 2
    assert all("PushFields" in str(each["properties"]["push"]) for each in events)
