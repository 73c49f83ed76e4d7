"""Which field of an event reaches which phones, and how: one table of all facts, for the docs page and previews."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from relevo.core.known_services import PLATFORMS, SERVICES
from relevo.core.phrases import Phrase
from relevo.core.push_overrides import OWN, PLATFORM_FIELDS, for_phone, platform_field

How = Literal["kept", "changed", "dropped"]


class Route(NamedTuple):
    """Phones that fields reach alike: a provider, and where that matters their platform."""

    provider: str
    platform: str
    label: str


class Cell(NamedTuple):
    """How a field reaches the phones of a route."""

    how: How
    where: str = ""
    """The field's name at the push service; for a changed field also the change."""


ROUTES = tuple(
    Route(each.name, platform, f"{each.label}, {PLATFORMS[platform]}" if len(each.platforms) > 1 else each.label)
    for each in SERVICES.values()
    for platform in each.platforms
)
"""The columns of the table. A phone of an unknown platform counts as an Android one where there is a difference."""

FIELDS = (
    "title",
    "body",
    "data",
    "no title and no body",
    "ttl_s, deadline",
    "push.priority, lane",
    "collapse",
    "push.subtitle",
    "push.sound",
    "push.badge",
    "push.expiration",
    "push.interruptionLevel",
    "push.relevanceScore",
    "push.channelId",
    "push.categoryId",
    "push.collapseId",
    "push.threadId",
    "push.targetContentId",
    "push.filterCriteria",
    "push.tag",
    "push.icon",
    "push.image",
    "push.link",
    "push.actions",
    "push.richContent",
    "push.mutableContent",
    "push.contentAvailable",
    "push._contentAvailable",
    "push._displayInForeground",
    *(f"push.{platform}.{name}" for platform, names in OWN.items() for name in names),
)
"""The rows of the table: all that an event may carry."""


def _cell(written: str) -> Cell:
    if written.startswith("~"):
        return Cell("changed", written[1:])
    return Cell("kept" if written else "dropped", "same" if written == "=" else written)


def _row_of(field: str) -> tuple[Cell, ...]:
    written = (each.fields.get(field, ("",) * len(each.platforms)) for each in SERVICES.values())
    return tuple(_cell(cell) for cells in written for cell in cells)


TABLE: Mapping[str, tuple[Cell, ...]] = {field: _row_of(field) for field in FIELDS}
"""By field, how it reaches each of ROUTES, in their order, by the facts of each provider."""

TAKEN_FOR: Mapping[str, str] = {"push.ttl": "ttl_s, deadline", "push.priority": "push.priority, lane"}
"""The row of a field that has none of its own name."""


def route_of(provider: str, platform: str | None) -> Route | None:
    """Return the column of a phone; None for providers that get everything as it is, such as webhooks."""
    own = [route for route in ROUTES if route.provider == provider]
    fitting = [route for route in own if route.platform == platform or len(own) == 1]
    usual = [route for route in own if route.platform == "android"]
    return next(iter(fitting or usual), None)


def cell(field: str, route: Route) -> Cell:
    """Return how a field reaches the phones of a route; of one that is not in the table: as it is."""
    row = TABLE.get(TAKEN_FOR.get(field, field))
    return row[ROUTES.index(route)] if row else Cell("kept", "same")


def warnings(event: Mapping[str, Any], kinds: Iterable[tuple[str, str | None]]) -> list[Phrase]:
    """Return what of an event would not reach phones of these kinds (provider and platform) as it is, in sentences."""
    routes = _routes(kinds)
    lost: dict[str, list[Route]] = {}
    for field, mine in _given(event, routes):
        if unreached := [route for route in mine if cell(_row(field), route).how == "dropped"]:
            lost[field] = unreached
    told = [_sentence(field, unreached) for field, unreached in lost.items()]
    as_text = [route for route in routes if cell("data", route).how == "changed"]
    if as_text and any(not isinstance(value, str) for value in _mapping(event.get("data")).values()):
        told.append(Phrase("{phones} get every value of data as text.", phones=_named(as_text)))
    return told + _button_warnings(_mapping(event.get("push")), routes)


