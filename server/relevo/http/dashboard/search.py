"""The search box: it leads from any text to the page about it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import RedirectResponse, Response

from relevo.core.i18n import gettext as _
from relevo.core.phrases import clipped
from relevo.http.dashboard.formats import address, owner_path
from relevo.http.dashboard.page import SEARCH, Page, fields_of, read, render
from relevo.http.database_threads import threads_of
from relevo.http.problems import Problem
from relevo.operators import search
from relevo.operators.search import Found

router = APIRouter(route_class=Page, include_in_schema=False)
"""The last router: its last route takes every address that no other router knows."""
_LONGEST = 300
_LONG = 60


@router.get(SEARCH)
async def shared(
    request: Request, q: Annotated[str, Query(max_length=_LONGEST)] = "", nothing: bool = False
) -> Response:
    """Show what fits, for an address that somebody kept; a push token in it leads away from it at once."""
    asked = q.strip()
    found = await read(request, search.find, asked)
    if only := _only(found):
        return only
    if _may_be_secret(asked):
        return RedirectResponse(address(SEARCH, nothing=1), 303)
    return _page(request, asked or ("?" if nothing else ""), found)


@router.post(SEARCH)
async def show_found(request: Request) -> Response:
    """Find what was put into the box: sent as a form, so that a push token stands in no address."""
    asked = (await fields_of(request)).get("q", "").strip()[:_LONGEST]
    found = await threads_of(request).run(search.find, asked)
    if only := _only(found):
        return only
    if _may_be_secret(asked) or found.by_token:
        return _page(request, asked, found)
    return RedirectResponse(address(SEARCH, q=asked), 303)


@router.get("/dashboard/{place:path}")
async def lost(place: Annotated[str, Path()]) -> Response:
    """Show that there is no page at this address."""
    raise Problem(404, _("There is no page %(place)s.", place=clipped(f"/dashboard/{place}", 100)))


def _may_be_secret(asked: str) -> bool:
    """Return whether a text may be a push token or a webhook's address, known here or not."""
    return "[" in asked or "://" in asked or len(asked) > _LONG


def _only(found: Found) -> Response | None:
    """Lead to the one thing that was found."""
    told = {row["id"] for row in found.tenders if row["id"] is not None}
    places = [
        *(f"/dashboard/events/{row['id']}" for row in found.events if not row["archived"]),
        *(f"/dashboard/events/{each}" for each in told),
        *(f"/dashboard/installations/{row['installation_id']}" for row in found.phones),
        *(owner_path(each) for each in found.owners),
    ]
    others = [row for row in found.events if row["archived"]] + [row for row in found.tenders if row["id"] is None]
    return RedirectResponse(places[0], 303) if len(places) == 1 and not others else None


def _page(request: Request, asked: str, found: Found) -> Response:
    shown = "" if asked == "?" or _may_be_secret(asked) or found.by_token else asked
    any_found = found.events or found.tenders or found.phones or found.owners
    return render(request, "search.html", live=False, shown=shown, asked=asked, found=found, any_found=any_found)
