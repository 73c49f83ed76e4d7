"""A body that was made to cost much costs little, and that of a stranger is not even read."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from support.http_server import Client, Served

MEGABYTE = 1_000_000
JSON = {"Content-Type": "application/json"}
SLOW_NAME = "://:"


def many_fields(size: int) -> bytes:
    """Return an object of about that many bytes, of nothing but fields that nobody knows."""
    fields: list[str] = []
    length = 2
    while length < size - 12:
        fields.append(f'"{len(fields)}":0')
        length += len(fields[-1]) + 1
    return f"{{{','.join(fields)}}}".encode()


def one_field(size: int, piece: str = SLOW_NAME) -> bytes:
    """Return an object with one field that has a very long name."""
    return json.dumps({(piece * (size // len(piece)))[: size - 20]: 0}).encode()


def cost(client: Client, path: str, body: bytes, method: str = "POST") -> tuple[Any, float]:
    """Send a body; return the answer, and how much CPU all of this process took for it."""
    began = time.process_time()
    answer = client.call(method, path, data=body, headers=JSON)
    return answer, time.process_time() - began


@pytest.mark.parametrize("make", [many_fields, one_field])
def test_what_is_refused_costs_no_more_than_its_length(served: Served, make: Callable[[int], bytes]) -> None:
    """With a good token, too, twice the body costs about twice as much, and a few errors are told, each of them short."""
    app = served.client("app")
    app.post("/v1/events", {})  # what is loaded at the first call is not counted
    half, whole = (
        min((cost(app, "/v1/events", make(size)) for _ in range(2)), key=lambda each: each[1])
        for size in (MEGABYTE // 2, MEGABYTE - 1_000)
    )
    assert whole[0].status_code == 400
    assert len(whole[0].json()["errors"]) <= 20
    assert len(whole[0].content) < 10_000
    assert whole[1] < max(4 * half[1], 0.5)


def test_the_first_twenty_errors_are_told(served: Served) -> None:
    """Of many fields that nobody knows the first ones are named."""
    app, path = served.client("app"), f"/v1/installations/{uuid4()}"
    errors = app.call("PUT", path, data=many_fields(10_000), headers=JSON).json()["errors"]
    assert len(errors) == 20
    assert len({each["field"] for each in errors}) == 20


def test_errors_that_nobody_is_told_are_not_even_written(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of fields that nobody knows only the few that are told are looked through for secrets."""
    looked: list[str] = []
    monkeypatch.setattr("relevo.http.problems.scrub", lambda text: looked.append(text) or text)
    app, path = served.client("app"), f"/v1/installations/{uuid4()}"
    assert app.call("PUT", path, data=many_fields(65_000), headers=JSON).status_code == 400
    assert 0 < len(looked) < 100


def test_a_body_that_is_announced_too_long_is_not_waited_for(served: Served) -> None:
    """Who announces more than a body may have is told so before any of it was sent."""
    where = urlsplit(served.server.url)
    with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
        head = f"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.client('app').token}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 9000000\r\n\r\n".encode())
        assert connection.recv(1_000).startswith(b"HTTP/1.1 413 ")


def test_a_strangers_body_is_not_read(served: Served) -> None:
    """Without a proof, or with a wrong secret, a phone's request is refused while its body is still to come."""
    client = served.client()

    def pieces() -> Iterator[bytes]:
        for _ in range(3):
            yield b"x" * 20_000

    for secret in [None, f"device_{'0' * 32}_{'x' * 43}"]:
        for path in ["", "/preferences/default"]:
            headers = JSON | ({"Authorization": f"Bearer {secret}"} if secret else {})
            refused = client.call("PUT", f"/v1/installations/{uuid4()}{path}", data=pieces(), headers=headers)
            assert (refused.status_code, refused.json()["title"]) == (401, "Unauthorised"), path
            refused = client.call("PUT", f"/v1/installations/{uuid4()}{path}", data=b"no JSON", headers=headers)
            assert refused.status_code == 401, path


def test_a_phones_body_is_small(serve: Callable[..., Served]) -> None:
    """A body of more than 64 kB is refused where strangers may send one; the longest that is good fits."""
    stranger = serve(http_open_registration="default").client()
    path = f"/v1/installations/{uuid4()}"
    for body in (many_fields(MEGABYTE), one_field(MEGABYTE)):
        refused, spent = cost(stranger, path, body, "PUT")
        assert (refused.status_code, refused.json()["type"]) == (413, "urn:relevo:content-too-large")
        assert spent < 1.0
    longest = {"token": "ExponentPushToken[x]", "opt_outs": [f"{n:03}" + "📋" * 97 for n in range(100)]}
    made = stranger.call("PUT", path, data=json.dumps(longest, ensure_ascii=False).encode(), headers=JSON)
    assert made.status_code == 201, made.text
    secret = {"Authorization": f"Bearer {made.json()['secret']}"}
    wish = {"topics": longest["opt_outs"], "keywords": [f"{n:03}" + "📋" * 97 for n in range(20)]}
    body = json.dumps(wish, ensure_ascii=False).encode()
    set_ = stranger.call("PUT", f"{path}/preferences/default", data=body, headers=JSON | secret)
    assert set_.status_code == 200, set_.text


def test_a_stranger_who_may_register_costs_little(serve: Callable[..., Served]) -> None:
    """Where strangers may register, the worst body that is read costs a fraction of a second."""
    stranger = serve(http_open_registration="default").client()
    path = f"/v1/installations/{uuid4()}"
    stranger.call("PUT", path, data=b"{}", headers=JSON)
    for make in [many_fields, one_field]:
        refused, spent = cost(stranger, path, make(65_000), "PUT")
        assert refused.status_code == 400, make
        assert spent < 1.0, make
        assert len(refused.content) < 10_000, make


def test_deep_json_is_refused(serve: Callable[..., Served]) -> None:
    """A body of nothing but brackets is no more than a body that is no good."""
    served = serve(http_open_registration="default")
    for size in (30_000, 65_000):
        refused = served.client().call("PUT", f"/v1/installations/{uuid4()}", data=b"[" * size, headers=JSON)
        assert refused.status_code == 400
        assert served.client("app").call("POST", "/v1/events", data=b"[" * size, headers=JSON).status_code == 400
