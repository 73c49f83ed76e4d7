"""Deliveries that are turned away again and again, though others of their requests are taken, as one worker met it."""

from __future__ import annotations

import threading
from collections.abc import Iterable

_MOST = 10_000
_FIRST_PAUSE_MS = 1_000


class TurnedAwayError(Exception):
    """A push service does not take one delivery, and says so again and again."""


class TurnedAway:
    """How often in a row some deliveries were certainly not taken, by id."""

    def __init__(self) -> None:
        self._times: dict[int, int] = {}
        self._guard = threading.Lock()

    def met(self, delivery: int) -> int:
        """Note that a delivery was turned away; return how often in a row.

        Of too many, the oldest half is forgotten.
        """
        with self._guard:
            times = self._times.pop(delivery, 0) + 1
            self._times[delivery] = times
            if len(self._times) > _MOST:
                self._times = dict(list(self._times.items())[-_MOST // 2 :])
            return times

    def forget(self, deliveries: Iterable[int]) -> list[int]:
        """Note that something else became of deliveries; return those that had been turned away."""
        if not self._times:
            return []
        with self._guard:
            return [delivery for delivery in deliveries if self._times.pop(delivery, None) is not None]


def pause_ms(times: int, most_ms: int) -> int:
    """Return how long what was turned away so often in a row waits: twice as long each time."""
    return min(_FIRST_PAUSE_MS << min(times - 1, 30), max(most_ms, _FIRST_PAUSE_MS))
