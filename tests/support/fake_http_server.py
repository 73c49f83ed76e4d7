"""A small HTTP server on loopback whose answers a test decides, and which remembers what it was asked."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    at: float
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """One answer: `cut` sends only so many bytes of what it promised, `delay_s` waits first, `drip_s` between bytes."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0
    cut: int | None = None
    drip_s: float = 0


class FakeServer:
    """Serves what `answer` says; used as a context manager."""

    def __init__(
        self,
        answer: Callable[[Asked], Answer] | None = None,
        clock: Callable[[], float] = time.monotonic,
        tls: Path | None = None,
    ) -> None:
        self._decide = answer
        self._clock = clock
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.asked: list[Asked] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._scheme = "https" if tls else "http"
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def answer(self, asked: Asked) -> Answer:
        """Decide on an answer; called by one request at a time."""
        assert self._decide is not None
        return self._decide(asked)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(outer) -> type[BaseHTTPRequestHandler]:  # noqa: N805 two selves meet here
        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                parts = urlsplit(self.path)
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length)
                headers = {name.lower(): value for name, value in self.headers.items()}
                with outer._lock:
                    asked = Asked(outer._clock(), self.command, parts.path, dict(parse_qsl(parts.query)), headers, body)
                    answer = outer.answer(asked)
                    outer.asked.append(asked)
                outer._stopping.wait(answer.delay_s)
                try:
                    self._send(answer)
                except OSError:
                    return  # the client went away, as clients of slow servers do

            def _send(self, answer: Answer) -> None:
                self.send_response(answer.status)
                for name, value in ({"Content-Length": str(len(answer.body))} | dict(answer.headers)).items():
                    if value:
                        self.send_header(name, value)
                if answer.drip_s:
                    for byte in b"".join(self._headers_buffer):
                        self.wfile.write(bytes([byte]))
                        if outer._stopping.wait(answer.drip_s):
                            return
                    self._headers_buffer = []
                self.end_headers()
                self.wfile.write(answer.body if answer.cut is None else answer.body[: answer.cut])

            do_GET = do_POST = _serve  # noqa: N815 the library's names

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler
