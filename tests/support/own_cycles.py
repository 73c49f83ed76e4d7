"""A cycle of Relevo's own by its name, for tests that run it in a way of their own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from relevo import cycles
from relevo.config import Settings
from relevo.runtime.runs import Cycle


def own_cycle(name: str, settings: Settings, services: Any = None, sources: Any = ()) -> Cycle:
    """Make a cycle of Relevo's own; those that send need the services of a worker."""
    given = SimpleNamespace(
        settings=settings, services=services or SimpleNamespace(tracing=None), sources=sources, store=None
    )
    [cycle] = [each for each in cycles.assemble(cast("Any", given)) if each.name == name]
    return cycle
