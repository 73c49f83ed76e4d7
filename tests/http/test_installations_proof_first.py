"""Nothing of a stranger's request is parsed, looked up or locked before it is proven, and what is unreasonable is refused."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import psycopg
import pytest
import structlog.testing

from relevo import sign_installation
from relevo.http.installations import InstallationBody
from support.http_phones import KEYS, TOKEN, Phones, sign
from support.http_server import EVENT, Served
from support.processes import eventually

JSON = {"Content-Type": "application/json"}


def unknown_fields(many: int = 5_000) -> bytes:
    """Return a body of nothing but fields that nobody knows."""
    return json.dumps({f"{n:05}": 0 for n in range(many)}).encode()


def hear(served: Served, head: str) -> bytes:
    """Send a head and nothing of the body that it announces; return the first bytes of the answer."""
    where = urlsplit(served.server.url)
    with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
        connection.sendall(head.encode())
        return connection.recv(12)


@pytest.mark.parametrize("signature", ["x", "v1.k.1.2.x", f"v2.unknown.1.2.{'n' * 16}.{'0' * 64}"])
def test_a_signature_that_cannot_hold_is_refused_before_the_body_comes(phones: Phones, signature: str) -> None:
    """Of another form, an unknown key or another time: the answer is there while the body is still to come."""
    head = f"PUT /v1/installations/{uuid4()} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    signed = f"X-Relevo-Signature: {signature}\r\nContent-Length: 60000\r\n\r\n"
    assert hear(phones.served, head + signed) == b"HTTP/1.1 401"


def test_a_body_whose_signature_does_not_hold_is_not_validated(phones: Phones) -> None:
    """Nothing but the fields that the signature covers is looked at; whoever signs for it is told what is wrong."""
    phone, sent = uuid4(), {"token": TOKEN.format("a")}
    bodies = {
        "unknown": unknown_fields(),
        "no JSON": b"{",
        "no object": b"[1]",
        "no text": b'{"token": 7}',
        "deep": b"[" * 60_000,
    }
    for name, body in bodies.items():
        headers = JSON | {"X-Relevo-Signature": sign(uuid4(), **sent)}
        answer = phones.client.call("PUT", f"/v1/installations/{phone}", data=body, headers=headers)
        assert (answer.status_code, "errors" in answer.json()) == (401, False), name
    headers = JSON | {"X-Relevo-Signature": sign(phone, **sent)}
    asked = json.dumps(sent | {f"{n}": 0 for n in range(5_000)}).encode()
    answer = phones.client.call("PUT", f"/v1/installations/{phone}", data=asked, headers=headers)
    assert (answer.status_code, len(answer.json()["errors"])) == (400, 20)


def test_who_leaves_in_the_middle_of_a_body_is_no_failure(phones: Phones) -> None:
    """A stranger that announces a body and hangs up leaves no error in the log, and the next one is served."""
    phone = uuid4()
    head = f"PUT /v1/installations/{phone} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    signed = f"X-Relevo-Signature: {sign(phone)}\r\nContent-Length: 500\r\n\r\n{{"
    where = urlsplit(phones.served.server.url)
    with structlog.testing.capture_logs() as lines:
        with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
            connection.sendall((head + signed).encode())
            eventually(lambda: phones.served.server._servers[0].server_state.tasks, "it is being worked")
        eventually(lambda: phones.served.server.connections.strangers._untold["invalid"], "it is noted that it left")
    assert [line["event"] for line in lines if line["log_level"] == "error"] == []
    assert phones.put(phone, signed=sign(phone)).status_code == 201


def test_an_address_that_names_no_phone_is_refused_before_the_body_comes(serve: Callable[..., Served]) -> None:
    """With a signature or without, and where strangers may register: an id that is none is refused by its name."""
    for settings in ({}, {"http_open_registration": "default"}):
        served = serve(**settings)
        head = "PUT /v1/installations/nobody HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        assert hear(served, f"{head}X-Relevo-Signature: x\r\nContent-Length: 60000\r\n\r\n") == b"HTTP/1.1 400"


@pytest.mark.parametrize("project", [None, "shop", "news"])
def test_a_signature_for_a_phone_of_another_project_holds(phones: Phones, project: str | None) -> None:
    """A phone that does not send its project is refreshed by a signature for the project it is in."""
    phone, _ = phones.new(project=project or "default", token=TOKEN.format(project))
    signed = sign_installation("new-2", KEYS["new-2"], installation_id=phone, token=None, project=project or "default")
    assert phones.put(phone, signed=signed).status_code == 200
    other = sign_installation("new-2", KEYS["new-2"], installation_id=phone, token=None, project="elsewhere")
    assert phones.put(phone, signed=other).status_code == 401


def test_who_proves_nothing_waits_for_no_lock(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """While an app's transaction holds a phone, a wrong proof for the phone is refused at once."""
    phone, secret = phones.new(token=TOKEN.format("held"), owner="ana")
    wrong = secret[:-1] + ("a" if secret[-1] != "a" else "b")
    sent = {"token": TOKEN.format("held"), "owner": "ana"}
    with conn.transaction():
        conn.execute("select from relevo.device_installations for update")
        for by, signed in ((None, sign(uuid4(), **sent)), (wrong, None), (None, None)):
            for given in (sent, sent | {"project": "default"}):
                answer = phones.put(phone, by, signed=signed, **given)
                assert answer.status_code == 401, answer.text
    assert phones.put(phone, signed=sign(phone, **sent), **sent).status_code == 200


