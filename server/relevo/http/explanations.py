"""Why: what an event waits for and until when, why it reached nobody, and why one phone gets it or not."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from relevo.http.database_threads import threads_of
from relevo.http.events import EventId, EventIn, refuse_tender
from relevo.http.guard import Guarded, call, token_of
from relevo.http.json_response import Json
from relevo.http.problems import missing
from relevo.operators import events
from relevo.operators.audience import Nobody
from relevo.verbs import events as verbs

router = APIRouter(route_class=Guarded, tags=["events"])

_NO_EVENT = missing("There is no such event, or it is another project's.")
_NO_PHONE = missing("There is no such event or phone, or it is another project's.")
Phone = Annotated[UUID, Query(description="The phone.")]


class WaitOut(BaseModel):
    """Why something of an event waits."""

    code: str = Field(
        description="scheduled, held (by the runaway brake), fanout_paused, fanout_failed, fanout, dispatch_paused, "
        "breaker, rest (the push service asked for it), quiet_hours, retry, sending, or rate."
    )
    until: str | None = Field(description="Until when, if that is known.")
    project: str | None = Field(description="The sending project, as deliveries name it; null before fan-out.")
    lane: str | None
    deliveries: int | None = Field(description="How many pushes wait for it; null before fan-out.")
    sentence: str


class NobodyOut(BaseModel):
    """Why an event reached nobody, judged by the phones as they are now."""

    why: str = Field(
        description="owners_unknown, installations_unknown or everyone_unknown: there is no such phone; "
        "owners_silent, installations_silent or everyone_silent: none of them may receive; owners_elsewhere: the "
        "owners have phones in other projects alone; matching: no preference matches; not_then: some may receive now."
    )
    reasons: dict[str, int] = Field(description="Why phones that are meant get nothing, and how many.")


class WaitingOut(BaseModel):
    """The reasons why an event waits."""

    event_id: int
    progress: str
    waits: list[WaitOut]
    nobody: NobodyOut | None = Field(description="Null if it has not been fanned out yet, or somebody gets it.")


class ExplanationOut(BaseModel):
    """Why a phone gets an event, or not."""

    gets_it: bool
    rule: str = Field(description="The rule that decides.")
    reason: str = Field(description="The same in a sentence.")


@router.get("/v1/events/{event_id}/waits", responses={200: {"model": WaitingOut}, **_NO_EVENT})
async def get_event_waits(request: Request, event_id: EventId) -> Response:
    """Return why the open deliveries of an event wait, and until when; or why the event reached nobody."""
    found = await call(request, verbs.find, event_id)
    told = await threads_of(request).run(events.waiting, event_id)
    nobody = told.nobody
    if nobody is not None and nobody.why == "owners_elsewhere" and token_of(request).project is not None:
        nobody = Nobody("owners_unknown")  # who has phones in another project is none of its business
    return Json(
        {
            "event_id": event_id,
            "progress": found.progress,
            "waits": [wait._asdict() | {"sentence": str(wait.sentence)} for wait in told.waits],
            "nobody": nobody and vars(nobody),
        }
    )


@router.get("/v1/events/{event_id}/explanation", responses={200: {"model": ExplanationOut}, **_NO_PHONE})
async def explain_event(request: Request, event_id: EventId, installation_id: Phone) -> Response:
    """Return why a phone gets an event, or not."""
    return Json(await call(request, verbs.explain, event_id, installation_id))


@router.post("/v1/events/explanation", responses={200: {"model": ExplanationOut}, **_NO_PHONE})
async def explain_new_event(request: Request, event: EventIn, installation_id: Phone) -> Response:
    """Return why a phone would get an event, or not; nothing is enqueued."""
    given = {"key": "preview"} | event.model_dump(exclude_none=True, exclude_unset=True)
    refuse_tender(request, given)
    return Json(await call(request, verbs.explain_new, given, installation_id))
