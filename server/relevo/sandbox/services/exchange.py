"""A request as a service sees it, what it comes to, and what a service is to the connections that carry it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import NamedTuple, Protocol

from relevo.sandbox.answers import HttpResponse, Refused
from relevo.sandbox.faults.expo import Exchange

MAX_BODY = 65_536
_STREAMS = 100


class Request(NamedTuple):
    """A whole request; header names are in lower case."""

    method: str
    path: str
    headers: Sequence[tuple[str, str]]
    body: bytes

    def header(self, wanted: str) -> str | None:
        """Return the first header of a name."""
        return next((value for name, value in self.headers if name == wanted), None)


@dataclass
class Peer:
    """A service's state of one connection."""

    key_id: str | None = None
    """The key of the first token that was accepted on it."""


def headers_of(answer: HttpResponse) -> list[tuple[str, str]]:
    """Return the headers of an answer, with the time as this machine has it."""
    headers = [("content-length", str(len(answer.body))), ("date", formatdate(usegmt=True))]
    if answer.content_type:
        headers.append(("content-type", answer.content_type))
    return [*headers, *answer.headers.items()]


class Service(ABC):
    """One of the services, without any I/O."""

    name: str
    speaks_http1 = True
    token_path = ""
    """Where it gives out access tokens, if it does: what is asked there is no message."""

    @abstractmethod
    def answer(self, request: Request, peer: Peer) -> Exchange:
        """Take a request and say what it comes to; raises Refused."""

    def streams(self, peer: Peer) -> int:  # noqa: ARG002 the same for every connection
        """Return how many streams this connection may have open now."""
        return _STREAMS

    def goodbye(self) -> bytes:
        """Return what a GOAWAY of this service carries as its reason."""
        return b""


class ConnectionOwner(Protocol):
    """The server's part that a connection needs."""

    open: set[asyncio.Transport]

    def record(self, service: Service, request: Request, exchange: Exchange) -> None:
        """Count an answer, and tell of it."""


class Speaker(asyncio.Protocol):
    """The server's side of a connection, once it is known which protocol is spoken on it."""

    def __init__(self, service: Service, transport: asyncio.Transport, owner: ConnectionOwner) -> None:
        self._service = service
        self._transport = transport
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._peer = Peer()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 asyncio's own signature
        """Forget the connection."""
        self._owner.open.discard(self._transport)

    def _answered(self, method: str, path: str, headers: Sequence[tuple[str, str]], body: Body) -> Exchange:
        request = Request(method, path, headers, body.whole())
        try:
            exchange = self._service.answer(request, self._peer)
        except Refused as refusal:
            exchange = Exchange(refusal.answer)
        self._owner.record(self._service, request, exchange)
        return exchange


class Body(bytearray):
    """A request's body as it comes; of one that is too long no more is kept than shows that."""

    def add(self, part: bytes) -> None:
        """Take a part."""
        self.extend(part[: MAX_BODY + 1 - len(self)])

    def whole(self) -> bytes:
        """Return it; blanks for one that is too long, so that its beginning is not taken for all of it."""
        return bytes(self) if len(self) <= MAX_BODY else b" " * len(self)
