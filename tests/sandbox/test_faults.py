"""Faults on demand: by a token's name, by rate, by an admin call."""

from __future__ import annotations

import json
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from relevo.core.errors import InvalidInputError
from relevo.sandbox import Sandbox
from relevo.sandbox.faults import expo as faults
from support.processes import PATIENCE_S, eventually

CODES = [
    "DeviceNotRegistered",
    "MessageTooBig",
    "MessageRateExceeded",
    "MismatchSenderId",
    "InvalidCredentials",
    "InvalidProviderToken",
    "ExpoError",
    "ProviderError",
    "DeveloperError",
    "Weird",
]
NESTED = {"error": "ProviderError", "fault": "fcm", "fcm": {"error": "MismatchSenderId"}}


def named(word: str, name: str = "ana") -> str:
    """Return a token that carries a word."""
    return f"ExponentPushToken[{name}!{word}]"


@pytest.mark.parametrize("code", CODES)
def test_ticket_errors(sandbox: Sandbox, client: Any, code: str) -> None:
    """A code in a token's name is its ticket's error; the phone gets nothing, its neighbour does."""
    bad, good = client.tickets(named(code), "ExponentPushToken[eva]")
    assert (bad["status"], bad["details"]["error"], good["status"]) == ("error", code, "ok")
    assert bad["message"]
    assert "id" not in bad
    assert list(sandbox.phones()) == ["ExponentPushToken[eva]"]
    assert sandbox.totals()["errorTickets"] == 1


def test_device_not_registered_names_the_token(client: Any) -> None:
    """The ticket of a phone that is gone says which token it was."""
    (ticket,) = client.tickets(named("DeviceNotRegistered"))
    assert ticket["details"] == {"error": "DeviceNotRegistered", "expoPushToken": named("DeviceNotRegistered")}


def test_errors_without_a_plain_code(client: Any) -> None:
    """A provider's code comes nested, and an error may come without any code."""
    nested, bare = client.tickets(named("fcm-MismatchSenderId"), named("no-code"))
    assert nested["details"] == NESTED
    assert bare["status"] == "error"
    assert "details" not in bare


@pytest.mark.parametrize("code", [*CODES, "fcm-MismatchSenderId", "no-code"])
def test_receipt_errors(sandbox: Sandbox, client: Any, code: str) -> None:
    """receipt-CODE gives a good ticket and a bad receipt, and the phone gets nothing."""
    (ticket,) = client.tickets(named(f"receipt-{code}"))
    assert ticket["status"] == "ok"
    receipt = client.receipts([ticket["id"]]).json()["data"][ticket["id"]]
    expected = {"no-code": None, "fcm-MismatchSenderId": NESTED}.get(code, {"error": code})
    if code == "DeviceNotRegistered":
        expected = {"error": code, "expoPushToken": named(f"receipt-{code}")}
    assert (receipt["status"], receipt.get("details")) == ("error", expected)
    assert sandbox.phones() == {}


def test_no_receipt(sandbox: Sandbox, client: Any) -> None:
    """no-receipt is delivered, but its receipt never appears."""
    silent, other = client.tickets(named("no-receipt"), "ExponentPushToken[eva]")
    assert list(client.receipts([silent["id"], other["id"]]).json()["data"]) == [other["id"]]
    assert sandbox.phones()[named("no-receipt")]["received"] == 1


@pytest.mark.parametrize(
    ("word", "status", "code", "delivered"),
    [
        ("400", 400, "VALIDATION_ERROR", 0),
        ("401", 401, "UNAUTHORIZED", 0),
        ("403", 403, "UNAUTHORIZED", 0),
        ("429", 429, "TOO_MANY_REQUESTS", 0),
        ("500", 500, "INTERNAL_SERVER_ERROR", 0),
        ("500-delivered", 500, "INTERNAL_SERVER_ERROR", 2),
        ("503", 503, "SERVICE_UNAVAILABLE", 0),
        ("503-delivered", 503, "SERVICE_UNAVAILABLE", 2),
    ],
)
def test_request_faults_in_json(
    sandbox: Sandbox, client: Any, word: str, status: int, code: str, delivered: int
) -> None:
    """A fault of one token fails the whole request, and delivers only where its name says so."""
    response = client.push("ExponentPushToken[eva]", named(word))
    assert (response.status_code, response.json()["errors"][0]["code"]) == (status, code)
    assert response.headers.get("retry-after") == ("2" if word == "429" else None)
    assert sandbox.totals()["delivered"] == delivered


@pytest.mark.parametrize(("word", "delivered"), [("502", 0), ("504", 0), ("502-delivered", 1), ("504-delivered", 1)])
def test_gateway_faults_in_html(sandbox: Sandbox, client: Any, word: str, delivered: int) -> None:
    """A gateway answers with a page, whether or not the service behind it delivered."""
    response = client.push(named(word))
    assert response.status_code == int(word[:3])
    assert response.headers["content-type"].startswith("text/html")
    assert "<html>" in response.text
    assert sandbox.totals()["delivered"] == delivered


@pytest.mark.parametrize(("word", "delivered"), [("reset", 0), ("reset-delivered", 1)])
def test_reset(sandbox: Sandbox, client: Any, word: str, delivered: int) -> None:
    """The connection ends without an answer; the next request is served."""
    with pytest.raises(requests.ConnectionError):
        client.push(named(word))
    assert sandbox.totals()["delivered"] == delivered
    assert client.push("ExponentPushToken[eva]").status_code == 200


@pytest.mark.parametrize(("word", "delivered"), [("hang", 0), ("hang-delivered", 1)])
def test_hang(sandbox: Sandbox, client: Any, word: str, delivered: int) -> None:
    """No answer comes; once the client gave up, its request is no longer in flight."""
    project = sandbox._state.projects._find("@relevo/app")
    for turn in (1, 2):
        with asking(sandbox, json.dumps({"to": named(word)}).encode()) as waiting:
            eventually(lambda: project.in_flight == 1, "the request arrives")
            assert sandbox.totals()["delivered"] == turn * delivered
            waiting.settimeout(0.2)
            with pytest.raises(TimeoutError):
                waiting.recv(1)
        eventually(lambda: project.in_flight == 0, "the sandbox notices that the client gave up")
    assert sandbox.totals()["peakConnections"]["@relevo/app"] == 1


