"""The plug points: Protocols that adapters fulfil, each with one contract suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from relevo.core.items import Fetched, Item, Reject
from relevo.core.messages import Draft, Message, WrittenMessage
from relevo.core.model import Delivery, Lane, ReceiptReply, Reply, StoredObject, Ticket
from relevo.providers.facts import ProviderFacts as ProviderFacts  # noqa: PLC0414 code of a team takes it from here


class NoRequestsLeft(Exception):  # noqa: N818 a state of affairs: today's requests are spent, or we are stopping
    """No request may be made in this quota now."""


class OutOfTime(NoRequestsLeft):
    """This run's time is over, or the process stops: the rest is for the next run, and nothing is wrong."""


class SourceContext(Protocol):
    """Services for a source: the state kept of it, and its turn in the fleet's queue of requests."""

    def now(self) -> datetime:
        """Return the database's time."""

    def known(self, namespace: str, external_ids: Sequence[str]) -> Mapping[str, str]:
        """Return the fingerprints of the items that are stored already."""

    def take_turn(self, quota: str, *, pace_ms: int, daily_limit: int) -> None:
        """Wait for this quota's next turn and count it; raises NoRequestsLeft if today's are spent or we stop."""

    def slow_down(self, quota: str, *, pace_ms: int, pause_ms: int = 0) -> None:
        """Set the quota's pace for the whole fleet, and let nobody ask before the pause is over."""

    def pace_ms(self, quota: str, default_ms: int) -> int:
        """Return the quota's present pace."""

    def rejects_due(self, limit: int) -> Sequence[Reject]:
        """Return this source's rejects that are due to be tried again."""


class Source(Protocol):
    """Somewhere items come from.

    It may have an `event_type` of its own (default new_licitacion) and a `render` that turns an item into title and
    body: what comes of its items is its business.
    """

    @property
    def name(self) -> str:
        """The source's name, unique in the fleet."""

    @property
    def interval_ms(self) -> int:
        """How often it is asked."""

    @property
    def seeds_silently(self) -> bool:
        """Whether its very first pass only takes stock, so that nobody is told of what is old."""

    def fetch(self, cursor: Mapping[str, Any], context: SourceContext) -> Fetched:
        """Ask for the next bounded batch after the cursor; an empty cursor means the very first time."""


Renderer = Callable[[Item], tuple[str, str]]
"""Turns an item into the text of its push: title and body."""

Composer = Callable[[dict[str, Any], Delivery], Message]
"""Makes the push of one delivery its own, e.g. in the phone's language; may raise Reschedule.

It returns the message to send, which may be the given one, changed.
"""


Accept = Callable[[int, Ticket], None]
"""Takes the ticket of a message, given by its place in the request, as soon as the push service accepted it."""


class PushProvider(Protocol):
    """A push service; callable from several threads at once. Whatever a server does is a value, never an exception.

    It may have `facts`, a ProviderFacts; without them it is treated as Expo is, by the settings. If it has
    `answers_in_parts`, which is true, `send` takes an `Accept` as third argument and calls it for each accepted message
    when its answer comes: one silent phone must not delay the others of a request.
    """

    @property
    def name(self) -> str:
        """The provider's name, as it stands in `provider` columns."""

    @property
    def max_messages(self) -> int:
        """How many messages one request may hold."""

    @property
    def max_receipts(self) -> int:
        """How many receipts one request may ask for; 0 if there are none: then an accepted push is `ok` at once."""

    def refuse_token(self, token: object) -> Ticket | None:
        """Return the final ticket of a push that must not be sent for its malformed token."""

    def refuse(self, message: Message) -> Ticket | None:
        """Return the final ticket of a message that must not be sent at all: a malformed token, too many bytes."""

    def send(self, messages: Sequence[Message], project: str = "") -> Reply:
        """Send one request of a project, on a connection that the calling thread keeps alive for its next one."""

    def fetch_receipts(self, ticket_ids: Sequence[str], project: str = "") -> ReceiptReply:
        """Ask for a project's receipts in one request."""

    def close(self) -> None:
        """Close all connections."""


@runtime_checkable
class ChecksTokens(Protocol):
    """A push service that checks many tokens at once, without waiting for anything: whether all are well-formed."""

    def refuses_any(self, tokens: Sequence[object]) -> bool:
        """Return whether `refuse_token` refuses one of these."""


@runtime_checkable
class WritesMessages(Protocol):
    """A push service that writes an event's message once per kind of phone, and for each phone only what differs."""

    def writer(self, draft: Draft, platform: str | None) -> Callable[[Delivery], WrittenMessage] | None:
        """Return what writes the message of each delivery of an event to phones of one platform.

        Its messages are not handed to `refuse`: None if each has to be checked by itself, such as for its size.
        """


@dataclass(frozen=True)
class PushContext:
    """The facts that a middleware gets about the push request it wraps."""

    request_id: UUID
    project: str
    lane: Lane
    messages: int
    worker_id: str
    event_ids: tuple[int, ...] = ()
    """The events that its messages tell, each once."""
    event_types: tuple[str, ...] = ()
    """The types of the events, each once."""
    in_shadow: bool = False
    """Whether shadow mode keeps the request from being sent."""


PushMiddleware = Callable[[PushContext, Callable[[], Reply]], Reply]
"""Wraps a push request: does something, calls `next()` once, does something, returns its reply."""


@runtime_checkable
class Warehouse(Protocol):
    """A store of the archive whose files other programs can reach by an address of their own."""

    def warehouse(self) -> tuple[str, dict[str, str]]:
        """Return the address below which its keys lie, and how pyiceberg reaches it."""


class ArchiveStore(Protocol):
    """The store of exported months. A failure is an ArchiveError; an object exists whole or not at all."""

    @property
    def name(self) -> str:
        """Where it is, for people."""

    def put(self, key: str, path: Path, *, replace: bool = False) -> bool:
        """Store a file under a key; False, and nothing changed, if there is an object and it must not be replaced."""

    def fetch(self, key: str, path: Path) -> None:
        """Write an object to a file; raises ArchiveMissingError if there is none."""

    def listing(self, prefix: str) -> Sequence[StoredObject]:
        """Return the objects whose keys begin so, in the order of their keys."""

    def tidy(self, prefix: str) -> None:
        """Remove what interrupted uploads left behind below a prefix; whole objects stay."""

    def arrow_filesystem(self) -> tuple[Any, str]:
        """Return an Arrow filesystem that reads the store in place, and the path below which its keys lie."""
