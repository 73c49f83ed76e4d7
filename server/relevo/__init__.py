"""Relevo: a relay that carries events to phones and never drops the baton.

The public door for apps: everything here works in the caller's transaction, and nothing commits.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relevo.delivery.sending import PushContext
    from relevo.door import (
        Enqueued,
        Event,
        EventStatus,
        Installation,
        Matching,
        Preference,
        cancel,
        complete,
        delete,
        enqueue,
        enqueue_many,
        get,
        register,
        set_preference,
        wait,
    )
    from relevo.errors import Reschedule
    from relevo.model import Reply

__version__ = "0.1.0"

__all__ = [
    "Enqueued",
    "Event",
    "EventStatus",
    "Installation",
    "Matching",
    "Preference",
    "PushContext",
    "Reply",
    "Reschedule",
    "cancel",
    "complete",
    "delete",
    "enqueue",
    "enqueue_many",
    "get",
    "register",
    "set_preference",
    "wait",
]


_MODULES = {"PushContext": "relevo.delivery.sending", "Reply": "relevo.model", "Reschedule": "relevo.errors"}


def __getattr__(name: str) -> Any:
    """Load the door when it is first used: a guardian or a command needs none of it."""
    if name in __all__:
        return getattr(import_module(_MODULES.get(name, "relevo.door")), name)
    raise AttributeError(f"module 'relevo' has no attribute {name!r}")
