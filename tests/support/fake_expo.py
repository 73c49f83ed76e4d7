"""A tiny Expo over HTTP/1.1: it keeps connections, remembers what it was asked, and answers as a test decides."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from support.processes import eventually

SEND = "/--/api/v2/push/send"
RECEIPTS = "/--/api/v2/push/getReceipts"


@dataclass(frozen=True)
class Asked:
    """One request as it arrived, and on which connection."""

    connection: int
    path: str
    headers: Mapping[str, str]
    wire: bytes
    body: Any

    @property
    def packed(self) -> bool:
        """Whether its body came compressed."""
        return self.headers.get("content-encoding") == "gzip"


@dataclass(frozen=True)
class Answer:
    """An answer: `cut` sends only so many bytes of the body, `drip_s` pauses between bytes, `hang_up` closes silently."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0
    cut: int | None = None
    drip_s: float = 0
    drip_head: bool = False
    hang_up: bool = False


def as_json(document: object, status: int = 200, **more: Any) -> Answer:
    """Return a JSON answer."""
    return Answer(status, json.dumps(document).encode(), **more)


def refusal(status: int, code: str, message: str = "no", **more: Any) -> Answer:
    """Return the answer to a request that is refused as a whole."""
    headers = more.pop("headers", {})
    return as_json({"errors": [{"code": code, "message": message, **more}]}, status, headers=headers)


def ticket(number: int) -> dict[str, Any]:
    """Return an ok ticket."""
    return {"status": "ok", "id": f"00000000-0000-0000-0000-{number:012d}"}


def regular(asked: Asked) -> Answer:
    """Accept everything, and know a receipt for every ticket."""
    if asked.path.endswith("getReceipts"):
        return as_json({"data": {each: {"status": "ok"} for each in asked.body["ids"]}})
    return as_json({"data": [ticket(number) for number in range(len(asked.body))]})


Decide = Callable[[Asked], Answer | None]


class FakeExpo:
    """Serves what `answer` says (None hangs up without a word); used as a context manager."""

    def __init__(self) -> None:
        self.answer: Decide = regular
        self.asked: list[Asked] = []
        self.connections = 0
        self.open = 0
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def says(self, *answers: Answer | None) -> None:
        """Give these answers in turn, the last one for ever."""
        left = list(answers)
        self.answer = lambda _: left.pop(0) if len(left) > 1 else left[0]

    def wait_until_open(self, count: int) -> None:
        """Wait until so many connections are open."""
        eventually(lambda: self.open == count, f"{count} open connections", every=0.005)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def note(self, *, opened: bool) -> int:
        """Count a connection in or out."""
        with self._lock:
            self.open += 1 if opened else -1
            self.connections += opened
            return self.connections


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, expo: FakeExpo) -> None:
        self.expo = expo
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients hang up here on purpose."""


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        expo: FakeExpo = self.server.expo  # type: ignore[attr-defined]
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = expo.note(opened=True)
        try:
            while asked := self._read(number):
                expo.asked.append(asked)
                answer = expo.answer(asked)
                if answer is None or not self._write(answer, expo.stopping):
                    return
        except OSError:
            return  # the client went away, as clients of slow servers do
        finally:
            expo.note(opened=False)

    def _read(self, number: int) -> Asked | None:
        first = self.rfile.readline().decode()
        if not first:
            return None
        headers = {}
        while line := self.rfile.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        wire = self.rfile.read(int(headers["content-length"]))
        plain = zlib.decompress(wire, 31) if headers.get("content-encoding") == "gzip" else wire
        return Asked(number, first.split()[1], headers, wire, json.loads(plain))

    def _write(self, answer: Answer, stopping: threading.Event) -> bool:
        stopping.wait(answer.delay_s)
        headers = {"Content-Length": str(len(answer.body)), "Content-Type": "application/json"} | dict(answer.headers)
        lines = [f"{name}: {value}\r\n" for name, value in headers.items() if value]
        head = f"HTTP/1.1 {answer.status} Said\r\n{''.join(lines)}\r\n".encode()
        body = answer.body if answer.cut is None else answer.body[: answer.cut]
        if answer.drip_head:
            return self._drip(head + body, answer.drip_s, stopping)
        self.wfile.write(head)
        if answer.drip_s:
            return self._drip(body, answer.drip_s, stopping)
        self.wfile.write(body)
        return not answer.hang_up and answer.cut is None

    def _drip(self, data: bytes, pause_s: float, stopping: threading.Event) -> bool:
        for byte in data:
            self.wfile.write(bytes([byte]))
            if stopping.wait(pause_s):
                return False
        return True
