"""Relevo's acknowledgements to the app, noted no sooner than it got them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Acknowledged:
    """Lines in the order they were noted."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    reading: threading.Lock = field(default_factory=threading.Lock)
    """Held while news are read and acknowledged."""

    def note(self, what: str, **more: Any) -> None:
        """Note something that was acknowledged."""
        with self.lock:
            self.lines.append({"what": what, "at": time.time(), **more})
