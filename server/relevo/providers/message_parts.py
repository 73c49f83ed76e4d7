"""Shared parts of the messages of the native push services."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from relevo.core.messages import Draft, Message, WrittenMessage
from relevo.core.model import Delivery

OWN_NAMES = ("notificationDeliveryId", "installationId", "pushProvider")
"""The keys of `data` that are written for each delivery."""
ROOM_FOR_NAMES = 160
"""How many bytes the names of a delivery take at most."""
_TOPIC_BYTES = 24
UNWRITABLE = (ArithmeticError, TypeError, ValueError, RecursionError)
"""Errors of writing a message."""


Headers = tuple[tuple[str, str], ...]


class Written(NamedTuple):
    """The common part of the messages of one event."""

    headers: Headers
    head: bytes
    """The payload without its end: what names a delivery follows."""

    @property
    def most_bytes(self) -> int:
        """How long the payload is at most."""
        return len(self.head) + ROOM_FOR_NAMES


class PayloadMessage(WrittenMessage):
    """The push of one delivery: a payload that ends with what names it, and headers beside it."""

    __slots__ = ("written",)
    closing = "}"
    """The end of the payload."""

    def __init__(self, written: Written, draft: Draft, delivery: Delivery) -> None:
        self.written = written
        self.draft = draft
        self.delivery = delivery

    def body(self) -> bytes:
        """Return its payload."""
        delivery = self.delivery
        names = f',"notificationDeliveryId":{delivery.id},"installationId":"{delivery.installation_id}"{self.closing}'
        return self.written.head + names.encode()

    def json(self) -> str:
        """Return its payload as text."""
        return self.body().decode()


def data_of(message: Message) -> Mapping[str, Any]:
    """Return what a message carries for the app."""
    data = message.get("data")
    return data if isinstance(data, Mapping) else {}


def dumps(value: Mapping[str, Any]) -> bytes:
    """Write JSON; raises one of UNWRITABLE."""
    try:
        return orjson.dumps(value)
    except TypeError:  # such as a number that is too long for it
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def own_fields(fields: Mapping[str, Any], platform: str) -> Mapping[str, Any]:
    """Return the fields that only one platform has."""
    found = fields.get(platform)
    return found if isinstance(found, Mapping) else {}


def shown_actions(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the buttons of a push as browsers show them."""
    given = fields.get("actions")
    actions = [each for each in given if isinstance(each, Mapping)] if isinstance(given, list | tuple) else []
    return [
        {"action": each.get("id"), **{name: each[name] for name in ("title", "icon") if each.get(name)}}
        for each in actions
    ]


def image_of(fields: Mapping[str, Any]) -> str | None:
    """Return the address of the picture that a push shows."""
    rich = fields.get("richContent")
    found = rich.get("image") if isinstance(rich, Mapping) else None
    return found if isinstance(found, str) else None


def sound_name(sound: object) -> object:
    """Return the name of a sound that may be told with its volume."""
    return sound.get("name", "default") if isinstance(sound, Mapping) else sound


def topic(text: str) -> str:
    """Return the topic of a text, for browsers: 32 letters that are the same for the same text."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:_TOPIC_BYTES]).decode()
