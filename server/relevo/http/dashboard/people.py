"""People: find somebody by their name, to see why they did not get something."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from relevo.http.dashboard.formats import count, number, sentence
from relevo.http.dashboard.html import Child, Markup, el
from relevo.http.dashboard.labels import state
from relevo.http.dashboard.language import t
from relevo.http.dashboard.lists import box, filters, part
from relevo.http.dashboard.page import PEOPLE, Page, show, table
from relevo.http.dashboard.parts import following, owner_link
from relevo.http.database_threads import threads_of
from relevo.operators import phones
from relevo.operators.phones import MOST_PHONES

router = APIRouter(route_class=Page, include_in_schema=False)
Name = Annotated[str, Query(max_length=200)]


@router.get(PEOPLE)
async def people(request: Request, name: Name = "", after: Name = "") -> Response:
    """Show owners by their names, from one on if asked."""
    first = name.strip()
    rows, following_name = await threads_of(request).run(phones.owners, after or first, behind=bool(after))
    ask = filters(PEOPLE, box("name", t("Name, or how it begins"), first, maxlength=200))
    why = t("Choose somebody to see their phones, the latest events, and why each came or not.")
    body = part(
        t("Why did this person not get it?"),
        el("p", why, class_="faint"),
        ask,
        _list(rows, first=first or after),
        following(PEOPLE, name=first, after=following_name) if following_name else None,
        level="h1",
    )
    return show(request, t("People"), body, live=False)


def _list(rows: list[dict[str, Any]], *, first: str) -> Markup:
    told: list[list[Child]] = [[owner_link(row["owner"]), _phones(row["phones"]), _receives(row)] for row in rows]
    nobody = sentence(t("No phone has an owner yet: the app names one when it registers a phone."))
    empty = t("Nobody is called that, and nobody comes after.") if first else nobody
    return table([t("Owner"), t("Phones"), t("Pushes")], told, empty=empty, label=t("People"))


def _phones(phones: int) -> str:
    return t("{n} or more", n=number(phones)) if phones >= MOST_PHONES else count(phones, "phone")


def _receives(row: dict[str, Any]) -> Child:
    """Say whether a person can be reached at all."""
    if not row["receiving"]:
        return [state("off", "bad"), " ", t("none of their phones may get pushes")]
    if row["receiving"] == row["phones"]:
        return state("on")
    return [state("on"), " ", t("on {n} of them", n=number(row["receiving"]))]
