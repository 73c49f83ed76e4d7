"""What the tests of push services share."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from relevo.providers.expo.provider import Expo
from support.expo_pushes import Make, message
from support.fake_expo import FakeExpo
from support.http2_exchange import Client, loopback, trusting
from support.scripted_http2 import Script, ScriptedHttp2


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


@pytest.fixture(params=["h2", "jh2"])
def http2(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The client as it is with each of the two libraries."""
    if request.param == "h2":
        monkeypatch.setitem(sys.modules, "jh2", None)
    for name in ("connection", "streams", "client"):
        monkeypatch.delitem(sys.modules, f"relevo.providers.http2.{name}", raising=False)
    return importlib.import_module("relevo.providers.http2.client")


@pytest.fixture
def served() -> Iterator[Callable[..., ScriptedHttp2]]:
    """Start scripted servers."""
    started: list[ScriptedHttp2] = []

    def start(*scripts: Script, **how: Any) -> ScriptedHttp2:
        started.append(ScriptedHttp2(*scripts, **how).__enter__())
        return started[-1]

    yield start
    for server in started:
        server.__exit__(None, None, None)


@pytest.fixture
def client(http2: ModuleType) -> Iterator[Client]:
    """Make clients that find push.example on this machine."""
    made: list[Any] = []

    def start(server: ScriptedHttp2 | str, **how: Any) -> Any:
        origin = server if isinstance(server, str) else server.origin
        usual = {"tls": trusting(), "connect_s": 10, "resolve": loopback}
        made.append(http2.Http2Client(origin, **usual | how))
        return made[-1]

    yield start
    for each in made:
        each.close()
