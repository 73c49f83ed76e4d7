"""The command `relevo` in a process, to migrate by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.processes import Process, Processes


@pytest.fixture
def command(empty_database: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start `relevo` on the database without a schema: `command("migrate", "--plan").ends()`."""
    started = Processes(empty_database, tmp_path)
    yield started.relevo
    started.close()
