"""Whether this process can write what it has to: temporary files, the folder of the archive, and its log."""

from __future__ import annotations

import errno
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from relevo.core.logs import log_trouble

LOG = "log"
_EVERY_S = 10.0
_HANGS_S = 30.0
_BYTES = b"\0" * 4_096
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Unwritable(NamedTuple):
    """A place that cannot be written to, a folder or the log, and why."""

    place: str
    reason: str


class Disks:
    """Tries every few seconds to write a little, on a thread of its own: a disk that hangs is in nobody's way.

    Only a full disk is a trouble here: a folder that may not be written at all is met by the cycle that needs it.
    """

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self._folders = tuple(folders)
        self._full: tuple[Unwritable, ...] = ()
        self._trying: tuple[str, float] | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="relevo-disks", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Look no more; a look that hangs is left behind."""
        self._stop.set()

    def unwritable(self) -> Sequence[Unwritable]:
        """Return what could not be written at the last look, and what has hung since."""
        trying, trouble = self._trying, log_trouble()
        hangs = trying is not None and time.monotonic() - trying[1] > _HANGS_S
        return [
            *self._full,
            *([Unwritable(trying[0], "a write has hung")] if trying and hangs else []),
            *([Unwritable(LOG, trouble)] if trouble else []),
        ]

    def look(self) -> None:
        """Try each folder."""
        full = []
        for folder in (None, *self._folders):
            self._trying = str(folder or tempfile.tempdir or "temporary files"), time.monotonic()
            if found := _try(folder):
                full.append(found)
        self._trying, self._full = None, tuple(full)

    def _loop(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._stop.wait(_EVERY_S)


def _try(folder: Path | None) -> Unwritable | None:
    """Write a file without a name, and say why it cannot be if the disk is full."""
    try:
        place = str(folder or tempfile.gettempdir())
    except FileNotFoundError:  # nowhere, now or ever
        return None
    try:
        with tempfile.TemporaryFile(dir=place, buffering=0) as file:
            file.write(_BYTES)
    except OSError as error:
        return Unwritable(place, str(error.strerror)) if error.errno in _FULL else None
    return None
