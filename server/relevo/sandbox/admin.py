"""The admin calls under /sandbox: phones, totals, faults, settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from relevo.core.errors import InvalidInputError
from relevo.sandbox import answers, messages
from relevo.sandbox.answers import Answer, Refused
from relevo.sandbox.phone_apps import PhoneApp
from relevo.sandbox.world import World

if TYPE_CHECKING:
    from relevo.sandbox.services.running import Services

MAX_LIMIT = 1_000
_PHONES = "/sandbox/phones"
PHONE = f"{_PHONES}/"


def answer(world: World, method: str, path: str, query: bytes, body: bytes) -> Answer:
    """Answer an admin call; raises Refused."""
    if path.startswith(PHONE):
        methods = {
            "GET": lambda: _phone(world, path.removeprefix(PHONE)),
            "POST": lambda: _change_phone(world, path.removeprefix(PHONE), messages.parse(body)),
        }
    else:
        methods = _calls(world, query, body).get(path, {})
    if not methods:
        raise Refused(404, "NOT_FOUND", f"There is nothing at {path[:200]}.")
    if method not in methods:
        allowed = ", ".join(methods)
        raise Refused(405, "METHOD_NOT_ALLOWED", f"Use {allowed} here.", headers={"allow": allowed})
    try:
        return answers.in_json(methods[method]())
    except InvalidInputError as error:
        raise Refused(400, "BAD_REQUEST", str(error)) from None


def _calls(world: World, query: bytes, body: bytes) -> dict[str, dict[str, Callable[[], Any]]]:
    return {
        _PHONES: {"GET": lambda: _page(world, query), "DELETE": lambda: _reset(world)},
        "/sandbox/totals": {"GET": world.totals},
        "/sandbox/services": {"GET": lambda: _services(world).settings()},
        "/sandbox/tokens": {"POST": lambda: {"token": _services(world).make_token(messages.parse(body))}},
        "/sandbox/access-tokens": {"DELETE": lambda: _expire(world)},
        "/sandbox/faults": {
            "GET": lambda: {"faults": world.faults()},
            "POST": lambda: _add_faults(world, messages.parse(body)),
            "DELETE": lambda: _clear_faults(world),
        },
        "/sandbox/settings": {
            "GET": lambda: _settings(world),
            "POST": lambda: _change(world, messages.parse(body)),
        },
    }


def _settings(world: World) -> dict[str, Any]:
    return {"settings": world.settings.as_json()}


def _page(world: World, query: bytes) -> dict[str, Any]:
    asked = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    limit = _number(asked, "limit", 100, 1, MAX_LIMIT)
    phones, more = world.phones.page(limit, _number(asked, "after", 0, 0, 2**53))
    return {"phones": [phone.as_json() for phone in phones], "next": more}


def _number(asked: dict[str, list[str]], name: str, default: int, least: int, most: int) -> int:
    text = asked.get(name, [str(default)])[-1]
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)) or not least <= int(text) <= most:
        raise InvalidInputError(f"`{name}` must be a whole number from {least} to {most}, got {text[:50]!r}.")
    return int(text)


def _phone(world: World, token: str) -> dict[str, Any]:
    phone = world.phones.find(token)
    if phone is None:
        raise Refused(404, "NOT_FOUND", f"No message has reached the phone {token[:200]}.")
    return phone.as_json() | {"messages": phone.messages(), "touched": phone.touched or {}}


def _change_phone(world: World, token: str, given: Any) -> dict[str, Any]:
    if isinstance(given, dict) and given.keys() == {"app"}:
        return world.install(token, PhoneApp.of(given["app"])).as_json()
    if not isinstance(given, dict) or given.keys() != {"on"} or not isinstance(given["on"], bool):
        raise InvalidInputError('A phone is switched with {"on": false} or {"on": true}, and its app is told as `app`.')
    return world.switch(token, on=given["on"]).as_json()


def _expire(world: World) -> dict[str, Any]:
    _services(world).fcm.tokens.expire()
    return {}


def _services(world: World) -> Services:
    if world.services is None:
        raise Refused(404, "NOT_FOUND", "This sandbox speaks Expo alone.")
    return world.services


def _reset(world: World) -> dict[str, Any]:
    world.reset()
    return world.totals()


def _add_faults(world: World, given: Any) -> dict[str, Any]:
    world.add_faults(given if isinstance(given, list) else [given])
    return {"faults": world.faults()}


def _clear_faults(world: World) -> dict[str, Any]:
    world.clear_faults()
    return {"faults": []}


def _change(world: World, changes: Any) -> dict[str, Any]:
    world.change(changes)
    return _settings(world)
