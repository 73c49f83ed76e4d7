"""The TLS servers: each connection is HTTP/2 or HTTP/1.1 by what its client negotiated."""

from __future__ import annotations

import asyncio

from relevo.sandbox.services.exchange import Service
from relevo.sandbox.services.http1 import Http1
from relevo.sandbox.services.http2 import Http2, Record

MAX_CONNECTIONS = 1_000


class Connection(asyncio.Protocol):
    """A client's connection; it takes part in the set of those that are open."""

    def __init__(self, service: Service, opened: set[asyncio.Transport], record: Record) -> None:
        self._service = service
        self._open = opened
        self._record = record
        self._transport: asyncio.Transport | None = None
        self._speaker: Http1 | Http2 | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the client, or hang up where there is no protocol for it."""
        assert isinstance(transport, asyncio.Transport)
        tls = transport.get_extra_info("ssl_object")
        is_http2 = tls is not None and tls.selected_alpn_protocol() == "h2"
        if len(self._open) >= MAX_CONNECTIONS or not (is_http2 or self._service.speaks_http1):
            transport.abort()
            return
        self._transport = transport
        self._open.add(transport)
        self._speaker = (Http2 if is_http2 else Http1)(self._service, transport, self._record)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        if self._speaker is not None:
            self._speaker.feed(data)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 asyncio's own signature
        """Forget the connection."""
        self._speaker = None
        if self._transport is not None:
            self._open.discard(self._transport)
