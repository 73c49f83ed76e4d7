"""Connections are bounded in number, by address, in what they bring and in how long they take for it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from relevo.app import App
from relevo.http.connections import BoundedProtocol, Connections, protocol_for
from support.http_server import EVENT, Served
from support.processes import eventually

GET = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def connect() -> Iterator[Callable[[Served], socket.socket]]:
    """Open connections that are closed with the test."""
    with ExitStack() as stack:

        def open_one(served: Served) -> socket.socket:
            where = urlsplit(served.server.url)
            return stack.enter_context(socket.create_connection((where.hostname, where.port), timeout=60))

        yield open_one


def hears_the_end(connection: socket.socket) -> bytes:
    """Read until the other side hangs up, and return what it said."""
    said = b""
    try:
        while piece := connection.recv(65_536):
            said += piece
    except ConnectionResetError:
        pass
    return said


def test_who_sends_no_whole_headers_is_left(
    serve: Callable[..., Served], connect: Callable[[Served], socket.socket]
) -> None:
    """Who is silent, or stops in the midst of headers, is hung up on: also after a request that was answered."""
    served = serve(http_header_timeout_ms=200)
    for sent in [b"", b"GET /health", b"GET / HTTP/1.1\r\nHost: x\r\n", GET + b"G"]:
        connection = connect(served)
        connection.sendall(sent)
        said = hears_the_end(connection)
        assert said.startswith(b"HTTP/1.1 200") == sent.startswith(GET), sent
        eventually(lambda: not served.server.connections.all, "nothing is held")


def test_who_is_silent_after_an_answer_is_left(
    serve: Callable[..., Served], connect: Callable[[Served], socket.socket]
) -> None:
    """An end of line after an answer is no request: who sends nothing else is hung up on."""
    served = serve(http_header_timeout_ms=200)
    connection = connect(served)
    connection.sendall(GET)
    assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
    connection.sendall(b"\r\n")
    hears_the_end(connection)
    eventually(lambda: not served.server.connections.all, "nothing is held")


def test_who_sends_no_whole_body_is_left(
    serve: Callable[..., Served], connect: Callable[[Served], socket.socket]
) -> None:
    """Who announces a body and does not send it is hung up on, with a good token, too."""
    served = serve(http_body_timeout_ms=200)
    connection = connect(served)
    head = f"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.client('app').token}\r\n"
    connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 500\r\n\r\n{{".encode())
    hears_the_end(connection)
    eventually(lambda: not served.server.connections.all, "nothing is held")


def test_headers_are_bounded(serve: Callable[..., Served], connect: Callable[[Served], socket.socket]) -> None:
    """Headers that are too long are refused: one or many, whole or not; those that fit are taken."""
    served = serve()
    many = b"".join(b"x-%d: y\r\n" % n for n in range(5_000))
    for headers in (b"x: " + b"y" * 40_000 + b"\r\n\r\n", many + b"\r\n", b"x: " + b"y" * 40_000, b"a" * 40_000):
        connection = connect(served)
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n" + headers)
        assert hears_the_end(connection).startswith(b"HTTP/1.1 431 "), headers[:20]
    connection = connect(served)
    connection.sendall(b"GET /health/live?" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert hears_the_end(connection).startswith(b"HTTP/1.1 431 ")
    assert served.client().get("/health/live", headers={"x": "y" * 3_000}).status_code == 200


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"0\r\n", b"x: " + b"y" * 1_000 + b"\r\n"),
        (b"0\r\nx: ", b"y" * 64_000),
        (b"1;", b"y" * 64_000),
    ],
    ids=["many trailers", "a long trailer", "a long extension"],
)
def test_what_trails_or_frames_a_body_is_bounded(
    serve: Callable[..., Served], connect: Callable[[Served], socket.socket], start: bytes, piece: bytes
) -> None:
    """Headers behind a body, and extensions of its pieces, end as soon as those before it would."""
    served = serve()
    connection = connect(served)
    connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + start)
    with pytest.raises(OSError):  # noqa: PT011 whichever it is, the other side hung up
        connection.sendall(piece * (20_000_000 // len(piece)))


def test_a_body_in_small_pieces_is_taken(serve: Callable[..., Served]) -> None:
    """A body may come byte by byte, and what trails it is for nobody."""
    served = serve()
    text = json.dumps(EVENT | {"body": "b" * 500}).encode()
    pieces = (text[n : n + 1] for n in range(len(text)))
    answer = served.client("app").post("/v1/events", data=pieces, headers={"Content-Type": "application/json"})
    assert answer.status_code == 201, answer.text


def test_the_smallest_pieces_of_a_body_are_within_the_bound(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five bytes that frame each byte of a body are no headers, however long the body is."""
    monkeypatch.setattr("relevo.http.connections._HEADER_BYTES", 600)
    served = serve()
    text = json.dumps(EVENT | {"body": "b" * 1_900}).encode()
    pieces = (text[n : n + 1] for n in range(len(text)))
    answer = served.client("app").post("/v1/events", data=pieces, headers={"Content-Type": "application/json"})
    assert answer.status_code == 201, answer.text


