"""The values that the app's verbs take and return."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Literal
from uuid import UUID

from relevo.client.progress import progress_of
from relevo.core.statuses import EventState, Progress


def _warn_of_tender_fields(given: object, instead: str, names: Sequence[str]) -> None:
    """Warn whoever made a value that some of its fields belong to tenders, and leave it in 0.6."""
    if used := [name for name in names if getattr(given, name) not in (None, ())]:
        kind = type(given).__name__
        words = f"{', '.join(used)} of relevo.{kind} belong to tenders and leave it in 0.6: use relevo.{instead}"
        warnings.warn(words, DeprecationWarning, stacklevel=4)


@dataclass(frozen=True)
class Matching:
    """An audience of phones whose preferences match a text, or who have attributes: `Matching(where={"plan": "pro"})`.

    `rubros`, `region`, `tipo`, `monto` and `moneda` belong to tenders and leave it in 0.6: `TenderMatching` has them.
    """

    rubros: Sequence[str] = ()
    region: str | None = None
    tipo: str | None = None
    monto: Decimal | int | float | None = None
    moneda: str | None = None
    text: str | None = None
    """Words in which the keywords of preferences are looked for."""
    where: Mapping[str, Any] | None = None
    """Attributes that a phone, or its owner, must have: of each name one of the values. It narrows the rest."""

    def __post_init__(self) -> None:
        """Warn of the fields that leave."""
        if type(self) is Matching:
            _warn_of_tender_fields(self, "TenderMatching", ("rubros", "region", "tipo", "monto", "moneda"))


@dataclass(frozen=True)
class TenderMatching(Matching):
    """The facts of a tender, for an audience of installations whose preferences match."""


@dataclass(frozen=True)
class Everyone:
    """An audience of all phones, or of all phones of the event's project."""

    where: Mapping[str, Any] | None = field(default=None, kw_only=True)
    """The attributes that they must have; None: any."""


@dataclass(frozen=True, init=False)
class Owners:
    """An audience of people: all phones that are theirs when the event fans out."""

    names: tuple[str, ...]
    where: Mapping[str, Any] | None
    """The attributes that the phones must have; None: any."""

    def __init__(self, *names: str, where: Mapping[str, Any] | None = None) -> None:
        """Take the owners one by one: `Owners("user-7", "user-8")`, or `Owners(*names)`."""
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "where", where)


@dataclass(frozen=True, init=False)
class Phones:
    """An audience of phones, by the ids that `register` returned."""

    ids: tuple[UUID, ...]
    where: Mapping[str, Any] | None
    """The attributes that they must have; None: any."""

    def __init__(self, *ids: UUID, where: Mapping[str, Any] | None = None) -> None:
        """Take the ids one by one: `Phones(phone)`, or `Phones(*phones)`."""
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "where", where)

    def __iter__(self) -> Iterator[UUID]:
        """Return them one by one."""
        return iter(self.ids)


@dataclass(frozen=True, init=False)
class Topic:
    """An audience of phones with a preference that asks for a topic, or for one of several."""

    names: tuple[str, ...]
    where: Mapping[str, Any] | None
    """The attributes that the phones must have; None: any."""

    def __init__(self, *names: str, where: Mapping[str, Any] | None = None) -> None:
        """Take the topics one by one: `Topic("football")`, or `Topic("football", "tennis")`."""
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "where", where)


EventRef = int | tuple[str, str] | tuple[str, str, str]
"""An event by its id, by its type and key, or by its type, key and project."""
Audience = Everyone | Owners | Phones | Topic | Matching | Literal["everyone"] | Sequence[UUID]
OnConflict = Literal["refuse", "keep"]
"""The action for an event whose type and key are known and whose content differs."""


