"""Sources: how far each was read, how its last answer was, its quota, and what could not be used."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from relevo.config import REJECT_ATTEMPTS
from relevo.http.dashboard.page import Page, read, render
from relevo.http.dashboard.query_types import Place, Text
from relevo.operators import sources

router = APIRouter(route_class=Page, include_in_schema=False)
_REJECTS = 20


@router.get("/dashboard/sources")
async def show_sources(request: Request, source: Text = "", before: Place = "") -> Response:
    """Show the sources, and what they offered that could not be used."""
    settings = request.app.state.relevo.settings
    return render(
        request,
        "sources.html",
        live=not before,
        sources=await read(request, sources.details),
        cursor_names=sources.CURSORS,
        quotas=await read(request, sources.quotas, settings.worker_timezone),
        daily_limit=settings.chilecompra_daily_limit,
        rejects=await read(request, sources.page_of_rejects, source=source or None, before=before, limit=_REJECTS),
        most_attempts=REJECT_ATTEMPTS,
        names=await read(request, sources.names),
        chosen=source,
    )