def test_many_unknown_fields_make_few_errors(served: Served) -> None:
    """Of a body with a good token, too, pydantic is handed the known fields and twenty of the others."""
    asked = {f"{n}": 0 for n in range(4_000)} | {"locale": "es", "token": 7}
    with pytest.raises(ValueError, match="validation error") as refused:
        InstallationBody.model_validate(asked)
    errors = refused.value.errors()  # type: ignore[attr-defined]
    assert len(errors) == 21
    assert ("token",) in {each["loc"] for each in errors}
    answer = served.client("app").call("PUT", f"/v1/installations/{uuid4()}", json=asked)
    assert (answer.status_code, len(answer.json()["errors"])) == (400, 20)


def test_addresses_are_bounded(served: Served) -> None:
    """A long path or query, and many parameters or cookies, are refused by name before they are parsed."""
    client = served.client()
    refused = {
        "/guide?" + "a" * 9_000: 414,
        "/nothing/" + "a" * 5_000: 414,
        "/guide?" + "a&" * 50: 400,
        "/guide?q=" + "%C3%B1" * 200: 200,
    }
    for path, status in refused.items():
        assert client.get(path).status_code == status, path[:20]
    cookies = {"Cookie": "; ".join(f"a{n}=b" for n in range(60))}
    assert client.get("/guide", headers=cookies).status_code == 431
    viewer = served.client("viewer")
    filters = dict.fromkeys(("region", "tipo", "estado", "q"), "ñ" * 100)
    assert viewer.get("/v1/licitaciones", params=filters).status_code in (200, 403)


def test_headers_are_few(served: Served) -> None:
    """A request with more than a hundred headers is refused."""
    few = "".join(f"x-{n}: y\r\n" for n in range(90))
    many = "".join(f"x-{n}: y\r\n" for n in range(110))
    assert hear(served, f"GET /health/live HTTP/1.1\r\nHost: x\r\n{few}\r\n") == b"HTTP/1.1 200"
    assert hear(served, f"GET /health/live HTTP/1.1\r\nHost: x\r\n{many}\r\n") == b"HTTP/1.1 431"


def test_browsers_are_told_to_stay_with_tls(served: Served) -> None:
    """Behind a proxy that speaks TLS every answer says so; over plain HTTP none does."""
    client = served.client()
    for path in ("/health/live", "/login", "/nothing", "/v1/events"):
        by_tls = client.get(path, headers={"X-Forwarded-Proto": "https"}).headers
        assert by_tls["strict-transport-security"] == "max-age=31536000", path
        assert "strict-transport-security" not in client.get(path).headers, path


def test_refused_strangers_are_counted_and_told_in_one_line(served: Served) -> None:
    """Each refusal is counted by its reason; the log has one line for all of them, and none for each."""
    stranger, app = served.client(), served.client("app")
    bad = {"Authorization": f"Bearer relevo_{'0' * 12}_{'x' * 43}"}
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            stranger.post("/v1/events", {}, headers=bad)
            stranger.call("PUT", "/nothing")
        stranger.call("DELETE", "/health/live")
        hear(served, "no HTTP\r\n\r\n")
        app.post("/v1/events", EVENT | {"audience": "nobody"})
        strangers = served.server.connections.strangers
        eventually(lambda: sum(strangers._untold.values()) == 8, "all are counted")
        eventually(lambda: any(line.get("status") == 400 for line in lines), "the app's mistake is logged")
        strangers.tell()
        strangers.tell()
    told = [line for line in lines if line["event"] == "http_unproven_refused"]
    expected = {"no_proof": 3, "not_found": 3, "method": 1, "invalid": 1}
    assert [{name: line[name] for name in expected} for line in told] == [expected]
    loud = [line for line in lines if line["event"] == "http_request" and line["log_level"] != "debug"]
    assert [line["status"] for line in loud] == [400], "the app's own mistake has its line"
    metrics = served.client("viewer").get("/metrics").text
    for reason, count in expected.items():
        assert f'relevo_http_refused_total{{reason="{reason}"}} {count}.0' in metrics


def test_a_phones_own_mistake_has_its_line(phones: Phones) -> None:
    """A phone that has proven itself is no stranger: what it did wrong is logged as it is for tokens."""
    phone, secret = phones.new(token=TOKEN.format("own"))
    assert isinstance(phone, UUID)
    with structlog.testing.capture_logs() as lines:
        path = f"/v1/installations/{phone}/preferences/default"
        assert phones.call("PUT", path, secret, json={"enabled": "maybe"}).status_code == 400
        refused = {"event": "http_request", "status": 400}  # the line of the registration may come late
        eventually(lambda: any(refused.items() <= line.items() for line in lines), "it is logged")
    [line] = [line for line in lines if refused.items() <= line.items()]
    assert (line["log_level"], line["caller"]) == ("info", "phone")
