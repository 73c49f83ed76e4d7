"""Web Push messages: what a page's service worker gets, written once per event up to what differs per browser."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urljoin

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
    shown_actions,
    topic,
)
from relevo.providers.webpush.encryption import MAX_PLAIN_BYTES

_SHOWN = ("title", "body", "tag", "badge", "icon")
_LONGEST_TTL_S = 2_419_200
_RFC = 8030  # says that a message is declarative


class WebPushMessage(PayloadMessage):
    """The push of one delivery; what names it is within `data`."""

    __slots__ = ()
    closing = "}}"


class Posted(NamedTuple):
    """A message as it goes to a push service, before it is encrypted."""

    token: str
    headers: Headers
    body: bytes


def posted(message: Message) -> Posted:
    """Return a message as it goes out, whoever wrote it; raises one of UNWRITABLE."""
    if isinstance(message, WebPushMessage):
        seconds = message.draft.ttl(message.delivery)
        return Posted(str(message.delivery.token), (_ttl(seconds), *message.written.headers), message.body())
    data = data_of(message)
    written = write(message, data, str(data.get("pushProvider", "webpush")))
    own = {key: data[key] for key in OWN_NAMES[:2] if key in data}
    body = written.head + (b"," + dumps(own)[1:] + b"}" if own else b"}}")
    wished = message.get("ttl")
    life = _ttl(int(wished) if isinstance(wished, int | float) else 0)
    return Posted(str(message.get("to")), (life, *written.headers), body)


def declared(body: bytes, page: str) -> bytes:
    """Return a payload as a declarative push message, which a browser can show without the page's service worker.

    A service worker gets it all the same, with what it needs to show it and to report taps within `notification`.
    If there is no room for the difference, the payload stays as it is.
    """
    payload: dict[str, Any] = json.loads(body)
    data, badge = payload.get("data") or {}, payload.pop("badge", None)
    actions = payload.pop("actions", None)
    if icon := payload.pop("badgeIcon", None):
        payload["badge"] = icon
    payload["navigate"] = _address(page, data.get("url"))
    if actions:
        given = [each for each in actions if isinstance(each, dict)]
        payload["actions"] = [
            shown | {"navigate": _address(page, each.get("link") or data.get("url"))}
            for shown, each in zip(shown_actions({"actions": given}), given, strict=True)
        ]
    badged = {} if badge is None else {"app_badge": badge}
    made = dumps({"web_push": _RFC, "mutable": True, **badged, "notification": payload})
    return made if len(made) <= MAX_PLAIN_BYTES else body


def _address(page: str, link: object) -> str:
    """Return the address that a browser opens: a link of another scheme is for the service worker alone."""
    try:
        found = urljoin(page, link) if isinstance(link, str) else page
    except ValueError:
        return page
    return found if found.startswith(("https://", "http://")) else page


def is_silent(fields: Mapping[str, Any]) -> bool:
    """Return whether a push has nothing to show."""
    return not any(str(fields.get(key) or "").strip() for key in ("title", "body"))


def _ttl(seconds: int) -> tuple[str, str]:
    return "ttl", str(min(max(seconds, 0), _LONGEST_TTL_S))


def write(fields: Mapping[str, Any], data: Mapping[str, Any], provider: str) -> Written:
    """Write all but what names a delivery; raises one of UNWRITABLE.

    What replaces each other on the screen does so at the push service too, while the browser is away.
    """
    payload = {key: fields[key] for key in _SHOWN if fields.get(key) not in (None, "")}
    replaces = fields.get("collapseId") or fields.get("tag")
    if replaces:
        payload.setdefault("tag", replaces)
    if image := image_of(fields):
        payload["image"] = image
    if actions := fields.get("actions"):
        payload["actions"] = actions
    own = dict(own_fields(fields, "web"))
    wished = own.pop("urgency", None)
    payload |= own
    hushed = fields.get("interruptionLevel") == "passive"
    if hushed:
        payload["silent"] = True
    if payload.get("silent"):
        payload.pop("vibrate", None)  # browsers show no push that has both
    taken = (*OWN_NAMES, "actions") if actions else OWN_NAMES
    kept = {key: value for key, value in data.items() if key not in taken}
    payload["data"] = {**kept, "pushProvider": provider}
    usual = "high" if fields.get("priority") == "high" else "low" if hushed else "normal"
    urgency = ("urgency", str(wished or usual))
    headers = (urgency, ("topic", topic(str(replaces)))) if replaces else (urgency,)
    return Written(headers, dumps(payload)[:-2])
