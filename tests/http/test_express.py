"""The short way to a route answers what FastAPI's way answers, to whatever is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from relevo import door, tokens
from relevo.app import App
from relevo.http import api
from relevo.http.desk import Desk
from relevo.http.envelope import App as Asgi
from relevo.http.envelope import Envelope
from relevo.http.express import Express
from relevo.http.ready import Readiness
from relevo.http.shared import Shared

JSON = {"content-type": "application/json"}
EVENT = {"type": "order.shipped", "key": "1", "title": "On its way", "audience": "everyone"}
Answer = tuple[int, dict[str, str], Any]


async def ask(app: Asgi, method: str, address: str, headers: dict[str, str], body: bytes = b"") -> Answer:
    """Return status, headers and body of an answer, without what each has of its own."""
    path, _, query = address.partition("?")
    sent: list[Any] = []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "server": ("127.0.0.1", 1),
        "client": ("127.0.0.1", 2),
        "method": method,
        "root_path": "",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "state": {},
    }
    pieces = [{"type": "http.request", "body": body[:10], "more_body": True}]
    pieces += [{"type": "http.request", "body": body[10:], "more_body": False}]

    async def receive() -> Any:
        return pieces.pop(0) if pieces else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await Envelope(app, 10_000)(scope, receive, send)
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    whole = b"".join(each.get("body", b"") for each in sent[1:])
    said = json.loads(whole) if "json" in told.get("content-type", "") else whole
    if isinstance(said, dict) and said.pop("request_id", None):
        told.pop("content-length")
    told.pop("x-request-id")
    return sent[0]["status"], told, said


async def _numbers() -> dict[str, int]:
    return {"total": 7}


@pytest.fixture
def both(build: Callable[..., App]) -> Iterator[Callable[..., Any]]:
    """Run a story with both ways to the same routes."""
    app = build()
    database = app.database.beside("relevo test", 2)

    def run(story: Callable[[Asgi, Asgi], Any], rate_per_s: int = 0, origins: tuple[str, ...] = ()) -> None:
        async def whole() -> None:
            desk = Desk(database, 2, 30)
            readiness = Readiness(app.settings, scheduled=False)
            made = api.make(desk, app, rate_per_s=rate_per_s, readiness=readiness, cors_origins=origins)
            made.state.stats = Shared(_numbers)  # which would change while they are compared
            await story(Express(made), made)
            desk.close()

        asyncio.run(whole())

    yield run
    database.close()


def bodies() -> Iterator[tuple[dict[str, str], bytes]]:
    """Return what may be handed in as an event, good and bad."""
    yield JSON, json.dumps(EVENT).encode()
    yield {"content-type": "application/json; charset=utf-8"}, json.dumps(EVENT).encode()
    yield {}, json.dumps(EVENT).encode()
    yield {"content-type": "text/plain"}, json.dumps(EVENT).encode()
    yield JSON | {"idempotency-key": "1"}, json.dumps(EVENT).encode()
    yield JSON | {"idempotency-key": "2"}, json.dumps(EVENT).encode()
    yield JSON | {"idempotency-key": "k" * 301}, json.dumps(EVENT).encode()
    keyless = {name: value for name, value in EVENT.items() if name != "key"}
    yield JSON | {"idempotency-key": "1"}, json.dumps(keyless).encode()
    for change in (
        {"key": None},
        {"type": 7},
        {"title": "x" * 501},
        {"title": "\0"},
        {"title": "\ud800"},
        {"data": {"n": float("nan")}},
        {"ttl_s": "10"},
        {"ttl_s": 0},
        {"at_most_once": "yes"},
        {"audience": "nobody"},
        {"unknown": 1},
        {"installations": ["x"]},
        {"title": None},
    ):
        yield JSON, json.dumps(EVENT | change).encode()
    for broken in (b"", b"{", b"[]", b"null", b"7", b'"\xff"', b"x" * 20_000):
        yield JSON, broken


def addresses(event_id: int) -> list[tuple[str, str]]:
    """Return what may be asked for, good and bad."""
    event = f"/v1/events/{event_id}"
    reads = ["/health/live", "/health/live?x=1", "/health/ready", "/v1/ops/stats", "/v1/ops/stats?x=1", "/nowhere"]
    reads += [
        f"{event}?{query}" for query in ("waitMs=0", "waitMs=0&until=confirmed", "waitMs=%30", "waitMs=1&waitMs=0")
    ]
    reads += [
        f"{event}?{query}" for query in ("waitMs=", "waitMs=-1", "waitMs=30001", "waitms=0", "until=x", "waitMs=0&x")
    ]
    reads += [f"/v1/events/{each}?waitMs=0" for each in ("0", "-1", "x", "1.0", "1e3", str(2**63), "999999", "", "1/2")]
    reads += [
        f"{event}/",
        f"{event}/deliveries",
        f"{event}/deliveries?limit=0",
        f"{event}/nothing",
        "/v1/events",
        "/v1//",
    ]
    others = [("PUT", "/v1/events"), ("HEAD", event), ("OPTIONS", event), ("POST", "/v1/ops/stats"), ("POST", event)]
    return [("GET", each) for each in reads] + others


def test_both_ways_answer_the_same(
    both: Callable[..., None], build: Callable[..., App], conn: psycopg.Connection[Any]
) -> None:
    """Good and bad, with enough of a role, too little and none: status, headers and body are the same."""
    database = build().database
    given = {role: tokens.make(database, role, role)[0] for role in ("app", "viewer", "operator")}  # type: ignore[arg-type]
    event_id = door.enqueue(conn, door.Event("order.shipped", "1", "On its way", audience="everyone")).event_id

    async def story(short: Asgi, long: Asgi) -> None:
        for written in (*given.values(), "wrong", ""):
            said = {"authorization": f"Bearer {written}"} if written else {}
            for method, address in addresses(event_id):
                mine = await ask(short, method, address, said)
                assert mine == await ask(long, method, address, said), (method, address)
        for written in (given["app"], given["viewer"]):
            for headers, body in bodies():
                said = {"authorization": f"Bearer {written}", "content-length": str(len(body))} | headers
                mine = await ask(short, "POST", "/v1/events", said, body)
                assert mine == await ask(long, "POST", "/v1/events", said, body), body

    both(story)


def test_what_is_asked_most_goes_the_short_way(both: Callable[..., None], build: Callable[..., App]) -> None:
    """Health, statistics, events: none of them passes FastAPI's layers if all is as usual."""
    written = tokens.make(build().database, "caller", "operator")[0]

    async def story(short: Express, _: Asgi) -> None:
        async def refuse(*_: Any) -> None:
            raise AssertionError("the long way")

        said = {"authorization": f"Bearer {written}"} | JSON
        status, _, made = await ask(short, "POST", "/v1/events", said, json.dumps(EVENT).encode())
        assert status == 201
        short._api.middleware_stack = refuse
        for address in ("/health/live", "/v1/ops/stats", f"/v1/events/{made['event_id']}?waitMs=0"):
            assert (await ask(short, "GET", address, said))[0] in (200, 202)
        assert (await ask(short, "POST", "/v1/events", said, json.dumps(EVENT).encode()))[0] == 200

    both(story)


def test_a_request_is_counted_once(both: Callable[..., None], build: Callable[..., App]) -> None:
    """One that goes the long way after its caller was let in does not count twice against the rate."""
    written = tokens.make(build().database, "caller", "operator")[0]

    async def story(short: Asgi, _: Asgi) -> None:
        said = {"authorization": f"Bearer {written}"} | JSON
        first = [(await ask(short, "POST", "/v1/events", said, b"{"))[0] for _ in range(100)]
        assert first == [400] * 100

    both(story, rate_per_s=50)


def test_a_page_elsewhere_is_told_what_it_may_read(both: Callable[..., None]) -> None:
    """Where other origins are let in, their requests get the headers that say so."""

    async def story(short: Asgi, long: Asgi) -> None:
        for origin in ("https://app.example", "https://other.example"):
            mine = await ask(short, "GET", "/health/live", {"origin": origin})
            assert mine == await ask(long, "GET", "/health/live", {"origin": origin})
        told = (await ask(short, "GET", "/health/live", {"origin": "https://app.example"}))[1]
        assert told["access-control-allow-origin"] == "https://app.example"

    both(story, origins=("https://app.example",))
