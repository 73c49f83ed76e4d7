"""What another system sent, reported to Relevo in shadow mode to be compared."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from relevo.http.fields import Body, Instant, Text200
from relevo.http.guard import Guarded, call
from relevo.http.json_response import Json
from relevo.operators.shadow_sends import made
from relevo.verbs import shadow

router = APIRouter(route_class=Guarded, tags=["shadow"])


class SendIn(Body):
    """A push that another system sent: one of installation_id, token and owner, and key or title."""

    sent_at: Instant = Field(description="When the other system sent it.")
    installation_id: UUID | None = Field(None, description="The phone's installation.")
    token: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        None, description="Or its push token, which is not kept."
    )
    owner: Text200 | None = Field(None, description="Or the owner of the phone, as the app registered it.")
    project: Text200 | None = Field(None, description="The project. A token of one project has its own.")
    type: Text200 | None = Field(None, description="The type of the event.")
    key: Annotated[str, Field(min_length=1, max_length=300)] | None = Field(None, description="The key of the event.")
    title: Annotated[str, Field(min_length=1, max_length=1000)] | None = Field(
        None, description="Or the title of the push."
    )
    id: Text200 | None = Field(
        None, description="The number of the push in the other system: the same one again is the same push."
    )


class SendsIn(Body):
    """What another system sent."""

    sends: Annotated[list[SendIn], Field(min_length=1, max_length=shadow.MOST_AT_ONCE)]


class SendsTaken(BaseModel):
    """How many were new."""

    taken: int


@router.post("/v1/shadow/sent", responses={200: {"model": SendsTaken}})
async def report_sends(request: Request, body: SendsIn) -> Response:
    """Report what another system sent while Relevo is in shadow mode; `relevo shadow report` compares it."""
    sends = [made(each.model_dump()) for each in body.sends]
    return Json({"taken": await call(request, shadow.report_sends, sends)})
