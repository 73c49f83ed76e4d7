"""The kits for JavaScript, installed and built once, and a whole Relevo for them to speak to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import kits


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the kits, built once a run: that they, their examples and their tests type-check is part of that."""
    base = tmp_path_factory.getbasetemp()
    return kits.build((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kits.built")


@pytest.fixture
def running(clients: Path, dsn: str, tmp_path: Path) -> Iterator[kits.Running]:
    """A Relevo that runs with its workers, before a sandbox of all push services."""
    with kits.run(dsn, tmp_path) as started:
        yield started
