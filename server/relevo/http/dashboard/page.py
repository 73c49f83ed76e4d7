"""Shared parts of all pages: the frame, who may see them, and the page for an error."""

from __future__ import annotations

import hashlib
import hmac
import pathlib
import secrets
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Annotated, Any, Concatenate, Literal, NoReturn, ParamSpec, TypeVar
from urllib.parse import parse_qsl

import psycopg
import structlog
from fastapi import Path, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import State
from starlette.responses import HTMLResponse, Response

from relevo.access import api_tokens
from relevo.access.api_tokens import Token
from relevo.access.sessions import LINK
from relevo.config import Settings
from relevo.core.errors import RelevoError
from relevo.core.i18n import COOKIE as LANGUAGE_COOKIE
from relevo.core.i18n import N_, gettext, language, language_for, use_language
from relevo.database.pool import Database
from relevo.http.dashboard import refusals
from relevo.http.dashboard.templating import ENVIRONMENT
from relevo.http.database_threads import threads_of
from relevo.http.guard import COOKIE, Guarded, cookie_name, is_https, session_cookie
from relevo.http.problems import Problem, of_error, request_id_of
from relevo.http.rules import OPERATE_PAGE, rule_of
from relevo.operators import fleet

P = ParamSpec("P")
T = TypeVar("T")
_log = structlog.get_logger("relevo.dashboard")
_MOST_FIELDS = 50
_UNAUTHORISED = 401
_FAILED = 500
_NONCE = 43
_BY_LINK = N_("login link")
_ROLES = {
    "app": N_("app"),
    "observer": N_("observer"),
    "viewer": N_("viewer"),
    "operator": N_("operator"),
}
FORM_COOKIE = "relevo_form"
ACTED_COOKIE = "relevo_acted"
"""Tells for a while that somebody has just done something: until it is sure to be on the replica, too."""
_ACTED_S = 20  # a beat of a worker may be what tells how old a replica is
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SYSTEM, PEOPLE = "/dashboard/system", "/dashboard/people"
SOURCES, ARCHIVE = "/dashboard/sources", "/dashboard/archive"
SESSIONS = "/dashboard/sessions"
_USE_KNOWN_FOR_S = 60.0
PAGES = {
    "/dashboard": N_("Overview"),
    "/dashboard/events": N_("Events"),
    PEOPLE: N_("People"),
    "/dashboard/dead-letters": N_("Dead letters"),
    "/dashboard/compose": N_("Compose"),
    SYSTEM: N_("System"),
    "/dashboard/runs": N_("Runs"),
    SOURCES: N_("Sources"),
    ARCHIVE: N_("Archive"),
    "/dashboard/audit": N_("Audit"),
    SESSIONS: N_("Sessions"),
}
"""The destinations of the navigation; each name is a text of the pages."""
SEARCH = "/dashboard/search"
Id = Annotated[int, Path(ge=0, lt=2**63)]
"""The number by which an address names something."""
Before = Annotated[int | None, Query(ge=1, lt=2**63)]
Text = Annotated[str, Query(max_length=200)]
Hours = Annotated[str, Query(pattern="^[0-9]{0,4}$")]
Place = Annotated[str, Query(pattern="^[0-9.]{0,40}$")]
"""Parameters of lists in addresses: filters, so that a list can be shared, and the position of a page of it."""
ICON = "relevo.svg"
_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
STATIC = {
    each.name: (each.read_bytes(), _KINDS[each.suffix])
    for each in sorted((pathlib.Path(__file__).parent / "static").iterdir())
    if each.suffix in _KINDS
}
_ASSET_VERSION = hashlib.sha256(b"".join(body for body, _ in STATIC.values())).hexdigest()[:12]


