"""The words of Relevo: frozen values that modules hand to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal, NamedTuple, Self, overload
from uuid import UUID

from relevo.core.statuses import Status

_LONGEST_TICKET = 200

Trigger = Literal["schedule", "wake-up", "tick", "manual"]
RunOutcome = Literal["idle", "ok", "partial", "failed", "skipped"]
Lane = Literal["urgent", "bulk"]
LossReason = Literal["taken_by_another_worker", "already_completed", "not_found", "error"]


@dataclass(frozen=True)
class Shard:
    """One of `count` disjoint parts of all deliveries, by their installation's hash."""

    index: int
    count: int


@dataclass(frozen=True)
class Budget:
    """How long a run may take and how many items it may process."""

    max_ms: int
    max_items: int


@dataclass(frozen=True)
class Step:
    """The result of one bounded batch of a cycle, and whether more seems to be waiting."""

    counts: Mapping[str, int] = field(default_factory=dict)
    items: int = 0
    more: bool = False
    problems: tuple[str, ...] = ()
    due_in_s: float | None = None
    """When the next thing falls due that is known of already."""
    wakes: str = ""
    """The cycle that has work because of it, and need not wait until it is called by way of the database."""
    short: bool = False
    """Whether it took less than it might have, so that hardly more is waiting."""


@dataclass(frozen=True)
class Report:
    """How one call of the runner ended."""

    cycle: str
    """The cycle's name with its source, as in ingest:folder."""
    outcome: RunOutcome
    run_id: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    error: str = ""
    more: bool = False
    look_again_in_s: float | None = None
    due_in_s: float | None = None
    next_slot_in_s: float | None = None
    open_transactions: tuple[int, int] = (0, 0)
    """Before the round looked: all transactions below the first number had ended, none from the second on had begun."""
    asleep: bool = False
    """Whether it found work, then stayed for calls, and ended because none came."""
    was_awake: bool = False
    """Whether the fleet was told meanwhile that it need not be called."""


Obstacle = Literal[
    "event_gone",
    "event_ended",
    "handled_elsewhere",
    "superseded",
    "project_changed",
    "owner_changed",
    "deadline_passed",
    "installation_gone",
    "not_allowed",
    "opted_out",
    "refused",
    "not_accepted",
    "preference_changed",
    "told_already",
    "token_changed",
    "repeats_held",
    "quiet_hours",
    "quiet_expired",
]
"""Why a delivery must not be sent as it was planned; project_changed: its event names
another project than its phone is in now; owner_changed: it was made for the former owner of its phone;
refused, not_accepted: its owner chose so; told_already: its token
got the same event by an installation that had it before; token_changed: not to this token, but to the new one;
repeats_held: not before the runaway brake is released; quiet_hours: not before they end; quiet_expired: its
deadline lies in them."""


class Delivery(NamedTuple):
    """A claimed delivery: where it goes, or what stands in its way, as the claim saw it."""

    event_day: date
    id: int
    notification_event_id: int
    installation_id: UUID
    event_type: str
    provider: str
    project: str
    lane: Lane
    at_most_once: bool
    status: str
    attempt_count: int
    lapse_count: int
    deadline_at: datetime | None
    token: str | None = None
    token_version: int | None = None
    platform: str | None = None
    locale: str | None = None
    obstacle: Obstacle | None = None
    """Why it must not be sent any more."""
    seconds_left: float | None = None
    """Until its deadline."""
    created_at: datetime | None = None
    quiet_until: datetime | None = None
    """While its phone has quiet hours: not before then, or, with no obstacle, silently."""


NEWS = "relevo.news"
"""The type of the events that carry news to webhooks, and their push service: no pushes, and not shown among them."""
SHADOW = "shadow"
"""The error code of deliveries that only shadow mode kept from being sent."""
DIGEST = "relevo.digest"
"""The type of the events by which digests are told: what each phone is told is its own."""


class Content(NamedTuple):
    """The content of an event."""

    id: int
    title: str
    body: str
    data: Mapping[str, Any]
    push: Mapping[str, Any]
    wording: int | None = None
    """The version of its type's texts, if it is told by them."""
    texts: Mapping[str, Mapping[str, str]] = {}
    """Then its title, body and subtitle by locale, and what goes into them."""
    arguments: Mapping[str, Any] = {}
    words_of: str = ""
    """The event type whose texts these are, if another than its own."""


@dataclass(frozen=True)
class PushRequest:
    """The deliveries that are to travel in one POST."""

    id: UUID
    deliveries: tuple[Delivery, ...]


TakenFate = Literal["sent", "ok"]
"""Taken by the push service: to be confirmed by a receipt, or for good where there are none."""


class SentRequest(NamedTuple):
    """A request of which every delivery was accepted, each with its ticket; or what was accepted of it."""

    request: PushRequest
    tickets: Sequence[str]
    whole: bool = True
    fate: TakenFate = "sent"


class Verdict(NamedTuple):
    """The journal's verdict on a delivery: send it; it was sent, with this late ticket; or why it must not be sent."""

    event_day: date
    id: int
    verdict: Literal["send", "sent"] | Obstacle
    ticket_id: str | None
    not_before: datetime | None = None
    """Until when quiet hours keep it."""


