"""Dispatch and receipts over HTTP: one sandbox for all of these tests, as new for each of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog

from commanding import Command, make_command
from relevo import app
from relevo.config import Settings
from relevo.delivery.claiming.claim import Claim
from relevo.sandbox import Sandbox
from relevo.sandbox import Settings as SandboxSettings

sys.path.insert(0, str(Path(__file__).parent))
from hanging import LASTS, SHORT, Trap
from relaying import Clock, Relay

MakeRelay = Callable[..., Relay]

USUAL: dict[str, object] = {
    "push_rate_per_second": 0,
    "push_request_timeout_ms": 10_000,
    "receipt_first_poll_ms": 1,
    "outbox_retry_jitter_ms": 0,
}
"""No limits of our own, receipts at once, retries after exactly 1, 2, 4 … minutes, which tests travel."""


@pytest.fixture(autouse=True)
def _plain_logs(_quiet_logs: None) -> None:
    """Tracebacks as Python writes them: those with every local variable take longer than the tests."""
    structlog.configure(processors=[structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)])


@pytest.fixture(scope="session")
def push_service() -> Iterator[Sandbox]:
    """The sandbox these tests share."""
    with Sandbox() as running:
        yield running


@pytest.fixture
def sandbox(push_service: Sandbox) -> Sandbox:
    """A push service that knows nothing yet, without a rate limit and with receipts at once."""
    push_service.set(**asdict(SandboxSettings(rate_per_s=0, receipt_delay_s=0, apns_token_interval_s=0)))
    push_service.clear_faults()
    push_service.reset()
    return push_service


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dsn: str, push_service: Sandbox
) -> Command:
    """`relevo` on the test's database, in this process and a wide window: `command("redrive", "--dry-run")`."""
    monkeypatch.setenv("EXPO_BASE_URL", push_service.url)
    monkeypatch.setenv("RELEVO_INSTANCE", "tests")
    return make_command(monkeypatch, capsys, dsn)


@pytest.fixture
def clock() -> Clock:
    """The clock all relays of a test share; until somebody travels, the database's."""
    return Clock()


@pytest.fixture
def relay(
    make_settings: Callable[..., Settings], conn: psycopg.Connection[Any], sandbox: Sandbox, clock: Clock
) -> Iterator[MakeRelay]:
    """Assemble a worker that sends to the sandbox, closed at the end: `relay(outbox_max_attempts=2)`."""
    opened: list[Any] = []

    def make(
        *,
        push_middlewares: Any = (),
        composers: Any = None,
        cycles: Any = None,
        register: bool = True,
        **changes: object,
    ) -> Relay:
        settings = make_settings(**{"expo_base_url": sandbox.url} | USUAL | changes)
        parts = app.Parts(push_middlewares=push_middlewares, composers=composers or {})
        context = app.build(settings, parts, clock=clock)
        built = context.__enter__()
        opened.append(context)
        made = Relay(built, conn, sandbox, clock)
        if register:
            built.worker.record_start("run", cycles or [cycle.key for cycle in built.cycles()])
        return made

    yield make
    for context in reversed(opened):
        context.__exit__(None, None, None)


@pytest.fixture
def trap() -> Iterator[Trap]:
    """A trap that holds nothing after the test."""
    made = Trap()
    yield made
    made.open()


@pytest.fixture
def hanging(relay: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Relay]:
    """Assemble a worker with short leases, and less than three of them for a claim, and a heart that beats: `hanging(composers=…)`."""
    monkeypatch.setattr(Claim, "lasts_s", property(lambda claim: LASTS * claim.lease_ms / 1000))

    def make(**more: Any) -> Relay:
        worker: Relay = relay(**SHORT | more)
        worker.app.heartbeat.start()
        return worker

    return make
