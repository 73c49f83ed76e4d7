"""Calls of a sandbox over HTTP."""

from __future__ import annotations

from typing import Any

import requests

from relevo.sandbox import Sandbox
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
