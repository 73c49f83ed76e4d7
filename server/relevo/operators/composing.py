"""Events that operators write themselves: sent once for each form, and recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relevo.client import verbs
from relevo.database.pool import Database
from relevo.operators import audit

MOST_UNCONFIRMED = 1_000
"""To more phones than these nothing is sent before their number was typed."""


def send(database: Database, event: Mapping[str, Any], phones: int) -> int:
    """Enqueue an event, and have that recorded, without names and texts; the same key again is the same event."""
    named = {"event_type": event["type"], "key": event["key"], "audience": event["audience"], "phones": phones}
    with audit.recorded(database, "enqueue_event", **named) as result:
        with database.transaction() as connection:
            (done,) = verbs.enqueue_json(connection, [event])
        result.update(event_id=done.event_id, created=done.created)
    return done.event_id
