"""Logging in and out, by a token or by a link that is good once, and what pages load."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sys
import threading
import time
from pathlib import PurePath
from shlex import quote
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import RedirectResponse, Response

from relevo.access import api_tokens, sessions
from relevo.access.api_tokens import Token
from relevo.config import Settings
from relevo.core.addresses import is_local
from relevo.core.errors import NotFoundError
from relevo.core.i18n import COOKIE as LANGUAGE_COOKIE
from relevo.core.i18n import LANGUAGES
from relevo.core.i18n import gettext as _
from relevo.database.pool import Database
from relevo.http.dashboard import refusals
from relevo.http.dashboard.page import (
    FORM_COOKIE,
    ICON,
    STATIC,
    Page,
    fields_of,
    forget_session,
    keep,
    login_page,
    read_form,
)
from relevo.http.database_threads import app_of, threads_of
from relevo.http.guard import COOKIE, address_of, cookie_name, session_cookie
from relevo.http.recorded import RecordedActions
from relevo.http.rules import VIEW_PAGE
from relevo.operators import audit

router = APIRouter(route_class=Page, include_in_schema=False)
_LINK_DAYS = 1
_MAKE = "token make me --role operator --days 1"
_LANGUAGE_HOURS = 365 * 24
_HOME = "/dashboard"
_NOT_ENOUGH = "a token whose role or project is not enough"
_CODE_GOOD_FOR_S = 600.0
_MOST_CODES = 20


class LoginCodes:
    """Login links: each code is good once, for ten minutes, in the process that made it; only a hash is kept."""

    def __init__(self) -> None:
        self._until: dict[bytes, float] = {}
        self._lock = threading.Lock()

    def make(self) -> str:
        """Make a code."""
        code = secrets.token_urlsafe(24)
        with self._lock:
            while len(self._until) >= _MOST_CODES:
                self._until.pop(next(iter(self._until)))
            self._until[_hash(code)] = time.monotonic() + _CODE_GOOD_FOR_S
        return code

    def take(self, code: str) -> float | None:
        """Use a code up; return until when it was good, or None if it is not."""
        with self._lock:
            until = self._until.pop(_hash(code), None)
        return until if until is not None and time.monotonic() < until else None

    def give_back(self, code: str, until: float) -> None:
        """Make a used code valid again: the login for which it was used failed."""
        with self._lock:
            self._until[_hash(code)] = until


def _hash(code: str) -> bytes:
    return hashlib.sha256(code.encode("utf-8", "replace")).digest()


@router.get("/dashboard/static/{name}")
async def static(name: Annotated[str, Path(max_length=50)]) -> Response:
    """Return a file that pages load."""
    if name not in STATIC:
        raise NotFoundError(f"There is no file {name}.")
    body, kind = STATIC[name]
    return Response(body, media_type=kind, headers={"Cache-Control": "public, max-age=86400"})


@router.get("/favicon.ico")
async def icon() -> Response:
    """Return the icon to browsers that ask for it before any page told them where it is."""
    return await static(ICON)


@router.get("/dashboard/language/{code}")
async def choose_language(
    request: Request, code: Annotated[str, Path(max_length=5)], back: Annotated[str, Query(max_length=500)] = ""
) -> Response:
    """Set the language of the pages, and return to the page before."""
    if code not in LANGUAGES:
        raise NotFoundError(f"There is no language {code}.")
    answer = RedirectResponse(inside(back), 303)
    keep(request, answer, LANGUAGE_COOKIE, code, _LANGUAGE_HOURS * 3600)
    return answer


@router.get("/login")
async def show_login(request: Request, code: Annotated[str | None, Query(max_length=100)] = None) -> Response:
    """Show the form, or log in by a link that is good once, on this machine alone."""
    if code is None:
        return login_page(request)
    codes: LoginCodes = request.app.state.codes
    until = codes.take(code) if _is_local(request) else None
    if until is None and await _is_logged_in(request):
        return RedirectResponse(_HOME, 303)
    if until is None:
        hint = make_token(app_of(request).settings, sys.argv[0])
        await refusals.note(request, "refused_login", "a link that is not good", hint=hint)
        wrong = _("This link was used, is too old, or is not for this machine.")
        return login_page(request, wrong, 401, command=f"relevo {_MAKE}")
    try:
        session = await threads_of(request).run(_begin_by_link, limits(request))
    except BaseException:
        codes.give_back(code, until)
        raise
    return keep_session(request, RedirectResponse(_HOME, 303), session)


async def _is_logged_in(request: Request) -> bool:
    """Return whether this browser has a session that is good, as after a link that is opened a second time."""
    session = session_cookie(request)
    return bool(session) and await threads_of(request).run(sessions.verify, session) is not None


def make_token(settings: Settings, program: str) -> str:
    """Write the command that makes a token for this very database; no address of a database is told."""
    command = f"{quote(program) if PurePath(program).name == 'relevo' else 'relevo'} {_MAKE}"
    if settings.database_url is not None:
        return command
    return f"RELEVO_DATA_DIR={quote(str(settings.relevo_data_dir.absolute()))} {command}"


def _begin_by_link(database: Database, limits: dict[str, Any]) -> str:
    """Begin a session of a token that nobody ever sees, and that ends after a day."""
    with audit.acting_as(sessions.LINK, "http"):
        _plain, token = api_tokens.make(database, sessions.LINK, "operator", days=_LINK_DAYS)
        return sessions.begin(database, token, **limits)


def limits(request: Request) -> dict[str, Any]:
    """Return how long a session lasts by the settings, and from where it begins."""
    settings = app_of(request).settings
    hours, idle = settings.http_session_hours, settings.http_session_idle_minutes
    return {"hours": hours, "idle_minutes": idle, "address": address_of(request)}


@router.post("/login")
async def log_in(request: Request) -> Response:
    """Log in with a token."""
    given = await read_form(request)
    after = inside(given.get("after", ""))
    nonce = request.cookies.get(cookie_name(request, FORM_COOKIE), "")
    if not nonce or not hmac.compare_digest(given.get("form", "").encode(), nonce.encode()):
        await refusals.note(request, "refused_form")
        return login_page(request, _("This form is too old, or the browser keeps no cookies. Try again."), 403)
    token = await threads_of(request).run(api_tokens.verify, given.get("token", "").strip())
    if token is None or (why := _why_not(token)):
        said = why if token else _("This token is unknown, revoked or expired.")
        await refusals.note(request, "refused_login", _NOT_ENOUGH if token else "a token that is not good", token)
        return login_page(request, said, 403 if token else 401, after=after)
    recorded: RecordedActions = request.app.state.recorded
    with audit.acting_as(f"{token.name} ({token.id})", "http"), recorded.bounded(token, "login"):
        session = await threads_of(request).run(sessions.begin, token, **limits(request))
    return keep_session(request, RedirectResponse(after, 303), session)


@router.post("/logout")
async def log_out(request: Request) -> Response:
    """End the session."""
    await fields_of(request)
    if session := getattr(request.state, "session", ""):
        await threads_of(request).run(sessions.end, session)
    return forget_session(request, RedirectResponse("/login", 303))


def _why_not(token: Token) -> str:
    if token.role not in VIEW_PAGE.roles:
        role = token.role
        return _("This token has the role %(role)s. Enter a viewer's or an operator's token.", role=role)
    if token.project is not None:
        return _(
            "This token is for project %(project)s only. "
            "The dashboard shows the whole fleet: enter a token without a project.",
            project=token.project,
        )
    return ""


def keep_session(request: Request, answer: Response, session: str) -> Response:
    """Set the session's cookie."""
    keep(request, answer, cookie_name(request, COOKIE), session, app_of(request).settings.http_session_hours * 3600)
    return answer


def inside(after: str) -> str:
    """Return where to go after the login, if that is a page of ours."""
    good = after == _HOME or after.startswith((f"{_HOME}/", f"{_HOME}?"))
    return after if good and "\n" not in after and "\r" not in after and "\\" not in after else _HOME


def _is_local(request: Request) -> bool:
    """Return whether the caller, and the name it calls us by, are of this machine."""
    return is_local(address_of(request)) and is_local(request.url.hostname or "")
