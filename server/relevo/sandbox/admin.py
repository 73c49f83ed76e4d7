"""The admin calls under /sandbox: phones, totals, faults, settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from relevo.core.errors import InvalidInputError
from relevo.sandbox import answers, messages
from relevo.sandbox.answers import HttpResponse, refused
from relevo.sandbox.phone_apps import PhoneApp
from relevo.sandbox.state import NativeServices, SandboxState

MAX_LIMIT = 1_000
_PHONES = "/sandbox/phones"
PHONE = f"{_PHONES}/"


def answer(state: SandboxState, method: str, path: str, query: bytes, body: bytes) -> HttpResponse:
    """Answer an admin call; raises Refused."""
    if path.startswith(PHONE):
        methods = {
            "GET": lambda: _phone(state, path.removeprefix(PHONE)),
            "POST": lambda: _change_phone(state, path.removeprefix(PHONE), messages.parse(body)),
        }
    else:
        methods = _calls(state, query, body).get(path, {})
    if not methods:
        raise refused(404, "NOT_FOUND", f"There is nothing at {path[:200]}.")
    if method not in methods:
        allowed = ", ".join(methods)
        raise refused(405, "METHOD_NOT_ALLOWED", f"Use {allowed} here.", headers={"allow": allowed})
    try:
        told = methods[method]()
        # A change that has nothing of its own to tell is answered with how it is now.
        return answers.in_json(methods["GET"]() if told is None else told)
    except InvalidInputError as error:
        raise refused(400, "BAD_REQUEST", str(error)) from None


def _calls(state: SandboxState, query: bytes, body: bytes) -> dict[str, dict[str, Callable[[], Any]]]:
    return {
        _PHONES: {"GET": lambda: _page(state, query), "DELETE": lambda: _reset(state)},
        "/sandbox/totals": {"GET": state.totals},
        "/sandbox/services": {"GET": lambda: _services(state).settings()},
        "/sandbox/tokens": {"POST": lambda: {"token": _services(state).make_token(messages.parse(body))}},
        "/sandbox/access-tokens": {"DELETE": lambda: _expire(state)},
        "/sandbox/faults": {
            "GET": lambda: {"faults": state.faults()},
            "POST": lambda: _add_faults(state, messages.parse(body)),
            "DELETE": state.clear_faults,
        },
        "/sandbox/settings": {
            "GET": lambda: {"settings": state.settings.as_json()},
            "POST": lambda: state.change(messages.parse(body)),
        },
    }


def _page(state: SandboxState, query: bytes) -> dict[str, Any]:
    asked = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    limit = _number(asked, "limit", 100, 1, MAX_LIMIT)
    phones, more = state.phones.page(limit, _number(asked, "after", 0, 0, 2**53))
    return {"phones": [phone.as_json() for phone in phones], "next": more}


def _number(asked: dict[str, list[str]], name: str, default: int, least: int, most: int) -> int:
    text = asked.get(name, [str(default)])[-1]
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)) or not least <= int(text) <= most:
        raise InvalidInputError(f"`{name}` must be a whole number from {least} to {most}, got {text[:50]!r}.")
    return int(text)


def _phone(state: SandboxState, token: str) -> dict[str, Any]:
    phone = state.phones.find(token)
    if phone is None:
        raise refused(404, "NOT_FOUND", f"No message has reached the phone {token[:200]}.")
    return phone.as_json() | {"messages": phone.messages(), "touched": phone.touched or {}}


def _change_phone(state: SandboxState, token: str, given: Any) -> dict[str, Any]:
    if isinstance(given, dict) and given.keys() == {"app"}:
        return state.install(token, PhoneApp.of(given["app"])).as_json()
    if not isinstance(given, dict) or given.keys() != {"on"} or not isinstance(given["on"], bool):
        raise InvalidInputError('A phone is switched with {"on": false} or {"on": true}, and its app is told as `app`.')
    return state.switch(token, on=given["on"]).as_json()


def _expire(state: SandboxState) -> dict[str, Any]:
    _services(state).expire_access_tokens()
    return {}


def _services(state: SandboxState) -> NativeServices:
    if state.services is None:
        raise refused(404, "NOT_FOUND", "This sandbox speaks Expo alone.")
    return state.services


def _reset(state: SandboxState) -> dict[str, Any]:
    state.reset()
    return state.totals()


def _add_faults(state: SandboxState, given: Any) -> None:
    state.add_faults(given if isinstance(given, list) else [given])