def test_what_trails_a_body_is_for_nobody(served: Served, connect: Callable[[Served], socket.socket]) -> None:
    """A token behind a body is no header: whoever sends it there has sent none."""
    connection, token = connect(served), served.client("app").token
    head = b"POST /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection.sendall(head + b"2\r\n{}\r\n0\r\n" + f"Authorization: Bearer {token}\r\n\r\n".encode())
    assert hears_the_end(connection).startswith(b"HTTP/1.1 401 ")


def test_a_large_body_is_no_large_header(serve: Callable[..., Served]) -> None:
    """A body may have more bytes than headers may."""
    served = serve()
    app = served.client("app")
    assert app.post("/v1/events", {**EVENT, "body": "x" * 1_900, "data": {"a": "y" * 1_500}}).status_code == 201
    assert app.post("/v1/events", {**EVENT, "key": "2", "body": "x" * 50_000}).status_code == 400


def test_requests_that_nobody_waits_for_are_bounded(served: Served, connect: Callable[[Served], socket.socket]) -> None:
    """A few requests may be sent ahead of their answers, and are answered in turn; thousands are not kept."""
    connection = connect(served)
    last = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    connection.sendall(GET * 9 + last)
    assert hears_the_end(connection).count(b"HTTP/1.1 200") == 10
    connection = connect(served)
    connection.sendall(GET * 5_000)
    said = hears_the_end(connection)
    assert said.count(b"HTTP/1.1") < 100
    assert served.client().get("/health/live").status_code == 200


