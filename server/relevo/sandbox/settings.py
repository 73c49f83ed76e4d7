"""The sandbox's settings: each can be given at the start and changed while it runs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from relevo.core.errors import InvalidInputError

MAX_KEEP = 1_000
_MOST = {
    "rate_per_s": 1e9,
    "latency_ms": 120_000,
    "receipt_delay_s": 86_400,
    "time_scale": 1e6,
    "keep_messages": MAX_KEEP,
    "fcm_per_minute": 1e9,
    "apns_streams": 1_000,
    "apns_token_interval_s": 86_400,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """How the sandbox behaves.

    rate_per_s: notifications a second per project, 0 lifts the limit; access_token: enhanced security, None switches it
    off; latency_ms: how long every answer of the push API takes; receipt_delay_s: after how many sandbox seconds a
    receipt appears; time_scale: sandbox seconds per real second, for receipts; keep_messages: how many messages each
    phone shows, 0 leaves only the counters; fcm_per_minute: FCM messages a minute per project, 0 lifts the limit;
    apns_streams: how many streams a connection to APNs may have open once it showed a valid token;
    apns_token_interval_s: a new token of the same APNs key sooner than that is refused.
    """

    rate_per_s: float = 600
    access_token: str | None = None
    latency_ms: float = 0
    receipt_delay_s: float = 3
    time_scale: float = 1
    keep_messages: int = 20
    fcm_per_minute: float = 600_000
    apns_streams: int = 1_000
    apns_token_interval_s: float = 1_200

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            _check_number(name, getattr(self, name), most)
        if self.time_scale == 0:
            raise InvalidInputError("time_scale must be above 0, got 0.")
        for name in ("keep_messages", "apns_streams"):
            if type(getattr(self, name)) is not int:
                raise InvalidInputError(f"{name} must be a whole number, got {getattr(self, name)}.")
        if self.access_token is not None and not (isinstance(self.access_token, str) and self.access_token):
            raise InvalidInputError("access_token must be a text that is not empty, or null.")

    def changed(self, changes: Any) -> Settings:
        """Return the settings with some changed; raises InvalidInputError for what does not exist or fit."""
        if not isinstance(changes, dict):
            raise InvalidInputError('Settings must be an object like {"rate_per_s": 0}.')
        known = [field.name for field in fields(self)]
        unknown = sorted(str(name)[:100] for name in changes.keys() - set(known))
        if unknown:
            raise InvalidInputError(f"There is no setting {', '.join(unknown)}.", hint=f"Known: {', '.join(known)}.")
        return replace(self, **changes)

    def as_json(self) -> dict[str, Any]:
        """Return the settings as they may be shown: whether there is an access token, never which."""
        return asdict(self) | {"access_token": None if self.access_token is None else "(set)"}


def _check_number(name: str, value: Any, most: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not 0 <= value <= most:
        raise InvalidInputError(f"{name} must be a number from 0 to {most:g}, got {str(value)[:100]!r}.")
