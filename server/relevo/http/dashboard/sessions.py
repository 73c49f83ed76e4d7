"""Sessions of the dashboard: a viewer sees and ends the sessions of their own token, an operator all."""

from __future__ import annotations

from contextlib import AbstractContextManager

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from relevo.access import sessions
from relevo.http.dashboard.actions import FormInput
from relevo.http.dashboard.page import SESSIONS, Page, fields_of, forget_session, is_operator, render
from relevo.http.database_threads import threads_of
from relevo.http.guard import token_of
from relevo.http.recorded import RecordedActions

router = APIRouter(route_class=Page, include_in_schema=False)
_MOST = 100


@router.get(SESSIONS)
async def show(request: Request) -> Response:
    """Show the sessions, the one used last first."""
    own: str = getattr(request.state, "session", "")
    token_id = None if is_operator(request) else token_of(request).id
    rows = await threads_of(request).run(sessions.list_all, token_id=token_id, own=own, limit=_MOST)
    return render(request, "sessions.html", live=False, rows=rows, most=_MOST)


@router.post(f"{SESSIONS}/end")
async def end(request: Request) -> Response:
    """End one session."""
    form = FormInput(await fields_of(request))
    token_id = None if is_operator(request) else token_of(request).id
    with _bounded(request, "end_session"):
        await threads_of(request).run(sessions.end_listed, form.text("session", 20), token_id=token_id)
    return RedirectResponse(SESSIONS, 303)


@router.post(f"{SESSIONS}/end-own")
async def end_own(request: Request) -> Response:
    """End all sessions of one's own token, this one included."""
    await fields_of(request)
    with _bounded(request, "end_sessions"):
        await threads_of(request).run(sessions.end_many, token_id=token_of(request).id)
    return forget_session(request, RedirectResponse("/login", 303))


def _bounded(request: Request, action: str) -> AbstractContextManager[None]:
    recorded: RecordedActions = request.app.state.recorded
    return recorded.bounded(token_of(request), action)
