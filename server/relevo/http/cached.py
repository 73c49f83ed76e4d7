"""Answers that many callers share: found once a second, however often and by however many they are asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")
FRESH_S = 1.0
"""How old an answer may be that somebody is given."""


class Cached(Generic[T]):
    """One answer, kept for a second; whoever asks while it is being found waits for it, too. A failure is not kept."""

    def __init__(self, find: Callable[[], Awaitable[T]], clock: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._clock = clock
        self._began_at = float("-inf")
        self._finding: asyncio.Future[T] | None = None

    async def get(self) -> T:
        """Return the answer, which was true at some time within the last second."""
        if self._finding is None or not self._is_good(self._finding):
            self._began_at = self._clock()
            self._finding = asyncio.ensure_future(self._find())
        return await asyncio.shield(self._finding)  # whoever leaves does not take it from the others

    def forget(self) -> None:
        """Find it anew for whoever asks next."""
        self._finding = None

    def _is_good(self, finding: asyncio.Future[T]) -> bool:
        if not finding.done():
            return True
        if finding.cancelled() or finding.exception() is not None:
            return False
        return self._clock() - self._began_at <= FRESH_S
