"""Locales: which texts a phone may be shown, and in which time zones it may be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from zoneinfo import available_timezones

LOCALE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z]{4})?(-([A-Za-z]{2}|[0-9]{3}))?")
"""A language, maybe a script, maybe a region: `es`, `zh-Hant`, `es-419`."""


def chain(locale: str) -> list[str]:
    """Return the locales whose texts a phone may be shown, in small letters, the best first: es-cl, es-419, es.

    `relevo.locale_chain` is the same in SQL; a test compares them.
    """
    parts = locale.replace("_", "-").lower().split("-") if locale else []
    found = ["-".join(parts[:length]) for length in range(len(parts), 0, -1)]
    between = {"es": ("es", "es-419"), "en": ("us", "en-001")}.get(parts[0]) if len(parts) > 1 else None
    if between is not None and parts[1] != between[0]:
        found.insert(-1, between[1])
    return found


@lru_cache(maxsize=4096)
def best(locale: str | None, offered: tuple[str, ...], default: str, project_locale: str | None = None) -> str:
    """Return which of the offered locales a phone is shown: of its language, else the project's, else the default."""
    names = {name.lower(): name for name in offered}
    wished = (*chain(locale or ""), *chain(project_locale or ""))
    return next((names[name] for name in wished if name in names), default)


@cache
def _zones() -> dict[str, str]:
    return {name.lower(): name for name in available_timezones()}


def known_zone(name: str | None) -> str | None:
    """Return a time zone by its name in any letters; None if there is none, or nobody knows it."""
    return _zones().get((name or "").lower())


def zone_named(name: str | None) -> str:
    """Return a time zone by its name in any letters; UTC if there is none, or nobody knows it."""
    return known_zone(name) or "UTC"


def common_zone(of_phones: Iterable[str], of_project: str | None) -> str:
    """Return the only known time zone of some phones; else the project's; else UTC."""
    known = {zone for zone in map(known_zone, of_phones) if zone is not None}
    return known.pop() if len(known) == 1 else zone_named(of_project)
