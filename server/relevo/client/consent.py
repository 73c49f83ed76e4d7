"""Owners: which categories of pushes they chose, whether they are blocked, and what is kept of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import EllipsisType
from typing import Any, Literal, get_args

from relevo.client.checks import check_between, check_one_of, given_fields, quoted
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, as_json, from_json, one
from relevo.core.errors import InvalidInputError

Rule = Literal["on", "off", "mandatory"]
RULES: tuple[Rule, ...] = get_args(Rule)
Quiet = Literal["wait", "silent", "ignore"]
QUIET: tuple[Quiet, ...] = get_args(Quiet)
Channel = Literal["push", "web"]
CHANNELS: tuple[Channel, ...] = get_args(Channel)
Kind = Literal["installations", "events", "deliveries", "digests", "marks", "kept_items", "choices", "rules"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The data that Relevo keeps of an owner, as the export has it."""
MOST_AT_ONCE = 1_000


@dataclass(frozen=True)
class Category:
    """A category of pushes, and what goes to an owner if one was named."""

    category: str
    name: str
    sentence: str | None
    rule: Rule
    push: bool
    """Whether such pushes go to the owner's phones."""
    web: bool
    """Whether they go to the owner's browsers."""
    chosen_at: datetime | None
    """When the owner last chose; None if they never did."""
    quiet: Quiet | None = None
    """The rule of its events for quiet hours, before the rule of their type; None if the type decides."""


@dataclass(frozen=True)
class OwnerPage:
    """Some of what is kept of an owner, of one kind."""

    items: tuple[Mapping[str, Any], ...]
    next: str | None
    """The value of `after` for the next page; None if this is the last."""


@verb
def set_category(
    category: str,
    *,
    rule: Rule | None = None,
    texts: Mapping[str, Mapping[str, str]] | None = None,
    quiet: Quiet | EllipsisType | None = ...,
) -> Call[bool]:
    """Make or change a category that people may choose; what is left out stays as it is, and a new one is on: True.

    `on` is sent until it is refused, `off` only to owners who accepted it, `mandatory` whatever was chosen. Texts are
    by locale: {"en": {"name": "Offers", "sentence": "Discounts, at most once a week."}}. `quiet` is what its events do
    in quiet hours, whatever their type says: `wait`, `silent` or `ignore`. Pass None to leave it to the type again.
    """
    if rule is not None:
        check_one_of("rule", rule, RULES)
    asked = given_fields({"category": category, "rule": rule, "texts": texts})
    if quiet is not ...:
        if quiet is not None:
            check_one_of("quiet", quiet, QUIET)
        asked["quiet"] = quiet
    return Call("set_category", {"asked": as_json("category", asked)}, one(bool))


@verb
def list_categories(
    *, owner: str | None = None, project: str | None = None, locale: str | None = None
) -> Call[list[Category]]:
    """List the categories in the words of a locale, and what of them goes to an owner."""
    asked = given_fields({"owner": owner, "project": project, "locale": locale})
    return Call("list_categories", {"asked": as_json("categories", asked)}, one(_categories))


@verb
def choose(
    category: str,
    *,
    owner: str,
    wanted: bool,
    channel: Channel | None = None,
    project: str | None = None,
    words: str | None = None,
    locale: str | None = None,
) -> Call[bool]:
    """Record what an owner chose of a category, on phones, in browsers or both, and apply it at once.

    `words` are the words that the person was shown; they are stored with the choice. The same choice in the same words,
    or without words, adds nothing to the record: False.
    """
    asked = choice(category, owner=owner, wanted=wanted, channel=channel, project=project, words=words, locale=locale)
    return Call("choose_category", {"asked": asked}, one(bool))


def choice(
    category: str,
    *,
    owner: str,
    wanted: bool,
    channel: Channel | None = None,
    project: str | None = None,
    words: str | None = None,
    locale: str | None = None,
) -> str:
    """Return a choice as the SQL functions take it; raises InvalidInputError if a field has the wrong type."""
    if not isinstance(wanted, bool):
        raise InvalidInputError(f"wanted must be True or False, got {quoted(wanted)}.", hint="Mend it.")
    if channel is not None:
        check_one_of("channel", channel, CHANNELS)
    given: dict[str, Any] = {"owner": owner, "project": project, "category": category, "channel": channel}
    return as_json("choice", given_fields(given | {"wanted": wanted, "words": words, "locale": locale}))


@verb
def block(*, owner: str, project: str | None = None, reason: str = "") -> Call[int]:
    """Send an owner nothing from now on, in one project or in all; what is kept stays. Return how many phones it is."""
    asked = given_fields({"owner": owner, "project": project, "reason": reason or None})
    return Call("block_owner", {"asked": as_json("owner", asked), "blocked": True}, one(int))


@verb
def unblock(*, owner: str, project: str | None = None) -> Call[int]:
    """Unblock an owner: pushes go to the owner's phones again. Return the number of these phones."""
    asked = given_fields({"owner": owner, "project": project})
    return Call("block_owner", {"asked": as_json("owner", asked), "blocked": False}, one(int))


@verb
def export_owner(
    kind: Kind, *, owner: str, project: str | None = None, after: str | None = None, limit: int = MOST_AT_ONCE
) -> Call[OwnerPage]:
    """Return a page of what is kept of an owner, of one kind; push tokens are shortened."""
    check_one_of("kind", kind, KINDS)
    check_between("limit", limit, 1, MOST_AT_ONCE, "Leave it out for the most.")
    asked = given_fields({"owner": owner, "project": project, "kind": kind, "after": after, "limit": limit})
    return Call("export_owner", {"asked": as_json("owner", asked)}, one(_page))


def _categories(told: Any) -> list[Category]:
    return [
        Category(**raw | {"chosen_at": raw["chosen_at"] and datetime.fromisoformat(raw["chosen_at"])})
        for raw in from_json(told)
    ]


def _page(told: Any) -> OwnerPage:
    raw = from_json(told)
    return OwnerPage(tuple(raw["items"]), raw["next"])
