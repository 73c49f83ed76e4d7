"""The archive: months that left the hot tables, how to bring one back, and the months that are still there."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from relevo.core.i18n import N_
from relevo.http.dashboard.page import Page, read, render
from relevo.operators import archive

router = APIRouter(route_class=Page, include_in_schema=False)
_SHORT = {
    "notification_events": N_("events"),
    "notification_deliveries": N_("deliveries"),
    "push_requests": N_("journal"),
    "licitaciones": N_("licitaciones"),
}


@router.get("/dashboard/archive")
async def show_archive(request: Request, before: Annotated[date | None, Query()] = None) -> Response:
    """Show the months in the archive, and those in the hot tables."""
    settings = request.app.state.relevo.settings
    months, next_month = await read(request, archive.page, before=before)
    return render(
        request,
        "archive.html",
        months=months,
        next_month=str(next_month or ""),
        partitions=await read(request, archive.partitions),
        short_names=_SHORT,
        has_store=bool(settings.archive_bucket or settings.archive_folder),
        retention_days=settings.deliveries_retention_days,
    )
