"""What a receipt means for its delivery, by table: each fate, in a project that its credentials block and in one that goes on."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from relevo.core.model import Awaiting, Fate, Ticket
from relevo.cycles.receipt import _said

AWAITING: Any = object()
MEANT: dict[Fate, tuple[str, int, bool]] = {
    "ok": ("ok", 0, True),
    "sent": ("ok", 0, True),
    "credential": ("retryable", 0, True),
    "not_sent": ("retryable", -1, True),
    "unclear": ("waiting", 0, False),
    "invalid": ("invalid", 0, True),
    "failed": ("failed", 0, True),
    "retryable": ("retryable", 0, True),
}
"""The state, what becomes of the attempt, and whether a retry waits as its type's policy says."""
BLOCKED = MEANT | {"credential": ("retryable", -1, False)}


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("fate", get_args(Fate))
def test_each_fate_of_a_receipt(fate: Fate, blocked: bool) -> None:
    """What was certainly not sent, and what a blocked project is at fault for, give the attempt back; words are kept of failures."""
    awaiting: Awaiting = AWAITING
    said = _said(awaiting, Ticket(fate, code="C", message="m"), blocked=blocked)
    assert (said.status, said.spent, said.paced) == (BLOCKED if blocked else MEANT)[fate]
    assert said.awaiting is awaiting
    told = (None, None) if said.status in ("ok", "waiting") else ("C", "m")
    assert (said.error_code, said.error_message) == told
