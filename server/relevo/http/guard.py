"""Proves who calls before a route sees the request, as its rule asks."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from relevo.access import api_tokens, sessions
from relevo.access.api_tokens import OBSERVER, Token
from relevo.access.phones import NoProofError, Proof, Registered
from relevo.core.hidden_texts import hiding
from relevo.http.cached import FRESH_S
from relevo.http.database_threads import DatabaseThreads, threads_of
from relevo.http.problems import Problem, ProblemBody
from relevo.http.rules import APP, OPERATE, PHONE_BODY, RULES, SIGNED, Rule, rule_of
from relevo.operators import audit
from relevo.verbs.callers import Caller

P = ParamSpec("P")
T = TypeVar("T")
_MOST_KNOWN = 10_000
_MOST_PHONES = 50_000
_BEARER = "bearer "
_MAX_SIGNATURE = 250
_API = "/v1/"
_LONGEST_TOLD = 50
_WRITTEN_OUT = {path for _, path in RULES if "{" not in path}
COOKIE = "relevo_session"
"""Where a browser keeps a session; behind TLS with the prefix that lets no other host or path set it."""
_HOST_ONLY = "__Host-"
_RENEWAL = "x-relevo-renewal"
"""The header by which a page that renews itself is told from a person who opens one."""
_TELLS = {
    400: "Something in the request is not valid: `errors` names field and reason.",
    401: "No token, or one that is unknown, revoked or expired.",
    403: "The token's role, or its project, is not enough.",
    413: f"The body is larger than HTTP_MAX_BODY_BYTES, or than the {PHONE_BODY} bytes that a phone's may have.",
    429: "Too many requests of this caller; Retry-After says when to come back.",
    503: "No room, or no database, for a moment; Retry-After says when to come back.",
}


class Callers:
    """Knows callers by their tokens, and who proved before who they are."""

    def __init__(self, threads: DatabaseThreads, clock: Callable[[], float] = time.monotonic) -> None:
        self._threads = threads
        self._clock = clock
        self._known: OrderedDict[bytes, Token] = OrderedDict()
        self._good: OrderedDict[bytes, tuple[Token, float]] = OrderedDict()
        """Tokens that were found good, by their hash, and when that was asked; of sessions none."""
        self._asked: dict[bytes, tuple[asyncio.Task[Token | None], float]] = {}
        """Tokens that are asked for just now, by their hash, and since when: all their requests wait for one answer."""
        self._phones: OrderedDict[bytes, None] = OrderedDict()
        """Phones' secrets that were found good, by their hash."""

    def known_as(self, digest: bytes) -> str | None:
        """Return by what somebody is counted whose token, session or secret was good before; None for all others."""
        if (known := self._known.get(digest)) is not None:
            return known.id
        return f"phone {digest.hex()}" if digest in self._phones else None

    async def identify(self, request: Request, rule: Rule) -> Token | None:
        """Return whose token the request brings; None where no token is asked for and none is brought.

        A token that was good within the last second is not asked for again: once revoked, it is refused a second later
        at the latest.
        """
        bearer = written_token(request)
        written = bearer or (session_cookie(request) if rule.page else "")
        if not written:
            return None
        digest = _digest(written)
        token = await self._find(request, digest, written, is_session=not bearer)
        if token is None:
            self._known.pop(digest, None)
            if rule.is_open:
                return None
            detail = "This token is unknown, revoked or expired." if bearer else "You were logged out."
            raise Problem(401, detail, hint=_how_to_make(rule))
        request.state.session = "" if bearer else written
        _remember(self._known, digest, token)
        return token

    def note_phone(self, request: Request, *, good: bool) -> None:
        """Count a phone by itself from now on, if the secret it brings was found good; else by its address."""
        digest = _digest(written_token(request))
        if good:
            _remember(self._phones, digest, None, _MOST_PHONES)
        else:
            self._phones.pop(digest, None)

    async def _find(self, request: Request, digest: bytes, written: str, *, is_session: bool) -> Token | None:
        if is_session:
            return await self._threads.run(sessions.verify, written, is_use=_RENEWAL not in request.headers)
        token, asked_at = self._good.get(digest, (None, -math.inf))
        if token is not None and self._clock() - asked_at <= FRESH_S:
            return token
        asking, asked_at = self._asked.get(digest, (None, -math.inf))
        if asking is None or self._clock() - asked_at > FRESH_S:
            asking = asyncio.create_task(self._ask(digest, written, self._clock()))
            self._asked[digest] = asking, self._clock()
            asking.add_done_callback(partial(self._end_asking, digest))
        return await asyncio.shield(asking)  # whoever leaves does not take it from the others

    async def _ask(self, digest: bytes, written: str, asked_at: float) -> Token | None:
        token = await self._threads.run(api_tokens.verify, written)
        if token is not None:
            _remember(self._good, digest, (token, asked_at))
        return token

    def _end_asking(self, digest: bytes, asking: asyncio.Task[Token | None]) -> None:
        if self._asked.get(digest, (None,))[0] is asking:
            del self._asked[digest]
        if not asking.cancelled():
            asking.exception()  # whoever asked may have left: an error that nobody hears is no surprise

    async def admit(self, request: Request, rule: Rule) -> Token | None:
        """Return the caller if the rule lets it in; 401 or 403 if not."""
        if rule.is_open and not rule.own_check:
            return None
        token = await self.identify(request, rule)
        if rule.own_check:
            return token
        if token is None:
            needed = "A token is needed, in the header Authorization after the word Bearer."
            raise Problem(401, needed, hint=_how_to_make(rule))
        request.state.caller = token  # an error page tells who looks at it
        if token.role not in rule.roles:
            needed = " or ".join(sorted(rule.roles))
            detail = f"This takes a token of role {needed}; this one is of role {token.role}."
            raise Problem(403, detail, hint=_how_to_make(rule))
        if token.project is not None and not rule.scoped:
            raise Problem(403, f"This concerns the whole fleet; this token is for project {token.project} alone.")
        return token


