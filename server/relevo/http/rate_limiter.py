"""How often one caller may call: a bucket of tokens each, filled at a steady rate."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from relevo.http.problems import Problem

_MOST_CALLERS = 10_000
_BURST = 2


class RateLimiter:
    """Twice a second's worth at once, then the rate; callers that were not seen for long are forgotten first."""

    def __init__(self, rate_per_s: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate_per_s
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def is_spent(self, caller: str) -> bool:
        """Return whether the caller's bucket is empty."""
        left, at = self._buckets.get(caller, (math.inf, 0.0))
        return bool(self._rate) and left + (self._clock() - at) * self._rate < 1

    def spend(self, caller: str) -> None:
        """Take one token of the caller's bucket; raises a 429 that says when to come back if there is none."""
        if not self._rate:
            return
        now, full = self._clock(), float(self._rate * _BURST)
        left, at = self._buckets.pop(caller, (full, now))
        left = min(full, left + (now - at) * self._rate)
        granted = left >= 1
        self._buckets[caller] = (left - 1 if granted else left, now)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        if not granted:
            wait_s = max(1, math.ceil((1 - left) / self._rate))
            raise Problem(429, f"More than {self._rate} requests a second.", retry_after_s=wait_s)
