"""Huawei's messages: an event's draft is written as JSON once, up to what differs from phone to phone.

`data` is one text of JSON, so a phone's names at its end are written as they stand within a text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from relevo.core.messages import Draft, Message, WrittenMessage
from relevo.core.model import Delivery
from relevo.providers.huawei.facts import ANDROID
from relevo.providers.message_parts import (
    OWN_NAMES,
    ROOM_FOR_NAMES,
    data_of,
    dumps,
    image_of,
    own_fields,
    sound_name,
)

MOST_TTL_S = 1_296_000
"""Huawei keeps a message for 15 days at most."""
_quoted = json.encoder.encode_basestring
_NOTIFICATION = {"title": "title", "body": "body", "icon": "icon", "tag": "tag", "channelId": "channel_id"}
_OPEN_APP, _OPEN_PAGE = 3, 1
_ROOM_FOR_TTL = 16


class Written(NamedTuple):
    """The common part of the messages of one event, as the pieces around a phone's own."""

    head: str
    """Up to the time to live."""
    data: str
    """The text of `data` up to the phone's names, as it stands within a text."""

    @property
    def most_bytes(self) -> int:
        """How long a message is at most, without its token."""
        return len(f"{self.head}{self.data}".encode()) + ROOM_FOR_NAMES + _ROOM_FOR_TTL

    def whole(self, ttl_s: int, names: str, token: str) -> str:
        """Return a message: names end its data."""
        life = min(max(ttl_s, 1), MOST_TTL_S)
        return f'{self.head}{life}s"}},"data":"{self.data}{names}}}","token":[{_quoted(token)}]}}}}'


class HuaweiMessage(WrittenMessage):
    """The push of one delivery."""

    __slots__ = ("written",)

    def __init__(self, written: Written, draft: Draft, delivery: Delivery) -> None:
        self.written = written
        self.draft = draft
        self.delivery = delivery

    def json(self) -> str:
        """Return it as it is sent."""
        delivery = self.delivery
        names = rf",\"notificationDeliveryId\":{delivery.id},\"installationId\":\"{delivery.installation_id}\""
        return self.written.whole(self.draft.ttl(delivery), names, str(delivery.token))


def plain(message: Message) -> str:
    """Return the body of a message that a composer made, in Expo's words; raises one of UNWRITABLE."""
    data = data_of(message)
    written = write(message, data, str(data.get("pushProvider", "huawei")))
    own = {key: data[key] for key in OWN_NAMES[:2] if key in data}
    names = f",{_inside(dumps(own).decode()[1:-1])}" if own else ""
    given = message.get("ttl")
    return written.whole(int(given) if isinstance(given, int | float) else 0, names, str(message.get("to")))


def write(fields: Mapping[str, Any], data: Mapping[str, Any], provider: str) -> Written:
    """Write all but what is a phone's own: its time to live, its names at the end of `data`, its token."""
    own = {key: value for key, value in data.items() if key not in OWN_NAMES}
    section: dict[str, Any] = {"urgency": "HIGH" if fields.get("priority") == "high" else "NORMAL"}
    if fields.get("title") or fields.get("body"):
        section["notification"] = _shown(fields)
    head = dumps({"message": {"android": section}}).decode().removesuffix("}}}")
    return Written(f'{head},"ttl":"', _inside(dumps({**own, "pushProvider": provider}).decode().removesuffix("}")))


def _inside(text: str) -> str:
    """Return a text as it stands within quotes."""
    return _quoted(text)[1:-1]


def _shown(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the phone shows."""
    made = {theirs: fields[ours] for ours, theirs in _NOTIFICATION.items() if fields.get(ours) not in (None, "")}
    if sound := sound_name(fields.get("sound")):
        made |= {"default_sound": True} if sound == "default" else {"sound": f"/raw/{PurePosixPath(str(sound)).stem}"}
    if image := image_of(fields):
        made["image"] = image
    if isinstance(badge := fields.get("badge"), int):
        made["badge"] = {"set_num": badge}
    own = own_fields(fields, "android")
    made |= {where.rpartition(".")[2]: own[name] for name, where in ANDROID.items() if name in own}
    action = made.get("click_action")
    made["click_action"] = {"type": _OPEN_PAGE, "action": action} if action else {"type": _OPEN_APP}
    return made
