"""A forward proxy on loopback: plain requests and CONNECT; it knows hosts that nobody else does, and what it was asked.

Every host is led to one server. Behind CONNECT it speaks TLS in the name of push.example, tenders.example and s3.example
(`CERTIFICATE`), and plainly to that server.
"""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

CERTIFICATE = Path(__file__).with_name("example.pem")


@dataclass(frozen=True)
class Passed:
    """One request as the proxy saw it."""

    method: str
    target: str
    headers: Mapping[str, str]


class FakeProxy:
    """Leads to a server; used as a context manager."""

    def __init__(self, leads_to: str, *, password: str = "", hangs: bool = False) -> None:
        parts = urlsplit(leads_to)
        self.upstream = (str(parts.hostname), parts.port or 80)
        self.expected = f"Basic {base64.b64encode(password.encode()).decode()}" if password else ""
        self.hangs = hangs
        self.asked: list[Passed] = []
        self.stopping = threading.Event()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(CERTIFICATE)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def url(self, user: str = "") -> str:
        """Where it listens."""
        return f"http://{user}{'@' if user else ''}127.0.0.1:{self._server.server_address[1]}"

    @property
    def targets(self) -> list[str]:
        """What it was asked for, in order."""
        return [f"{asked.method} {asked.target}" for asked in self.asked]

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


class _Handler(BaseHTTPRequestHandler):
    proxy: FakeProxy
    protocol_version = "HTTP/1.1"

    def _let_in(self) -> bool:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.proxy.asked.append(Passed(self.command, self.path, headers))
        if self.proxy.hangs:
            self.proxy.stopping.wait()
        if self.proxy.expected not in ("", headers.get("proxy-authorization")):
            self.send_error(407)
            self.close_connection = True
            return False
        return not self.proxy.hangs

    def do_CONNECT(self) -> None:
        if not self._let_in():
            return
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        with (
            suppress(OSError),
            self.proxy.tls.wrap_socket(self.connection, server_side=True) as inside,
            socket.create_connection(self.proxy.upstream) as outside,
        ):
            back = threading.Thread(target=_pump, args=[outside, inside], daemon=True)
            back.start()
            _pump(inside, outside)
            back.join(5)

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if not self._let_in():
            return
        parts = urlsplit(self.path)
        headers = {name: value for name, value in self.headers.items() if not name.lower().startswith("proxy-")}
        upstream = HTTPConnection(*self.proxy.upstream, timeout=10)
        upstream.request(self.command, parts.path + (f"?{parts.query}" if parts.query else ""), body, headers)
        answer = upstream.getresponse()
        reported = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(reported)))
        self.end_headers()
        self.wfile.write(reported)
        upstream.close()

    do_GET = do_POST = do_PUT = do_HEAD = _forward  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
