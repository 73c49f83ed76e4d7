"""What the tests of sources share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relevo.sources.chilecompra import ChileCompra
from support.fake_chilecompra import TICKET, FakeChileCompra
from support.ocds_pages import Pages
from support.source_context import MemorySourceContext, settings_for


@pytest.fixture
def context() -> MemorySourceContext:
    """A source context at noon of 9 February 2026 in Santiago."""
    return MemorySourceContext()


@pytest.fixture
def chile(context: MemorySourceContext) -> Iterator[FakeChileCompra]:
    """A fake ChileCompra by the desk's clock, which refuses requests less than 1.5 s apart."""
    with FakeChileCompra(clock=context.seconds, spacing_s=1.5) as server:
        yield server


@pytest.fixture
def source(chile: FakeChileCompra) -> ChileCompra:
    """ChileCompra as asked at the fake server."""
    return ChileCompra(settings_for(chilecompra_ticket=TICKET, chilecompra_base_url=chile.base_url))


@pytest.fixture
def pages() -> Iterator[Pages]:
    """A publisher."""
    with Pages() as server:
        yield server
