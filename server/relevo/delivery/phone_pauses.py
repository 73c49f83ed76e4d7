"""Phones that their push service wants left alone for a while; each worker knows those that it was told of."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from uuid import UUID

from relevo.core.model import Answer, Delivery, Reply
from relevo.delivery.outcomes import not_attempted

_MOST = 10_000


class PhonePauses:
    """Until when nothing is sent to some phones, by the monotonic clock."""

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

    def obstacle(self, delivery: Delivery) -> Answer | None:
        """Return the answer of a delivery whose phone pauses: it waits, and nothing was tried."""
        until = self._until.get(delivery.installation_id)
        if until is None:
            return None
        left_s = until - time.monotonic()
        if left_s <= 0:
            with self._guard:
                self._until.pop(delivery.installation_id, None)
            return None
        return not_attempted(delivery, Reply("held_back", code="phone_paused"), int(left_s * 1000) + 1)
