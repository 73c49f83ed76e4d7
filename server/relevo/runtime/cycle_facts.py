"""Facts of a cycle that need no run: the form of FACTS in each cycle's file, and of the cycle's waiting work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Backlog(NamedTuple):
    """How much work waits in the queues between cycles."""

    events: int = 0
    """Events that wait for fan-out."""
    deliveries: int = 0
    """Deliveries that are due."""
    receipts: bool = False
    """Whether receipts are due."""


def _nothing(_backlog: Backlog) -> str:
    return ""


@dataclass(frozen=True)
class CycleFacts:
    """A cycle in words, and who may run it; when it runs depends on the settings, and is said by its `Cycle`."""

    name: str
    does: str
    """The cycle's task, in a sentence for the guide."""
    counts: Mapping[str, str]
    """The counts of its runs: each name in `worker_runs.counts`, with its meaning for the guide."""
    after: str = ""
    """The cycle whose results it works on: a tick runs it later, and lists show it later."""
    singleton: bool = False
    """Whether it runs once in the fleet; else every replica runs it."""
    by_source: bool = False
    """Whether there is one for each source."""
    wakeable: bool = False
    """Whether it is called as soon as there is work."""
    feeds: str = ""
    """The cycle that has work once this one had some."""
    bookkeeping: bool = False
    """Whether it only keeps the tables in order, and so runs in a copied database, too."""
    waiting: Callable[[Backlog], str] = _nothing
    """Says in words what waits while it is paused; nothing if only time passes, which is told after a day."""
    paused: str = ""
    """That somebody paused it, in the story of an event that it works on."""
    resumed: str = ""
    """That somebody resumed it, likewise."""