def _digest(written: str) -> bytes:
    return hashlib.sha256(written.encode("utf-8", "replace")).digest() if written else b""


def _remember(what: OrderedDict[bytes, T], digest: bytes, value: T, most: int = _MOST_KNOWN) -> None:
    what[digest] = value
    if len(what) > most:
        what.popitem(last=False)


def _how_to_make(rule: Rule) -> str:
    """Return how an operator makes a token with this right, of the role with the fewest rights."""
    role = next((each for each in ("app", "viewer") if each in rule.roles), "operator")
    return f"Where Relevo runs, `relevo token make NAME --role {role}` makes one; `relevo token list` shows all."


def address_of(request: Request) -> str:
    """Return the address that a request came from."""
    return request.client.host if request.client else "nowhere"


def is_https(request: Request) -> bool:
    """Return whether the browser speaks TLS, to us or to the proxy in front."""
    return request.scope.get("scheme") == "https" or request.headers.get("x-forwarded-proto") == "https"


def cookie_name(request: Request, name: str) -> str:
    """Return the name of a cookie: behind TLS with `__Host-`, which browsers accept from this very host alone."""
    return _HOST_ONLY + name if is_https(request) else name


def session_cookie(request: Request) -> str:
    """Return the session that a browser brings, empty if there is none."""
    return request.cookies.get(cookie_name(request, COOKIE), "")


def written_token(request: Request) -> str:
    """Return the bearer token of a request, empty if there is none."""
    given = request.headers.get("authorization", "")
    return given[len(_BEARER) :].strip() if given[: len(_BEARER)].lower() == _BEARER else ""


def token_of(request: Request) -> Token:
    """Return the token of who calls, in a route whose rule asks for one."""
    token = request.state.caller
    assert isinstance(token, Token)
    return token


def caller_of(request: Request) -> Caller:
    """Return who calls, for the verb: whoever has the token, or in a route for phones the one that brings the proof."""
    rule: Rule = request.scope["route"].rule
    token = request.state.caller if rule.own_check else token_of(request)
    if rule.own_check and token is not None and token.role not in APP.roles:
        raise Problem(403, f"This takes a token of role app or operator; this one is of role {token.role}.")
    secret = (written_token(request) or None) if token is None else None
    signature = request.headers.get("x-relevo-signature")
    proof = Proof(token, secret, signature[:_MAX_SIGNATURE] if signature else None)
    return Caller(threads_of(request).database, proof, request.app.state.recorded.take)


