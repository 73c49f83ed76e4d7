"""Callers of inboxes who wait beside a test."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import requests

from support.http_server import Served
from support.processes import eventually


class Poll:
    """Callers that wait beside the test."""

    def __init__(self, served: Served) -> None:
        self.waiters = served.server.api.state.inbox_waiters  # type: ignore[union-attr]
        self.url = served.server.url
        self._threads = ThreadPoolExecutor(120)

    def start(self, bearer: str | None, wait_ms: int = 30_000, **asked: Any) -> Future[requests.Response]:
        """Ask for an inbox and wait; return once the server has the caller among those who wait."""
        return self.ask(bearer, "/v1/inbox", wait_ms=wait_ms, **asked)

    def ask(self, bearer: str | None, path: str, **asked: Any) -> Future[requests.Response]:
        """Ask for anything and wait; return once the server has the caller among those who wait."""
        here = self.waiters.places.count
        headers = {"Authorization": f"Bearer {bearer}"}
        call = self._threads.submit(requests.get, f"{self.url}{path}", params=asked, headers=headers, timeout=60)
        eventually(lambda: self.waiters.places.count > here or call.done(), "it waits")
        return call
