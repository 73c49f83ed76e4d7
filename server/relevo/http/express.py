"""The short way to a route: what is as usual gets there past FastAPI's layers, which cost more than most routes do.

Routes, rules, checks and answers are the same. Whatever is out of the ordinary (an address nobody serves, a field that
is not as it should be) goes the long way, where it gets the answer it always got.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin
from urllib.parse import parse_qsl
from uuid import UUID

from fastapi import FastAPI, HTTPException, Request
from fastapi.dependencies.models import Dependant
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match

from relevo.http.envelope import Message, Receive, Scope, Send
from relevo.http.guard import Guarded

_SIMPLE = (str, int, float, bool, UUID, datetime, NoneType)
_JSON = b"application/json"


class _UnusualError(Exception):
    """Something for the long way."""


@dataclass(frozen=True)
class _Parameter:
    """One thing that a route takes from the address or the headers."""

    field: Any
    written: str

    def read(self, given: dict[str, str]) -> Any:
        """Return its value, checked as the route declares it."""
        if (text := given.get(self.written)) is None:
            if self.field.field_info.is_required():
                raise _UnusualError
            return self.field.default
        return _checked(self.field, text)


class _Shortcut:
    """A route, and how what it takes is read."""

    def __init__(self, route: Guarded) -> None:
        takes = route.dependant
        self.route = route
        self._request_name = takes.request_param_name
        self._path = [_Parameter(each, each.alias) for each in takes.path_params]
        self._query = [_Parameter(each, each.alias) for each in takes.query_params]
        self._headers = [_Parameter(each, each.alias.lower()) for each in takes.header_params]
        self._body = takes.body_params[0] if takes.body_params else None
        self._known = {each.written for each in self._query}

    def read(self, scope: Scope, last: str) -> dict[str, Any]:
        """Return what the address and the headers say, by the names the route has for it."""
        query: dict[str, str] = {}
        if scope["query_string"]:
            query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
            if not self._known.issuperset(query):
                raise _UnusualError
        found = {each.field.name: each.read({each.written: last}) for each in self._path}
        found |= {each.field.name: each.read(query) for each in self._query}
        if self._headers:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
            found |= {each.field.name: each.read(headers) for each in self._headers}
        if self._body is not None and (b"content-type", _JSON) not in scope["headers"]:
            raise _UnusualError
        return found

    async def serve(self, found: dict[str, Any], request: Request) -> Response:
        """Call the route with what was found, and with its body, of which nothing was read before."""
        if self._request_name is not None:
            found[self._request_name] = request
        if self._body is not None:
            found[self._body.name] = _checked(self._body, _parsed(await _whole_body(request)))
        answer: Response = await self.route.endpoint(**found)
        return answer


class Express:
    """All routes that can be reached the short way, in front of the app that has all others."""

    def __init__(self, api: FastAPI) -> None:
        self._api = api
        self._shortcuts = dict(_shortcuts(api))
        self._paths = {getattr(each, "path", "") for each in api.routes}
        self._is_wrapped = bool(api.user_middleware)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            shortcut, found = self._found(scope)
        except _UnusualError:
            await self._api(scope, receive, send)
            return
        scope["app"] = self._api
        request = Request(scope, receive, send)
        try:
            answer = await shortcut.route.serve(request, partial(shortcut.serve, found))
        except _UnusualError:
            await self._api(scope, _again(request, receive), send)
            return
        except Exception as error:  # noqa: BLE001 most are answers; what is none goes on
            answer = await self._answer(request, error)
        await answer(scope, receive, send)

    def _found(self, scope: Scope) -> tuple[_Shortcut, dict[str, Any]]:
        method, path, last = scope["method"], scope["path"], ""
        shortcut = self._shortcuts.get((method, path))
        if shortcut is None and path not in self._paths:
            above, _, last = path.rpartition("/")
            shortcut = self._shortcuts.get((method, f"{above}/{{}}")) if last else None
        if shortcut is None or (self._is_wrapped and any(name == b"origin" for name, _ in scope["headers"])):
            raise _UnusualError
        return shortcut, shortcut.read(scope, last)

    async def _answer(self, request: Request, error: Exception) -> Response:
        """Have an error answered as the app would."""
        handlers = self._api.exception_handlers
        handler = next((handlers[kind] for kind in type(error).__mro__ if kind in handlers), None)
        if handler is None:
            raise error
        answer: Response = await handler(request, error)  # type: ignore[misc]
        return answer


def _shortcuts(api: FastAPI) -> Sequence[tuple[tuple[str, str], _Shortcut]]:
    """Return the routes that can go this way, by method and path, with {} in place of a part that varies."""
    shortcuts = []
    for route in api.routes:
        if isinstance(route, Guarded) and not route.rule.page and _is_plain(route.dependant):
            method = next(iter(route.methods or ()))
            above, *varies = route.path.split("{")
            ends = not varies or (len(varies) == 1 and above.endswith("/") and varies[0].endswith("}"))
            is_free = ends and ":" not in route.path and _is_first(api, route, method)
            if is_free:
                shortcuts.append(((method, above + "{}" if varies else above), _Shortcut(route)))
    return shortcuts


def _is_first(api: FastAPI, route: Guarded, method: str) -> bool:
    """Tell whether it is the route that the app itself would take."""
    scope = {"type": "http", "method": method, "path": route.path, "root_path": ""}
    return next(each for each in api.routes if each.matches(scope)[0] is Match.FULL) is route


def _is_plain(takes: Dependant) -> bool:
    """Tell whether a route takes no more than simple values, and one body at most."""
    others = (takes.response_param_name, takes.background_tasks_param_name, takes.http_connection_param_name)
    simple = (*takes.path_params, *takes.query_params, *takes.header_params)
    return (
        not takes.dependencies
        and not takes.cookie_params
        and not any(others)
        and len(takes.body_params) <= 1
        and all(_is_simple(each.field_info.annotation) for each in simple)
    )


def _is_simple(kind: Any) -> bool:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return all(map(_is_simple, get_args(kind)))
    return origin is Literal or (isinstance(kind, type) and issubclass(kind, _SIMPLE))


def _checked(field: Any, value: Any) -> Any:
    found, errors = field.validate(value)
    if errors:
        raise _UnusualError
    return found


async def _whole_body(request: Request) -> bytes:
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise HTTPException(400, "There was an error parsing the body") from error  # as FastAPI says it; nobody hears


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise _UnusualError from error


def _again(request: Request, receive: Receive) -> Receive:
    """Return how a request is received whose caller was let in, and whose body was read, already."""
    request.state.admitted = True
    messages: list[Message] = [{"type": "http.request", "body": getattr(request, "_body", b""), "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