def _button_warnings(push: Mapping[str, Any], routes: list[Route]) -> list[Phrase]:
    """Return on which phones the actions of a push are no buttons by themselves."""
    asked = [route for route in routes if for_phone(push, route.provider, route.platform).data.get("actions")]
    unable = [route for route in asked if cell("push.actions", route).where == "data.actions"]
    without = [
        route
        for route in asked
        if "categoryId" in cell("push.actions", route).where
        and not for_phone(push, route.provider, route.platform).fields.get("categoryId")
    ]
    told = []
    if unable:
        told.append(Phrase("{phones} show no buttons by themselves: data has the actions.", phones=_named(unable)))
    if without:
        told.append(
            Phrase("{phones} show the buttons of push.categoryId, and none without it.", phones=_named(without))
        )
    return told


def size_warnings(
    event: Mapping[str, Any], kinds: Iterable[tuple[str, str | None]], weigh: Callable[[Mapping[str, Any]], int]
) -> list[Phrase]:
    """Return for which phones of these kinds an event's push may be too large, as `weigh` estimates its bytes."""
    too_large: dict[tuple[int, int], list[Route]] = {}
    for route in _routes(kinds):
        seen = _as_sent(event, route)
        size = weigh(_as_texts(seen) if cell("data", route).how == "changed" else seen)
        most = SERVICES[route.provider].max_bytes
        if size > most:
            too_large.setdefault((size, most), []).append(route)
    return [
        Phrase(
            "It may be too large for {phones}: it has about {size} bytes, and {most} are taken there.",
            phones=_named(routes),
            size=size,
            most=most,
        )
        for (size, most), routes in too_large.items()
    ]


def _as_sent(event: Mapping[str, Any], route: Route) -> dict[str, Any]:
    """Return an event with what of its push is for the phones of a route."""
    fields, filled = for_phone(_mapping(event.get("push")), route.provider, route.platform)
    return {**event, "push": fields, "data": {**_mapping(event.get("data")), **filled}}


def _as_texts(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event whose data holds texts alone."""
    data = _mapping(event.get("data"))
    texts = {key: value if isinstance(value, str) else json.dumps(value, default=str) for key, value in data.items()}
    return {**event, "data": texts}


def _routes(kinds: Iterable[tuple[str, str | None]]) -> list[Route]:
    return sorted({route for kind in kinds if (route := route_of(*kind))}, key=ROUTES.index)


def _given(event: Mapping[str, Any], routes: list[Route]) -> Iterator[tuple[str, list[Route]]]:
    """Yield the fields that an event has something in, each with the phones that it is for."""
    texts = [name for name in ("title", "body") if event.get(name) or event.get("arguments") is not None]
    yield from ((name, routes) for name in texts or ["no title and no body"])
    for name, value in _mapping(event.get("push")).items():
        if name not in PLATFORM_FIELDS:
            yield from [(f"push.{name}", routes)] if value is not None else ()
            continue
        mine = [route for route in routes if platform_field(route.provider, route.platform) == name]
        yield from ((f"push.{name}.{inner}", mine) for inner, given in _mapping(value).items() if given is not None)


def _row(field: str) -> str:
    """Return the row of a field: one that a platform has in common with others has the row of all."""
    platform, _, name = field.removeprefix("push.").partition(".")
    return f"push.{name}" if platform in PLATFORM_FIELDS and name not in OWN[platform] else field


def _sentence(field: str, routes: list[Route]) -> Phrase:
    if field == "no title and no body":
        return Phrase("{phones} take no push without a title and a body: it is skipped there.", phones=_named(routes))
    return Phrase("{field} does not reach {phones}.", field=field, phones=_named(routes))


def _named(routes: list[Route]) -> str:
    return "; ".join(route.label for route in routes)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
