"""The push services that come with Relevo, a row each; README, "Adding a provider", says what else a new one takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

Platform = Literal["ios", "android", "web"]
PLATFORMS: Mapping[str, str] = {"ios": "iOS", "android": "Android", "web": "web"}
"""Platforms, as people write them."""


class Service(NamedTuple):
    """What is known of a push service without asking it."""

    name: str
    """In `provider` columns and PUSH_PROJECTS_FILE; of its modules in `providers/`, and of the extra that brings it."""
    label: str
    """Its name for people."""
    platforms: tuple[Platform, ...]
    """Those of its phones, as far as pushes are written for each in its own way."""
    max_bytes: int
    """How many bytes a push may have."""
    token: str
    """What a phone registers with, in words."""
    part: Literal["platform", "environment", "host"] | None = None
    """By what a project's phones are kept apart: what goes wrong with one part stops no other."""


def listed(words: Iterable[str], before_last: str = " or ") -> str:
    """Write a list as in "expo, fcm, apns or webpush"."""
    *first, last = words
    return before_last.join((", ".join(first), last)) if first else last


EXPO = "expo"
SERVICES: Mapping[str, Service] = {
    each.name: each
    for each in (
        Service(EXPO, "Expo", ("ios", "android"), 4_096, "Expo's"),
        Service("fcm", "FCM", ("android", "ios", "web"), 4_096, "FCM's registration token", "platform"),
        Service("apns", "APNs", ("ios",), 4_096, "the device token of APNs in hexadecimal digits", "environment"),
        Service("webpush", "Web Push", ("web",), 3_993, "the JSON of a browser's push subscription, as text", "host"),
    )
}
"""By name; Expo is the usual one."""

NATIVE = tuple(name for name in SERVICES if name != EXPO)
"""Those that are spoken to directly, not by Expo: each in an extra of its own, with parts, and without receipts."""
WITH_ENVIRONMENT = tuple(each.name for each in SERVICES.values() if each.part == "environment")
WITH_HOST = tuple(each.name for each in SERVICES.values() if each.part == "host")
"""Those whose tokens hold the address that pushes go to, which a phone chose."""
LABELS = {each.name: each.label for each in SERVICES.values()}
"""The names of push services for people."""
NATIVE_IN_WORDS = listed((LABELS[name] for name in NATIVE), " and ")