async def call(request: Request, verb: Callable[Concatenate[Caller, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a verb as who calls the route; count a phone by itself from now on if its secret was found good."""
    caller, callers = caller_of(request), request.app.state.callers
    try:
        answer = await threads_of(request).call(verb, caller, *args, **kwargs)
    except NoProofError:
        callers.note_phone(request, good=False)
        raise
    is_new = isinstance(answer, Registered) and answer.created  # and has been told its secret just now
    if caller.token is None and caller.proof.signature is None and not is_new:  # then its secret let it in
        callers.note_phone(request, good=True)
        request.state.told["caller"] = "phone"
    return answer


async def admit_again(request: Request) -> None:
    """Refuse a caller that waited and whose token was revoked meanwhile."""
    rule: Rule = request.scope["route"].rule
    if request.state.caller is not None and await request.app.state.callers.admit(request, rule) is None:
        raise Problem(401, "This token was revoked or has expired.", hint=_how_to_make(rule))


class Guarded(APIRoute):
    """A route that has a rule, lets in whom it names, and documents what it may answer besides."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        (method,) = options.get("methods") or {"GET"}
        self.rule = rule_of(method, path)
        given = options.get("responses") or {}
        codes = _may_answer(self.rule, method)
        told = {code: {"model": ProblemBody, "description": _TELLS[code]} for code in codes}
        options["responses"] = {**told, **given}
        options["generate_unique_id_function"] = _operation_id
        extra = _security(self.rule, method, path)
        if self.rule.roles:
            roles = " or ".join(sorted(self.rule.roles))
            extra |= {"x-roles": sorted(self.rule.roles)}
            options["description"] = f"{inspect.cleandoc(endpoint.__doc__ or '')}\n\nTakes a token of role {roles}."
        options["openapi_extra"] = extra or None
        super().__init__(path, endpoint, **options)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match an address, but leave one that other routes write out to those: `batch` is no id of an event."""
        if scope["type"] == "http" and "{" in self.path and scope["path"] in _WRITTEN_OUT:
            return Match.NONE, {}
        return super().matches(scope)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the route, so that nothing of a request is read before its caller is let in."""
        handle = super().get_route_handler()
        known = [name for each in self.dependant.query_params for name in _names(each)]

        async def guarded(request: Request) -> Response:
            told = request.state.told
            told["route"] = self.path  # of those that are not let in, too
            if self.rule.max_body is not None:
                request.state.bound_body(self.rule.max_body)
            token = await request.app.state.callers.admit(request, self.rule)
            request.state.caller = token
            told |= {"caller": token.id} if token else {}
            await self.prove(request)
            if self.path.startswith(_API):
                _refuse_unknown(request, known)
            is_observer = token is not None and token.role == OBSERVER
            with audit.acting_as(f"{token.name} ({token.id})" if token else "nobody", "http"), hiding(is_observer):
                answer = await handle(request)
            if self.rule.roles == OPERATE.roles:
                request.app.state.stats.forget()  # what an operator did is told to whoever asks next
            return answer

        return guarded

    async def prove(self, request: Request) -> None:
        """Refuse who proves in another way than by a token, before the body is read, where that does not take it."""


def _operation_id(route: APIRoute) -> str:
    """Return what clients call a route: its function's name, as JavaScript writes names."""
    first, *others = route.name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _security(rule: Rule, method: str, path: str) -> dict[str, Any]:
    """Return which proofs a route takes; any one of them is enough."""
    if rule.is_open and not rule.own_check:
        return {}
    proofs = ["appToken"]
    proofs += ["deviceSecret"] if rule.own_check else []
    proofs += ["signature"] if (method, path) in SIGNED else []
    return {"security": [{proof: []} for proof in proofs]}


def _names(parameter: Any) -> list[str]:
    """Return what a parameter is called in a query; one that is a model stands for its fields."""
    kind = parameter.field_info.annotation
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [field.alias or name for name, field in kind.model_fields.items()]
    return [parameter.alias]


def _refuse_unknown(request: Request, known: Sequence[str]) -> None:
    """Refuse a query parameter that the route does not know, as fields of a body are: a slip would go unseen."""
    unknown = next((each[:_LONGEST_TOLD] for each in request.query_params if each not in known), None)
    if unknown is None:
        return
    near = [each for each in known if each.lower().startswith(unknown.lower())] or get_close_matches(unknown, known, 1)
    takes = f"This route takes {', '.join(known)}." if known else "This route takes none."
    raise Problem(
        400,
        f"{unknown}: there is no such query parameter",
        kind="invalid",
        hint=f"Did you mean {near[0]}?" if near else takes,
        errors=[{"field": unknown, "reason": "there is no such query parameter"}],
    )


def _may_answer(rule: Rule, method: str) -> tuple[int, ...]:
    if rule.is_open and not rule.own_check:
        return ()
    return (400, 401, 403, *((413,) if method in ("POST", "PUT", "PATCH") else ()), 429, 503)
