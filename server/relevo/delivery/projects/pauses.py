"""One worker's pauses: phones whose push service asked for one, and deliveries that were refused repeatedly."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from uuid import UUID

from relevo.core.model import Delivery

_MOST = 10_000
_FIRST_PAUSE_MS = 1_000


class PhonePauses:
    """Phones that their push service wants left alone: until when, by the monotonic clock."""

    def __init__(self) -> None:
        self._until: dict[UUID, float] = {}
        self._guard = threading.Lock()

    def pause(self, installation: UUID, pause_ms: int) -> None:
        """Send nothing to a phone for so long; of too many those that end first are forgotten, and met again."""
        with self._guard:
            now = time.monotonic()
            until = max(now + pause_ms / 1000, self._until.get(installation, 0.0))
            self._until[installation] = until
            if len(self._until) > _MOST:
                latest = sorted(self._until.items(), key=lambda each: each[1])[-_MOST // 2 :]
                self._until = {key: end for key, end in latest if end > now}

    def any_of(self, deliveries: Sequence[Delivery]) -> bool:
        """Return whether one of these may be for a phone that pauses."""
        return bool(self._until) and not self._until.keys().isdisjoint([each.installation_id for each in deliveries])

    def left_ms(self, installation: UUID) -> int | None:
        """Return for how long a phone still pauses; None if it does not."""
        until = self._until.get(installation)
        if until is None:
            return None
        left_s = until - time.monotonic()
        if left_s <= 0:
            with self._guard:
                self._until.pop(installation, None)
            return None
        return int(left_s * 1000) + 1


class TurnedAwayError(Exception):
    """A push service does not take one delivery, and says so again and again."""


class TurnedAway:
    """How often in a row some deliveries were certainly not taken, though others of their requests were, by id."""

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
