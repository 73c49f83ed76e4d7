"""The items of a configuration file: each under its kind, project and name, with its value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

from relevo.access import api_tokens
from relevo.client import news
from relevo.config_file.reading import Node
from relevo.operators.event_types import TypeSettings

Kind = Literal["event_type", "words", "category", "language", "quiet_hours", "cap", "news", "token"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""In the order in which they are written."""
OWNABLE: Mapping[str, Kind] = {
    "event_types": "event_type",
    "languages": "language",
    "quiet_hours": "quiet_hours",
    "caps": "cap",
    "news": "news",
    "tokens": "token",
}
"""The kinds of items that a file may own, by the name in the file."""
_SETTINGS = {each.name for each in fields(TypeSettings)}
_WORDS = {"default", "arguments", "texts"}
_OF_PROJECT = {"language", "quiet_hours", "caps", "news", "tokens"}


class Key(NamedTuple):
    """Which thing it is; a thing of no project is all projects'."""

    kind: Kind
    project: str | None
    name: str


@dataclass(frozen=True)
class Item:
    """The wanted value of an item, and its place in the file; None removes the item."""

    value: Any
    node: Node


@dataclass(frozen=True)
class Desired:
    """All that a file asks for."""

    items: Mapping[Key, Item]
    owned: frozenset[Kind]
    """Of these kinds, what the file does not name is removed."""


def desired(root: Node) -> Desired:
    """Return what a file asks for; raises UsageError with the first thing that cannot be meant."""
    known = {"owns", "event_types", "categories", "projects", "news", "tokens"}
    parts = root.mapping(known)
    items: dict[Key, Item] = {}
    for key, item in _items(parts):
        if key in items:
            raise item.node.refusal(
                f"is there already, on line {items[key].node.line}.", "Nothing was changed. Keep one."
            )
        items[key] = item
    owned = [_owned(node) for node in parts["owns"].items()] if "owns" in parts else []
    return Desired(items, frozenset(owned))


def _owned(node: Node) -> Kind:
    if node.text() not in OWNABLE:
        raise node.refusal("cannot be owned.", f"A file may own: {', '.join(OWNABLE)}.")
    return OWNABLE[node.text()]


def _items(parts: Mapping[str, Node]) -> Iterator[tuple[Key, Item]]:
    for name, node in _entries(parts, "event_types"):
        yield from _event_type(name, node)
    for name, node in _entries(parts, "categories"):
        if "rule" not in node.mapping({"rule", "quiet", "texts"}):
            raise node.refusal("must have a rule: on, off or mandatory.", "A category stays once it is there.")
        given = {each: value for each, value in node.plain().items() if value is not None}
        yield Key("category", None, name), Item({"texts": {}} | given, node)
    yield from _for_callers(None, parts)
    for project, node in _entries(parts, "projects"):
        yield from _project(project, node)


def _entries(parts: Mapping[str, Node], name: str) -> Iterator[tuple[str, Node]]:
    yield from parts[name].mapping().items() if name in parts else ()


def _event_type(name: str, node: Node) -> Iterator[tuple[Key, Item]]:
    given = node.mapping(_SETTINGS | {"words"})
    settings = {each: found.plain() for each, found in given.items() if each != "words" and found.value is not None}
    yield Key("event_type", None, name), Item(settings or None, node)
    if "words" in given:
        given["words"].mapping(_WORDS)
        yield Key("words", None, name), Item(given["words"].plain(), given["words"])


def _project(project: str, node: Node) -> Iterator[tuple[Key, Item]]:
    given = node.mapping(_OF_PROJECT)
    if "language" in given:
        language = given["language"]
        yield Key("language", project, ""), Item(language.value and language.text(), language)
    if "quiet_hours" in given:
        hours = given["quiet_hours"]
        hours.mapping({"windows", "zone"})
        value = {"windows": None, "zone": None} | hours.plain() if hours.value else None
        yield Key("quiet_hours", project, ""), Item(value, hours)
    for node_of_cap in given["caps"].items() if "caps" in given else ():
        yield _cap(project, node_of_cap)
    yield from _for_callers(project, given)


def _cap(project: str, node: Node) -> tuple[Key, Item]:
    given = node.mapping({"category", "per", "most", "over"})
    missing = [each for each in ("per", "most") if each not in given]
    if missing:
        raise node.refusal(f"must have {' and '.join(missing)}.", "A cap is such as {per: day, most: 5}.")
    value = {"over": "skip"} | {name: found for name, found in node.plain().items() if found is not None}
    category = [given["category"].text()] if "category" in value else []
    name = " ".join([*category, "per", given["per"].text()])
    return Key("cap", project, name), Item(value if "most" in value else None, node)


def _for_callers(project: str | None, parts: Mapping[str, Node]) -> Iterator[tuple[Key, Item]]:
    """Yield subscriptions to news and tokens: those of a project, or of all."""
    for name, node in _entries(parts, "news"):
        given = node.mapping({"kinds", "webhook"})
        usual = [kind for kind in news.USUAL_KINDS if project is None or kind != "event.finished"]
        kinds = [each.text() for each in given["kinds"].items()] if "kinds" in given else usual
        webhook = given["webhook"].plain() if "webhook" in given else None
        yield (
            Key("news", project, name),
            Item({"kinds": sorted(kinds)} | ({"webhook": webhook} if webhook else {}), node),
        )
    for name, node in _entries(parts, "tokens"):
        if node.value not in (None, *api_tokens.ROLES):
            raise node.refusal(
                "must be the name of a role.",
                f"Roles: {', '.join(api_tokens.ROLES)}. A token's secret never stands in the file.",
            )
        yield Key("token", project, " ".join(name.split())), Item(node.value, node)
