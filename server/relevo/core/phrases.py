"""Texts that remember what they were put together from, so that they can be said in another language as well.

gettext translates a whole text at once; Babel's LazyProxy could do this, and would bring Babel to every installation.
"""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import Self


class Phrase(str):
    """A text in English: `Phrase("paused for {time}", time=in_words(90))`; numbers have their thousands apart."""

    __slots__ = ("forms", "parts", "template")
    template: str
    parts: dict[str, object]
    forms: tuple[str, str, int] | None
    """Of a text that goes with a count: its singular, its plural and the count."""

    def __new__(cls, template: str, /, **parts: object) -> Self:
        """Make a text of a template and what is filled in."""
        phrase = super().__new__(cls, filled(template, parts, str, "{:,}".format))
        phrase.template, phrase.parts, phrase.forms = template, parts, None
        return phrase

    @classmethod
    def of_count(cls, count: int, one: str, many: str, /, **parts: object) -> Self:
        """Make a text that depends on a count, which is not part of it: `Phrase.of_count(3, "event", "events")`."""
        phrase = cls(one if count == 1 else many, **parts)
        phrase.forms = (one, many, count)
        return phrase


def filled(template: str, parts: dict[str, object], say: Callable[[Phrase], str], number: Callable[[int], str]) -> str:
    """Fill a template in; `say` and `number` tell how to say what is a phrase or a number itself."""

    def written(part: object) -> object:
        if isinstance(part, Phrase):
            return say(part)
        return number(part) if isinstance(part, int) else part

    return template.format(**{name: written(part) for name, part in parts.items()}) if parts else template


def clipped(text: str | None, most: int = 120) -> str:
    """Write the beginning of a text that may be long."""
    text = text or ""
    return f"{text[: most - 1]}…" if len(text) > most else text


def release_command(event_type: str, origin: str | None = None) -> str:
    """Return the command that releases what the runaway brake holds."""
    return f"relevo release --type {quote(event_type)}" + (f" --origin {quote(origin)}" if origin else "")
