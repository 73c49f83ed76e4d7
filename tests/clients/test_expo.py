"""`@relevo/expo` does on a phone what it says, with fakes of Expo's modules, against a Relevo that runs and its sandbox."""

from __future__ import annotations

import pytest

from support import kits

pytestmark = pytest.mark.needs("kits")


def test_a_phone_s_life(running: kits.Running) -> None:
    """Register, push, tap, inbox, log out; two owners on one phone; a lost answer; offline for a day."""
    kits.run_tests("expo/phone", **running.environ())
