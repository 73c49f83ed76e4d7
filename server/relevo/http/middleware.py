"""Shared handling of every request: an id, a bound on its body, a log line, and no trust in its contents."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from typing import Any

import structlog
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relevo.core.traceparents import read_header, trace_id_of
from relevo.http.problems import Problem, of_error
from relevo.http.strangers import RefusedStrangers

Measure = Callable[[str, str, str, float], None]
"""Takes down an answer: its method, route and status, and how many seconds it took."""

_log = structlog.get_logger("relevo.http")
_OWN_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
]
_MOST_PATH, _MOST_QUERY = 4_096, 8_192
"""Bytes of an address: the longest owner and all filters of tenders fit, each byte written as three."""
_MOST_PARAMETERS = 50
_MOST_COOKIES = 50
_HSTS = (b"strict-transport-security", b"max-age=31536000")
_METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
_QUIET = ("/health/", "/metrics")


class OverLimit:
    """Refuses, before any route is looked up, a request whose caller is beyond its rate."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse one request, or pass it on."""
        state = scope.get("state", {})
        if not (wait_s := state.get("refuse_for_s", 0)):
            return await self._app(scope, receive, send)
        refused = Problem(429, "Too many requests of this caller, or of its address.", retry_after_s=wait_s)
        return await refused.response(state.get("request_id"))(scope, receive, send)


class RequestMiddleware:
    """Wraps the whole app, so that nothing gets past it."""

    def __init__(
        self,
        app: ASGIApp,
        max_body: int,
        measure: Measure = lambda *_: None,
        strangers: RefusedStrangers | None = None,
    ) -> None:
        self._app = app
        self._max_body = max_body
        self._measure = measure
        self._strangers = strangers or RefusedStrangers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        exchange = _Exchange(scope, self._max_body, receive, send)
        structlog.contextvars.bind_contextvars(request_id=exchange.request_id)  # each request has a task of its own
        if exchange.traceparent is not None:
            structlog.contextvars.bind_contextvars(trace_id=trace_id_of(exchange.traceparent))
        try:
            if (refused := _unreasonable(scope)) is not None:
                await refused.response(exchange.request_id)(scope, exchange.receive, exchange.send)
            else:
                await self._app(scope, exchange.receive, exchange.send)
        except Exception as error:  # noqa: BLE001 whatever a route raises is its answer, and a line in the log
            _log.error("http_failed", exc_info=error)
            await exchange.answer_failure(error)
        exchange.tell(self._measure, self._strangers)


def _unreasonable(scope: Scope) -> Problem | None:
    """Return why a request is refused before anything of it is parsed; None if nothing is wrong with its size."""
    query: bytes = scope["query_string"]
    if len(scope["raw_path"]) > _MOST_PATH:
        return Problem(414, f"The path has more than {_MOST_PATH} bytes.")
    if len(query) > _MOST_QUERY:
        return Problem(414, f"The query string has more than {_MOST_QUERY} bytes.")
    if query.count(b"&") >= _MOST_PARAMETERS:
        return Problem(400, f"The query string has more than {_MOST_PARAMETERS} parameters.")
    if sum(value.count(b";") for name, value in scope["headers"] if name == b"cookie") >= _MOST_COOKIES:
        return Problem(431, f"The request brings more than {_MOST_COOKIES} cookies.")
    return None


class _Exchange:
    def __init__(self, scope: Scope, max_body: int, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        self.request_id = given.decode() if _OWN_ID.fullmatch(given) else f"{random.getrandbits(64):016x}"
        traceparent = headers.get(b"traceparent")
        self.traceparent = read_header(traceparent.decode("latin-1")) if traceparent else None
        self.told: dict[str, Any] = {}
        state = scope.setdefault("state", {})
        state["request_id"], state["told"], state["bound_body"] = self.request_id, self.told, self.bound_body
        length = headers.get(b"content-length", b"0")
        self._announced = int(length) if length.isdigit() else 0
        self._scope, self._receive, self._send = scope, receive, send
        self._max_body, self._read = max_body, 0
        self._by_tls = scope.get("scheme") == "https" or headers.get(b"x-forwarded-proto") == b"https"
        self._status = 0
        self._began = time.perf_counter()

    def bound_body(self, max_body: int) -> None:
        """Take less of a body than usual, as the route's rule asks."""
        self._max_body = min(self._max_body, max_body)

    async def receive(self) -> Message:
        """Pass a piece of the body on, but not more than a body may have."""
        if self._announced > self._max_body:
            raise self._too_large()
        message = await self._receive()
        self._read += len(message.get("body", b""))
        if self._read > self._max_body:
            raise self._too_large()
        return message

    def _too_large(self) -> HTTPException:
        # The rest of the body must not be taken for a request.
        return HTTPException(413, f"The body has more than {self._max_body} bytes.", {"Connection": "close"})

    async def send(self, message: Message) -> None:
        """Pass a piece of the answer on, with the headers that each has."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            own = {name for name, _ in message["headers"]}
            added = [*_HEADERS, (b"x-request-id", self.request_id.encode()), *([_HSTS] if self._by_tls else [])]
            message["headers"] = [*message["headers"], *(each for each in added if each[0] not in own)]
        await self._send(message)

    async def answer_failure(self, error: Exception) -> None:
        """Answer an unexpected error, unless the answer has begun."""
        if not self._status:
            await of_error(error).response(self.request_id)(self._scope, self.receive, self.send)

    def tell(self, measure: Measure, strangers: RefusedStrangers) -> None:
        """Measure the request, and log what came of it: changes and failures always, reads at debug.

        Refusals of strangers are logged at debug, too, and counted for the one line a minute.
        """
        method, status, took_s = self._scope["method"], self._status or "left", time.perf_counter() - self._began
        told = {"route": "none"} | self.told
        measure(method if method in _METHODS else "OTHER", str(told["route"]), str(status), took_s)
        failed = self._status >= 500  # noqa: PLR2004
        read = method in ("GET", "HEAD", "OPTIONS") and not failed
        is_strangers = 400 <= self._status < 500 and "caller" not in told  # noqa: PLR2004
        if is_strangers:
            strangers.note(self._status)
        quiet = read or is_strangers or self._scope["path"].startswith(_QUIET)
        level = _log.debug if quiet else _log.warning if failed else _log.info
        level("http_request", method=method, status=status, ms=round(took_s * 1000, 1), **told)
