"""`@relevo/client` does what a phone and an app's server need, against a Relevo that runs."""

from __future__ import annotations

import pytest

from support import kits

pytestmark = pytest.mark.needs("kits")


def test_a_device_keeps_its_promises(running: kits.Running) -> None:
    """It registers once, survives lost answers and log-outs without network, and reads no inbox but its owner's."""
    kits.run_tests("client/device", **running.environ())
