"""What tests of disasters share: a sandbox, a program whose processes die, workers that live in another time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from relevo import app
from relevo.config import Settings
from relevo.sandbox.server import Sandbox
from support import model_replay, soak
from support.dying_processes import DyingProcesses
from support.processes import Processes


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A push service without a rate, whose receipts are there at once."""
    with Sandbox(rate_per_s=0, receipt_delay_s=0) as started:
        yield started


@pytest.fixture(scope="session")
def program() -> Iterator[DyingProcesses]:
    """The program that sends for the tests of this folder, and survives its own processes."""
    with DyingProcesses.start() as started:
        yield started


@pytest.fixture
def dying_processes(program: DyingProcesses, dsn: str, sandbox: Sandbox) -> DyingProcesses:
    """The program on the test's database."""
    return program.on(DATABASE_URL=dsn, EXPO_BASE_URL=sandbox.url)


@pytest.fixture
def processes(dsn: str, tmp_path: Path) -> Iterator[Processes]:
    """Start processes on the test's database."""
    started = Processes(dsn, tmp_path)
    yield started
    started.close()


class Traveller:
    """A clock for `app.build`: real time and an offset, which grows."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        """Tell the time."""
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def clock() -> Traveller:
    """The time in which the workers of `travelling` live."""
    return Traveller()


@pytest.fixture
def travelling(
    make_settings: Callable[..., Settings], sandbox: Sandbox, clock: Traveller
) -> Iterator[Callable[..., app.App]]:
    """Assemble registered workers that live by `clock`: `travelling(push_chunk_size=2)`."""
    opened: list[Any] = []

    def make(**changes: object) -> app.App:
        context = app.build(make_settings(**{"expo_base_url": sandbox.url} | changes), clock=clock)
        built = context.__enter__()
        opened.append(context)
        built.worker.record_start("run", [cycle.key for cycle in built.cycles()])
        return built

    yield make
    for context in reversed(opened):
        context.__exit__(None, None, None)


@pytest.fixture(scope="module")
def steps(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[model_replay.Steps | None]:
    """What the deliveries of a file's tests went through: in the end the specification must allow all of it.

    `make soak` asks this of every file here, `make test` of those that say REPLAYED.
    """
    if not model_replay.can_replay() or not (soak.WHOLE or getattr(request.module, "REPLAYED", False)):
        yield None
        return
    written: model_replay.Steps = []
    yield written
    done = model_replay.replay(written, tmp_path_factory.mktemp("trace"))
    assert done.returncode == 0, done.stderr


@pytest.fixture
def dsn(dsn: str, steps: model_replay.Steps | None, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database that writes down what deliveries go through, where somebody reads it."""
    if steps is None:
        yield dsn
        return
    model_replay.record(dsn)
    yield dsn
    steps += model_replay.read(dsn, request.node.name)
