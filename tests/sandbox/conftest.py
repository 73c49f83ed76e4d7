"""One sandbox for the session, as new for every test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
import requests

from relevo.sandbox import Sandbox, Settings
from support.processes import PATIENCE_S


class Client:
    """Speaks to a sandbox over HTTP, as an app's backend does."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.url = sandbox.url

    def send(self, body: Any, **more: Any) -> requests.Response:
        """Send messages."""
        return requests.post(f"{self.url}/--/api/v2/push/send", json=body, timeout=PATIENCE_S, **more)

    def push(self, *tokens: str, **fields: Any) -> requests.Response:
        """Send a message to each token."""
        return self.send([{"to": token, "title": "Hola", **fields} for token in tokens])

    def tickets(self, *tokens: str, **fields: Any) -> list[dict[str, Any]]:
        """Send a message to each token and return the tickets."""
        response = self.push(*tokens, **fields)
        assert response.status_code == 200, response.text
        return list(response.json()["data"])

    def receipts(self, ids: Any, **more: Any) -> requests.Response:
        """Ask for receipts."""
        return requests.post(f"{self.url}/--/api/v2/push/getReceipts", json={"ids": ids}, timeout=PATIENCE_S, **more)

    def call(self, method: str, path: str, **more: Any) -> requests.Response:
        """Make an admin call."""
        return requests.request(method, f"{self.url}{path}", timeout=PATIENCE_S, **more)


@pytest.fixture(scope="session")
def running() -> Iterator[Sandbox]:
    """The session's sandbox."""
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(running: Sandbox) -> Sandbox:
    """A sandbox that knows nothing yet, without a rate limit and with receipts at once."""
    running.set(**asdict(Settings(rate_per_s=0, receipt_delay_s=0)))
    running.clear_faults()
    running.reset()
    return running


@pytest.fixture
def client(sandbox: Sandbox) -> Client:
    """A client of the sandbox."""
    return Client(sandbox)
