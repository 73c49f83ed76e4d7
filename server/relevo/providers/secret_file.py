"""A file of secrets that is read again when it changed, so that a secret is rotated without a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import structlog

_log = structlog.get_logger("relevo.providers")
LOOK_EVERY_S = 1.0

T = TypeVar("T")
_Stamp = tuple[int, int, int]


class SecretFile(Generic[T]):
    """What a file says now; one that can no longer be used is told once, and what it said before stays in force."""

    def __init__(self, path: Path, parse: Callable[[str], T]) -> None:
        self._path, self._parse = path, parse
        self._lock = threading.Lock()
        self._stamp = _stamp(path)
        self._value = parse(path.read_text(encoding="utf-8"))
        self._look_at = time.monotonic() + LOOK_EVERY_S

    def __call__(self) -> T:
        """Return what the file says, looked at again if that is a second ago."""
        if time.monotonic() >= self._look_at:
            with self._lock:
                self._look()
        return self._value

    def _look(self) -> None:
        self._look_at = time.monotonic() + LOOK_EVERY_S
        try:
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._value = self._parse(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            _log.error("secret_file_not_used", file=self._path.name, error=type(error).__name__)
        else:
            _log.info("secret_file_read_again", file=self._path.name)


def _stamp(path: Path) -> _Stamp:
    seen = path.stat()
    return seen.st_ino, seen.st_size, seen.st_mtime_ns
