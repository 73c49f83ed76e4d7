"""Durations, counts and instants in words."""

from __future__ import annotations

from datetime import UTC, datetime

from relevo.core.phrases import Phrase

MOST_COUNTED = 10_000
"""Beyond this nothing is counted: more is more."""


def in_words(seconds: float) -> str:
    """Write a duration so that it can be read at a glance."""
    if seconds < 10:  # noqa: PLR2004 below ten seconds the decimals tell something
        return f"{seconds:.2f} s"
    if seconds < 600:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    if seconds < 2 * 86_400:
        return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"  # noqa: PLR2004
    return Phrase("{n} days", n=round(seconds / 86_400))


def in_numbers(count: int, one: str, many: str = "", **parts: object) -> str:
    """Write a count with its noun: 1 event, 3 events, 10,000 or more events."""
    number = Phrase("{n}", n=count) if count < MOST_COUNTED else Phrase("{n} or more", n=MOST_COUNTED)
    return Phrase("{n} {what}", n=number, what=Phrase.of_count(count, one, many or f"{one}s", **parts))


def timestamp(moment: datetime | None) -> str:
    """Write an instant, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if moment else Phrase("an unknown time")
