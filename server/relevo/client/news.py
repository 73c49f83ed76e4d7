"""News for the app: what came of its events, deliveries and phones, read in the caller's transaction."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import EllipsisType
from typing import Any, Literal
from uuid import UUID

from relevo.client.checks import check_between
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, as_json, as_uuid, each, from_json, one
from relevo.core.errors import InvalidInputError

Kind = Literal["event.finished", "delivery.failed", "token.disabled", "installation.unregistered", "delivery.opened"]
USUAL_KINDS: tuple[Kind, ...] = ("event.finished", "delivery.failed", "token.disabled", "installation.unregistered")
"""Those that are meant where none is named: what was opened says what a person did, and has to be asked for."""
KINDS: tuple[Kind, ...] = (*USUAL_KINDS, "delivery.opened")
MOST_AT_ONCE = 1_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_MOST = 2**63


@dataclass(frozen=True)
class Outcome:
    """News of an event, a delivery or a phone, with its number in the subscription's feed."""

    position: int
    at: datetime
    kind: Kind
    project: str | None
    event_id: int | None
    event_key: str | None
    """As long as the event is there."""
    delivery_id: int | None
    installation_id: UUID | None
    owner: str | None
    """As long as the installation is there."""
    data: Mapping[str, Any]


@verb
def subscribe_news(
    name: str,
    *,
    kinds: Sequence[Kind] | EllipsisType | None = ...,
    project: str | EllipsisType | None = ...,
    webhook: str | EllipsisType | None = ...,
) -> Call[bool]:
    """Subscribe to news from now on, or change what a subscription asks for; return whether it is new.

    They are read by read_news, or sent to the webhook of that name in WEBHOOKS_FILE. With a project, those of its
    phones: not event.finished, for an event may reach phones of several. What is left out stays as it is; a new
    subscription is for the usual kinds, of all projects, to be read. Pass None for these again.
    """
    given = () if kinds is None or isinstance(kinds, EllipsisType) else kinds
    if unknown := [kind for kind in given if kind not in KINDS]:
        raise InvalidInputError(
            f"kinds must be some of {', '.join(KINDS)}, got {str(unknown[0])[:50]!r}.",
            hint="Leave it out for the usual ones.",
        )
    asked: dict[str, Any] = {"name": _subscription(name)}
    if not isinstance(kinds, EllipsisType):
        asked["kinds"] = kinds and list(kinds)
    for key, text in (("project", project), ("webhook", webhook)):
        if not isinstance(text, EllipsisType):
            asked[key] = None if text is None else _text(key, text)
    return Call("subscribe_news", {"subscription": as_json("subscription", asked)}, one(bool))


@verb
def read_news(subscription: str, *, after: int | None = None, limit: int = 100) -> Call[list[Outcome]]:
    """Read a subscription's next news, behind what it acknowledged, or behind the position `after`.

    Each comes at least once. Acknowledge the last position in the transaction that deals with them: then once.
    """
    check_between("limit", limit, 1, MOST_AT_ONCE, "Read again for more.")
    behind = None if after is None else _position("after", after)
    return Call(
        "read_news",
        {"subscription": _subscription(subscription), "after": behind, "limit": limit},
        each(_outcome),
    )


@verb
def acknowledge_news(subscription: str, position: int) -> Call[bool]:
    """Acknowledge a subscription's news up to a position; False if they were acknowledged before."""
    dealt_with = _position("position", position)
    return Call("acknowledge_news", {"subscription": _subscription(subscription), "position": dealt_with}, one(bool))


def _outcome(*columns: Any) -> Outcome:
    said = Outcome(*columns)
    installation = said.installation_id
    return replace(said, installation_id=installation and as_uuid(installation), data=from_json(said.data))


def _subscription(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"a subscription's name must be 1 to 50 letters, digits, dots and dashes, got {str(name)[:60]!r}.",
            hint="Name it after the app that reads the news.",
        )
    return name


def _text(name: str, value: str) -> str:
    if not isinstance(value, str) or _UNSTORABLE.search(value):
        raise InvalidInputError(f"{name} must be text that PostgreSQL can keep.", hint="Correct it and try again.")
    return value


def _position(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST:
        raise InvalidInputError(f"{name} must be a whole number, 0 or more.", hint="read_news() returns positions.")
    return value
