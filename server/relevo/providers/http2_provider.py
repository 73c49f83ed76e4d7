"""What FCM, APNs and Web Push have in common: one message a request, a hundred at once over HTTP/2, no receipts."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from relevo.config import Settings
from relevo.core.messages import Message
from relevo.core.model import ReceiptReply, Reply, Ticket
from relevo.core.proxies import Proxies
from relevo.core.sending_project import SendingProject
from relevo.providers.http2 import tls_context
from relevo.providers.http2_clients import Http2Clients
from relevo.providers.message_parts import UNWRITABLE
from relevo.providers.push_projects import Entry, PushProject, PushProjects, Unusable

STREAMS = 100
MALFORMED = Ticket("failed", code="MalformedMessage", message="the message cannot be written as JSON")

E = TypeVar("E", bound=Entry)
R = TypeVar("R")


def usual_options(settings: Settings) -> dict[str, Any]:
    """Return what every such push service takes of the settings."""
    return {
        "timeout_ms": settings.push_request_timeout_ms,
        "connect_timeout_ms": settings.push_connect_timeout_ms,
        "ca_file": str(settings.push_ca_file) if settings.push_ca_file else None,
        "proxies": settings.proxies,
    }


class Http2Provider(ABC, Generic[E, R]):
    """A PushProvider whose calling threads have connections of their own; `E` are its credentials, `R` is a message
    that is ready to be posted."""

    max_messages = STREAMS
    max_receipts = 0
    entry: type[E]
    token: ClassVar[re.Pattern[str]]
    """What a token looks like."""
    malformed_token: ClassVar[Ticket]

    def __init__(
        self,
        projects: PushProjects,
        *,
        timeout_ms: int,
        connect_timeout_ms: int,
        ca_file: str | None = None,
        proxies: Proxies = Proxies(),  # noqa: B008 frozen
        clock: Callable[[], float] = time.time,
        http1: bool = False,
    ) -> None:
        self._projects = projects
        self._total_s = timeout_ms / 1_000
        self._connect_s = min(connect_timeout_ms, timeout_ms) / 1_000
        self._tls = tls_context(ca_file, http1=http1)
        self._proxies = proxies
        self._clock = clock
        self._clients = Http2Clients()

    def refuse_token(self, token: object) -> Ticket | None:
        """Return the final ticket of a push to a malformed token."""
        return None if isinstance(token, str) and self.token.fullmatch(token) else self.malformed_token

    def refuses_any(self, tokens: Sequence[Any]) -> bool:
        """Return whether one of these tokens is malformed."""
        try:
            return not all(map(self.token.fullmatch, tokens))
        except TypeError:
            return True

    def send(self, messages: Sequence[Message], project: str = "") -> Reply:
        """Send messages of a project, each in a stream of its own on a connection of the calling thread."""
        if len(messages) > self.max_messages:
            raise ValueError(f"one request holds at most {self.max_messages} messages, got {len(messages)}")
        if not messages:
            return Reply("answered")
        sending = SendingProject.parse(project)
        found = self._projects.find(self.entry, sending.name)
        if isinstance(found, Unusable):
            return Reply("unauthorised", code=found.code, message=found.message)
        try:
            ready = [self._ready(message, sending.part) for message in messages]
        except UNWRITABLE:
            return Reply("rejected", code=MALFORMED.code, message=MALFORMED.message)
        return self._send(found, sending.part, ready)

    def fetch_receipts(self, ticket_ids: Sequence[str], project: str = "") -> ReceiptReply:  # noqa: ARG002
        """Return nothing: there are no receipts."""
        return ReceiptReply("answered")

    def close(self) -> None:
        """Close all connections; a request under way ends by itself, within its time."""
        self._clients.close()

    @abstractmethod
    def _ready(self, message: Message, part: str) -> R:
        """Write a message; raises one of UNWRITABLE."""

    @abstractmethod
    def _send(self, project: PushProject[E], part: str, ready: Sequence[R]) -> Reply:
        """Post messages, and say what became of them."""
