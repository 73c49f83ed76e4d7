"""When a worker reads all lanes anew, and not only what is new: by table."""

from __future__ import annotations

import time
from typing import Any

import pytest

from relevo.delivery.claiming import due_lanes
from relevo.delivery.claiming.due_lanes import DueLanes

NOBODY: Any = None
WITHOUT_S = due_lanes._FULL_READ_S


@pytest.mark.parametrize(
    ("late_s", "ready_in_s", "reads"),
    [
        (-1.0, (), False),
        (-1.0, (60.0, 90.0), False),
        (0.1, (), True),
        (0.1, (60.0, 90.0), True),
        (0.1, (60.0, -1.0), False),
        (0.1, (-1.0, -1.0), False),
        (WITHOUT_S + 1, (60.0, -1.0), True),
        (WITHOUT_S + 1, (-1.0, -1.0), True),
    ],
)
def test_a_full_read_comes_when_its_time_is_there(late_s: float, ready_in_s: tuple[float, ...], reads: bool) -> None:
    """Not before its time; then at once where nothing is due, and where something is, after as long again: it waits, and is not forgotten."""
    lanes, now = DueLanes(NOBODY, lambda _: True), time.monotonic()
    lanes._full_read_at = now - late_s
    for number, ready in enumerate(ready_in_s):
        lanes._known[f"p{number}", "bulk"] = due_lanes._Known(None, now + ready, troubled=False)
    assert lanes._needs_full_read() is reads
