"""What all pages share: the frame around them, who sees them, and what is said when one cannot be shown."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlencode

import psycopg
import structlog
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import HTMLResponse, Response

from relevo import __version__
from relevo.access import sessions
from relevo.access.api_tokens import Token
from relevo.core.errors import RelevoError
from relevo.http.dashboard import menu, refusals
from relevo.http.dashboard.html import Child, Markup, el, text
from relevo.http.dashboard.language import LANGUAGES, speak, spoken, t, wanted
from relevo.http.dashboard.words import sentence
from relevo.http.desk import Desk
from relevo.http.guard import COOKIE, Guarded
from relevo.http.problems import Problem, of_error, request_id_of

_log = structlog.get_logger("relevo.dashboard")
_MOST_FIELDS = 50
_TAG = re.compile(r"<[^<>]*>")
_SHORT = 16
_UNAUTHORISED = 401
_FAILED = 500
_NONCE = 43
FORM_COOKIE = "relevo_form"
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SYSTEM, PEOPLE = "/dashboard/system", "/dashboard/people"
PAGES = {
    "/dashboard": "Overview",
    "/dashboard/events": "Events",
    PEOPLE: "People",
    "/dashboard/dead-letters": "Dead letters",
    "/dashboard/compose": "Compose",
    SYSTEM: "System",
    "/dashboard/runs": "Runs",
    menu.SOURCES: "Sources",
    menu.ARCHIVE: "Archive",
    "/dashboard/audit": "Audit",
}
"""What the navigation leads to; each name is a text of the pages."""
_ABOUT_PEOPLE = ("/dashboard/owners/", "/dashboard/installations/")
SEARCH = "/dashboard/search"
ICON = "relevo.svg"
_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
STATIC = {
    each.name: (each.read_bytes(), _KINDS[each.suffix])
    for each in sorted((Path(__file__).parent / "static").iterdir())
    if each.suffix in _KINDS
}
_MARK = hashlib.sha256(b"".join(body for body, _ in STATIC.values())).hexdigest()[:12]


class Page(Guarded):
    """A route that answers people: its errors are pages, and who is not logged in gets the form to do so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the route, so that what it raises is told in words."""
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            speak(wanted(request))
            await menu.look(request)
            try:
                return await handle(request)
            except RequestValidationError:
                wrong = t("This address, or what was sent to it, is not as it should be.")
                return trouble(request, Problem(400, wrong))
            except (Problem, RelevoError, UnicodeError, psycopg.Error) as error:
                problem = of_error(error)
                if refused := refusals.action_of(problem, had_session=COOKIE in request.cookies):
                    await refusals.note(request, refused)
                if problem.status == _FAILED:
                    _log.error("page_failed", exc_info=error)
                return trouble(request, problem)

        return shown


def trouble(request: Request, problem: Problem) -> Response:
    """Say on a page what is wrong; the login form instead if somebody has to log in first."""
    if problem.status == _UNAUTHORISED:
        came = bool(request.cookies.get(COOKIE))
        return login_page(request, problem.detail if came else "", 401, after=_here(request))
    _log.info("page_refused", status=problem.status, detail=problem.detail)
    body = el(
        "section",
        el("h1", problem.detail),
        el("p", sentence(problem.hint)) if problem.hint else None,
        el("p", el("a", t("Back to the overview"), href="/dashboard")),
        el("p", t("Request {id}", id=request_id_of(request)), class_="faint"),
        class_="card",
    )
    return show(request, problem.detail, body, status=problem.status, headers=problem.headers, live=False)


def _here(request: Request) -> str:
    """Return where a reader wanted to go, to be led there after the login."""
    if request.method != "GET":
        return "/dashboard"
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")


def show(
    request: Request,
    title: str,
    *body: Child,
    status: int = 200,
    headers: dict[str, str] | None = None,
    live: bool = True,
) -> Response:
    """Answer with a page; `live` ones are asked for again every few seconds while somebody looks."""
    caller: Token | None = getattr(request.state, "caller", None)
    page = el(
        "html",
        el(
            "head",
            el("meta", charset="utf-8"),
            el("title", f"{title[:100]} · Relevo"),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("link", rel="icon", type="image/svg+xml", href=f"/dashboard/static/{ICON}?v={_MARK}"),
            el("link", rel="stylesheet", href=f"/dashboard/static/relevo.css?v={_MARK}"),
            el("script", src=f"/dashboard/static/relevo.js?v={_MARK}", defer=True),
        ),
        el(
            "body",
            el("a", t("To the content"), href="#content", class_="skip"),
            _head(request, caller),
            el("main", body, id="content", data_live=live),
            el("footer", f"Relevo {__version__}", _languages(request), class_="faint"),
        ),
        lang=spoken(),
    )
    sent = {"Content-Security-Policy": POLICY, **(headers or {})}
    return HTMLResponse("<!doctype html>" + page, status, sent)


def _head(request: Request, caller: Token | None) -> Markup:
    brand = el("a", "Relevo", href="/dashboard", class_="brand")
    if caller is None or not getattr(request.state, "session", ""):
        at_home = request.url.path.startswith("/guide") and bool(request.cookies.get(COOKIE))
        return el(
            "header", brand, _navigation(request) if at_home else el("nav", _guide(request), aria_label=t("Main"))
        )
    name = f"{caller.name} ({caller.role})"
    leave = form(request, "/logout", el("button", t("Log out"), class_="plain", title=name))
    who = el("span", name, class_="who")
    return el("header", brand, _search(request), el("div", who, leave, class_="me"), _navigation(request))


def _navigation(request: Request) -> Markup:
    unused = menu.unused(request)
    links = [
        el("a", t(name), href=path, aria_current=_current(request, path))
        for path, name in PAGES.items()
        if path not in unused or request.url.path == path
    ]
    return el("nav", links, _guide(request), el("a", "API", href="/docs"), aria_label=t("Main"))


def _guide(request: Request) -> Markup:
    return el("a", t("Guide"), href="/guide", aria_current=_current(request, "/guide"))


def _current(request: Request, path: str) -> str | None:
    at = request.url.path
    if path == PEOPLE and at.startswith(_ABOUT_PEOPLE):
        return "true"
    return "page" if at == path or (path != "/dashboard" and at.startswith(f"{path}/")) else None


def _search(request: Request) -> Markup:
    """Write the one box by which everything is found, as a form: a push token belongs into no address."""
    hint = t("Event, key, owner, phone, token or tender")
    asked = request.query_params.get("q", "")[:300] if request.url.path == SEARCH else ""
    box = el("input", type="search", name="q", value=asked, placeholder=hint, aria_label=hint, maxlength=300)
    return form(request, SEARCH, box, el("button", t("Search"), class_="plain"), class_="search", role="search")


def _languages(request: Request) -> Markup:
    """Offer the other languages; the choice is kept by the browser."""
    back = urlencode({"back": _here(request)})
    offered = [
        el("a", name, href=f"/dashboard/language/{code}?{back}", lang=code, hreflang=code)
        for code, name in LANGUAGES.items()
        if code != spoken()
    ]
    return el("span", offered, class_="languages", aria_label=t("Language"))


def login_page(
    request: Request, said: str = "", status: int = 200, *, after: str = "/dashboard", more: Child = None
) -> Response:
    """Show the form by which one logs in."""
    nonce = request.cookies.get(FORM_COOKIE, "")
    fresh = len(nonce) != _NONCE
    nonce = secrets.token_urlsafe(32) if fresh else nonce
    fields = el(
        "form",
        el("input", type="hidden", name="form", value=nonce),
        el("input", type="hidden", name="after", value=after),
        el("label", t("Token"), for_="token"),
        el("input", type="password", name="token", id="token", autocomplete="off", required=True, autofocus=True),
        el("button", t("Log in")),
        method="post",
        action="/login",
    )
    hint = t("A viewer's or an operator's token; `relevo token make me --role operator` makes one.")
    card = el(
        "section",
        el("h1", t("Log in")),
        el("p", said, class_="bad", role="alert") if said else None,
        more,
        fields,
        el("p", sentence(hint), class_="faint"),
        class_="card narrow",
    )
    answer = show(request, t("Log in"), card, status=status, live=False)
    if fresh:
        keep(request, answer, FORM_COOKIE, nonce)
    return answer


def keep(request: Request, answer: Response, name: str, value: str, hours: int | None = None) -> None:
    """Have the browser keep a cookie that no script reads and no other site sends."""
    secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
    age = hours * 3600 if hours else None
    answer.set_cookie(name, value, max_age=age, path="/", httponly=True, samesite="strict", secure=secure)


def form(request: Request, action: str, *fields: Child, class_: str | None = None, role: str | None = None) -> Markup:
    """Write a form of a session: it carries the mark without which it is refused."""
    session: str = getattr(request.state, "session", "")
    mark = el("input", type="hidden", name="form", value=sessions.form_mark(session)) if session else None
    return el("form", mark, fields, method="post", action=action, class_=class_, role=role)


async def fields_of(request: Request) -> dict[str, str]:
    """Read a form that was sent; 403 if it is not one of this session's own."""
    given = await read_form(request)
    session: str = getattr(request.state, "session", "")
    if session and not hmac.compare_digest(given.get("form", "").encode(), sessions.form_mark(session).encode()):
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
        raise Problem(400, t("This form has too many fields.")) from None


