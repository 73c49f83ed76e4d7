"""Phones over HTTP, for tests: the keys of the app's server, and callers of the devices' routes."""

from __future__ import annotations

import base64
from typing import Any
from uuid import UUID, uuid4

import requests

import relevo
from support.http_server import Client, Served

KEYS = {name: base64.b64encode(name.encode() * 8).decode() for name in ("old-1", "new-2")}
TOKEN = "ExponentPushToken[{}]"


class Phones:
    """Callers of the devices' routes."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.client = served.client()
        self.app = served.client("app")

    def put(self, phone: UUID, by: Any = None, /, signed: str | None = None, **body: Any) -> requests.Response:
        """Register or refresh, with a phone's secret, a token's client, or a signature."""
        return self.call("PUT", f"/v1/installations/{phone}", by, signed, json=body)

    def call(self, method: str, path: str, by: Any = None, signed: str | None = None, **options: Any) -> Any:
        """Call as somebody."""
        headers = {"X-Relevo-Signature": signed} if signed else {}
        if isinstance(by, str):
            headers["Authorization"] = f"Bearer {by}"
        client = by if isinstance(by, Client) else self.client
        return client.call(method, path, headers=headers, **options)

    def new(self, **body: Any) -> tuple[UUID, str]:
        """Register a new phone by the app's token; return its id and secret."""
        phone = uuid4()
        answer = self.put(phone, self.app, **body)
        assert answer.status_code == 201, answer.text
        return phone, answer.json()["secret"]


def sign(phone: UUID, owner: str | None = None, key: str = "new-2", **more: Any) -> str:
    """Sign as the app's server does."""
    told = {"token": None} | more
    return relevo.sign_installation(key, KEYS[key], installation_id=phone, owner=owner, **told)