class Page(Guarded):
    """A route that answers people: its errors are pages, and who is not logged in gets the form to do so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the route, so that what it raises is told in words."""
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            chosen, accepted = request.cookies.get(LANGUAGE_COOKIE, ""), request.headers.get("accept-language", "")
            use_language(language_for(chosen, accepted))
            await _look_what_is_used(request)
            return _remember_action(request, await answered(request))

        async def answered(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError:
                wrong = gettext("This address or the form is not valid.")
                return trouble(request, Problem(400, wrong))
            except (Problem, RelevoError, UnicodeError, psycopg.Error) as error:
                problem = of_error(error)
                if refused := refusals.action_of(problem, had_session=bool(session_cookie(request))):
                    await refusals.note(request, refused)
                if problem.status == _FAILED:
                    _log.error("page_failed", exc_info=error)
                return trouble(request, problem)

        return shown


def trouble(request: Request, problem: Problem) -> Response:
    """Show an error on a page; the login form instead if somebody has to log in first."""
    if problem.status == _UNAUTHORISED:
        came = bool(session_cookie(request))
        return login_page(request, problem.detail if came else "", 401, after=_here(request))
    is_stranger = getattr(request.state, "caller", None) is None  # whose refusals have one line a minute together
    (_log.debug if is_stranger else _log.info)("page_refused", status=problem.status, detail=problem.detail)
    number = request_id_of(request)
    return render(
        request, "problem.html", problem.status, problem.headers, live=False, problem=problem, request_id=number
    )


async def read(
    request: Request, function: Callable[Concatenate[Database, P], T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Read what a page shows: from the replica if there is one, but not for who has just done something."""
    if ACTED_COOKIE in request.cookies:
        return await threads_of(request).run(function, *args, **kwargs)
    answer = await threads_of(request).read(function, *args, **kwargs)
    if answer.age_s is not None:
        request.state.age_s = max(answer.age_s, getattr(request.state, "age_s", 0.0))
    return answer.value


def _remember_action(request: Request, answer: Response) -> Response:
    """Read from the primary for a while after a person's action, so that their next pages show its effect."""
    settings: Settings = request.app.state.relevo.settings
    if settings.database_read_url and request.method == "POST" and request.url.path != SEARCH:
        seconds = settings.database_read_max_lag_ms // 1000 + _ACTED_S
        keep(request, answer, ACTED_COOKIE, "1", seconds=seconds)
    return answer


def _here(request: Request) -> str:
    """Return where a reader wanted to go, to be led there after the login."""
    if request.method != "GET":
        return "/dashboard"
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")


def render(
    request: Request,
    template: str,
    status: int = 200,
    headers: dict[str, str] | None = None,
    *,
    live: bool = True,
    **context: object,
) -> Response:
    """Answer with a page made from a template; a `live` one is loaded again every few seconds while somebody looks."""
    caller: Token | None = getattr(request.state, "caller", None)
    session: str = getattr(request.state, "session", "")
    page = ENVIRONMENT.get_template(template).render(
        request=request,
        viewer=caller if session else None,
        who=_who(caller) if caller is not None and session else "",
        is_operator=is_operator(request),
        form_mark=api_tokens.form_mark(session) if session else "",
        menu=_menu(request) if session or _is_guide_at_home(request) else {},
        here=_here(request),
        language=language(),
        asset_version=_ASSET_VERSION,
        live=live,
        age_s=getattr(request.state, "age_s", None),
        **context,
    )
    sent = {"Content-Security-Policy": POLICY, **(headers or {})}
    return HTMLResponse(page.encode("utf-8", "replace"), status, sent)


def _who(caller: Token) -> str:
    """Name who looks, and as what."""
    return f"{gettext(_BY_LINK) if caller.name == LINK else caller.name} ({gettext(_ROLES[caller.role])})"


def is_operator(request: Request) -> bool:
    """Return whether who looks may do things; a viewer is shown no button."""
    caller = getattr(request.state, "caller", None)
    return caller is not None and caller.role in OPERATE_PAGE.roles


def _is_guide_at_home(request: Request) -> bool:
    """Return whether the guide, which everyone may read, is read by somebody who probably has a session."""
    return request.url.path.startswith("/guide") and bool(session_cookie(request))


async def _look_what_is_used(request: Request) -> None:
    """Find out once a minute, for whoever is logged in, whether there is something of what no setting speaks of."""
    state: State = request.app.state
    if not session_cookie(request) or not request.url.path.startswith("/dashboard"):
        return
    if time.monotonic() < getattr(state, "menu_known_until", 0.0):
        return
    state.menu_known_until = time.monotonic() + _USE_KNOWN_FOR_S
    with suppress(psycopg.Error, RelevoError, Problem):  # the page itself tells what is wrong
        state.menu_found = await state.threads.run(fleet.used)


def _menu(request: Request) -> dict[str, str]:
    """Return the pages of the navigation with their names, for who looks; without what is neither set nor found."""
    caller: Token | None = getattr(request.state, "caller", None)
    settings: Settings = request.app.state.relevo.settings
    found: dict[str, bool] = getattr(request.app.state, "menu_found", {})
    used = {
        SOURCES: settings.sources or found.get("sources"),
        ARCHIVE: settings.archive_bucket or settings.archive_folder or found.get("archive"),
    }
    return {
        path: gettext(name)
        for path, name in PAGES.items()
        if (used.get(path, True) or request.url.path == path)
        and (caller is None or caller.role in rule_of("GET", path).roles)
    }


def login_page(
    request: Request, said: str = "", status: int = 200, *, after: str = "/dashboard", command: str = ""
) -> Response:
    """Show the form by which one logs in; after a link that is no good, with the command that makes a token."""
    nonce = request.cookies.get(cookie_name(request, FORM_COOKIE), "")
    fresh = len(nonce) != _NONCE
    nonce = secrets.token_urlsafe(32) if fresh else nonce
    settings: Settings = request.app.state.relevo.settings
    sign_on = settings.oidc_name if settings.oidc_issuer else ""
    told: dict[str, Any] = {"nonce": nonce, "after": after, "said": said, "command": command, "sign_on": sign_on}
    answer = render(request, "login.html", status, live=False, **told)
    if fresh:
        keep(request, answer, cookie_name(request, FORM_COOKIE), nonce)
    return answer


def keep(
    request: Request,
    answer: Response,
    name: str,
    value: str,
    seconds: int | None = None,
    *,
    from_elsewhere: bool = False,
) -> None:
    """Set a cookie that no script reads and no other site sends, unless it is one for a way back from elsewhere."""
    secure = is_https(request)
    same: Literal["lax", "strict"] = "lax" if from_elsewhere else "strict"
    answer.set_cookie(name, value, max_age=seconds, path="/", httponly=True, samesite=same, secure=secure)


def forget_session(request: Request, answer: Response) -> Response:
    """Delete the session's cookie."""
    name = cookie_name(request, COOKIE)
    answer.delete_cookie(name, path="/", httponly=True, samesite="strict", secure=is_https(request))
    return answer


async def fields_of(request: Request) -> dict[str, str]:
    """Read a form that was sent; 403 if it is not one of this session's own."""
    given = await read_form(request)
    session: str = getattr(request.state, "session", "")
    if session and not hmac.compare_digest(given.get("form", "").encode(), api_tokens.form_mark(session).encode()):
        refuse(request, "a form without this session's mark")
    return given


async def read_form(request: Request) -> dict[str, str]:
    """Read what was sent with a form, from a page of our own."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        refuse(request, "a form from another site")
    body = (await request.body()).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise Problem(400, gettext("This form has too many fields.")) from None


def refuse(request: Request, why: str) -> NoReturn:
    """Refuse a form that did not come from our own pages."""
    _log.debug("form_refused", why=why, path=request.url.path)
    told, hint = (
        gettext("This form belongs to another session."),
        gettext("Open the page again and send the form from there."),
    )
    raise Problem(403, told, kind=refusals.FORM, hint=hint)
