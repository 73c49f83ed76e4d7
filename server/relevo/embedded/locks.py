"""Advisory file locks that the kernel releases when their last holder is gone."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Self


class Lock:
    """An open lock file. A bare descriptor on purpose: it stays held when nobody keeps the object."""

    def __init__(self, path: Path, fd: int | None = None) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) if fd is None else fd

    def try_shared(self) -> bool:
        """Hold it together with others, unless someone has it for itself."""
        return self._try(fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Hold it alone, unless someone else holds it in any way."""
        return self._try(fcntl.LOCK_EX)

    def unlock(self) -> None:
        """Release the lock but keep the file open."""
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def in_place(self) -> bool:
        """Is this still the file others find under its name, or was the folder removed and made anew?"""
        try:
            return os.path.samestat(os.fstat(self.fd), self.path.stat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Drop our hold; copies in other processes keep theirs. Twice is fine."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self.fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
