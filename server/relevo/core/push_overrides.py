"""The fields of an event's push for one phone: the common ones, replaced by those of the phone's platform."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from relevo.core.known_services import EXPO, SERVICES
from relevo.providers.apns.facts import IPHONE
from relevo.providers.fcm.facts import ANDROID, WEB

PLATFORM_FIELDS = ("android", "apns", "web")
"""The fields of a push that hold the fields of one platform."""

OWN: Mapping[str, Mapping[str, str]] = {"android": ANDROID, "apns": IPHONE, "web": WEB}
"""By platform, the fields that no other platform has, and what each is in a message of FCM or APNs."""
LOUD: Mapping[str, frozenset[str]] = {
    "android": frozenset(("notificationPriority",)),
    "apns": frozenset(),
    "web": frozenset(("requireInteraction", "renotify", "silent", "vibrate", "urgency")),
}
"""By platform, its own fields that a push without a sound must not have."""


class ForPhone(NamedTuple):
    """The fields of a push for one phone, and what of its data they fill."""

    fields: Mapping[str, Any]
    data: Mapping[str, Any]


def platform_field(provider: str, platform: str | None) -> str | None:
    """Return which field of a push is for a phone alone; None for providers that get everything as it is."""
    service = SERVICES.get(provider)
    if service is None:
        return None
    usual = service.platforms[0] if len(service.platforms) == 1 else "android"
    known = platform if platform in service.platforms else usual
    return "apns" if known == "ios" else known


def for_phone(push: Mapping[str, Any], provider: str, platform: str | None) -> ForPhone:
    """Return a push as a phone gets it.

    A field of the phone's platform takes the place of the common one. A platform's own fields stay under its name,
    for the services that have them. An image is part of `richContent`, and `data` has the link and the actions.
    """
    mine = platform_field(provider, platform)
    if mine is None:
        return ForPhone(push, {})
    given = push.get(mine) or {}
    own = {name: value for name, value in given.items() if name in OWN[mine] and value is not None}
    fields = {name: value for name, value in push.items() if name not in PLATFORM_FIELDS}
    fields |= {name: value for name, value in given.items() if name not in OWN[mine] and value is not None}
    image, link, actions = (fields.pop(name, None) for name in ("image", "link", "actions"))
    if image is not None:
        fields["richContent"] = {**(fields.get("richContent") or {}), "image": image}
    if own and provider != EXPO:
        fields[mine] = own
    data = {name: value for name, value in (("url", link), ("actions", actions)) if value is not None}
    if mine == "web":  # browsers show both themselves
        fields |= {name: value for name, value in (("link", link), ("actions", actions)) if value is not None}
    return ForPhone(fields, data)


def without_loud(fields: Mapping[str, Any], replaced: Collection[str]) -> dict[str, Any]:
    """Return the fields of a push without those of a platform that ring, vibrate or light the screen.

    Nor has a platform any of the common fields in `replaced`, of which those of a quiet push take the place.
    """
    return {
        name: {inner: kept for inner, kept in value.items() if inner not in LOUD[name] and inner not in replaced}
        if name in LOUD
        else value
        for name, value in fields.items()
    }
