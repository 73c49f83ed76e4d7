"""What the tests of push services share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fakes.expo import FakeExpo
from relevo.providers.expo import Expo

Make = Callable[..., Expo]


@pytest.fixture
def fake() -> Iterator[FakeExpo]:
    """A fake Expo that accepts everything until told otherwise."""
    with FakeExpo() as server:
        yield server


@pytest.fixture
def make(fake: FakeExpo) -> Iterator[Make]:
    """Make adapters, by default for the fake Expo."""
    made: list[Expo] = []

    def start(**settings: Any) -> Expo:
        usual = {"base_url": fake.url, "access_token": None, "timeout_ms": 30_000, "connect_timeout_ms": 10_000}
        made.append(Expo(**usual | settings))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.fixture(params=["a new connection", "one that is kept"])
def expo(request: pytest.FixtureRequest, fake: FakeExpo, make: Make) -> Expo:
    """An adapter for the fake Expo, new or after its first request: the two ways of an exchange mean the same."""
    made = make()
    if request.param == "one that is kept":
        assert made.send([message()]).kind == "answered"
        fake.asked.clear()
    return made


def message(number: int = 1, **more: Any) -> dict[str, Any]:
    """Return a push to one of many phones."""
    return {"to": f"ExponentPushToken[phone{number:017d}]", "title": "Hola", "body": "¿Qué tal?", "ttl": 60} | more


def messages(count: int, **more: Any) -> list[dict[str, Any]]:
    """Return pushes to so many phones."""
    return [message(number, **more) for number in range(count)]
