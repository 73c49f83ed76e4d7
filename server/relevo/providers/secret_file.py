"""A file of secrets that is read again when it changed, so that a secret is rotated without a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import structlog

_log = structlog.get_logger("relevo.providers")
LOOK_EVERY_S = 1.0

T = TypeVar("T")
Stamp = tuple[int, int, int] | None
"""A mark that changes with the file; None while there is none."""


class UnusableFileError(ValueError):
    """Why a file cannot be used, in words that hold no secret."""


class SecretFile(Generic[T]):
    """The present contents of a file; an unusable file is reported once, and its former contents stay in force.

    `others` returns the further files that a value was read from, with their stamps before they were read: when one of
    them changes, all is read again.
    """

    def __init__(
        self, path: Path, parse: Callable[[str], T], others: Callable[[T], Mapping[Path, Stamp]] = lambda _: {}
    ) -> None:
        self._path, self._parse, self._others = path, parse, others
        self._lock = threading.Lock()
        stamp = stamp_of(path)
        self._value = parse(path.read_text(encoding="utf-8"))
        self._tried = stamp, dict(others(self._value))
        self._look_at = time.monotonic() + LOOK_EVERY_S
        self.trouble = ""
        """Why the file as it is now cannot be used; nothing if it can."""

    def __call__(self) -> T:
        """Return what the file says, looked at again if that is a second ago."""
        if time.monotonic() >= self._look_at:
            with self._lock:
                self._look()
        return self._value

    def _look(self) -> None:
        self._look_at = time.monotonic() + LOOK_EVERY_S
        seen = stamp_of(self._path), {path: stamp_of(path) for path in self._others(self._value)}
        if seen == self._tried:
            return
        self._tried = seen
        try:
            self._value = self._parse(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            self.trouble = str(error) if isinstance(error, UnusableFileError) else type(error).__name__
            _log.error("secret_file_not_used", file=self._path.name, error=self.trouble)
        else:
            self._tried = seen[0], dict(self._others(self._value))
            self.trouble = ""
            _log.info("secret_file_read_again", file=self._path.name)


def stamp_of(path: Path) -> Stamp:
    """Return a file's stamp as it is now."""
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns
