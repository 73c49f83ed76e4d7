"""What the tests of sources share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fakes.chilecompra import TICKET, FakeChileCompra
from relevo.sources.chilecompra import ChileCompra
from sources.desk import MemoryDesk, settings_for


@pytest.fixture
def desk() -> MemoryDesk:
    """A desk at noon of 9 February 2026 in Santiago."""
    return MemoryDesk()


@pytest.fixture
def register(desk: MemoryDesk) -> Iterator[FakeChileCompra]:
    """A fake ChileCompra by the desk's clock, which refuses requests less than 1.5 s apart."""
    with FakeChileCompra(clock=desk.seconds, spacing_s=1.5) as server:
        yield server


@pytest.fixture
def source(register: FakeChileCompra) -> ChileCompra:
    """ChileCompra as asked at the fake server."""
    return ChileCompra(settings_for(chilecompra_ticket=TICKET, chilecompra_base_url=register.base_url))
