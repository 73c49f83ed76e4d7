"""Expo's messages: an event's draft is written as JSON once, up to what differs from phone to phone."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import orjson

from relevo.core.messages import Draft, WrittenMessage
from relevo.core.model import Delivery

_PERSONAL = ("to", "ttl", "data")
_PERSONAL_DATA = ("notificationDeliveryId", "installationId", "pushProvider")
_quoted = json.encoder.encode_basestring


class ExpoMessage(WrittenMessage):
    """The push of one delivery."""

    __slots__ = ("_head",)

    def __init__(self, head: str, draft: Draft, delivery: Delivery) -> None:
        self._head = head
        self.draft = draft
        self.delivery = delivery

    def json(self) -> str:
        """Return it as it is sent."""
        delivery = self.delivery
        names = f'"notificationDeliveryId":{delivery.id},"installationId":"{delivery.installation_id}"'
        return f'{self._head},{names}}},"to":{_quoted(str(delivery.token))},"ttl":{self.draft.ttl(delivery)}}}'


def writer(draft: Draft, provider: str) -> Callable[[Delivery], WrittenMessage] | None:
    """Write a draft, but for its last entries; None if it has to be written message by message.

    Those are, in `data`, the delivery's own names, and behind it where it goes and how long it is worth something.
    """
    fields = {key: value for key, value in draft.fields.items() if key not in _PERSONAL}
    data = {key: value for key, value in draft.data.items() if key not in _PERSONAL_DATA}
    try:
        written = orjson.dumps({**fields, "data": {**data, "pushProvider": provider}}).decode()
    except TypeError:  # such as a number that is too long for it
        return None
    return partial(ExpoMessage, written.removesuffix("}}"), draft)
