"""APNs' messages: an event's draft is written once as payload and headers, up to what differs from phone to phone."""

from __future__ import annotations

import hashlib
import json
import re
import time
import uuid
from collections.abc import Mapping
from typing import Any

from relevo.core.messages import Message
from relevo.providers.message_parts import (
    OWN_NAMES,
    Headers,
    PayloadMessage,
    Written,
    data_of,
    dumps,
    image_of,
    own_fields,
    sound_name,
)

MAX_COLLAPSE_BYTES = 64
_SPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://relevo.example/deliveries")
_UPPER = re.compile("[A-Z]")
_PLAIN = {
    "badge": "badge",
    "threadId": "thread-id",
    "categoryId": "category",
    "targetContentId": "target-content-id",
    "interruptionLevel": "interruption-level",
    "relevanceScore": "relevance-score",
    "filterCriteria": "filter-criteria",
}
_FLAGS = {
    "contentAvailable": "content-available",
    "_contentAvailable": "content-available",
    "mutableContent": "mutable-content",
}


def aps(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what iOS itself reads, made of an event's fields."""
    alert = {key: fields[key] for key in ("title", "subtitle", "body") if fields.get(key)}
    if alert:
        alert |= {_kebab(name): value for name, value in own_fields(fields, "apns").items()}
    made: dict[str, Any] = {"alert": alert} if alert else {}
    made |= {theirs: fields[ours] for ours, theirs in _PLAIN.items() if fields.get(ours) is not None}
    made |= {theirs: 1 for ours, theirs in _FLAGS.items() if fields.get(ours)}
    if sound := fields.get("sound"):
        made["sound"] = {"name": "default", **sound, "critical": 1} if _is_critical(sound) else sound_name(sound)
    if image_of(fields):
        made["mutable-content"] = 1
    if not {"alert", "badge", "sound"} & made.keys():
        made["content-available"] = 1  # with nothing to show it is for the app alone
    return made


def _kebab(name: str) -> str:
    return _UPPER.sub(lambda letter: f"-{letter[0].lower()}", name)


def _is_critical(sound: object) -> bool:
    return isinstance(sound, Mapping) and bool(sound.get("critical"))


def headers_of(fields: Mapping[str, Any], made: Mapping[str, Any]) -> Headers:
    """Return the headers that say how a payload travels.

    Apple takes a push for the app alone only at priority 5; an alert goes at 10 unless its event says `normal`.
    """
    shows = bool({"alert", "badge", "sound"} & made.keys())
    priority = fields.get("priority")
    is_high = priority == "high" or (priority != "normal" and "alert" in made)
    found = [
        ("apns-push-type", "alert" if shows else "background"),
        ("apns-priority", "10" if shows and is_high else "5"),
    ]
    if collapse := fields.get("collapseId"):
        found.append(("apns-collapse-id", collapse_id(str(collapse))))
    return tuple(found)


def collapse_id(text: str) -> str:
    """Return a collapse id that fits into its header: itself, or if it is too long for that its hash."""
    if len(text) <= MAX_COLLAPSE_BYTES and text.isascii() and text.isprintable():
        return text
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def apns_id(delivery_id: int | str, attempt: int) -> str:
    """Return the id of one attempt of a delivery."""
    return str(uuid.uuid5(_SPACE, f"{delivery_id}:{attempt}"))


class ApnsMessage(PayloadMessage):
    """The push of one delivery."""

    __slots__ = ()

    def headers(self) -> Headers:
        """Return its own headers, then those of its event."""
        delivery, draft = self.delivery, self.draft
        deadline = delivery.deadline_at
        if deadline is not None and draft.ttl_s is None:
            until = max(0, int(deadline.timestamp()))
        else:
            until = _expiration(draft.ttl(delivery))
        return (
            ("apns-id", apns_id(delivery.id, delivery.attempt_count)),
            ("apns-expiration", str(until)),
            *self.written.headers,
        )


def plain(message: Message) -> tuple[Headers, bytes]:
    """Return headers and payload of a message that a composer made, in Expo's words; raises one of UNWRITABLE."""
    data = data_of(message)
    json.dumps(dict(message), allow_nan=False, default=dict)  # orjson would write null for what is no number
    written = write(message, data, data.get("pushProvider", "apns"))
    own = {key: data[key] for key in OWN_NAMES[:2] if key in data}
    ttl = message.get("ttl")
    headers = (
        ("apns-id", apns_id(str(own.get("notificationDeliveryId", uuid.uuid4())), 0)),
        ("apns-expiration", str(_expiration(int(ttl)) if isinstance(ttl, int | float) else 0)),
        *written.headers,
    )
    return headers, written.head + (b"," + dumps(own)[1:] if own else b"}")


def _expiration(ttl_s: int) -> int:
    """Return until when APNs keeps a push; 0 is for one that is worth something only at once."""
    return int(time.time()) + ttl_s if ttl_s > 0 else 0


def write(fields: Mapping[str, Any], data: Mapping[str, Any], provider: str) -> Written:
    """Write all but what names a delivery; raises one of UNWRITABLE."""
    made = aps(fields)
    payload: dict[str, Any] = {"aps": made}
    if image := image_of(fields):
        payload["richContent"] = {"image": image}
    payload |= {key: value for key, value in data.items() if key not in OWN_NAMES}
    payload["pushProvider"] = provider
    return Written(headers_of(fields, made), dumps(payload)[:-1])
