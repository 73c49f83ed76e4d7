"""Requests to scripted servers of HTTP/2, and what became of them in short."""

from __future__ import annotations

import select
import ssl
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from relevo.providers.http2.client import tls_context
from support.forward_proxy import CERTIFICATE

Client = Callable[..., Any]


@cache
def trusting() -> ssl.SSLContext:
    """Trust the scripted server; made once, for it takes as long as many a test."""
    return tls_context(str(CERTIFICATE))


def loopback(host: str, port: int, patience_s: float) -> list[str]:
    """Find every host here."""
    return ["127.0.0.1"]


def post(number: int, body: bytes = b"{}", **headers: str) -> tuple[list[tuple[str, str]], bytes]:
    """Return the request of one message."""
    return [(":method", "POST"), (":path", f"/{number}"), *headers.items()], body


def exchange(client: Any, count: int, *, timeout_s: float = 20, body: bytes = b"{}", **how: Any) -> list[Any]:
    """Send so many requests."""
    made = sys.modules[type(client).__module__]
    requests = [made.Request(*post(number, body)) for number in range(count)]
    return list(client.exchange(requests, made.CallTime(timeout_s), **how))


def kinds(outcomes: list[Any]) -> list[str]:
    """Name what became of each: its status, or the kind and code."""
    return [f"{each.status}" if hasattr(each, "status") else f"{type(each).__name__} {each.code}" for each in outcomes]


def wait_until_heard(client: Any) -> None:
    """Wait until what the server said on the idle connection has arrived here."""
    if client._kept is not None:
        assert select.select([client._kept._socket], [], [], 20)[0]