def refuse(request: Request, why: str) -> NoReturn:
    """Refuse a form that did not come from our own pages, and say so in the log."""
    caller: Token | None = getattr(request.state, "caller", None)
    _log.warning("form_refused", why=why, caller=caller.id if caller else None, path=request.url.path)
    told, hint = t("This form is not of your session."), t("Open the page again, and send it from there.")
    raise Problem(403, told, kind=refusals.FORM, hint=hint)


def desk_of(request: Request) -> Desk:
    """Return where the database is asked."""
    desk: Desk = request.app.state.desk
    return desk


def table(heads: list[str], rows: list[list[Child]], *, empty: Child, label: str) -> Markup:
    """Write a table without its empty columns; where there is no room for any, each cell is told by its head."""
    if not rows:
        return el("p", empty, class_="faint")
    told = [place for place in range(len(heads)) if any(text(row[place]) for row in rows)]
    heads, rows = [heads[place] for place in told], [[row[place] for place in told] for row in rows]
    head = el("thead", el("tr", [el("th", each, scope="col") for each in heads]))
    body = [
        el("tr", [el("td", _cell(cell), data_head=name) for name, cell in zip(heads, row, strict=True)]) for row in rows
    ]
    return el("table", head, el("tbody", body), aria_label=label)


def _cell(cell: Child) -> Markup:
    """Write a cell; what is short stays on one line, where there is room."""
    written = text(cell)
    return el("div", written, class_="whole" if len(_TAG.sub("", written)) <= _SHORT else None)


def badge(told: str, kind: str = "") -> Markup:
    """Write a state as a small word; `kind` is good, bad, warn or nothing."""
    return el("span", told, class_=f"badge {kind}".strip())
