"""What the tests of HTTP share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relevo.sandbox import Sandbox


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A local Expo without a rate limit."""
    with Sandbox(rate_per_s=0, receipt_delay_s=0) as running:
        yield running