class Answer(NamedTuple):
    """The outcome of one delivery; `attempted` is whether a request was started for it.

    A retry of what was attempted waits as its type's policy says, at least `retry_after_ms`; of what was not, that.
    """

    event_day: date
    id: int
    status: Status
    attempted: bool = True
    ticket_id: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    retry_after_ms: int = 0
    installation_id: UUID | None = None
    token_version: int | None = None
    project: str | None = None
    """The project it belongs to, where that turned out to be another one."""
    not_before: datetime | None = None
    request: UUID | None = None
    """The request it failed in: what failed together is tried again together."""
    not_sent: bool = False
    """Whether others of its request were sent, and it is known that this one was not."""
    unclear: bool = False
    """Whether nobody knows if it was sent."""

    @property
    def is_untaken(self) -> bool:
        """Whether it was in a request and was certainly not taken, whatever for, and may be tried again."""
        return self.status == "retryable" and not self.unclear and self.request is not None


class Awaiting(NamedTuple):
    """A sent delivery whose receipt is asked for."""

    event_day: date
    id: int
    installation_id: UUID
    ticket_id: str
    token_version: int | None
    sent_at: datetime | None
    attempt_count: int = 1


@dataclass(frozen=True)
class ReceiptAnswer:
    """The meaning of a receipt, or of its absence, for a sent delivery.

    `spent` is -1 where the attempt is given back, `paced` tells whether a retry waits as its type's policy says.
    """

    awaiting: Awaiting
    status: Literal["ok", "retryable", "invalid", "failed", "waiting"]
    spent: int = 0
    paced: bool = True
    error_code: str | None = None
    error_message: str | None = None
    retry_after_ms: int = 0


Fate = Literal["sent", "ok", "retryable", "invalid", "failed", "credential", "unclear", "not_sent"]
"""The meaning of an answer for one push.

sent: taken, to be confirmed by a receipt. ok: taken, and there is no receipt. credential: refused, by the project's
fault. unclear: nobody knows whether it was taken. not_sent: definitely not taken, and not for its own sake: it spends
no attempt.
"""
Pauses = Literal["message", "phone", "project"]


class Ticket(NamedTuple):
    """The provider's answer for one push, in a ticket or in a receipt, classified once."""

    fate: Fate
    id: str | None = None
    code: str | None = None
    message: str | None = None
    """The provider's words, trimmed; for an unknown code the raw answer."""
    alert: bool = False
    """Whether an operator has to do something about it."""
    retry_after_ms: int = 0
    """With retryable, not_sent and unclear: it is not tried again before."""
    pauses: Pauses = "message"
    """The scope of that pause: this message, everything for its phone, or its whole project.

    What has to wait because its project sent too much spends no attempt.
    """
    gone_at: datetime | None = None
    """With invalid: since when the service knows that the token is gone. One that was registered later is not."""


class Accepted(Sequence[Ticket]):
    """The tickets of a request of which every push was accepted: just their ids; the rest is made for whoever looks.

    Every id is short, of plain ASCII, and can be written down as it is: `of` takes no others.
    """

    __slots__ = ("fate", "ids")

    def __init__(self, ids: Sequence[str], fate: TakenFate = "sent") -> None:
        self.ids = ids
        self.fate = fate

    @classmethod
    def of(cls, ids: Sequence[str], fate: TakenFate = "sent") -> Self | None:
        """Take the ids as they are, or none of them."""
        try:
            whole = "".join(ids)
        except TypeError:
            return None
        short = bool(ids) and all(ids) and max(map(len, ids)) <= _LONGEST_TICKET
        return cls(ids, fate) if short and whole.isascii() and whole.isprintable() else None

    @overload
    def __getitem__(self, place: int) -> Ticket: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Ticket]: ...

    def __getitem__(self, place: int | slice) -> Ticket | Sequence[Ticket]:
        if isinstance(place, slice):
            return Accepted(self.ids[place], self.fate)
        return Ticket(self.fate, id=self.ids[place])

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


ReplyKind = Literal[
    "answered",
    "held_back",
    "not_sent",
    "unclear",
    "throttled",
    "unauthorised",
    "too_many",
    "mixed_projects",
    "rejected",
]
"""The outcome of a whole request.

answered: one ticket per message, in their order. unclear: maybe accepted (5xx, read timeout, an unreadable body).
The others were definitely not accepted. held_back: we did not even try. not_sent: no connection. throttled: come
back later. unauthorised: the credentials are at fault. too_many: send fewer at once. mixed_projects: `projects` says
which token belongs where. rejected: one of the messages is bad.
"""


@dataclass(frozen=True)
class Reply:
    """The provider's answer to one request."""

    kind: ReplyKind
    tickets: Sequence[Ticket] = ()
    code: str | None = None
    message: str | None = None
    retry_after_ms: int = 0
    projects: Mapping[str, str] = field(default_factory=dict)
    """For mixed_projects: the project of each token."""
    not_before: datetime | None = None
    """For held_back: when somebody wished to try again."""


@dataclass(frozen=True)
class ReceiptReply:
    """The provider's answer to a question for receipts; a ticket without one is not in it."""

    kind: ReplyKind
    receipts: Mapping[str, Ticket] = field(default_factory=dict)
    """By ticket id."""
    code: str | None = None
    message: str | None = None
    retry_after_ms: int = 0


@dataclass(frozen=True)
class Settlement:
    """How many deliveries were written per status, and what became of answers that came too late."""

    written: Mapping[str, int]
    closed_late: int = 0
    kept_as_evidence: int = 0
    tokens_disabled: int = 0
    silent: int = 0
    """How many went without a sound because of quiet hours."""


@dataclass(frozen=True)
class StoredObject:
    """An object in the archive's store."""

    key: str
    size: int


@dataclass(frozen=True)
class Column:
    """A column of an exported table, by PostgreSQL's name for its type."""

    name: str
    type: str
