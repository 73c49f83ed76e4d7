"""Runs: what the cycles did, page by page, and one run as a whole."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from relevo.core.i18n import gettext as _
from relevo.http.dashboard.page import Page, read, render
from relevo.http.dashboard.query_types import Hours, Place, Text
from relevo.http.problems import Problem
from relevo.operators import runs

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/dashboard/runs")
async def show_runs(
    request: Request, *, cycle: Text = "", ended: Text = "", worker: Text = "", hours: Hours = "", before: Place = ""
) -> Response:
    """Show runs that fit, newest first."""
    name, _colon, source = cycle.partition(":")
    found = await read(
        request,
        runs.page,
        cycle=name or None,
        source=source or None,
        outcome=ended or None,
        worker=worker or None,
        hours=int(hours) if hours else None,
        before=before,
    )
    cycles = await read(request, runs.known_cycles)
    chosen = {"cycle": cycle, "ended": ended, "worker": worker, "hours": hours}
    return render(request, "runs.html", live=not before, found=found, chosen=chosen, cycles=cycles)


@router.get("/dashboard/runs/{run_id}")
async def one_run(request: Request, run_id: Annotated[int, Path(ge=1, le=2**63 - 1)]) -> Response:
    """Show one run: how it went, what it counted, what went wrong."""
    row = await read(request, runs.run, run_id)
    if row is None:
        raise Problem(404, _("There is no run %(id)s.", id=run_id), hint=_("Runs are forgotten after a while."))
    return render(request, "run.html", live=row["finished_at"] is None, row=row)
