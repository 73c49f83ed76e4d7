"""Copying of months lets everybody else go first."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from relevo.archive import copying


@pytest.fixture(autouse=True)
def _usual_priority() -> None:
    """Leave copying threads their low priority: it is what is looked at here."""


def test_copying_lets_everybody_else_go_first() -> None:
    """Its thread has a low priority, and leaves that of its caller as it is."""

    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id() if sys.platform == "linux" else 0)

    before = priority()
    assert copying.in_background(priority) == (10 if sys.platform == "linux" else before)
    assert priority() == before
