"""One sandbox for the session, as new for every test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import pytest

from relevo.sandbox import Sandbox, Settings
from support.sandbox_client import Client


@pytest.fixture(scope="session")
def running() -> Iterator[Sandbox]:
    """The session's sandbox."""
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(running: Sandbox) -> Sandbox:
    """A sandbox that knows nothing yet, without a rate limit and with receipts at once."""
    running.set(**asdict(Settings(rate_per_s=0, receipt_delay_s=0)))
    running.clear_faults()
    running.reset()
    return running


@pytest.fixture
def client(sandbox: Sandbox) -> Client:
    """A client of the sandbox."""
    return Client(sandbox)
