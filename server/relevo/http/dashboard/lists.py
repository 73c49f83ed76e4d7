"""What long lists share: filters that stand in the address, so that a list can be shared, and pages of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import Query, Request

from relevo.http.dashboard.formats import address
from relevo.http.dashboard.html import Child, Markup, el
from relevo.http.dashboard.language import t

__all__ = ["address"]
Text = Annotated[str, Query(max_length=200)]
Hours = Annotated[str, Query(pattern="^[0-9]{0,4}$")]
Place = Annotated[str, Query(pattern="^[0-9.]{0,40}$")]


def part(title: str, *body: Child, level: str = "h2", id_: str | None = None) -> Markup:
    """Write a part of a page."""
    return el("section", el(level, title), body, class_="card", id_=id_)


def facts(*told: tuple[str, Child]) -> Markup:
    """Write facts, each with its name; those that are None or empty are left out."""
    return el(
        "dl",
        [(el("dt", name), el("dd", value)) for name, value in told if value is not None and value not in ("", [])],
        class_="facts",
    )


def filters(action: str, *fields: Child) -> Markup:
    """Write the form by which a list is narrowed down."""
    buttons = el("div", el("button", t("Show")), el("a", t("Show all"), href=action), class_="row")
    return el("form", fields, buttons, method="get", action=action, class_="filters")


def choice(name: str, label: str, options: Mapping[str, str], chosen: str) -> Markup:
    """Write a field with some values to choose from."""
    known = dict(options) if chosen in options else {**options, chosen: chosen}
    written = [el("option", told, value=value, selected=value == chosen) for value, told in known.items()]
    return el("div", el("label", label, for_=name), el("select", written, name=name, id=name))


def box(name: str, label: str, value: str = "", **attributes: object) -> Markup:
    """Write a field to write in."""
    attributes = {"maxlength": 200, "type": "text", **attributes}
    return el("div", el("label", label, for_=name), el("input", name=name, id=name, value=value, **attributes))


def area(name: str, label: str, value: str = "", **attributes: object) -> Markup:
    """Write a field for several lines."""
    attributes = {"maxlength": 2000, "rows": 3, **attributes}
    return el("div", el("label", label, for_=name), el("textarea", value, name=name, id=name, **attributes))


def since(chosen: str) -> Markup:
    """Write the field that tells how far back to look."""
    times = {"": t("any time"), "1": t("the last hour"), "24": t("the last day"), "168": t("the last 7 days")}
    return choice("hours", t("Since"), times, chosen)


def older(request: Request, place: str, *, name: str = "before") -> Markup | None:
    """Lead to the next page of the same list, if there is one."""
    first = name in request.query_params
    if not place and not first:
        return None
    kept = {key: value for key, value in request.query_params.items() if key != name}
    path = request.url.path
    return el(
        "p",
        el("a", t("Newest"), href=address(path, **kept)) if first else None,
        el("a", t("Older"), href=address(path, **kept, **{name: place}), rel="next") if place else None,
        class_="row",
    )


def nothing(place: str, empty: str) -> str:
    """Say why a page is empty: nothing is there, or nothing among what was looked at so far."""
    return t("Nothing fits among those looked at; older ones may.") if place else empty
