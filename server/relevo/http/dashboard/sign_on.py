"""Logging in at a provider of identities: the way there, and the way back with a code."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import Annotated, ParamSpec, TypeVar

import structlog
from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from relevo.access import sessions, sign_on
from relevo.access.oidc import SIGN_ON_S, Attempt, Provider, ProviderDownError, SignOnError
from relevo.access.sign_on import NoAccessError
from relevo.config.sign_on import CALLBACK, SIGN_ON
from relevo.core.errors import NotFoundError
from relevo.core.i18n import gettext as _
from relevo.http.dashboard import refusals
from relevo.http.dashboard.login import inside, keep_session, limits
from relevo.http.dashboard.page import Page, keep, login_page, render
from relevo.http.database_threads import Threads, app_of, threads_of
from relevo.http.guard import cookie_name, is_https, session_cookie
from relevo.http.recorded import RecordedActions
from relevo.operators import audit

P = ParamSpec("P")
T = TypeVar("T")
_log = structlog.get_logger("relevo.dashboard")
router = APIRouter(route_class=Page, include_in_schema=False)
COOKIE = "relevo_sign_on"
_ATTEMPT_S = 600
_Given = Annotated[str, Query(max_length=2_000)]


@router.get(SIGN_ON)
async def begin(request: Request, after: _Given = "", again: bool = False) -> Response:
    """Send the browser to the provider; with `again` the person has to log in there once more."""
    attempt = Attempt.begin(inside(after), again=again)
    try:
        address = await _ask(request, _provider_of(request).address, attempt)
    except SignOnError as error:
        return _failed(request, error, attempt.after)
    answer = RedirectResponse(address, 303)
    keep(request, answer, cookie_name(request, COOKIE), attempt.written(), _ATTEMPT_S, from_elsewhere=True)
    return answer


@router.get(CALLBACK)
async def finish(
    request: Request,
    code: _Given = "",
    state: _Given = "",
    error: _Given = "",
    iss: Annotated[str | None, Query(max_length=2_000)] = None,
) -> Response:
    """Take the code that the provider gave the browser, and begin a session for who logged in there."""
    provider = _provider_of(request)
    attempt = Attempt.read(request.cookies.get(cookie_name(request, COOKIE), ""))
    if attempt is None or not hmac.compare_digest(attempt.state.encode(), state.encode()):
        await refusals.note(request, "refused_login", "a login that this browser did not begin, or began too long ago")
        return _forget(request, login_page(request, _("This login was not begun here, or is too old. Try again."), 403))
    try:
        identity = await _ask(request, provider.identify, attempt, "" if error else code, iss)
        roles = app_of(request).settings.oidc_roles or ()
        token = await threads_of(request).run(sign_on.sign_in, attempt, identity, roles)
    except SignOnError as refused:
        if not isinstance(refused, ProviderDownError):
            await refusals.note(request, "refused_login", str(refused))
        return _forget(request, _failed(request, refused, inside(attempt.after)))
    recorded: RecordedActions = request.app.state.recorded
    with audit.acting_as(f"{token.name} ({token.id})", "http"), recorded.bounded(token, "login"):
        session = await threads_of(request).run(sessions.begin, token, **limits(request))
    if former := session_cookie(request):
        await threads_of(request).run(sessions.end, former)
    # A page, not a redirect: to what follows a redirect from another site a browser sends no strict cookie.
    arrived = render(request, "arrived.html", live=False, after=inside(attempt.after))
    return _forget(request, keep_session(request, arrived, session))


def _provider_of(request: Request) -> Provider:
    provider: Provider | None = request.app.state.provider
    if provider is None:
        raise NotFoundError("There is no provider of identities.", hint="OIDC_ISSUER names one.")
    return provider


async def _ask(request: Request, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call what asks the provider, on a thread without a connection to the database, and wait so long at most."""
    threads: Threads = request.app.state.sign_on_threads
    try:
        async with asyncio.timeout(SIGN_ON_S):
            return await threads.call(function, *args, **kwargs)
    except TimeoutError:
        raise ProviderDownError("The provider does not answer in time.") from None


def _failed(request: Request, error: SignOnError, after: str) -> Response:
    """Show the login page with what went wrong; the log and the audit log have more."""
    _log.warning("sign_on_failed", why=str(error))
    if isinstance(error, ProviderDownError):
        said = _("The sign-on service cannot be reached now. A token still logs in.")
        return login_page(request, said, 503, after=after)
    if isinstance(error, NoAccessError):
        said = _("You are logged in there, but none of your groups may see this dashboard, or your access was revoked.")
        return login_page(request, said, 403, after=after)
    return login_page(request, _("The sign-on service did not log you in. Try again."), 401, after=after)


def _forget(request: Request, answer: Response) -> Response:
    """Delete the cookie of a login that came to an end."""
    name = cookie_name(request, COOKIE)
    answer.delete_cookie(name, path="/", httponly=True, samesite="lax", secure=is_https(request))
    return answer
