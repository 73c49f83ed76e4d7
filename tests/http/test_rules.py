"""Who may call what: every route has a rule, and the rule holds for every kind of caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args
from uuid import UUID

import psycopg
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from relevo.access import api_tokens
from relevo.http import api
from relevo.http.guard import Guarded
from relevo.http.rules import RULES
from support.http_server import Client, Served
from support.processes import eventually
from support.who_may_call import WHO_MAY_CALL

FILLED = {"event_id": "1", "name": "reaper", "installation_id": str(UUID(int=1)), "project": "default"}
"""What stands in place of a path's parameters while only the door is knocked at."""


def routes() -> Iterator[tuple[str, str]]:
    """Yield method and path of everything that can be reached."""
    for router in api.ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute), f"{route} is not a route with a rule"
            for method in route.methods:
                yield method, route.path


def filled(path: str) -> str:
    """Return a path that can be called."""
    path = path.replace(":path}", "}")
    return path.format_map({**FILLED, **{name: FILLED.get(name, "x") for name in _names(path)}})


def _names(path: str) -> list[str]:
    return [part.split("}")[0] for part in path.split("{")[1:]]


GUARDED = sorted(key for key, callers in WHO_MAY_CALL.items() if callers.roles)


def test_every_route_has_a_rule_and_every_rule_a_route() -> None:
    """The router and the table name the same routes."""
    assert set(routes()) == set(RULES)


def test_nothing_is_served_but_guarded_routes() -> None:
    """What the app serves was made as a guarded route: no mount, no page of FastAPI's own."""
    app = api.make()
    assert [route for route in app.routes if not isinstance(route, Guarded)] == []


def test_a_route_without_a_rule_cannot_be_made() -> None:
    """Who adds a route and forgets its rule is told at once."""
    app = FastAPI()
    app.router.route_class = Guarded
    with pytest.raises(LookupError, match="GET /v1/new has no rule"):
        app.get("/v1/new")(lambda: None)


def test_each_route_lets_in_whom_the_list_names(serve: Callable[..., Served]) -> None:
    """Without a token 401, with a wrong one 401, with too little 403, with enough neither."""
    served = serve(http_rate_per_second=0)  # a fast machine asks faster than anybody may
    callers = {role: served.client(role) for role in get_args(api_tokens.Role)}
    stranger, scoped = served.client(), served.client("operator", project="other")
    wrong = Client(served.server.url, callers["operator"].token[:-1] + "!" if callers["operator"].token else None)
    for method, path in GUARDED:
        callers_of, address = WHO_MAY_CALL[method, path], filled(path)
        for name, client in {"stranger": stranger, "wrong": wrong}.items():
            assert client.call(method, address).status_code == 401, (method, path, name)
        for role, client in callers.items():
            status = client.call(method, address, params={"wait_ms": 0}).status_code
            assert (status == 403) == (role not in callers_of.roles), (method, path, role, status)
            assert status not in (401, 405, 500), (method, path, role, status)
        status = scoped.call(method, address, params={"wait_ms": 0}).status_code
        assert (status == 403) == (not callers_of.of_one_project), (method, path, status)
    wrong.close()


def test_a_token_lives_as_long_as_it_should(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A token works until it is revoked or expires; its last use is shown; the database holds no token."""
    client = served.client("viewer", days=1)
    assert client.get("/v1/ops/audit").status_code == 200
    [row] = api_tokens.list_all(served.app.database)
    assert row["state"] == "valid"
    assert row["last_used_at"] is not None
    stored = conn.execute("select to_jsonb(t)::text from relevo.api_tokens t").fetchall()
    assert client.token
    assert client.token.split("_", 2)[2] not in str(stored)
    conn.execute("update relevo.api_tokens set created_at = now() - interval '9 days', expires_at = now()")
    eventually(lambda: client.get("/v1/ops/audit").status_code == 401, "it has expired")
    other = served.client("viewer")
    assert other.get("/v1/ops/audit").status_code == 200
    assert other.token
    api_tokens.revoke(served.app.database, other.token.split("_")[1])
    eventually(lambda: other.get("/v1/ops/audit").status_code == 401, "it is revoked")


def test_last_use_is_written_once_a_minute(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A second use within the minute writes nothing; one after it does."""
    client = served.client("viewer")
    look = "select last_used_at, xmin::text from relevo.api_tokens"
    client.get("/v1/ops/audit")
    before = conn.execute(look).fetchall()
    client.get("/v1/ops/audit")
    assert conn.execute(look).fetchall() == before
    conn.execute("update relevo.api_tokens set last_used_at = now() - interval '2 minutes'")

    def is_noted() -> bool:
        client.get("/v1/ops/audit")
        return bool(conn.execute(look).fetchall()[0][0] > before[0][0])

    eventually(is_noted, "the use after a minute is noted")


def test_too_many_requests_are_told_when_to_come_back(serve: Callable[..., Served]) -> None:
    """A caller beyond its rate gets 429 with Retry-After, and may still ask whether the process lives."""
    served = serve(http_rate_per_second=2)
    one = served.client("viewer")
    answers = [one.get("/v1/ops/audit") for _ in range(12)]
    refused = [each for each in answers if each.status_code == 429]
    assert refused
    assert int(refused[0].headers["retry-after"]) >= 1
    assert refused[0].json()["type"] == "urn:relevo:too-many-requests"
    assert one.get("/health/live").status_code == 200
