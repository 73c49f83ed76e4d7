"""People: find somebody by their name, to see why they did not get something."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from relevo.http.dashboard.page import PEOPLE, Page, read, render
from relevo.operators import phones
from relevo.operators.phones import MOST_PHONES

router = APIRouter(route_class=Page, include_in_schema=False)
Name = Annotated[str, Query(max_length=200)]


@router.get(PEOPLE)
async def people(request: Request, name: Name = "", after: Name = "") -> Response:
    """Show owners by their names, from one on if asked."""
    first = name.strip()
    rows, next_name = await read(request, phones.owners, after or first, behind=bool(after))

    return render(
        request,
        "people.html",
        live=False,
        rows=rows,
        first=first,
        after=after,
        next_name=next_name,
        most_phones=MOST_PHONES,
    )