def test_who_reads_no_answers_is_left_though_it_asks_for_more(
    served: Served, connect: Callable[[Served], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who lets its answers pile up has so long to read them, and gains no time by further requests."""
    monkeypatch.setattr("relevo.http.connections._WRITE_S", 2.0)
    paused, pause = threading.Event(), BoundedProtocol.pause_writing

    def noted(protocol: BoundedProtocol) -> None:
        pause(protocol)
        paused.set()

    done, end = list[bool](), BoundedProtocol.on_response_complete

    def ended(protocol: BoundedProtocol) -> None:
        end(protocol)
        done.append(True)

    monkeypatch.setattr(BoundedProtocol, "pause_writing", noted)
    monkeypatch.setattr(BoundedProtocol, "on_response_complete", ended)
    connection, asked = connect(served), b"GET /docs HTTP/1.1\r\nHost: x\r\n\r\n"
    asked_for = 0
    while not paused.is_set():
        connection.sendall(asked)
        asked_for += 1
        eventually(lambda: paused.is_set() or len(done) >= asked_for)
    with suppress(OSError):  # it may be over already
        connection.sendall(asked)
    eventually(lambda: not served.server.connections.all, within=20)


def test_the_silent_make_room(serve: Callable[..., Served], connect: Callable[[Served], socket.socket]) -> None:
    """However many silent connections there are, a caller finds a place: the oldest silent one is closed for it."""
    served = serve(http_max_connections=8, http_header_timeout_ms=300_000)
    silent = [connect(served) for _ in range(50)]
    for _ in range(3):
        caller = served.client()
        assert caller.get("/health/live").status_code == 200
    assert hears_the_end(silent[0]) == b""
    eventually(lambda: len(served.server.connections.all) <= 8, "no more are held")


class Caller(BoundedProtocol):
    """A connection of nobody, from some address."""

    def __init__(self, address: str) -> None:
        self.address, self.is_left = address, False

    def give_up(self) -> None:
        """Note that it was hung up on."""
        self.is_left = True


def test_callers_of_many_addresses_are_bounded_together() -> None:
    """Beyond the most that there may be the oldest that waits makes room, whose it is; if none waits there is no room."""
    held = Connections(most=4, header_s=1, body_s=1)
    callers = [Caller(address) for address in ("one", "one", "two", "two")]
    for each in callers:
        assert held.add(each)
        held.note_waiting(each)
    held.note_busy(callers[0])
    assert held.add(Caller("three"))
    assert [each.is_left for each in callers] == [False, True, False, False]
    for each in callers[2:]:
        held.note_busy(each)
    held.remove(callers[1])
    assert not held.add(Caller("four"))
    assert [each.is_left for each in callers] == [False, True, False, False]


class Walked(Caller):
    """A connection that counts how often somebody asks whose it is."""

    asked = 0

    @property  # type: ignore[override]
    def address(self) -> str:
        """Its address."""
        type(self).asked += 1
        return self._address

    @address.setter
    def address(self, value: str) -> None:
        self._address = value


def test_an_address_with_too_many_makes_room_of_its_own() -> None:
    """Its own oldest is left, whoever waits longer, without a look at all the others; who left is kept nowhere."""
    held = Connections(most=400, header_s=1, body_s=1)
    others, own = [Walked("other") for _ in range(90)], [Caller("own") for _ in range(300)]
    for each in (*others, *own):
        assert held.add(each)
        held.note_waiting(each)
    Walked.asked = 0
    assert held.add(Caller("own"))
    assert [each.is_left for each in own] == [True] + [False] * 299
    assert (any(each.is_left for each in others), Walked.asked) == (False, 0)
    for one in list(held.all):
        held.remove(one)
    assert [len(each) for each in (held.all, held._of_address, held._waiting, held._waiting_of)] == [0] * 4


class Transport(asyncio.Transport):
    """A connection from an address, which goes nowhere."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1, 0, 0)})


def test_a_subscriber_of_ipv6_is_one_address() -> None:
    """Connections from all addresses of one IPv6 network are counted together, for their number and for their rate."""

    async def addresses() -> list[str]:
        held = Connections(most=9, header_s=1, body_s=1)
        config, protocol = Config(print, ws="none", lifespan="off"), protocol_for(held)
        config.load()
        made = []
        for address in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "192.0.2.1"):
            one = protocol(config=config, server_state=ServerState(), app_state={})  # type: ignore[call-arg]
            one.connection_made(Transport(address))
            made.append(one.address)  # type: ignore[attr-defined]
        assert held._of_address["2001:db8::/64"] == 2
        return made

    assert asyncio.run(addresses()) == ["2001:db8::/64", "2001:db8::/64", "2001:db8:0:1::/64", "192.0.2.1"]


class Answered(Transport):
    """A connection whose caller takes whatever is written."""

    def write(self, _data: object) -> None:
        """Take it."""

    def is_closing(self) -> bool:
        """Stay open."""
        return False

    def close(self) -> None:
        """End nothing."""

    abort = pause_reading = resume_reading = close


def test_a_connection_with_a_request_in_line_does_not_wait() -> None:
    """Whose second request is answered right after the first one keeps its place; after the last answer it makes room."""

    async def rooms() -> list[bool]:
        held, turns, found = Connections(most=1, header_s=9, body_s=9), asyncio.Queue[None](), list[bool]()

        async def answer(_scope: object, _receive: object, send: Callable[..., Any]) -> None:
            await turns.get()
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        config = Config(answer, ws="none", lifespan="off")
        config.load()
        one = protocol_for(held)(config=config, server_state=ServerState(), app_state={})  # type: ignore[call-arg]
        one.connection_made(Answered("192.0.2.1"))
        one.data_received(GET + GET)  # type: ignore[attr-defined]
        for _ in range(2):
            turns.put_nowait(None)
            await asyncio.sleep(0.01)
            other = Caller("192.0.2.2")
            found.append(held.add(other))
            held.remove(other)
        return found

    assert asyncio.run(rooms()) == [False, True]


def test_who_is_being_answered_keeps_its_place(
    serve: Callable[..., Served], connect: Callable[[Served], socket.socket]
) -> None:
    """While all places are taken by callers that are being answered, others are told when to come back."""
    served = serve(http_max_connections=8)
    most = served.server.connections.most_per_address
    app = served.client("app")
    event_id = app.post("/v1/events", {**EVENT, "audience": "owners", "owners": ["x"]}).json()["event_id"]
    app.close()
    waiters = served.server.api.state.waiters  # type: ignore[union-attr]
    waiters.places.most = 100  # else half of the connections are kept for others
    with ThreadPoolExecutor(most) as callers:
        asked = [
            callers.submit(served.client("viewer").get, f"/v1/events/{event_id}?wait_ms=30000") for _ in range(most)
        ]
        eventually(lambda: waiters.places.count == most, "all wait")
        refused = connect(served)
        refused.sendall(GET)
        said = hears_the_end(refused)
        assert said == b"" or (said.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1" in said)
        waiters.close()
        assert {each.result().status_code for each in asked} == {202}


def test_files_are_left_for_sending(build: Callable[..., App]) -> None:
    """HTTP never takes all files that the process may open, whatever is set."""
    settings = build(http_max_connections=100_000).settings
    for files in (128, 256, 1_024, 4_096, 65_536):
        held = Connections.of(settings, files)
        assert 1 <= held.most <= files * 5 / 8
        assert 1 <= held.most_per_address <= held.most
    assert Connections.of(settings, 1_024).most >= 500
    assert Connections.of(settings, 65_536).most > 40_000
