"""Asking over HTTP: limits of time and size, redirects and where they may lead, and silence about secrets."""

from __future__ import annotations

import gzip
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from relevo import __version__
from relevo.sources import http
from relevo.sources.http import Http, Response, Trouble, is_private
from support.fake_http_server import Answer, Asked, FakeServer
from support.source_context import settings_for

SECRET = {"ticket": "hunter2"}
Serve = Callable[[Callable[[Asked], Answer]], FakeServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers that answer as told."""
    running: list[FakeServer] = []

    def start(answer: Callable[[Asked], Answer]) -> FakeServer:
        running.append(FakeServer(answer).__enter__())
        return running[-1]

    yield start
    for server in running:
        server.__exit__(None, None, None)


def trouble_of(client: Http, url: str) -> Trouble:
    """Return the trouble that asking with a secret causes."""
    with pytest.raises(Trouble) as caught:
        client.get(url, SECRET)
    return caught.value


def test_who_we_are(serve: Serve) -> None:
    """Requests say honestly who asks, and nothing else about us."""
    server = serve(lambda _: Answer(200, b"ok"))
    assert Http(settings_for()).get(server.url).body == b"ok"
    assert server.asked[0].headers["user-agent"] == f"relevo/{__version__}"
    assert set(server.asked[0].headers) <= {"host", "user-agent", "accept-encoding", "connection"}


def test_the_environment_is_not_asked(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that the settings do not know gets none of our requests."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert Http(settings_for()).get(serve(lambda _: Answer(200, b"ok")).url).status == 200


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"x", delay_s=60),
        Answer(200, b"x" * 9, drip_s=5),
        Answer(200, b"x" * 9, {"Content-Length": "99999"}),
    ],
    ids=["silent", "dripping", "hanging"],
)
def test_the_whole_takes_no_longer_than_the_limit(serve: Serve, answer: Answer) -> None:
    """Silent, dripping byte by byte or hanging in the middle: after the limit it is over."""
    server = serve(lambda _: answer)
    started = time.monotonic()
    trouble = trouble_of(Http(settings_for(http_timeout_ms=300)), server.url)
    assert trouble.outcome == "unavailable"
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"x" * 2_000),
        Answer(200, b"x" * 2_000, {"Content-Length": ""}),
        Answer(200, gzip.compress(b"x" * 50_000_000, 1), {"Content-Encoding": "gzip"}),
    ],
    ids=["told", "untold", "bomb"],
)
def test_the_size_is_limited(serve: Serve, answer: Answer) -> None:
    """More than HTTP_MAX_BYTES are refused, by their announced length, as they come, and as they unpack."""
    server = serve(lambda _: answer)
    trouble = trouble_of(Http(settings_for(http_max_bytes=1_000)), server.url)
    assert (trouble.outcome, "1000 bytes" in trouble.detail) == ("rejected", True)


def test_packed_answers_are_unpacked(serve: Serve) -> None:
    """Gzip is asked for and read."""
    server = serve(lambda _: Answer(200, gzip.compress(b"hola"), {"Content-Encoding": "gzip"}))
    assert Http(settings_for()).get(server.url).body == b"hola"


def test_an_answer_that_breaks_off(serve: Serve) -> None:
    """Less than announced is no answer."""
    server = serve(lambda _: Answer(200, b"x" * 100, cut=50))
    assert trouble_of(Http(settings_for()), server.url).outcome == "unavailable"


def test_redirects_are_followed(serve: Serve) -> None:
    """A few redirects, relative ones too, lead to the answer; the query with its secret does not travel on."""
    goal = serve(lambda asked: Answer(200, asked.path.encode()))
    hop = serve(lambda asked: Answer(302, b"", {"Location": "/b" if asked.path == "/a" else f"{goal.url}/goal"}))
    reply = Http(settings_for()).get(f"{hop.url}/a", {"ticket": "hunter2"})
    assert reply.body == b"/goal"
    assert goal.asked[0].query == {}


def test_a_post_that_is_redirected_becomes_a_get(serve: Serve) -> None:
    """After 303 the document is not sent again."""
    server = serve(lambda asked: Answer(303, b"", {"Location": "/b"}) if asked.path == "/a" else Answer(200, b"ok"))
    Http(settings_for()).post(f"{server.url}/a", {"a": 1})
    assert [(asked.method, asked.body) for asked in server.asked] == [("POST", b'{"a": 1}'), ("GET", b"")]


def test_redirects_without_end(serve: Serve) -> None:
    """After five redirects it is enough."""
    server = serve(lambda asked: Answer(302, b"", {"Location": asked.path + "x"}))
    assert trouble_of(Http(settings_for()), server.url).outcome == "rejected"
    assert len(server.asked) == 6


@pytest.mark.parametrize("target", ["ftp://example.org/", "file:///etc/passwd", "http://"])
def test_redirects_to_what_is_no_web_address(serve: Serve, target: str) -> None:
    """Only web addresses are followed."""
    server = serve(lambda _: Answer(302, b"", {"Location": target}))
    assert trouble_of(Http(settings_for()), server.url).outcome == "rejected"


def test_private_addresses_are_refused(serve: Serve) -> None:
    """Without HTTP_ALLOW_PRIVATE nothing is sent to loopback, by number or by name."""
    server = serve(lambda _: Answer(200, b"ok"))
    client = Http(settings_for(http_allow_private="false"))
    for url in (server.url, server.url.replace("127.0.0.1", "localhost")):
        trouble = trouble_of(client, url)
        assert (trouble.outcome, "HTTP_ALLOW_PRIVATE" in trouble.detail) == ("rejected", True)
    assert server.asked == []


def test_redirects_to_private_addresses_are_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A public server cannot send us to a private one: the redirect is refused before anything is sent."""
    hidden = serve(lambda _: Answer(200, b"secret"))
    public = serve(lambda _: Answer(302, b"", {"Location": f"{hidden.url}/"}))
    port = public.url.rpartition(":")[2]
    monkeypatch.setattr(http._Guard, "_check", _only_that_port_is_public(port))
    trouble = trouble_of(Http(settings_for(http_allow_private="false")), public.url)
    assert (trouble.outcome, len(public.asked), hidden.asked) == ("rejected", 1, [])


def _only_that_port_is_public(port: str) -> Callable[[http._Guard, list[str]], None]:
    """Make the first connection pass as a public one, for a test has no public server at hand."""
    genuine, calls = http._Guard._check, iter([True])

    def check(guard: http._Guard, addresses: list[str]) -> None:
        assert port
        if not next(calls, False):
            genuine(guard, addresses)

    return check


def test_a_name_that_turns_private_meanwhile(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is looked up once: what it leads to a moment later is not asked, for nobody has judged it."""
    server = serve(lambda _: Answer(200, b"ok"))
    genuine, public = socket.getaddrinfo, iter(["192.0.2.1"])

    def look_up(host: str, *args: Any, **kwargs: Any) -> Any:
        return genuine(next(public, "127.0.0.1") if host == "turning.test" else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(http, "is_private", lambda address: address.startswith("127."))
    client = Http(settings_for(http_allow_private="false", http_timeout_ms=300))
    assert trouble_of(client, server.url.replace("127.0.0.1", "turning.test")).outcome == "unavailable"
    assert server.asked == []


def test_a_name_with_many_silent_addresses_takes_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the time of a request is over no further address of a name is tried."""
    client = Http(settings_for(http_allow_private="false"))
    dialled = []

    def dial(address: tuple[str, int], *_: Any, **__: Any) -> socket.socket:
        dialled.append(address[0])
        client._guard.cut = len(dialled) == 2  # so long did these two take
        raise TimeoutError

    monkeypatch.setattr("urllib3.util.connection.create_connection", dial)
    monkeypatch.setattr(http, "_addresses", lambda *_: [f"8.8.8.{n}" for n in range(9)])
    assert trouble_of(client, "http://many.test/").detail.startswith("no whole answer within")
    assert dialled == ["8.8.8.0", "8.8.8.1"]


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("127.0.0.1", True),
        ("10.1.2.3", True),
        ("172.16.0.1", True),
        ("192.168.1.1", True),
        ("169.254.169.254", True),
        ("100.64.0.1", True),
        ("0.0.0.0", True),
        ("224.0.0.1", True),
        ("::1", True),
        ("fe80::1%eth0", True),
        ("fd00::1", True),
        ("::ffff:127.0.0.1", True),
        ("64:ff9b::7f00:1", True),
        ("2002:7f00:1::", True),
        ("64:ff9b:1::1", True),
        ("64:ff9b:1::808:808", True),
        ("fec0::1", True),
        ("::93.184.216.34", True),
        ("::ffff:0:93.184.216.34", True),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", True),
        ("2606:2800::5efe:10.0.0.1", True),
        ("3fff::1", True),
        ("5f00::1", True),
        ("4000::1", True),
        ("192.88.99.1", True),
        ("nonsense", True),
        ("64:ff9b::5db8:d822", False),
        ("2002:5db8:d822::1", False),
        ("93.184.216.34", False),
        ("2606:2800:220:1:248:1893:25c8:1946", False),
        ("::ffff:93.184.216.34", False),
    ],
)
def test_what_is_private(address: str, private: bool) -> None:
    """Private, loopback, link-local and shared addresses are, in whatever disguise."""
    assert is_private(address) is private


