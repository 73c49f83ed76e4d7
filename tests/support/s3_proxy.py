"""A proxy between the store and a real S3 server that does to requests and answers what a test wants.

    with Between(s3.endpoint) as between:
        settings["archive_endpoint"] = between.endpoint
        between.trouble = cut_short       # from now on; None: everything passes
        between.asked                     # what was asked, in order

A trouble gets the request and a function that forwards it; it returns the answer, or None to hang up without one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

_WITHHELD = ("transfer-encoding", "connection", "content-length", "date", "server")


@dataclass(frozen=True)
class Asked:
    """A request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def is_upload(self) -> bool:
        """Whether it brings a part of a month."""
        return self.method == "PUT" and ".parquet" in self.path

    @property
    def is_download(self) -> bool:
        """Whether it asks for a part of a month."""
        return self.method == "GET" and self.path.split("?")[0].endswith(".parquet")


@dataclass(frozen=True)
class Given:
    """An answer; `promised` is the length it claims to have."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    promised: int | None = None
    pause_s: float = 0.0


Forward = Callable[[Asked], Given]
Trouble = Callable[[Asked, Forward], Given | None]


class Between:
    """Forwards to an S3 server; troubles may be switched on and off from any thread."""

    def __init__(self, endpoint: str) -> None:
        where = urlsplit(endpoint)
        self._target = (str(where.hostname), int(where.port or 80))
        self.trouble: Trouble | None = None
        self.asked: list[Asked] = []

    def __enter__(self) -> Self:
        between = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                asked = Asked(self.command, self.path, dict(self.headers.items()), body)
                given = between._answer(asked)
                self.close_connection = True
                if given is not None:
                    with suppress(ConnectionError):  # whoever asked may be gone
                        self._give(given)

            def _give(self, given: Given) -> None:
                self.send_response(given.status)
                for name, value in given.headers:
                    self.send_header(name, value)
                length = len(given.body) if given.promised is None else given.promised
                self.send_header("Content-Length", str(length))
                self.end_headers()
                if self.command == "HEAD":
                    self.close_connection = False
                    return
                half = len(given.body) // 2
                for piece in (given.body[:half], given.body[half:]):
                    time.sleep(given.pause_s)
                    self.wfile.write(piece)
                    self.wfile.flush()
                self.close_connection = length != len(given.body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        """The address of the proxy."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def _answer(self, asked: Asked) -> Given | None:
        self.asked.append(asked)
        return self.trouble(asked, self._forward) if self.trouble else self._forward(asked)

    def _forward(self, asked: Asked) -> Given:
        """Ask the server; the signature covers the host, so that every header stays as it is."""
        connection = HTTPConnection(*self._target, timeout=30)
        headers = {name: value for name, value in asked.headers.items() if name.lower() not in ("expect", "connection")}
        connection.request(asked.method, asked.path, asked.body, headers)
        answer = connection.getresponse()
        body = answer.read()
        kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _WITHHELD]
        promised = int(answer.getheader("Content-Length", 0)) if asked.method == "HEAD" else None
        connection.close()
        return Given(answer.status, kept, body, promised)


def flipped(content: bytes) -> bytes:
    """Return the same bytes, but for one."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def changed(asked: Asked, body: bytes) -> Asked:
    """Return a request with another body of the same length."""
    return replace(asked, body=body)
