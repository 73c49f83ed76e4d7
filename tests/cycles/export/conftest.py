"""What the tests of export share."""

from __future__ import annotations

import pytest

from support.fixtures.retired_month import conn, dsn, retired

__all__ = ["conn", "dsn", "retired"]


@pytest.fixture(autouse=True)
def _usual_priority(usual_priority: None) -> None:
    """No thread waits for other processes that run tests."""
