"""JSON that is allowed by its grammar and meant to do harm is refused with a sentence, on every route that takes some."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from relevo.http.rules import RULES
from support import soak
from support.http_server import Client, Served

JSON = {"Content-Type": "application/json"}
BODILESS = ("/v1/ops/cycles/{name}/resume", "/v1/ops/cycles/{name}/run")
TAKES_A_BODY = sorted(
    path for method, path in RULES if method in ("POST", "PUT") and path.startswith("/v1/") and path not in BODILESS
)


def nested(levels: int, opening: str = "[", closing: str = "]") -> str:
    """Return JSON with as many levels."""
    return opening * levels + "1" + closing * levels


DEEP = {
    "lists": nested(100_000),
    "objects": nested(20_000, '{"a":', "}"),
    "never closed": "[" * 100_000,
    "just too deep for Python": nested(1_200),
    "lists of objects": nested(5_000, '[{"a":', "}]"),
}
ODD = {
    "deep data": '{"data": ' + nested(1_000, '{"a":', "}") + "}",
    "deep data below Python's limit": '{"data": {"a": ' + nested(900) + "}}",
    "not a number": '{"data": {"n": NaN}}',
    "infinite": '{"data": {"n": -Infinity}}',
    "a float too large": '{"data": {"n": 1e999}}',
    "an int too large": '{"data": {"n": %s}}' % ("9" * 5_001),
    "an int too large, elsewhere": '{"ttl_s": %s}' % ("9" * 5_001),
    "half a character": r'{"title": "\ud800"}',
    "half a character as a name": r'{"\ud800": 1}',
    "half a character in data": r'{"data": {"\udfff": "\ud800"}}',
    "NUL": r'{"title": "\u0000"}',
    "NUL as a name": r'{"\u0000": 1}',
    "NUL in data": r'{"data": {"a": {"\u0000": 1}}}',
    "bytes that are no text": '{"title": "\udcff"}',
    "a byte order mark": '\ufeff{"title": "x"}',
    "the same name twice": '{"type": 1, "type": 2}',
    "nothing": "",
    "a list": "[]",
    "null": "null",
}
GOOD = {"type": "order.shipped", "key": "k", "title": "x", "audience": "everyone"}


def filled(path: str) -> str:
    """Return an address of a route, with something plausible in each place."""
    for name, value in (("event_id", "1"), ("installation_id", str(uuid4())), ("name", "dispatch")):
        path = path.replace(f"{{{name}}}", value)
    return path


@pytest.fixture
def callers(serve: Callable[..., Served]) -> list[Client]:
    """An operator, an app and a stranger."""
    served = serve(http_rate_per_second=0)
    return [served.client("operator"), served.client("app"), served.client()]


def refused(answer: Any) -> bool:
    """Tell whether an answer is a refusal that says what is wrong."""
    told = answer.json()
    return 400 <= answer.status_code < 500 and len(told["detail"]) > 10


def sent(callers: list[Client], bodies: dict[str, str]) -> Iterator[tuple[Any, Any]]:
    """Send each body to every route as an operator, who may call them all; the first one as everybody.

    `make soak` has each body sent by everybody.
    """
    first = next(iter(bodies))
    for path in TAKES_A_BODY:
        method = "POST" if ("POST", path) in RULES else "PUT"
        for name, body in bodies.items():
            given = body.encode("utf-8", "surrogateescape")
            for caller in soak.cases(callers if name == first else callers[:1], whole=callers):
                yield (path, name), caller.call(method, filled(path), data=given, headers=JSON)


def test_deep_json_is_refused(callers: list[Client]) -> None:
    """However deep, however it is made: no route fails over it, and whoever may call one is told it is too deep."""
    for where, answer in sent(callers, DEEP):
        assert refused(answer), (where, answer.text)
        if answer.status_code == 400:
            assert "nested" in answer.text or "JSON" in answer.text, (where, answer.text)


def test_odd_json_is_refused_or_taken(callers: list[Client]) -> None:
    """Numbers, texts and names that cannot be stored, and JSON that is none: never a failure, on any route."""
    for where, answer in sent(callers, ODD):
        assert answer.status_code < 500, (where, answer.text)


def test_an_event_with_odd_json_is_refused_by_name(callers: list[Client]) -> None:
    """An event that is good but for one odd thing is refused with a sentence."""
    for name, odd in ODD.items():
        if "{" not in odd or "byte order" in name:
            continue
        rest = "".join(f', "{field}": "{value}"' for field, value in GOOD.items() if f'"{field}":' not in odd)
        body = f"{odd[:-1]}{rest}}}".encode("utf-8", "surrogateescape")
        answer = callers[1].call("POST", "/v1/events", data=body, headers=JSON)
        assert (answer.status_code, refused(answer)) == (400, True), (name, answer.text)
