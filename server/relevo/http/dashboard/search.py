"""The one box: whatever is put into it, it leads to the page that tells of it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import RedirectResponse, Response

from relevo.client.progress import progress_of
from relevo.http.dashboard.html import Child, Markup, el
from relevo.http.dashboard.labels import state
from relevo.http.dashboard.language import t
from relevo.http.dashboard.lists import address, part
from relevo.http.dashboard.page import SEARCH, Page, desk_of, fields_of, show
from relevo.http.dashboard.parts import clipped, event_link, owner_link, owner_path, phone_link, phone_path
from relevo.http.problems import Problem
from relevo.operators import search
from relevo.operators.search import Found

router = APIRouter(route_class=Page, include_in_schema=False)
nowhere = APIRouter(route_class=Page, include_in_schema=False)
"""What no other router knows; it comes last."""
_LONGEST = 300
_LONG = 60


@router.get(SEARCH)
async def shared(
    request: Request, q: Annotated[str, Query(max_length=_LONGEST)] = "", nothing: bool = False
) -> Response:
    """Show what fits, for an address that somebody kept; a push token in it leads away from it at once."""
    asked = q.strip()
    found = await desk_of(request).ask(search.find, asked)
    if only := _only(found):
        return only
    if _may_be_secret(asked):
        return RedirectResponse(address(SEARCH, nothing=1), 303)
    return _page(request, asked or ("?" if nothing else ""), found)


@router.post(SEARCH)
async def show_found(request: Request) -> Response:
    """Find what was put into the box: sent as a form, so that a push token stands in no address."""
    asked = (await fields_of(request)).get("q", "").strip()[:_LONGEST]
    found = await desk_of(request).ask(search.find, asked)
    if only := _only(found):
        return only
    if _may_be_secret(asked) or found.by_token:
        return _page(request, asked, found)
    return RedirectResponse(address(SEARCH, q=asked), 303)


@nowhere.get("/dashboard/{place:path}")
async def lost(place: Annotated[str, Path()]) -> Response:
    """Say on a page that there is none at this address."""
    raise Problem(404, t("There is no page {place}.", place=clipped(f"/dashboard/{place}", 100)))


def _may_be_secret(asked: str) -> bool:
    """Tell whether a text may be a push token or a webhook's address, known here or not."""
    return "[" in asked or "://" in asked or len(asked) > _LONG


def _only(found: Found) -> Response | None:
    """Lead to the one thing that was found."""
    told = {row["id"] for row in found.tenders if row["id"] is not None}
    places = [
        *(f"/dashboard/events/{row['id']}" for row in found.events if not row["archived"]),
        *(f"/dashboard/events/{each}" for each in told),
        *(phone_path(row["installation_id"]) for row in found.phones),
        *(owner_path(each) for each in found.owners),
    ]
    others = [row for row in found.events if row["archived"]] + [row for row in found.tenders if row["id"] is None]
    return RedirectResponse(places[0], 303) if len(places) == 1 and not others else None


def _page(request: Request, asked: str, found: Found) -> Response:
    shown = "" if asked == "?" or _may_be_secret(asked) or found.by_token else asked
    kinds = [
        _kind(t("Events"), [_event(row) for row in found.events]),
        _kind(t("Tenders"), [_tender(row) for row in found.tenders]),
        _kind(t("Phones"), [_phone(row) for row in found.phones]),
        _kind(t("Owners"), [owner_link(each) for each in found.owners]),
    ]
    title = t("Search: {asked}", asked=clipped(shown, 60)) if shown else t("Search")
    listed = [each for each in kinds if each]
    head = el("section", el("h1", title), None if listed else _nothing(asked), class_="card")
    return show(request, title, head, listed, live=False)


def _nothing(asked: str) -> list[Child]:
    kinds = [
        t("an event's id: 4711"),
        t("an event's key, as the app gave it: order-17"),
        t("an owner, as the app named them: user-7"),
        t("an installation's id: 5f0c9a52-…"),
        t("a push token: ExponentPushToken[…]; it is shown nowhere, and leads to its phone"),
        t("a tender's code: 1234-56-LE26"),
    ]
    nothing = (
        el("p", t("Nothing fits. What is searched for must be written out, to the letter."), class_="bad")
        if asked
        else None
    )
    return [nothing, el("p", t("One can search for:")), el("ul", [el("li", each) for each in kinds])]


def _kind(title: str, hits: list[Any]) -> Markup | None:
    return part(title, el("ul", [el("li", each) for each in hits])) if hits else None


def _event(row: dict[str, Any]) -> Child:
    told = clipped(f"{row['event_type']} {row['event_key']}")
    if row["archived"]:
        return [told, " ", t("(event {id}, archived)", id=row["id"])]
    return [event_link(row["id"], told), f" {clipped(row['title'])}"]


def _tender(row: dict[str, Any]) -> Child:
    name = f"{clipped(row['external_id'], 60)} {clipped(row['nombre'])}"
    if row["id"] is None:
        return [name, " ", el("span", t("(nobody was told of it)"), class_="faint")]
    return [event_link(row["id"], name), " ", state(progress_of(row["state"], row["deliveries"]))]


def _phone(row: dict[str, Any]) -> Child:
    return [owner_link(row["owner"]), " ", phone_link(row["installation_id"], str(row["installation_id"]))]
