"""FCM's messages: an event's draft is written as JSON once per platform, up to what differs from phone to phone."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from relevo.core.messages import Draft, Message, WrittenMessage
from relevo.core.model import Delivery
from relevo.providers.apns.message import aps, headers_of
from relevo.providers.message_parts import (
    OWN_NAMES,
    ROOM_FOR_NAMES,
    data_of,
    dumps,
    image_of,
    own_fields,
    shown_actions,
    sound_name,
    topic,
)

_quoted = json.encoder.encode_basestring
_NOTIFICATION = {
    "title": "title",
    "body": "body",
    "icon": "icon",
    "tag": "tag",
    "channelId": "channel_id",
    "badge": "notification_count",
}
_BESIDE_NOTIFICATION = ("direct_boot_ok",)
_UPPER = re.compile("[A-Z]")
_TTL = "\ue000"
"""Stands where a message's time to live is written, which is the last value of its sections."""


class Written(NamedTuple):
    """The common part of the messages of one event to one platform, as the pieces around a phone's own."""

    head: str
    """Up to the end of `data`."""
    middle: str
    """Up to the time to live."""
    tail: str
    """Up to the token."""
    is_instant: bool
    """Whether the time to live is told as an instant."""

    @property
    def most_bytes(self) -> int:
        """How long a message is at most, without its token."""
        return len(f"{self.head}{self.middle}{self.tail}".encode()) + ROOM_FOR_NAMES


class FcmMessage(WrittenMessage):
    """The push of one delivery."""

    __slots__ = ("written",)

    def __init__(self, written: Written, draft: Draft, delivery: Delivery) -> None:
        self.written = written
        self.draft = draft
        self.delivery = delivery

    def json(self) -> str:
        """Return it as it is sent."""
        head, middle, tail, is_instant = self.written
        delivery = self.delivery
        ttl = self.draft.ttl(delivery)
        names = f'"notificationDeliveryId":"{delivery.id}","installationId":"{delivery.installation_id}"}}'
        life = _instant(ttl) if is_instant else ttl
        return f"{head}{names}{middle}{life}{tail}{_quoted(str(delivery.token))}}}}}"


def plain(message: Message, platform: str | None) -> str:
    """Return the body of a message that a composer made, in Expo's words; raises one of UNWRITABLE."""
    data = data_of(message)
    head, middle, tail, is_instant = write(message, data, platform, str(data.get("pushProvider", "fcm")))
    own = ",".join(f"{_quoted(key)}:{_quoted(_text(data[key]))}" for key in OWN_NAMES[:2] if key in data)
    given = message.get("ttl")
    ttl = int(given) if isinstance(given, int | float) else 0
    if not own:
        head = head.removesuffix(",")
    return f"{head}{own}}}{middle}{_instant(ttl) if is_instant else ttl}{tail}{_quoted(str(message.get('to')))}}}}}"


def reserved_key(data: Mapping[str, Any]) -> str | None:
    """Return a key of `data` that FCM keeps for itself."""
    taken = ("from", "message_type")
    return next((key for key in data if key in taken or key.startswith(("google.", "gcm."))), None)


def _instant(ttl_s: int) -> int:
    return int(time.time()) + ttl_s if ttl_s > 0 else 0


def write(fields: Mapping[str, Any], data: Mapping[str, Any], platform: str | None, provider: str) -> Written:
    """Write all but what is a phone's own: its names at the end of `data`, its time to live, its token."""
    sections = {"ios": _ios, "web": _web}.get(platform or "", _android)(fields)
    if platform not in ("android", "ios", "web"):
        sections = {**_for_any(fields), **sections}
    texts = {key: _text(value) for key, value in data.items() if key not in OWN_NAMES}
    start = dumps({"data": {**texts, "pushProvider": provider}}).decode().removesuffix("}}")
    rest = dumps(sections).decode().removeprefix("{").removesuffix("}")
    middle, _, tail = rest.rpartition(_TTL)  # the last value there is
    return Written(f'{{"message":{start},', f",{middle}", f'{tail},"token":', platform == "ios")


def _text(value: Any) -> str:
    """Return a value as FCM takes it: texts as they are, everything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _is_high(fields: Mapping[str, Any]) -> bool:
    return fields.get("priority") == "high"


def _shown(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Android shows."""
    made = {theirs: fields[ours] for ours, theirs in _NOTIFICATION.items() if fields.get(ours) not in (None, "")}
    if sound := sound_name(fields.get("sound")):
        made["sound"] = sound
    if image := image_of(fields):
        made["image"] = image
    return made


def _snake(name: str) -> str:
    return _UPPER.sub(lambda letter: f"_{letter[0].lower()}", name)


def _android(fields: Mapping[str, Any]) -> dict[str, Any]:
    section: dict[str, Any] = {"priority": "high" if _is_high(fields) else "normal"}
    own = {_snake(name): value for name, value in own_fields(fields, "android").items()}
    section |= {name: own.pop(name) for name in _BESIDE_NOTIFICATION if name in own}
    if fields.get("title") or fields.get("body"):
        section["notification"] = _shown(fields) | own
    return {"android": {**section, "ttl": f"{_TTL}s"}}


def _for_any(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a phone of an unknown kind shows, whichever it is."""
    shown = {key: fields[key] for key in ("title", "body") if fields.get(key)}
    return {"notification": shown} if shown else {}


def _ios(fields: Mapping[str, Any]) -> dict[str, Any]:
    made = aps(fields)
    headers = dict(headers_of(fields, made))
    section: dict[str, Any] = {"payload": {"aps": made}}
    if image := image_of(fields):
        section["fcm_options"] = {"image": image}
    return {"apns": {**section, "headers": {**headers, "apns-expiration": _TTL}}}


def _web(fields: Mapping[str, Any]) -> dict[str, Any]:
    shown = {key: fields[key] for key in ("title", "body", "icon", "tag") if fields.get(key)}
    own = dict(own_fields(fields, "web"))
    urgency = own.pop("urgency", None) or ("high" if _is_high(fields) else "normal")
    if icon := own.pop("badgeIcon", None):
        shown["badge"] = icon
    if image := image_of(fields):
        shown["image"] = image
    if actions := shown_actions(fields):
        shown["actions"] = actions
    if fields.get("interruptionLevel") == "passive" or own.get("silent"):
        shown["silent"] = True
        own = {name: value for name, value in own.items() if name not in ("silent", "vibrate")}  # never both
    section: dict[str, Any] = {"notification": shown | own} if shown.keys() & {"title", "body"} else {}
    link = fields.get("link")
    if isinstance(link, str) and link.startswith("https://"):  # FCM refuses every other one
        section["fcm_options"] = {"link": link}
    headers = {"Urgency": urgency}
    if collapse := fields.get("collapseId"):
        headers["Topic"] = topic(str(collapse))
    return {"webpush": {**section, "headers": {**headers, "TTL": _TTL}}}
