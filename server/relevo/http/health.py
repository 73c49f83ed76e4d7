"""Health: is this process alive, and can it do its work?"""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from relevo.http.guard import Guarded
from relevo.http.json_response import Json
from relevo.http.problems import Problem
from relevo.http.readiness import is_ready

router = APIRouter(route_class=Guarded, tags=["health"])


class Live(BaseModel):
    """This process answers."""

    status: str
    version: str


class Ready(BaseModel):
    """What was found of each part."""

    status: str
    checks: dict[str, str]


@router.get("/health/live", responses={200: {"model": Live}})
async def check_live(request: Request) -> Response:
    """Return 200 while this process is alive; the database is not asked."""
    return Json({"status": "alive", "version": request.app.version})


@router.get("/health/ready", responses={200: {"model": Ready}, 503: {"model": Ready, "description": "Not ready."}})
async def check_ready(request: Request) -> Response:
    """Return whether database, migrations, scheduler and listener are as they should be; 503 says what is not.

    Looked at once a second at most, however often it is asked for, by a connection of its own: while requests have all
    the others in use it is ready.
    """
    try:
        found = await request.app.state.checks.get()
    except Problem as problem:
        found = {"database": problem.detail}
    good = is_ready(found)
    answer = {"status": "ready" if good else "not ready", "checks": found}
    return Json(answer, 200 if good else 503, {} if good else {"Retry-After": "2"})
