"""Counts the requests of unproven callers that were refused, by reason, and logs one line a minute for all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import structlog

_log = structlog.get_logger("relevo.http")
_EVERY_S = 60.0
REASONS = {
    400: "invalid",
    401: "no_proof",
    403: "not_allowed",
    404: "not_found",
    405: "method",
    409: "conflict",
    413: "too_large",
    414: "too_large",
    429: "rate",
    431: "too_large",
    503: "no_room",
}
"""The reason of a refusal by its status; all others are `other`."""


class RefusedStrangers:
    """The refusals of this process since the last line in the log."""

    def __init__(self, count: Callable[[str], None] = lambda _reason: None) -> None:
        self._count = count
        self._untold: Counter[str] = Counter()

    def note(self, status: int) -> None:
        """Count one refusal."""
        reason = REASONS.get(status, "other")
        self._count(reason)
        self._untold[reason] += 1

    def tell(self) -> None:
        """Log how many were refused since the last line, if any were."""
        if self._untold:
            _log.info("http_unproven_refused", **self._untold)
            self._untold.clear()

    async def tell_each_minute(self) -> None:
        """Log one line a minute as long as the server runs."""
        while True:
            await asyncio.sleep(_EVERY_S)
            self.tell()
