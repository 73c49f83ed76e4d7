"""A real HTTP server beside the test's own database."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from browsing import Person
from devices import KEYS, Phones
from relevo.app import App
from relevo.sandbox import Sandbox
from serving import Served

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))


@pytest.fixture
def serve(build: Callable[..., App]) -> Iterator[Callable[..., Served]]:
    """Serve HTTP for the test's database: `serve(http_rate_per_second=3).client("app").get("/…")`."""
    started: list[Served] = []

    def make(**settings: object) -> Served:
        served = Served(build(**settings))
        served.start()
        started.append(served)
        return served

    yield make
    for served in started:
        served.close()


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    """A server with default settings."""
    return serve()


@pytest.fixture
def person(served: Served) -> Person:
    """Somebody who may look at everything."""
    someone = Person(served, "viewer")
    someone.log_in()
    return someone


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A local Expo without a rate limit."""
    with Sandbox(rate_per_s=0, receipt_delay_s=0) as running:
        yield running


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    """The keys of the app's server: two, while the new one takes over."""
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({name: {"secret": secret} for name, secret in KEYS.items()}))
    file.chmod(0o600)
    return file


@pytest.fixture
def phones(serve: Callable[..., Served], keys_file: Path) -> Phones:
    """Phones of a server that takes signatures and no strangers."""
    return Phones(serve(http_signing_keys_file=keys_file, http_rate_per_second=0))
