"""Shared parts of the native push services: one message a request, a hundred at once over HTTP/2, no receipts."""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from relevo.config import Settings
from relevo.core.logs import scrub
from relevo.core.messages import Draft, Message, WrittenMessage
from relevo.core.model import Delivery, ReceiptReply, Reply, Ticket
from relevo.core.ports import Accept, ProviderFacts
from relevo.core.proxies import Proxies
from relevo.core.sending_project import SendingProject
from relevo.providers.http2.client import Answered, CallOutcome, Http2Client, NotSent, Unknown, tls_context
from relevo.providers.http_connection import is_success
from relevo.providers.message_parts import UNWRITABLE, data_of
from relevo.providers.project_entry import Entry
from relevo.providers.push_projects import PushProject, PushProjects, Unusable

STREAMS = 100
MOST_IDLE = 200
MAX_CODE, MAX_MESSAGE, _MAX_ID = 100, 500, 200
MOST_SKEW_S = 60.0
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
MALFORMED = Ticket("failed", code="MalformedMessage", message="the message cannot be written as JSON")

E = TypeVar("E", bound=Entry)
R = TypeVar("R")


def _ignore(_place: int, _ticket: Ticket) -> None:
    """Take no ticket before all are known."""


class Http2Clients:
    """Clients by key, each lent to one caller at a time and kept with its connection until the next one asks.

    Apple wants connections kept for hours, so they outlive the threads that use them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: deque[tuple[Hashable, Http2Client]] = deque()
        """The one used last stands at the end."""
        self._lent: set[Http2Client] = set()

    @contextmanager
    def lend(self, key: Hashable, make: Callable[[], Http2Client]) -> Iterator[Http2Client]:
        """Lend a client of a key: the one used last, or a new one."""
        client = self._take(key) or make()
        with self._lock:
            self._lent.add(client)
        try:
            yield client
        finally:
            self._give_back(key, client)

    def _take(self, key: Hashable) -> Http2Client | None:
        with self._lock:
            found = next((each for each in reversed(self._idle) if each[0] == key), None)
            if found is not None:
                self._idle.remove(found)
        return found[1] if found else None

    def _give_back(self, key: Hashable, client: Http2Client) -> None:
        """Keep a client that has a connection; the one used longest ago makes room."""
        with self._lock:
            self._lent.discard(client)
            if client.is_connected:
                self._idle.append((key, client))
            oldest = self._idle.popleft()[1] if len(self._idle) > MOST_IDLE else None
        if oldest is not None:
            oldest.close()

    def close(self) -> None:
        """Close all connections; a request under way ends by itself, within its time."""
        with self._lock:
            clients = [*self._lent, *(client for _, client in self._idle)]
            self._idle.clear()
        for client in clients:
            client.close()


def usual_options(settings: Settings) -> dict[str, Any]:
    """Return what every such push service takes of the settings."""
    return {
        "timeout_ms": settings.push_request_timeout_ms,
        "connect_timeout_ms": settings.push_connect_timeout_ms,
        "ca_file": str(settings.push_ca_file) if settings.push_ca_file else None,
        "proxies": settings.proxies,
    }


class Http2Provider(ABC, Generic[E, R]):
    """A PushProvider with connections that one call uses at a time; `E` are its credentials, `R` is a message that is
    ready to be posted."""

    max_messages = STREAMS
    max_receipts = 0
    answers_in_parts = True
    entry: type[E]
    facts: ClassVar[ProviderFacts]
    token: ClassVar[re.Pattern[str]]
    """The form of a token."""
    malformed_token: ClassVar[Ticket]
    message: ClassVar[Callable[..., WrittenMessage]]
    """The WrittenMessage that it makes of what was written of an event, the draft and a delivery."""
    too_big: ClassVar[str] = "MessageTooBig"
    """How the service itself calls a message of too many bytes."""

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

    def refuse(self, message: Message) -> Ticket | None:
        """Return the final ticket of a message that would be refused, for its token, what it says, or its size."""
        refused = self.refuse_token(message.get("to")) or self._flaw(message, data_of(message))
        if refused is not None:
            return refused
        try:
            weight, most = self._weight(message), self.facts.max_payload_bytes
        except UNWRITABLE:
            return MALFORMED
        if weight <= most:
            return None
        return Ticket(
            "failed", code=self.too_big, message=f"it has {weight} bytes, and {self.facts.label} takes {most}"
        )

    def writer(self, draft: Draft, platform: str | None) -> Callable[[Delivery], WrittenMessage] | None:
        """Return what writes the message of each delivery of an event; None if each has to be checked by itself."""
        if self._flaw(draft.fields, draft.data) is not None:
            return None
        try:
            written = self._write(draft, platform)
            is_light = written.most_bytes <= self.facts.max_payload_bytes
        except UNWRITABLE:
            return None
        return partial(self.message, written, draft) if is_light else None

    def send(self, messages: Sequence[Message], project: str = "", accept: Accept = _ignore) -> Reply:
        """Send messages of a project, each in a stream of its own; `accept` gets each ticket that is ok at once."""
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
        return self._send(found, sending.part, ready, Tickets(accept))

    def fetch_receipts(self, ticket_ids: Sequence[str], project: str = "") -> ReceiptReply:  # noqa: ARG002
        """Return nothing: there are no receipts."""
        return ReceiptReply("answered")

    def close(self) -> None:
        """Close all connections; a request under way ends by itself, within its time."""
        self._clients.close()

    def _client(self, origin: str, **how: Any) -> Http2Client:
        return Http2Client(origin, tls=self._tls, connect_s=self._connect_s, proxies=self._proxies, **how)

    @abstractmethod
    def _flaw(self, fields: Message, data: Mapping[str, Any]) -> Ticket | None:
        """Return the final ticket of a message that says what the service does not take."""

    @abstractmethod
    def _write(self, draft: Draft, platform: str | None) -> Any:
        """Write what an event says to phones of one platform, with `most_bytes`; raises one of UNWRITABLE."""

    @abstractmethod
    def _weight(self, message: Message) -> int:
        """Return how many bytes of a message count; raises one of UNWRITABLE."""

    @abstractmethod
    def _ready(self, message: Message, part: str) -> R:
        """Write a message; raises one of UNWRITABLE."""

    @abstractmethod
    def _send(self, project: PushProject[E], part: str, ready: Sequence[R], tickets: Tickets) -> Reply:
        """Post messages, hand over those that are accepted, and return what became of all."""


class Tickets:
    """The tickets of one request's accepted messages by their places, each handed over when its answer comes."""

    def __init__(self, accept: Accept = _ignore) -> None:
        self._accept = accept
        self._ok: dict[int, Ticket] = {}

    def hear(self, place: int, answer: Answered, judge: Callable[[Answered], Ticket]) -> None:
        """Take the answer to a message."""
        if is_success(answer.status) and (ticket := judge(answer)).fate == "ok":
            self._ok[place] = ticket
            self._accept(place, ticket)

    def of(self, place: int, judge: Callable[[], Ticket]) -> Ticket:
        """Return the ticket of a message: the one that was handed over, or what its outcome means."""
        return self._ok.get(place) or judge()


