"""Whatever strangers do on HTTP, a push of a healthy project leaves, and who has a token is answered.

Each test runs the command itself, with no more files than a shell gives it, and waits for a push that reaches a phone.
"""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
import requests

import relevo
from relevo.sandbox import Sandbox
from support.phones import add_phones
from support.processes import RELEVO, Process, Processes, eventually

MEGABYTE = 1_000_000
_BOUNDED = 'ulimit -n 1024 && exec "$0" "$@"'


class Fleet:
    """A worker that serves HTTP with 1,024 files, beside a phone and a local Expo."""

    def __init__(self, processes: Processes, conn: psycopg.Connection[Any], sandbox: Sandbox) -> None:
        self._conn, self._sandbox = conn, sandbox
        self._phone = add_phones(conn, 1)[0]
        self._token = conn.execute("select token from relevo.device_installations").fetchone()[0]  # type: ignore[index]
        self.worker: Process = processes.program(
            "bash", "-c", _BOUNDED, str(RELEVO), "run",
            http_enabled=True, expo_base_url=sandbox.url, http_open_registration="default", http_header_timeout_ms=300_000,
        )  # fmt: skip
        self.url = str(self.worker.hears("http_serving")["url"])
        self.worker.hears("worker_started")
        self.push()

    def push(self) -> None:
        """Have a push sent, and wait until the phone has it."""
        key = str(uuid4())
        with self._conn.transaction():
            relevo.enqueue(self._conn, relevo.Event("stranger.test", key, key, audience=[self._phone]))
        eventually(lambda: any(key in str(each) for each in self._sandbox.received(self._token)), f"{key} arrives")

    def answers(self) -> bool:
        """Say whether HTTP answers somebody new."""
        with requests.Session() as session:
            session.trust_env = False
            return session.get(f"{self.url}/health/live", timeout=60).status_code == 200

    def connect(self) -> socket.socket:
        """Open a connection, as anybody may."""
        where = urlsplit(self.url)
        return socket.create_connection((where.hostname, where.port), timeout=60)

    @property
    def resident_kb(self) -> int:
        """How much memory the worker has had at most."""
        status = Path(f"/proc/{self.worker.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0])


@pytest.fixture
def fleet(processes: Processes, conn: psycopg.Connection[Any]) -> Iterator[Fleet]:
    """A worker, a phone and a local Expo."""
    with Sandbox(rate_per_s=0) as sandbox:
        yield Fleet(processes, conn, sandbox)


@contextmanager
def many_files() -> Iterator[None]:
    """Let this process open as many files as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_silent_connections_stop_nothing(fleet: Fleet) -> None:
    """With 1,100 silent connections, more than the process may open files, HTTP answers and pushes leave."""
    with many_files(), ExitStack() as open_ones:
        for _ in range(1_100):
            open_ones.enter_context(fleet.connect())
        for _ in range(3):
            assert fleet.answers()
            fleet.push()
    files = len(list(Path(f"/proc/{fleet.worker.pid}/fd").iterdir()))
    assert files < 1_024 * 7 / 8
    assert fleet.worker.stops() == 0


def test_headers_without_end_take_no_memory(fleet: Fleet) -> None:
    """200 MB of headers, two on each of a hundred connections at once, are not kept; a push leaves meanwhile."""
    fleet.answers()
    before = fleet.resident_kb
    with ExitStack() as open_ones:
        for _ in range(100):
            connection = open_ones.enter_context(fleet.connect())
            with suppress(OSError):  # it hangs up soon
                connection.sendall(b"GET / HTTP/1.1\r\nx: " + b"y" * (2 * MEGABYTE))
        assert fleet.answers()
        fleet.push()
    assert fleet.resident_kb - before < 100_000


def _headers(fleet: Fleet) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: x\r\n" + b"x-y: z\r\n" * (MEGABYTE // 8) + b"\r\n"


def _put(body: bytes) -> bytes:
    head = f"PUT /v1/installations/{uuid4()} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


HOSTILE: dict[str, Callable[[Fleet], bytes]] = {
    "headers": _headers,
    "address": lambda _: b"GET /" + b"x" * MEGABYTE + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "body": lambda _: _put(b"x" * MEGABYTE),
    "fields": lambda _: _put(b'{"a":0' + b"".join(b',"%d":0' % n for n in range(6_000)) + b"}"),
    "all fields": lambda _: _put(b'{"a":0' + b"".join(b',"%d":0' % n for n in range(105_991)) + b"}"),
    "name": lambda _: _put(b'{"' + b"://:" * 16_000 + b'":0}'),
    "long name": lambda _: _put(b'{"' + b"://:" * (MEGABYTE // 4) + b'":0}'),
    "deep": lambda _: _put(b"[" * 60_000),
    "deeper": lambda _: _put(b"[" * MEGABYTE),
    "noise": lambda _: b"\x00\xff" * (MEGABYTE // 2),
    "chunks": lambda _: b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * (MEGABYTE // 6),
}  # fmt: skip


def test_a_megabyte_of_anything_stops_nothing(fleet: Fleet) -> None:
    """While strangers send a megabyte of each kind, again and again, pushes leave and HTTP answers."""
    enough = threading.Event()

    def send_on(what: bytes) -> None:
        while not enough.wait(0.05):
            with suppress(OSError), fleet.connect() as connection:
                connection.sendall(what)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass

    strangers = [threading.Thread(target=send_on, args=[make(fleet)], daemon=True) for make in HOSTILE.values()]
    for each in strangers:
        each.start()
    try:
        for _ in range(3):
            fleet.push()
            assert fleet.answers()
    finally:
        enough.set()
        for each in strangers:
            each.join(60)
    assert not fleet.worker.lines("http_failed")
