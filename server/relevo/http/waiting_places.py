"""Places for callers that wait: how many a process has, and how they are shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relevo.http.problems import busy

MOST_WAITERS = 5_000


@dataclass(frozen=True, eq=False)
class Place:
    """One caller that waits."""

    caller: str
    give_up: Callable[[], None]
    """Answers it with what is known, so that another one has its place."""


class Places:
    """All places of one process.

    A token has half of them at most. Once all are taken, the caller that has most of them gives one up: whoever has
    waited there the longest is told what was last seen, and may ask again.
    """

    def __init__(self, most: int = MOST_WAITERS) -> None:
        self.most = most
        self.count = 0
        """How many callers wait."""
        self._of_caller: dict[str, dict[Place, None]] = {}
        """By caller, the longest waiting first."""

    def take(self, caller: str, give_up: Callable[[], None], share: int | None = None) -> Place:
        """Take a place; refuse a caller that has its share, or where none is left and nobody has many more."""
        own = self._of_caller.get(caller, {})
        if len(own) >= (share or max(1, self.most // 2)):
            raise busy("Too many requests of this caller wait here.")
        if self.count >= self.most:
            self._make_room(len(own))
        place = Place(caller, give_up)
        self._of_caller.setdefault(caller, {})[place] = None
        self.count += 1
        return place

    def _make_room(self, own: int) -> None:
        greediest = max(self._of_caller.values(), key=len, default={})
        if len(greediest) <= own + 1:
            raise busy("Too many callers wait here.")
        first = next(iter(greediest))
        del greediest[first]
        first.give_up()

    def give_back(self, place: Place) -> None:
        """Have one place more for others."""
        self.count -= 1
        here = self._of_caller.get(place.caller, {})
        here.pop(place, None)
        if not here:
            self._of_caller.pop(place.caller, None)
