"""Asks for the token again before a grave action: a session that was left open, or stolen, is not enough for it."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from relevo.access import api_tokens, sessions
from relevo.config.sign_on import SIGN_ON
from relevo.core.i18n import gettext as _
from relevo.http.dashboard import refusals
from relevo.http.dashboard.formats import address
from relevo.http.dashboard.page import render
from relevo.http.database_threads import app_of, threads_of
from relevo.http.guard import token_of

FIELD = "proof"
_QUESTIONS = "/dashboard/actions/"


async def ask(request: Request, fields: dict[str, str]) -> Response | None:
    """Return the page that asks for the token, which carries the form along; None if it was proven lately.

    A caller that brings its token with the request has no session, and needs no further proof.
    """
    session: str = getattr(request.state, "session", "")
    minutes = app_of(request).settings.http_proof_minutes
    given = fields.pop(FIELD, "").strip()
    holder = token_of(request)
    threads = threads_of(request)
    if not session or await threads.run(sessions.is_proven, session, minutes):
        return None
    if given and not holder.is_person:
        token = await threads.run(api_tokens.verify, given)
        if token is not None and await threads.run(sessions.prove, session, holder, token):
            return None
        await refusals.note(request, "refused_proof")
    return render(
        request,
        "proof.html",
        403,
        live=False,
        fields={name: value for name, value in fields.items() if name != "form"},
        minutes=minutes,
        said=_("This is not the token of your session.") if given else "",
        by_link=holder.name == sessions.LINK,
        sign_on=address(SIGN_ON, again=1, after=_question(request, fields)) if holder.is_person else "",
    )


def _question(request: Request, fields: dict[str, str]) -> str:
    """Return the page from which a person begins the action anew after another login."""
    path = request.url.path
    kept = {name: value for name, value in fields.items() if name != "form"}
    return address(path, **kept) if path.startswith(_QUESTIONS) else path.removesuffix("/send")
