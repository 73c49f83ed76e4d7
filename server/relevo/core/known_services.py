"""The push services that come with Relevo, by their facts; README, "Adding a provider", says what a new one takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from relevo.providers.apns import facts as apns
from relevo.providers.expo import facts as expo
from relevo.providers.facts import Code, Service
from relevo.providers.fcm import facts as fcm
from relevo.providers.huawei import facts as huawei
from relevo.providers.webhook import facts as webhook
from relevo.providers.webpush import facts as webpush

PLATFORMS: Mapping[str, str] = {"ios": "iOS", "android": "Android", "web": "web"}
"""Platforms, as people write them."""


def listed(words: Iterable[str], before_last: str = " or ") -> str:
    """Write a list as in "expo, fcm, apns or webpush"."""
    *first, last = words
    return before_last.join((", ".join(first), last)) if first else last


EXPO = expo.SERVICE.name
SERVICES: Mapping[str, Service] = {each.SERVICE.name: each.SERVICE for each in (expo, fcm, apns, webpush, huawei)}
"""By name; Expo is the usual one."""

NATIVE = tuple(name for name in SERVICES if name != EXPO)
"""Those that are spoken to directly, not by Expo: each in an extra of its own, with parts, and without receipts."""
WITH_ENVIRONMENT = tuple(each.name for each in SERVICES.values() if each.part == "environment")
WITH_HOST = tuple(each.name for each in SERVICES.values() if each.part == "host")
"""Those whose tokens hold the address that pushes go to, which a phone chose."""
LABELS = {each.name: each.label for each in SERVICES.values()}
"""The names of push services for people."""
NATIVE_IN_WORDS = listed((LABELS[name] for name in NATIVE), " and ")

CODES: Mapping[str, Code] = {
    code: each for codes in (*(each.codes for each in SERVICES.values()), webhook.CODES) for code, each in codes.items()
}
"""Every error code of a push service or webhook; one that several have means the same in each."""
