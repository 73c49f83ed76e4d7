"""The cycles: each file that states FACTS is one duty, each step one bounded batch. No other place lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING

import relevo.core.needs_server  # noqa: F401 ahead of all it needs

if TYPE_CHECKING:  # names are asked for by commands that run no cycle
    from relevo.config import Settings
    from relevo.core.ports import ArchiveStore, Renderer, Source
    from relevo.delivery.worker_services import WorkerServices
    from relevo.runtime.cycle_facts import CycleFacts
    from relevo.runtime.runs import Cycle


@dataclass(frozen=True)
class Assembled:
    """The parts from which a process makes its cycles."""

    services: WorkerServices
    sources: Sequence[tuple[Source, Renderer]] = ()
    """The sources that are read, each with what turns its items into texts."""
    store: ArchiveStore | None = None

    @property
    def settings(self) -> Settings:
        """Return the settings of the process."""
        return self.services.settings


@cache
def modules() -> tuple[ModuleType, ...]:
    """Return the modules of the cycles in the order of their work; modules here without FACTS only help one of them."""
    found = (import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__))
    by_name = {each.FACTS.name: each for each in found if hasattr(each, "FACTS")}

    def place(name: str) -> tuple[int, str]:
        before = by_name[name].FACTS.after
        return (place(before)[0] + 1 if before else 0, name)

    return tuple(by_name[name] for name in sorted(by_name, key=place))


def facts() -> Mapping[str, CycleFacts]:
    """Return what is said of each cycle, by its name."""
    return {each.FACTS.name: each.FACTS for each in modules()}


def names() -> tuple[str, ...]:
    """Return the names of Relevo's own cycles."""
    return tuple(facts())


def assemble(given: Assembled) -> list[Cycle]:
    """Return Relevo's own cycles for the schedule."""
    return [cycle for each in modules() for cycle in each.cycles(given)]
