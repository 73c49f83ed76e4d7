"""The package lists its public names, although it imports them only when they are used."""

from __future__ import annotations

import relevo
from relevo import aio


def test_dir_lists_the_public_names() -> None:
    """`dir(relevo)`, by which shells complete, has every public name, and each can be had."""
    assert set(relevo.__all__) <= set(dir(relevo))
    assert {"enqueue", "Event", "aio", "__version__"} <= set(dir(relevo))
    assert [name for name in relevo.__all__ if not hasattr(relevo, name)] == []
    assert "enqueue" in dir(aio)