@dataclass(frozen=True)
class Event:
    """One thing worth telling. The same type and key again is the same event, and must say the same.

    Without title and body it is for the app alone: a silent push that carries `data`.
    """

    type: str
    key: str
    title: str = ""
    body: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    push: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the push message: sound, badge, link, …; `relevo.client.push_rules.PUSH_FIELDS` lists them."""
    audience: Audience = field(kw_only=True)
    """The audience: Everyone(), Owners(…), Phones(…), Topic(…) or Matching(…). There is no default: nobody tells
    everyone by forgetting a word. "everyone" is Everyone(), and a list of ids is Phones; an empty one is nobody."""
    topics: Sequence[str] = field(default=(), kw_only=True)
    """Topics, for an audience of Matching: the event goes only to phones that asked for one of them.
    Topic(…) is the same as an audience."""
    arguments: Mapping[str, Any] | None = field(default=None, kw_only=True)
    """Arguments for the texts of its type, by name, in place of title and body; `{}` if they name nothing."""
    category: str | None = None
    """Installations that opted out of it are left out."""
    lane: Literal["urgent", "bulk"] | None = None
    at_most_once: bool | None = None
    scheduled_at: datetime | None = None
    deadline_at: datetime | None = None
    ttl_s: int | None = None
    collapse: str | None = None
    """The collapse key: a later event of this type and collapse key replaces this one on each phone."""
    batch: Mapping[str, str] | None = None
    """The batch, if its type gathers: a `key`, and the `title` and `body` of the push of several."""
    project: str | None = None
    """The only project whose phones it is for. Keys are unique within a project."""
    traceparent: str | None = field(default=None, kw_only=True)
    """The trace it belongs to, as W3C Trace Context writes it. None: that of the active OpenTelemetry span, if any."""


@dataclass(frozen=True)
class Enqueued:
    """The event's id, whether it is new, and, if not, whether the one that is there says the same.

    What a personal event said is not known any more once it was archived or forgotten: then that is None.
    """

    event_id: int
    created: bool
    same_content: bool | None = True
    unknown_installations: tuple[UUID, ...] = ()
    """Those of the installations it names that nobody registered: they get nothing."""


@dataclass(frozen=True)
class EventStatus:
    """An event and how far it is, told without counting deliveries."""

    id: int
    type: str
    key: str
    state: EventState
    deliveries: Mapping[str, int]
    raw: Mapping[str, Any]

    @property
    def progress(self) -> Progress:
        """How far it is, in a word: its state, and once its deliveries are made: sending, sent or finished."""
        return progress_of(self.state, self.deliveries)

    @property
    def reactions(self) -> Mapping[str, int] | None:
        """How many pushes were taken and opened, and in how many inboxes it was read; None unless its type asks."""
        return self.raw.get("reactions")

    @property
    def left_to_send(self) -> bool:
        """Whether anything may still be sent."""
        open_ones = self.deliveries.get("pending", 0) + self.deliveries.get("retryable", 0)
        return self.state in ("waiting", "held", "fanning") or open_ones > 0

    @property
    def left_to_confirm(self) -> bool:
        """Whether anything may still be sent or confirmed."""
        return self.left_to_send or self.deliveries.get("sent", 0) > 0


@dataclass(frozen=True)
class Preview:
    """The reach of an event: how many installations (beyond some 10,000 an estimate), and some of them."""

    count: int
    exact: bool
    sample: tuple[UUID, ...]
    unknown_installations: tuple[UUID, ...]
    raw: Mapping[str, Any]
    at_least: int
    at_most: int
    """Of an estimate the bounds that hold nineteen times of twenty: few who registered together are easily missed."""
    warnings: tuple[str, ...] = ()
    """Parts of the event that would not reach some of these phones as they are, in sentences."""
    digested: int = 0
    """How many more are told in a digest; of many an estimate."""
    waiting: int = 0
    """How many of them have quiet hours then, and would get it later."""
    capped: int = 0
    """How many of them were sent as much as their caps allow, and would find it in the inbox alone."""
    to_digest: int = 0
    """How many of them were sent as much as their caps allow, and would be told in the next digest."""
    batched: int = 0
    """How many of them would be told together with others of its kind, for its type gathers."""


@dataclass(frozen=True)
class Explanation:
    """Why an installation gets an event, or not: the rule that decides, by name and in a sentence."""

    gets_it: bool
    rule: str
    reason: str
    raw: Mapping[str, Any]
    """With the preference that matches, or what each differs in, and the delivery, if there is one."""


class Removal(Enum):
    """The type of `REMOVE`."""

    REMOVE = "remove"


REMOVE: Final = Removal.REMOVE
"""Removes what is stored of a field of an `Installation`, where None leaves it as it is."""


@dataclass(frozen=True)
class Installation:
    """An app on a phone; None leaves what is stored as it is, and `REMOVE` removes `locale` or `timezone`."""

    token: str | None
    installation_id: UUID | None = None
    project: str | None = None
    provider: str | None = None
    """The push service it is reached by: expo unless something else is said; another one of the guide, such as fcm,
    webhook, or one of your own."""
    platform: Literal["ios", "android", "web", "unknown"] | None = None
    locale: str | Literal[Removal.REMOVE] | None = None
    owner: str | None = None
    push_capable: bool = True
    permission: Literal["granted", "denied", "undetermined"] = "granted"
    opt_outs: Sequence[str] | None = None
    environment: Literal["production", "sandbox"] | None = None
    """With apns: which of Apple's services knows the token; production unless something else is said."""
    timezone: str | Literal[Removal.REMOVE] | None = None
    """The time zone the phone is in, by its IANA name such as `America/Santiago`."""
    attributes: Mapping[str, Any] | None = None
    """Attributes of the phone to set, such as `{"plan": "pro"}`: one that is left out stays, and None removes it."""


@dataclass(frozen=True)
class InstallationStatus:
    """An installation as it is registered, and whether pushes may go to it."""

    installation_id: UUID
    owner: str | None
    receives: bool
    why_not: str | None
    raw: Mapping[str, Any]


@dataclass(frozen=True)
class Preference:
    """The events that an installation asks for; None is a wildcard.

    `rubro_prefix`, `tipo`, `region` and the amounts belong to tenders and leave it in 0.6: `TenderPreference` has them.
    """

    enabled: bool = True
    rubro_prefix: str | None = None
    tipo: str | None = None
    region: str | None = None
    monto_min: Decimal | int | None = None
    monto_max: Decimal | int | None = None
    moneda: str | None = None
    keywords: Sequence[str] | None = None
    topics: Sequence[str] | None = None
    """Any one of them is enough; without topics it asks only for events that name none."""
    delivery: str | None = None
    """When it is told: now, or together in a digest: hourly, daily 08:00 or weekly mon 08:00, where the phone is."""

    def __post_init__(self) -> None:
        """Warn of the fields that leave."""
        if type(self) is Preference:
            names = ("rubro_prefix", "tipo", "region", "monto_min", "monto_max", "moneda")
            _warn_of_tender_fields(self, "TenderPreference", names)


@dataclass(frozen=True)
class TenderPreference(Preference):
    """The tenders that an installation asks for; None is a wildcard."""