def asking(sandbox: Sandbox, body: bytes, length: int | None = None) -> socket.socket:
    """Send a request, or the beginning of one that is to be so long, on a socket."""
    head = f"POST /--/api/v2/push/send HTTP/1.1\r\nhost: x\r\ncontent-length: {length or len(body)}\r\n\r\n"
    opened = socket.create_connection(("127.0.0.1", int(sandbox.url.rpartition(":")[2])))
    opened.sendall(head.encode() + body)
    return opened


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox that would wait for a minute for who hangs, so that not to wait is much quicker on any machine."""
    monkeypatch.setattr("relevo.core.serving._DRAIN_S", 60)
    monkeypatch.setattr("relevo.sandbox.server._STOP_S", 90.0)


@pytest.mark.usefixtures("patient")
def test_stop_ends_what_hangs() -> None:
    """A sandbox that stops lets go of hanging requests at once, and can be asked what it saw."""
    with Sandbox() as sandbox:
        waiting = asking(sandbox, json.dumps({"to": named("hang-delivered")}).encode())
        eventually(lambda: sandbox.totals()["delivered"], "the request arrives")
        began = time.monotonic()
    with waiting:
        assert waiting.recv(1) == b""
    assert time.monotonic() - began < 30
    assert sandbox.totals()["delivered"] == 1


@pytest.mark.usefixtures("patient")
def test_stop_with_half_a_request() -> None:
    """A client that stays silent in the middle of its request does not keep a sandbox from stopping."""
    with Sandbox() as sandbox:
        half = asking(sandbox, b"[", length=100)
        assert requests.get(sandbox.url, timeout=PATIENCE_S).status_code == 200
        began = time.monotonic()
    with half:
        assert half.recv(1) == b""
    assert time.monotonic() - began < 30


def test_slow(sandbox: Sandbox, client: Any) -> None:
    """slow=SECONDS answers well, but late."""
    began = time.monotonic()
    assert client.push(named("slow=0.3")).json()["data"][0]["status"] == "ok"
    assert time.monotonic() - began >= 0.3
    assert sandbox.totals()["delivered"] == 1


def test_truncated(sandbox: Sandbox, client: Any) -> None:
    """The answer ends in its middle although all was delivered."""
    with pytest.raises((requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        client.push(named("truncated"))
    assert sandbox.totals()["delivered"] == 1


def test_garbage_and_short(sandbox: Sandbox, client: Any) -> None:
    """An answer with status 200 may be no JSON, or lack a ticket."""
    garbage = client.push(named("garbage"))
    assert garbage.status_code == 200
    with pytest.raises(requests.JSONDecodeError):
        garbage.json()
    assert len(client.tickets(named("short"), "ExponentPushToken[eva]")) == 1
    assert client.send({"to": named("short")}).json() == {"data": []}
    assert sandbox.totals()["delivered"] == 4


def test_only_the_first_times(sandbox: Sandbox, client: Any) -> None:
    """*N limits a fault to the first N times this token meets it; another token has a count of its own."""
    assert [client.push(named("500*2")).status_code for _ in range(3)] == [500, 500, 200]
    assert client.push(named("500*2", "eva")).status_code == 500
    assert [client.tickets(named("ExpoError*1"))[0]["status"] for _ in range(2)] == ["error", "ok"]
    sandbox.reset()
    assert client.push(named("500*2")).status_code == 500


def test_several_words(sandbox: Sandbox, client: Any) -> None:
    """A token may carry several words: here a project, a failure at first, then a bad receipt."""
    token = named("project=@acme/words!503*1!receipt-ExpoError")
    assert client.push(token).status_code == 503
    (ticket,) = client.tickets(token)
    assert client.receipts([ticket["id"]]).json()["data"][ticket["id"]]["status"] == "error"
    assert sandbox.totals()["peakConnections"]["@acme/words"] == 1


def test_faults_by_admin_call(client: Any) -> None:
    """A fault put into force by a call befalls requests until its times are used up; it can be seen and cleared."""
    posted = client.call("POST", "/sandbox/faults", json=[{"fault": "500", "times": 2}, {"fault": "429", "share": 0}])
    assert posted.status_code == 200
    assert [client.push("ExponentPushToken[eva]").status_code for _ in range(3)] == [500, 500, 200]
    (left,) = client.call("GET", "/sandbox/faults").json()["faults"]
    assert left == {"fault": "429", "share": 0, "times": None, "project": None, "on": "send", "seconds": None}
    assert client.call("DELETE", "/sandbox/faults").json() == {"faults": []}
    assert client.call("GET", "/sandbox/faults").json() == {"faults": []}


def test_faults_by_share(sandbox: Sandbox, client: Any) -> None:
    """A share befalls about that part of the messages, each on its own."""
    sandbox.add_fault("DeviceNotRegistered", share=0.5)
    tokens = [f"ExponentPushToken[{number}]" for number in range(100)]
    tickets = [ticket for _ in range(4) for ticket in client.tickets(*tokens)]
    assert 130 < sum(ticket["status"] == "error" for ticket in tickets) < 270


def test_faults_for_a_while_and_for_a_project(sandbox: Sandbox, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault may be limited to a project and to some seconds."""
    hours = [1.0]
    monkeypatch.setattr(faults, "time", SimpleNamespace(monotonic=lambda: hours[0] * 3_600))
    sandbox.add_fault("InvalidCredentials", project="@acme/other", seconds=3_600)
    other = named("project=@acme/other")
    assert client.tickets("ExponentPushToken[eva]")[0]["status"] == "ok"
    hours[0] = 1.9
    assert client.tickets(other)[0]["details"] == {"error": "InvalidCredentials"}
    assert client.call("GET", "/sandbox/faults").json()["faults"][0]["seconds"] == pytest.approx(360)
    hours[0] = 2.1
    assert client.tickets(other)[0]["status"] == "ok"
    assert client.call("GET", "/sandbox/faults").json() == {"faults": []}