def test_troubles_do_not_repeat_secrets(serve: Serve) -> None:
    """Neither the trouble, its causes nor a reply shows the query."""
    cut = serve(lambda _: Answer(200, b"x" * 10, cut=5))
    for url in ("http://127.0.0.1:1/x", "http://no-such-host.invalid/", cut.url):
        trouble = trouble_of(Http(settings_for(http_timeout_ms=1000)), url)
        assert "hunter2" not in "".join(traceback.format_exception(trouble))
        assert trouble.__cause__ is None
        assert trouble.__context__ is None
    server = serve(lambda _: Answer(200, b"ok"))
    assert "hunter2" not in repr(Http(settings_for()).get(server.url, {"ticket": "hunter2"}))


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "7"}, 7_000),
        ({"retry-after": "99999999999"}, 86_400_000),
        ({"retry-after": "soon"}, 0),
        ({"retry-after": "-1"}, 0),
        ({}, 0),
        ({"retry-after": "Mon, 09 Feb 2026 12:00:30 GMT", "date": "Mon, 09 Feb 2026 12:00:00 GMT"}, 30_000),
        ({"retry-after": "Mon, 09 Feb 2026 12:00:30 GMT"}, 0),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], wait: int) -> None:
    """Retry-After is read as seconds or as a date by the server's clock, within a day."""
    assert Response(429, headers, b"").retry_after_ms() == wait


def test_a_connection_that_is_to_be_closed_is_not_used_again() -> None:
    """Each request has a connection of its own: one that the server is about to close would lose the next request."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    heard: list[int] = []

    def serve_one(connection: socket.socket) -> None:
        with connection:
            while connection.recv(65_536):
                heard.append(connection.fileno())
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = Http(settings_for())
        for _ in range(3):
            asking = threading.Thread(target=lambda: client.get(f"http://127.0.0.1:{listening.getsockname()[1]}/"))
            asking.start()
            listening.settimeout(60)
            serve_one(listening.accept()[0])  # returns once the client closed its connection
            asking.join(60)
    assert len(heard) == 3
