"""The calls on the page of the HTTP API work: each is made, as it stands there, for a phone and an event of its own."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import psycopg
import pytest

import relevo
from http_examples import EXAMPLES
from support.http_server import Client, Served, fan_out

PAGE = Path(__file__).resolve().parents[2] / "server" / "docs" / "http-api.md"
NOT_HERE = {"GET /v1/licitaciones/{licitacion_id}": 404}
"""A call that needs what no test has: a tender."""


def calls() -> list[tuple[str, str]]:
    """Return each route of the page with its call."""
    return re.findall(
        r"^### ([A-Z]+ /\S+)\n.*?^```sh\n(curl .*?)\n```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )


def test_each_route_has_one_call() -> None:
    """No route is without a call, and no call without a route."""
    assert sorted(route for route, _ in calls()) == sorted(" ".join(route) for route in EXAMPLES)


@pytest.fixture
def caller(served: Served) -> Client:
    """Return somebody who may call every route."""
    return served.client("operator")


def test_each_call_works(served: Served, conn: psycopg.Connection[Any], caller: Client) -> None:
    """Each call is answered with success; what has been deleted by a call is there again before the next."""
    relevo.subscribe_news(conn, "billing")
    conn.commit()
    for number, (route, written) in enumerate(calls()):
        caller.post("/v1/owners/unblock", {"owner": "user-7"})
        phone = relevo.register(conn, relevo.Installation("ExponentPushToken[abc]", owner="user-7"))
        conn.commit()
        later = {"key": "order-18", "scheduled_at": "2199-01-01T00:00:00Z", "on_conflict": "keep"}
        told = {"type": "order.shipped", "title": "Hi", "audience": "owners", "owners": ["user-7"]}
        assert caller.post("/v1/events", {**told, **later}).ok
        event = caller.post("/v1/events", {**told, "key": f"made-{number}"}).json()["event_id"]
        fan_out(served)
        [delivery] = caller.get(f"/v1/events/{event}/deliveries").json()["items"]
        values = {"EVENT": event, "PHONE": phone, "DELIVERY": delivery["id"], "TENDER": 1, "RELEVO": "", "AUTH": ""}
        method, path, body = parsed(re.sub(r"\$([A-Z]+)", lambda name: str(values[name[1]]), written))
        headers = {"Content-Type": "application/json"} if body else {}
        answer = caller.call(method, path, data=body, headers=headers)
        assert answer.status_code == NOT_HERE.get(route, answer.status_code), written
        assert answer.ok or route in NOT_HERE, (written, answer.text[:300])


def parsed(written: str) -> tuple[str, str, str | None]:
    """Return method, path and body of a call of curl."""
    words = shlex.split(written)
    assert words.pop(0) == "curl"
    method, body, path = "", None, ""
    while words:
        match words.pop(0):
            case "-H":
                words.pop(0)
            case "-X":
                method = words.pop(0)
            case "--json":
                body = words.pop(0)
            case other:
                path = other
    return method or ("POST" if body else "GET"), path, body
