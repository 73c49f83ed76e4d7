"""How bytes go out: head and body of an answer together, by one call of the kernel and in one packet."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST_HELD = 65_536


class Protocol(HttpToolsProtocol):
    """uvicorn's own, but for that."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to serve a connection."""
        self._held = _Held(transport, self.loop)
        super().connection_made(cast("asyncio.Transport", self._held))

    def on_response_complete(self) -> None:
        """Send what was held, and go on."""
        self._held.flush()
        super().on_response_complete()


class _Held:
    """A transport that holds what is written until the answer is whole, it is much, or the loop comes round."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Hold it."""
        if not self._pieces:
            self._loop.call_soon(self.flush)
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _MOST_HELD:
            self.flush()

    def flush(self) -> None:
        """Send what is held."""
        if self._pieces:
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
            self._transport.write(data)

    def close(self) -> None:
        """Send what is held, and hang up."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
