"""A request as a service sees it, what it comes to, and what a service is to the connections that carry it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, NamedTuple, Protocol

from relevo.sandbox.answers import Answer
from relevo.sandbox.faults import Fault

MAX_BODY = 65_536


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
    """What a service remembers of one connection."""

    facts: dict[str, Any] = field(default_factory=dict)


class Outcome(NamedTuple):
    """The answer to a request, and the fault that spoils its way back."""

    answer: Answer
    fault: Fault | None = None


def headers_of(answer: Answer) -> list[tuple[str, str]]:
    """Return the headers of an answer, with the time as this machine has it."""
    headers = [("content-length", str(len(answer.body))), ("date", formatdate(usegmt=True))]
    if answer.content_type:
        headers.append(("content-type", answer.content_type))
    return [*headers, *answer.headers.items()]


class Service(Protocol):
    """One of the services, without any I/O."""

    name: str
    speaks_http1: bool

    def answer(self, request: Request, peer: Peer) -> Outcome:
        """Take a request and say what it comes to."""
        ...

    def streams(self, peer: Peer) -> int:
        """Return how many streams this connection may have open now."""
        ...

    def goodbye(self) -> bytes:
        """Return what a GOAWAY of this service carries as its reason."""
        ...
