"""A hostile request costs the worker a few milliseconds of CPU, however it was made, and healthy ones are answered.

The attacks are those of `make bench ARGS="--only hostile"`, which measures times; here states and CPU time are judged.
"""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
import requests

from bench import processes as counted
from bench.strangers import ATTACKS, Secrets
from relevo.access import api_tokens
from relevo.sandbox import Sandbox
from support.phones import add_phones
from support.processes import RELEVO, Process, Processes, eventually

MANY = 40
MOST_MS = 12.0
"""Unknown fields took 40 ms of CPU each and a long query 37 before they were refused early; both take about one now."""
OF_STRANGERS = [name for name in ATTACKS if name not in ("preview", "slow_preview", "compose")]
NOBODY = Secrets("", "", "")


class Healthy:
    """A worker that serves HTTP, a phone, a local Expo, and an app that enqueues over HTTP."""

    def __init__(self, worker: Process, conn: psycopg.Connection[Any], sandbox: Sandbox, token: str) -> None:
        self.worker, self._sandbox, self._token = worker, sandbox, token
        self._phone = str(add_phones(conn, 1)[0])
        [(self._push_token,)] = conn.execute("select token from relevo.device_installations").fetchall()
        self.url = str(worker.hears("http_serving")["url"])
        worker.hears("worker_started")

    def push(self) -> None:
        """Enqueue an event over HTTP on a new connection, which is taken, and wait until its phone has it."""
        key = str(uuid4())
        event = {
            "type": "healthy",
            "key": key,
            "title": key,
            "audience": "installations",
            "installations": [self._phone],
        }
        with requests.Session() as session:
            session.trust_env = False
            headers = {"Authorization": f"Bearer {self._token}"}
            answer = session.post(f"{self.url}/v1/events", json=event, headers=headers, timeout=60)
        assert answer.status_code == 201, answer.text
        eventually(lambda: any(key in str(each) for each in self._sandbox.received(self._push_token)), f"{key} arrives")

    def suffer(self, attack: str) -> int:
        """Send so many hostile requests, one after the other; return how many were answered."""
        where, answered = urlsplit(self.url), 0
        connection: socket.socket | None = None
        for _ in range(MANY):
            connection = connection or socket.create_connection((where.hostname, where.port), timeout=60)
            with suppress(OSError):
                connection.sendall(ATTACKS[attack][1](NOBODY))
            heard = _hear(connection)
            answered += bool(heard)
            if not heard or b"connection: close" in heard.lower():
                connection.close()
                connection = None
        if connection is not None:
            connection.close()
        return answered


def _hear(connection: socket.socket) -> bytes:
    """Read one answer with its body; return its head, empty if there is none."""
    heard = b""
    with suppress(OSError):
        while b"\r\n\r\n" not in heard and (piece := connection.recv(65_536)):
            heard += piece
        head, _, body = heard.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        while len(body) < length and (piece := connection.recv(65_536)):
            body += piece
        return head
    return b""


@pytest.fixture
def healthy(processes: Processes, conn: psycopg.Connection[Any], build: Any, tmp_path: Path) -> Iterator[Healthy]:
    """A worker with the keys that strangers name."""
    keys = tmp_path / "keys.json"
    keys.touch(mode=0o600)
    keys.write_text(json.dumps({"bench": {"secret": base64.b64encode(os.urandom(32)).decode()}}))
    token, _ = api_tokens.make(build().database, "healthy", "app")
    with Sandbox(rate_per_s=0) as sandbox:
        worker = processes.program(
            str(RELEVO), "run", http_enabled=True, expo_base_url=sandbox.url, http_signing_keys_file=keys
        )
        yield Healthy(worker, conn, sandbox, token)


@pytest.mark.needs("linux")
def test_hostile_requests_cost_little_and_refuse_nobody(healthy: Healthy) -> None:
    """Each attack takes a few milliseconds of CPU per request, and between two of them an enqueue is taken and sent."""
    pid = healthy.worker.pid
    healthy.push()
    for attack in OF_STRANGERS:
        healthy.suffer(attack)  # what is loaded at the first call is not counted
    spent: dict[str, float] = {}
    for attack in OF_STRANGERS:
        before = counted.spent_ms(pid)
        assert healthy.suffer(attack) > 0, attack
        spent[attack] = (counted.spent_ms(pid) - before) / MANY
        healthy.push()
    assert {name: ms for name, ms in spent.items() if ms > MOST_MS} == {}
    assert not healthy.worker.lines("http_failed")