def clean(text: object, limit: int = MAX_MESSAGE) -> str | None:
    """Return a push service's words in one line that fits, without what is secret in it."""
    if not isinstance(text, str) or not text:
        return None
    return scrub(_CONTROL.sub(" ", text[: 2 * limit]).encode("utf-8", "replace").decode())[:limit]


def is_id(text: str) -> bool:
    """Return whether a push service's name for a message can be kept."""
    return 0 < len(text) <= _MAX_ID and text.isascii() and text.isprintable()


def clock_trouble(date: str | None, now: float) -> str:
    """Return in words by how much this machine's clock differs from a push service's, if that is too much."""
    try:
        there = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return ""
    skew_s = abs(now - there)
    return f"this machine's clock differs from its own by {skew_s:.0f} seconds" if skew_s > MOST_SKEW_S else ""


def whole(outcomes: Sequence[CallOutcome]) -> Reply | None:
    """Return the reply to a request of which nothing was begun, for the same reason; None if something was."""
    first = outcomes[0]
    if not isinstance(first, NotSent) or any(not isinstance(each, NotSent) for each in outcomes):
        return None
    return Reply("not_sent", code=first.code[:MAX_CODE], message=first.message[:MAX_MESSAGE])


def unanswered(outcome: NotSent | Unknown, retry_after_ms: int = 0) -> Ticket:
    """Return the ticket of a message without an answer."""
    fate, pause_ms = ("not_sent", 0) if isinstance(outcome, NotSent) else ("unclear", retry_after_ms)
    return Ticket(
        fate,  # type: ignore[arg-type]
        code=outcome.code[:MAX_CODE],
        message=outcome.message[:MAX_MESSAGE],
        retry_after_ms=pause_ms,
    )
