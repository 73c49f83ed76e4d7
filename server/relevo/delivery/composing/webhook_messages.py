"""A webhook's message of news, in the shape of Standard Webhooks: `type`, `timestamp`, and the names in `data`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from relevo.core import queries
from relevo.core.messages import Message
from relevo.core.model import NEWS, Content, Delivery
from relevo.database.pool import Database

_SQL = queries.load("dispatch")
_OUTSIDE = ("kind", "at", "webhook")


@dataclass(frozen=True)
class Names:
    """Values that may be forgotten, and so are not stored with the news: the keys of events, the owners of phones."""

    keys: Mapping[int, str] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)


def read_names(database: Database, deliveries: Iterable[Delivery], contents: Mapping[int, Content]) -> Names:
    """Read the names that go with the news among these deliveries, as far as they are still there, by one statement."""
    told = [
        contents[each.notification_event_id].data
        for each in deliveries
        if each.event_type == NEWS and each.notification_event_id in contents
    ]
    if not told:
        return Names()
    asked = {
        "events": [data.get("event_id") for data in told],
        "installations": [data.get("installation_id") for data in told],
    }
    rows = database.execute(_SQL["read_names"], asked).fetchall()
    return Names(
        {event: key for event, key, _, _ in rows if key is not None},
        {str(installation): owner for _, _, installation, owner in rows if owner is not None},
    )


def message(delivery: Delivery, content: Content, names: Names) -> Message:
    """Return what is sent of a piece of news; what it does not know is left out."""
    data = content.data
    event, phone = data.get("event_id", 0), data.get("installation_id", "")
    added = {"event_key": names.keys.get(event), "owner": names.owners.get(phone)}
    return {
        "to": data.get("webhook") or delivery.token,
        "webhook-id": f"msg_{delivery.id}",
        "type": data.get("kind") or content.title,
        "timestamp": _timestamp(data.get("at")),
        "data": {key: value for key, value in {**data, **added}.items() if key not in _OUTSIDE and value is not None},
    }


def _timestamp(at: object) -> str | None:
    """Return an instant as PostgreSQL writes it in JSON, in UTC."""
    if not isinstance(at, str):
        return None
    return datetime.fromisoformat(at).astimezone(UTC).isoformat().replace("+00:00", "Z")
