"""Events: the latest of them, and the story of each, from where it came from to what it waits for now."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from relevo.app.push_services import sandbox_address
from relevo.core.i18n import gettext as _
from relevo.core.statuses import EVENT_STATES, STATUSES
from relevo.http.dashboard.page import Before, Id, Page, read, render
from relevo.http.problems import Problem
from relevo.operators import deliveries, events
from relevo.operators.events import Story
from relevo.operators.health.waiting import stopped
from relevo.operators.timeline import is_taken

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/dashboard/events")
async def latest(
    request: Request,
    event_type: Annotated[str, Query(alias="type", max_length=100)] = "",
    status: Annotated[str, Query(max_length=20)] = "",
    project: Annotated[str, Query(max_length=200)] = "",
    before: Before = None,
) -> Response:
    """Show the latest events, of one kind if asked."""
    chosen = {"type": event_type, "status": status if status in EVENT_STATES else "", "project": project}
    found = await read(
        request,
        events.page,
        event_type=event_type or None,
        state=chosen["status"] or None,
        project=project or None,
        before=before,
    )
    types = await read(request, events.types)
    return render(
        request,
        "events.html",
        live=before is None,
        found=found,
        chosen=chosen,
        types=types,
        states=EVENT_STATES,
        statuses=STATUSES,
    )


@router.get("/dashboard/events/{event_id}")
async def story(
    request: Request,
    event_id: Id,
    status: Annotated[str, Query(max_length=20)] = "",
    after: Annotated[str | None, Query(max_length=40)] = None,
    requests: Annotated[str, Query(max_length=60)] = "",
) -> Response:
    """Show what happened to one event."""
    chosen = status if status in STATUSES else ""
    seen = await read(request, events.story, event_id, requests_after=requests)
    if seen is None:
        archived = next(iter(await read(request, events.find, str(event_id))), None)
        said = _("Event %(id)s was archived.", id=event_id) if archived else _("There is no event %(id)s.", id=event_id)
        raise Problem(404, said, hint=_("`relevo archive restore` brings a month back.") if archived else "")
    return render(
        request,
        "event.html",
        live=after is None and not requests,
        seen=seen,
        event=seen.event,
        counts=seen.counts,
        now=seen.event["now"],
        moments=[each for each in seen.moments if each.code != "first_sent" or not _is_shown(seen)],
        stopped=stopped(seen.waits),
        listed=await read(request, deliveries.page_of_event, seen, status=chosen or None, after=after),
        chosen=chosen,
        statuses=STATUSES,
        sandbox=sandbox_address(request.app.state.relevo.settings) or "",
    )


def _is_shown(seen: Story) -> bool:
    """Return whether the request whose answer was the first push is shown, so that it need not be said twice."""
    first = seen.event["first_sent_at"]
    return any(is_taken(row) and row["taken"] and row["journalled_at"] <= first for row in seen.requests.rows)
