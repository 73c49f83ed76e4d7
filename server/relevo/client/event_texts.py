"""Events as JSON text: several that others gave are enqueued by one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relevo.client.checks import check_storable
from relevo.client.connections import verb
from relevo.client.connections.steps import Call, as_json, each
from relevo.client.values import Enqueued
from relevo.client.verbs import enqueued


@verb
def enqueue_texts(events: Sequence[str], *, lock_ms: int) -> Call[list[Enqueued]]:
    """Enqueue events that `event_text` wrote, outside a transaction; no lock is waited for longer than `lock_ms`."""
    return Call("enqueue_together", {"events": f"[{','.join(events)}]", "lock_ms": lock_ms}, each(enqueued))


def event_text(event: Mapping[str, Any]) -> str:
    """Return an event that is given as the SQL functions take it as JSON text; refuse what cannot be stored."""
    for name, value in event.items():
        check_storable(name, value)
    return as_json("event", dict(event))
