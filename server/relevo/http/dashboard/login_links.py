"""Login links: a code that is good once, for ten minutes, in the process that made it."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time

_GOOD_FOR_S = 600.0
_MOST = 20


class LoginCodes:
    """The codes that were given out and not used yet; of each only a hash is kept."""

    def __init__(self) -> None:
        self._until: dict[bytes, float] = {}
        self._lock = threading.Lock()

    def make(self) -> str:
        """Make a code."""
        code = secrets.token_urlsafe(24)
        with self._lock:
            while len(self._until) >= _MOST:
                self._until.pop(next(iter(self._until)))
            self._until[_hash(code)] = time.monotonic() + _GOOD_FOR_S
        return code

    def take(self, code: str) -> float | None:
        """Use a code up; return until when it was good, or None if it is not."""
        with self._lock:
            until = self._until.pop(_hash(code), None)
        return until if until is not None and time.monotonic() < until else None

    def give_back(self, code: str, until: float) -> None:
        """Let a code be used after all: what it was taken for failed."""
        with self._lock:
            self._until[_hash(code)] = until


def _hash(code: str) -> bytes:
    return hashlib.sha256(code.encode("utf-8", "replace")).digest()
