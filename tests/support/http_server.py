"""A real HTTP server for tests, on a free port, and its callers."""

from __future__ import annotations

import asyncio
import socket
from typing import Any
from uuid import UUID, uuid4

import psycopg
import requests
import uvicorn.server
from psycopg.types.json import Jsonb

from relevo.access import api_tokens
from relevo.app import App
from relevo.http.server import HttpServer


class _Quick:
    """asyncio, but for its sleep: uvicorn looks ten times a second whether it is to end, and tests end many servers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(seconds: float) -> None:
        """Sleep a tenth of the time."""
        await asyncio.sleep(seconds / 10)


uvicorn.server.asyncio = _Quick()  # type: ignore[assignment]


class Client:
    """A caller: `client.get("/v1/…")`, with a token if it has one."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url
        self.token = token
        self._session = requests.Session()
        self._session.trust_env = False

    def close(self) -> None:
        """Hang up."""
        self._session.close()

    def call(self, method: str, path: str, **options: Any) -> requests.Response:
        """Make one request; a token goes along unless headers say otherwise."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        headers |= options.pop("headers", {})
        options.setdefault("allow_redirects", False)
        return self._session.request(method, self.url + path, headers=headers, timeout=60, **options)

    def get(self, path: str, **options: Any) -> requests.Response:
        """Read."""
        return self.call("GET", path, **options)

    def post(self, path: str, json: Any = None, **options: Any) -> requests.Response:
        """Do."""
        return self.call("POST", path, json=json, **options)


class Served:
    """A server and its callers."""

    def __init__(self, app: App, server: HttpServer | None = None) -> None:
        self.app = app
        self.server = server or HttpServer(app, scheduled=False)
        self._clients: list[Client] = []

    def start(self) -> None:
        """Serve."""
        self.server.start()
        assert self.server.wait_until_serving(60)

    def close(self) -> None:
        """Hang up and stop."""
        for client in self._clients:
            client.close()
        self.server.stop()

    def client(self, role: str | None = None, **options: Any) -> Client:
        """Return a caller with a token of a role, or without one."""
        token = api_tokens.make(self.app.database, f"a {role}", role, **options)[0] if role else None  # type: ignore[arg-type]
        made = Client(self.server.url, token)
        self._clients.append(made)
        return made


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


EVENT = {"type": "order.shipped", "key": "order-17", "title": "On its way", "audience": "everyone"}


def phone(conn: psycopg.Connection[Any], project: str = "default") -> UUID:
    """Register a phone."""
    given = {"token": f"ExponentPushToken[{uuid4().hex}]", "project": project}
    return conn.execute("select relevo.register_installation(%s)", [Jsonb(given)]).fetchone()[0]


def fan_out(served: Served) -> None:
    """Run a round of fan-out."""
    served.app.runner.run(served.app.registry["fanout"], "manual")


def end(conn: psycopg.Connection[Any], event_id: int, **became: int) -> None:
    """Have an event's deliveries end in these numbers, as a settle would write it."""
    total = sum(became.values())
    changes = [("pending", -total), *became.items()]
    with conn.transaction():  # whoever waits sees all of it at once
        for status, count in changes:
            conn.execute(
                "insert into relevo.event_progress_deltas (event_id, status, deliveries) values (%s, %s, %s)",
                [event_id, status, count],
            )
