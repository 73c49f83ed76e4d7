"""The record: who did what, with what result, and who was refused."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from relevo.http.dashboard.labels import ACTIONS
from relevo.http.dashboard.page import Page, read, render
from relevo.http.dashboard.query_types import Hours, Place, Text
from relevo.operators import audit

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/dashboard/audit")
async def show_audit(
    request: Request, *, actor: Text = "", action: Text = "", ended: Text = "", hours: Hours = "", before: Place = ""
) -> Response:
    """Show what was done that fits, newest first."""
    found = await read(
        request,
        audit.page,
        actor=actor or None,
        action=action or None,
        outcome=ended or None,
        hours=int(hours) if hours else None,
        before=before,
    )
    chosen = {"actor": actor, "action": action, "ended": ended, "hours": hours}
    return render(request, "audit.html", live=not before, found=found, chosen=chosen, actions=sorted(ACTIONS))
