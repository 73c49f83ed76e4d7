"""Common parts of our two HTTP servers, the API and the sandbox: how they listen, and uvicorn's options."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn

BACKLOG = 1024
_DRAIN_S = 5


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; raises OSError if the address cannot be had."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    # Only on a socket that says it is TCP does asyncio switch off Nagle, which costs 40 ms an answer.
    listening = socket.socket(family, kind, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def url_of(listening: socket.socket) -> str:
    """Return the address of a socket that listens."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def uvicorn_config(app: Any, protocol: type[asyncio.Protocol], backlog: int = BACKLOG) -> uvicorn.Config:
    """Return uvicorn's options: no log, no headers and no trust of its own."""
    return uvicorn.Config(
        app,
        http=protocol,
        backlog=backlog,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="error",  # its warnings are one line for each request that is no HTTP
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_DRAIN_S,
    )
