"""The form of an FCM message: one target, texts alone in its data, known fields, and not too big."""

from __future__ import annotations

import json
import re
from typing import Any

from relevo.providers.fcm.sandbox.answers import bad_request

MAX_BYTES = 4_096
MAX_TOPIC_BYTES = 2_048
_TARGETS = ("token", "fid", "topic", "condition")
_MAX_TTL_S = 2_419_200
_TTL = re.compile(r"\d{1,10}(?:\.\d{1,9})?s")
_RESERVED = re.compile(r"from|message_type|(?:google|gcm)\..*")
_SNAKE = re.compile(r"(?<=[a-z0-9])([A-Z])")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FIELDS: dict[str, frozenset[str]] = {
    "message": frozenset(
        (*_TARGETS, "name", "data", "notification", "android", "webpush", "apns", "fcm_options"),
    ),
    "message.notification": frozenset(("title", "body", "image")),
    "message.android": _names(
        "collapse_key priority ttl restricted_package_name data notification fcm_options direct_boot_ok "
        "bandwidth_constrained_ok restricted_satellite_ok"
    ),
    "message.android.notification": _names(
        "title body icon color sound tag click_action body_loc_key body_loc_args title_loc_key title_loc_args "
        "channel_id ticker sticky event_time local_only notification_priority default_sound default_vibrate_timings "
        "default_light_settings vibrate_timings visibility notification_count light_settings image proxy "
        "bypass_proxy_notification"
    ),
    "message.apns": frozenset(("headers", "payload", "fcm_options", "live_activity_token")),
    "message.webpush": frozenset(("headers", "data", "notification", "fcm_options")),
}
_TEXT_MAPS = ("message.data", "message.android.data", "message.apns.headers", "message.webpush.headers")
_OBJECTS = ("message.apns.payload", "message.webpush.notification", "message.webpush.data", "message.fcm_options")
_TEXTS = ("title", "body", "image", "icon", "color", "sound", "tag", "click_action", "channel_id", "ticker")


def read(body: bytes) -> tuple[dict[str, Any], bool]:
    """Return a request's message, its names in snake case, and whether it is only to be checked; raises Refused."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        raise bad_request("body", "It is not JSON.") from None
    if not isinstance(request, dict) or not isinstance(request.get("message"), dict):
        raise bad_request("message", "It must be an object.")
    if unknown := sorted(request.keys() - {"message", "validate_only", "validateOnly"}):
        raise bad_request(str(unknown[0])[:100], "There is no such field.")
    message = _named("message", request["message"])
    _check_target(message)
    _check_parts(message)
    _check_size(message)
    return message, bool(request.get("validate_only") or request.get("validateOnly"))


def shown(message: dict[str, Any]) -> dict[str, Any]:
    """Return what a phone shows: title, body and data, and the message as it came."""
    android = message.get("android", {})
    notice = message.get("notification", {}) | android.get("notification", {})
    data = message.get("data", {}) | android.get("data", {})
    rest = {name: value for name, value in message.items() if name not in ("token", "fid", "data")}
    return {"title": notice.get("title"), "body": notice.get("body"), "data": data, "fcm": rest}


def _named(place: str, given: Any) -> dict[str, Any]:
    """Check an object's fields and write their names in snake case, as protocol buffers take both."""
    if not isinstance(given, dict):
        raise bad_request(place, "It must be an object.")
    found: dict[str, Any] = {}
    for name, value in given.items():
        snake = _SNAKE.sub(lambda upper: f"_{upper[1].lower()}", name)
        inner = f"{place}.{snake}"
        if snake not in _FIELDS[place]:
            raise bad_request(inner[:200], "There is no such field.")
        found[snake] = _named(inner, value) if inner in _FIELDS else value
    return found


def _check_target(message: dict[str, Any]) -> None:
    targets = [name for name in _TARGETS if message.get(name)]
    if len(targets) != 1:
        raise bad_request("message", f"It must have exactly one of {', '.join(_TARGETS)}, and has {len(targets)}.")
    if not isinstance(message[targets[0]], str):
        raise bad_request(f"message.{targets[0]}", "It must be a text.")


def _check_parts(message: dict[str, Any]) -> None:
    for place in _TEXT_MAPS:
        _check_texts(place, _at(message, place))
    for place in _OBJECTS:
        if not isinstance(_at(message, place) or {}, dict):
            raise bad_request(place, "It must be an object.")
    for place in ("message.notification", "message.android.notification"):
        for name, value in (_at(message, place) or {}).items():
            if name in _TEXTS and not isinstance(value, str):
                raise bad_request(f"{place}.{name}", "It must be a text.")
    for place in ("message.data", "message.android.data"):
        if reserved := next(filter(_RESERVED.fullmatch, _at(message, place) or {}), None):
            raise bad_request(place, f"{reserved[:100]} is a name that FCM keeps for itself.")
    _check_android(message.get("android", {}))


def _check_texts(place: str, given: Any) -> None:
    if given is None:
        return
    if not isinstance(given, dict):
        raise bad_request(place, "It must be an object of texts.")
    for name, value in given.items():
        if not isinstance(value, str):
            raise bad_request(f"{place}[{name[:100]}]", "It must be a text.")


def _check_android(android: dict[str, Any]) -> None:
    if str(android.get("priority", "normal")).lower() not in ("normal", "high"):
        raise bad_request("message.android.priority", "It must be normal or high.")
    ttl = android.get("ttl")
    if ttl is not None and not (isinstance(ttl, str) and _TTL.fullmatch(ttl) and float(ttl[:-1]) <= _MAX_TTL_S):
        raise bad_request("message.android.ttl", f"It must be a text such as 3600s, up to {_MAX_TTL_S}s.")
    if not isinstance(android.get("collapse_key", ""), str):
        raise bad_request("message.android.collapse_key", "It must be a text.")


def _check_size(message: dict[str, Any]) -> None:
    content = {name: value for name, value in message.items() if name not in _TARGETS}
    size = len(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))
    most = MAX_BYTES if message.get("token") or message.get("fid") else MAX_TOPIC_BYTES
    if size > most:
        raise bad_request("message", f"It has {size} bytes, and may have {most}.")


def _at(message: dict[str, Any], place: str) -> Any:
    found: Any = message
    for name in place.split(".")[1:]:
        found = found.get(name) if isinstance(found, dict) else None
    return found
