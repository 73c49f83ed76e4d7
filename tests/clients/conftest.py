"""The kits for JavaScript, installed and built once, and a whole Relevo for them to speak to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kits


@pytest.fixture(scope="session")
def clients() -> Path:
    """The folder of the kits, built: that they, their examples and their tests type-check is part of that."""
    return kits.build()


@pytest.fixture
def running(clients: Path, dsn: str, tmp_path: Path) -> Iterator[kits.Running]:
    """A Relevo that runs with its workers, before a sandbox of all push services."""
    with kits.run(dsn, tmp_path) as started:
        yield started
