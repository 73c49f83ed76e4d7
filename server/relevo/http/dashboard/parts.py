"""Pieces of the pages that tell stories: moments of a timeline, chips, links to what is told of, short names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from relevo.http.dashboard.formats import address, clipped, instant, owner_path, short
from relevo.http.dashboard.html import Child, Markup, el
from relevo.http.dashboard.language import t

__all__ = ["clipped", "owner_path", "short"]


@dataclass(frozen=True)
class Moment:
    """Something that happened at a time, or is going to."""

    at: datetime | None
    what: Child
    detail: Child = None
    kind: str = ""
    """now, bad, warn, good, or later for what has not happened yet."""


def timeline(moments: Sequence[Moment], *, label: str) -> Markup:
    """Write moments one below the other, in the order of time; those of no time as they come, behind the others."""
    timed = sorted((each for each in moments if each.at is not None), key=lambda each: (each.kind == "later", each.at))
    return el(
        "ol",
        [_moment(each) for each in [*timed, *(each for each in moments if each.at is None)]],
        class_="moments",
        aria_label=label,
    )


def _moment(moment: Moment) -> Markup:
    when = el("p", instant(moment.at) if moment.at is not None else t("Now"), class_="when")
    detail = el("p", moment.detail, class_="faint") if moment.detail else None
    return el("li", when, el("p", moment.what), detail, class_=moment.kind or None)


def chips(told: Sequence[tuple[Child, str, bool]], *, label: str) -> Markup:
    """Write links of which one is chosen: what each says, where it leads, whether it is the chosen one."""
    links = [el("a", what, href=where, aria_current="true" if chosen else None) for what, where, chosen in told]
    return el("nav", links, class_="chips", aria_label=label)


def following(path: str, **query: object) -> Markup:
    """Write the link to the next page of a list."""
    return el("p", el("a", t("Show more"), href=address(path, **query), rel="next", class_="button plain"))


def event_link(event_id: int, told: Child = None) -> Markup:
    """Lead to an event."""
    return el("a", told or t("Event {id}", id=event_id), href=f"/dashboard/events/{event_id}")


def delivery_link(delivery_id: int, told: Child = None) -> Markup:
    """Lead to a delivery."""
    return el("a", told or str(delivery_id), href=f"/dashboard/deliveries/{delivery_id}")


def phone_path(installation_id: UUID) -> str:
    """Return the address of a phone's page."""
    return f"/dashboard/installations/{installation_id}"


def phone_link(installation_id: UUID, told: Child = None) -> Markup:
    """Lead to a phone, by its owner's name if that is given."""
    return el("a", told or short(installation_id), href=phone_path(installation_id), title=str(installation_id))


def owner_link(owner: str | None) -> Markup | None:
    """Lead to an owner; nobody is nothing."""
    return el("a", owner, href=owner_path(owner)) if owner else None
