"""The HTTP/2 client where no HTTP/2 is negotiated: what became of each request by HTTP/1.1."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from relevo.providers.http2.client import CallOutcome, CallTime, Http2Client, Request, tls_context
from support.forward_proxy import CERTIFICATE

Script = Callable[[ssl.SSLSocket], None]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PATIENCE_S = 20


class ScriptedHttp1:
    """A server that does on each connection what the next script says; then it listens no more."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = scripts
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(CERTIFICATE)
        self._tls.set_alpn_protocols(["http/1.1"])
        self._door = socket.create_server(("127.0.0.1", 0))
        self.origin = f"https://push.example:{self._door.getsockname()[1]}"
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self._door.settimeout(PATIENCE_S)
        for number, script in enumerate(self._scripts, 1):
            try:
                plain, _ = self._door.accept()
                if number == len(self._scripts):
                    self._door.close()
                plain.settimeout(PATIENCE_S)
                with self._tls.wrap_socket(plain, server_side=True) as link:
                    script(link)
            except BaseException as error:  # noqa: BLE001 the test's own fault, raised in its thread
                self.errors.append(error)

    def end(self) -> None:
        """Wait until every script has ended."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert self.errors == []


@pytest.fixture
def served() -> Iterator[Callable[..., tuple[ScriptedHttp1, Http2Client]]]:
    """Start a server and a client that may speak HTTP/1.1."""
    started: list[tuple[ScriptedHttp1, Http2Client]] = []

    def start(*scripts: Script) -> tuple[ScriptedHttp1, Http2Client]:
        server = ScriptedHttp1(*scripts)
        client = Http2Client(
            server.origin, tls=_tls(), connect_s=PATIENCE_S, http1=True, resolve=lambda *_: ["127.0.0.1"]
        )
        started.append((server, client))
        return started[-1]

    yield start
    for server, client in started:
        client.close()
        server.end()


@cache
def _tls() -> ssl.SSLContext:
    return tls_context(str(CERTIFICATE), http1=True)


def read(link: ssl.SSLSocket) -> bytes:
    """Return the next request, which ends with its body `{}`."""
    found = b""
    while not found.endswith(b"\r\n\r\n{}"):
        piece = link.recv(65_536)
        assert piece, "the client hung up"
        found += piece
    return found


def answering(*answers: bytes) -> Script:
    """Return a script that gives an answer to each request, then hangs up."""

    def script(link: ssl.SSLSocket) -> None:
        for answer in answers:
            read(link)
            link.sendall(answer)

    return script


def silent(link: ssl.SSLSocket) -> None:
    """Take a request and say nothing until the client hangs up."""
    read(link)
    unasked(link)


def unasked(link: ssl.SSLSocket) -> None:
    """Wait until the client hangs up without having asked anything."""
    with suppress(ConnectionResetError):  # it leaves the session tickets of TLS unread
        assert link.recv(1) == b""


def exchange(client: Http2Client, count: int, **how: Any) -> list[str]:
    """Send so many requests and name what became of each: its status, or the kind and code."""
    request = Request([(":method", "POST"), (":path", "/a"), ("ttl", "5")], b"{}")
    return [named(each) for each in client.exchange([request] * count, CallTime(how.get("timeout_s", PATIENCE_S)))]


def named(outcome: CallOutcome) -> str:
    """Name what became of a request."""
    return f"{outcome.status}" if hasattr(outcome, "status") else f"{type(outcome).__name__} {outcome.code}"


def test_one_connection_serves_one_request_after_the_other(served: Any) -> None:
    """The connection is kept within a call and from call to call."""
    asked: list[bytes] = []

    def script(link: ssl.SSLSocket) -> None:
        for _ in range(3):
            asked.append(read(link))
            link.sendall(OK)

    server, client = served(script)
    assert exchange(client, 2) + exchange(client, 1) == ["200"] * 3
    server.end()
    assert asked[0].startswith(b"POST /a HTTP/1.1\r\nHost: push.example:")
    assert b"\r\nttl: 5\r\n" in asked[0]


def test_closed_while_idle_is_replaced_before_the_first_byte(served: Any) -> None:
    """A kept connection that was closed meanwhile gets no request: a new one does, and nothing is unknown."""
    _, client = served(answering(OK), answering(OK))
    assert exchange(client, 1) == ["200"]
    assert select.select([client._kept._socket], [], [], PATIENCE_S)[0]  # type: ignore[union-attr]
    assert exchange(client, 1) == ["200"]


def test_over_before_the_first_byte_is_not_sent(served: Any) -> None:
    """A request whose time is over when its turn comes never leaves, and opens no connection."""
    _, client = served(answering(OK))
    assert exchange(client, 1, timeout_s=0) == ["NotSent NotBegun"]
    assert exchange(client, 1) == ["200"]


def test_closed_after_the_first_byte_is_unknown(served: Any) -> None:
    """A request that was taken and not answered may have been processed; the next has a connection of its own."""
    _, client = served(answering(b""), answering(OK))
    assert exchange(client, 2) == ["Unknown ConnectionBroken", "200"]


def test_without_an_answer_in_time_is_unknown(served: Any) -> None:
    """So is one that nobody answers in its time."""

    def tired(link: ssl.SSLSocket) -> None:
        read(link)
        link.sendall(OK)
        silent(link)

    _, client = served(tired)
    assert exchange(client, 1) == ["200"]
    assert exchange(client, 1, timeout_s=0.2) == ["Unknown ReadTimeout"]


def test_what_finds_nobody_afterwards_is_not_sent(served: Any) -> None:
    """Requests whose turn comes when nobody listens any more never left."""
    _, client = served(answering(OK, b""))
    assert exchange(client, 4) == ["200", "Unknown ConnectionBroken", "NotSent NoConnection", "NotSent NoConnection"]


@pytest.mark.parametrize(
    ("answer", "became"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhal", "Unknown ConnectionBroken"),
        (b"HTTP/1.1 410 Gone\r\nContent-Length: 20\r\n\r\nhal", "410"),
        (b"HTTP/1.1 200 O", "Unknown ConnectionBroken"),
        (b"this is no HTTP\r\n\r\n", "Unknown ConnectionBroken"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70_000, "Unknown AnswerTooLong"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70_000, "500"),
    ],
    ids=["half a success", "half a refusal", "half a head", "no HTTP", "a long success", "a long refusal"],
)
def test_answers_that_are_not_whole(served: Any, answer: bytes, became: str) -> None:
    """A success that broke off or is too long is unknown; of a refusal the status is enough."""
    _, client = served(answering(answer))
    assert exchange(client, 1) == [became]


def test_http1_has_to_be_allowed(served: Any) -> None:
    """Where it is not, a server without HTTP/2 is no connection: nothing was sent."""
    server, _ = served(unasked)
    strict = Http2Client(
        server.origin, tls=tls_context(str(CERTIFICATE)), connect_s=PATIENCE_S, resolve=lambda *_: ["127.0.0.1"]
    )
    assert exchange(strict, 1) == ["NotSent NoConnection"]
