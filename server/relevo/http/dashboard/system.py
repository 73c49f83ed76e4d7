"""The system: what is due, the cycles, the projects and the replicas that do the work."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from relevo.http.dashboard.page import SYSTEM, Page, render
from relevo.http.database_threads import threads_of
from relevo.operators import fleet
from relevo.operators.formats import MOST_COUNTED
from relevo.operators.health.workers import worker_state

router = APIRouter(route_class=Page, include_in_schema=False)
_MOST_MONTHS = 6


@router.get(SYSTEM)
async def system(request: Request) -> Response:
    """Show the machinery behind the pushes."""
    seen = await threads_of(request).run(fleet.system, request.app.state.relevo.settings)
    return render(
        request,
        "system.html",
        seen=seen,
        queue=seen.queue,
        running=[row for row in seen.status.workers if row["state"] != "stopped"],
        months=list(reversed(seen.status.archive))[:_MOST_MONTHS],
        most_counted=MOST_COUNTED,
        worker_state=worker_state,
    )