def test_faults_on_receipts(sandbox: Sandbox, client: Any) -> None:
    """Questions for receipts can fail too, and sending does not notice."""
    sandbox.add_fault("504", on="receipts", times=1)
    (ticket,) = client.tickets("ExponentPushToken[eva]")
    assert client.receipts([ticket["id"]]).status_code == 504
    assert list(client.receipts([ticket["id"]]).json()["data"]) == [ticket["id"]]
    sandbox.add_fault("reset", on="receipts")
    with pytest.raises(requests.ConnectionError):
        client.receipts([ticket["id"]])


def test_clear_faults(sandbox: Sandbox, client: Any) -> None:
    """Cleared faults befall nobody."""
    sandbox.add_fault("500")
    sandbox.clear_faults()
    assert client.push("ExponentPushToken[eva]").status_code == 200


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("500", "must be an object"),
        ({}, "must be an object"),
        ({"fault": "nonsense"}, "no fault 'nonsense'"),
        ({"fault": "slow=x"}, "seconds from 0"),
        ({"fault": "slow=1000"}, "seconds from 0"),
        ({"fault": "slow"}, "no fault 'slow'"),
        ({"fault": "project=@a/b"}, "token's name"),
        ({"fault": "500", "share": 2}, "`share`"),
        ({"fault": "500", "share": "x"}, "`share`"),
        ({"fault": "500", "times": 0}, "`times`"),
        ({"fault": "500", "times": True}, "`times`"),
        ({"fault": "500", "seconds": -1}, "`seconds`"),
        ({"fault": "500", "project": 1}, "`project`"),
        ({"fault": "500", "on": "nothing"}, "`on`"),
        ({"fault": "ExpoError", "on": "receipts"}, "`on`"),
        ({"fault": "500", "on": ["send"]}, "`on`"),
        ({"fault": "500", "service": ["expo"]}, "service"),
        ({"fault": "500", "on": "receipts", "project": "@a/b"}, "`project`"),
        ({"fault": "500", "sharp": 1}, "no sharp"),
    ],
    ids=str,
)
def test_a_fault_that_does_not_exist(client: Any, fault: Any, complaint: str) -> None:
    """A slip in an admin call is told, and nothing of the call comes into force."""
    response = client.call("POST", "/sandbox/faults", json=[{"fault": "500"}, fault])
    assert response.status_code == 400
    assert complaint in response.json()["errors"][0]["message"]
    assert client.call("GET", "/sandbox/faults").json() == {"faults": []}


def test_a_slip_in_python(sandbox: Sandbox) -> None:
    """The helpers complain as the calls do."""
    with pytest.raises(InvalidInputError, match="no fault 'nonsense'"):
        sandbox.add_fault("nonsense")
    with pytest.raises(InvalidInputError, match="no setting speed"):
        sandbox.set(speed=1)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1%.evil.example"},
        {"Host": "evil.example:8787", "Origin": "http://evil.example:8787"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_sites_set_no_faults(client: Any, headers: dict[str, str]) -> None:
    """A page of another site, also by a name of its own that leads here, neither sets a fault nor reads what came."""
    fault = {"fault": "500", "share": 1}
    assert client.call("POST", "/sandbox/faults", json=fault, headers=headers).status_code == 403
    assert client.call("DELETE", "/sandbox/faults", headers=headers).status_code == 403
    assert client.call("GET", "/sandbox/faults").json()["faults"] == []
    if "Host" in headers:
        assert client.call("GET", "/", headers=headers).status_code == 403
        assert client.call("GET", "/sandbox/totals", headers=headers).status_code == 403
    if "Sec-Fetch-Site" in headers:
        assert client.call("GET", "/", headers=headers).status_code == 200, "a link may lead there"
    assert client.push("ExponentPushToken[ana]").status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1:8787", "[::1]:8787", "localhost", "sandbox:8787", "a.localhost", ""])
def test_its_own_page_and_commands_set_faults(client: Any, host: str) -> None:
    """By an address, by localhost or by a container's name, from its own page or from none, faults are set."""
    for headers in ({"Host": host}, {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}):
        given = headers if host else {}
        assert (
            client.call("POST", "/sandbox/faults", json={"fault": "500", "share": 0}, headers=given).status_code < 300
        )
