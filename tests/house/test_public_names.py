"""The package lists its public names, although it imports them only when they are used."""

from __future__ import annotations

import subprocess
import sys

import relevo
from relevo import aio


def test_dir_lists_the_public_names() -> None:
    """`dir(relevo)`, by which shells complete, has every public name, and each can be had."""
    assert set(relevo.__all__) <= set(dir(relevo))
    assert {"enqueue", "Event", "aio", "__version__"} <= set(dir(relevo))
    assert [name for name in relevo.__all__ if not hasattr(relevo, name)] == []
    assert "enqueue" in dir(aio)


def test_each_name_can_be_had_first() -> None:
    """In a process that has imported nothing else yet each public name is found, `relevo.aio` as an attribute, too."""
    script = """
import relevo, sys
assert callable(relevo.aio.enqueue)
for name in relevo.__all__:
    getattr(relevo, name)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
