"""What operators read and do."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from relevo import insights
from relevo.http.answers import Json
from relevo.http.desk import Desk
from relevo.http.guard import Guarded

router = APIRouter(route_class=Guarded, tags=["operators"])

Limit = Annotated[int, Query(ge=1, le=200, description="How many at most.")]


class AuditEntry(BaseModel):
    """One thing an operator did."""

    id: int
    at: str
    actor: str
    face: str
    action: str
    target: dict[str, object]
    outcome: str = Field(description="begun, ok or failed")
    result: dict[str, object]
    error_message: str | None
    finished_at: str | None


class AuditPage(BaseModel):
    """Entries, newest first, and where the next page begins."""

    items: list[AuditEntry]
    next: str | None


@router.get("/v1/ops/audit", responses={200: {"model": AuditPage}})
async def audit(
    request: Request,
    limit: Limit = 50,
    cursor: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="`next` of the page before.")] = None,
    action: Annotated[str | None, Query(max_length=100, description="Only this action.")] = None,
) -> Response:
    """Tell what operators did, by any face, newest first: who, when, what, with what result."""
    desk: Desk = request.app.state.desk
    rows = await desk.ask(insights.audit, before=cursor, action=action, limit=limit)
    return Json({"items": rows, "next": str(rows[-1]["id"]) if len(rows) == limit else None})
