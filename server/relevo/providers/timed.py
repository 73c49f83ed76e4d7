"""Reading an answer within a request's time, however its bytes drip."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable
from typing import Any


def left(until: float) -> float:
    """Return the seconds until a moment of the monotonic clock; raises TimeoutError if it is past."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the time is over")
    return seconds


class TimedReader(io.RawIOBase):
    """Reads from a socket until the request's time is over; a socket's own timeout begins anew with each byte."""

    def __init__(self, sock: socket.socket, raw: Any, end_by: Callable[[], float]) -> None:
        self._sock = sock
        self._raw = raw
        self._end_by = end_by

    def readable(self) -> bool:
        """Say that it is there to be read."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """Read what has come, or what comes in time."""
        self._sock.settimeout(left(self._end_by()))
        read: int | None = self._raw.readinto(buffer)
        return read

    def close(self) -> None:
        """Close what is read from, too."""
        self._raw.close()
        super().close()
