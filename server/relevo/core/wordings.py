"""Wordings: what an event type says in several languages, and how that is rendered, by ICU's MessageFormat."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, time
from decimal import Decimal
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from zoneinfo import ZoneInfo

from relevo.core.errors import MissingPartError
from relevo.core.locales import zone_named
from relevo.core.patterns import Kind

if TYPE_CHECKING:
    from icu4py.messageformat import MessageFormat

FIELDS = ("title", "body", "subtitle")
LONGEST = {"title": 500, "body": 2_000, "subtitle": 500}
MOST_TOGETHER = 65_536
"""How many bytes the texts of one event may have, in all languages together."""
_DATE_CHARS = len("2026-09-06")
Arguments = Mapping[str, Any]
"""The arguments of an event by name, as JSON has them."""
Value = int | float | str | Decimal | datetime


class RenderError(ValueError):
    """A text could not be rendered, or is too long; the message says which and why."""


class Text(NamedTuple):
    """What is shown: a subtitle only where there is one."""

    title: str
    body: str
    subtitle: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Text:
        """Return a text by its fields."""
        return cls(*(given.get(name, "") for name in FIELDS))

    def fields(self) -> dict[str, str]:
        """Return it by its fields, without those that are empty."""
        return {name: said for name, said in zip(FIELDS, self, strict=True) if said}

    @property
    def bytes(self) -> int:
        """How much it weighs within a push."""
        return len(json.dumps(self.fields(), ensure_ascii=False).encode())


@dataclass(frozen=True)
class Wording:
    """A version of what an event type says: patterns by locale, and the arguments that they name."""

    event_type: str
    default_locale: str
    texts: Mapping[str, Mapping[str, str]]
    kinds: Mapping[str, Kind]
    samples: Arguments = field(default_factory=dict)
    version: int | None = None
    zoned: bool = False
    """Whether a text names a time, so that it differs by the phone's time zone."""

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Wording:
        """Return a row of the table."""
        named = row["arguments"].items()
        kinds, samples = ({name: each[what] for name, each in named} for what in ("kind", "sample"))
        return cls(row["event_type"], row["default_locale"], row["texts"], kinds, samples, row["version"], row["zoned"])

    def render(self, locale: str, arguments: Arguments, zone: str | None = None) -> Text:
        """Render the text of one of its locales; raises RenderError."""
        known = zone_named(zone)
        try:
            values = {name: _value(kind, arguments[name], known) for name, kind in self.kinds.items()}
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise RenderError(f"the arguments cannot be read ({type(error).__name__}: {error})") from None
        patterns = self.texts[locale]
        said = Text.of({name: _render(f"{locale} {name}", patterns[name], locale, known, values) for name in patterns})
        if too_long := [name for name in FIELDS if len(getattr(said, name)) > LONGEST[name]]:
            raise RenderError(f"{locale} {too_long[0]} has more than {LONGEST[too_long[0]]} characters once rendered")
        if not said.title.strip() and not said.body.strip():
            raise RenderError(f"{locale} shows nothing: its title and body are blank")
        return said

    def render_all(self, arguments: Arguments, zone: str | None = None) -> dict[str, Text]:
        """Render the texts of all its locales; raises RenderError."""
        return {locale: self.render(locale, arguments, zone) for locale in self.texts}


@cache
def is_available() -> bool:
    """Return whether ICU is installed here, and can be loaded."""
    try:
        import_module("icu4py.messageformat")
    except ImportError:
        return False
    return True


def need() -> None:
    """Raise if ICU is not installed here."""
    if not is_available():
        raise MissingPartError(
            "The texts of event types need ICU, which is not installed here (icu4py is missing).",
            hint="Install it: pip install 'relevo[words]'",
        )


def pattern(text: str, locale: str, zone: str = "UTC") -> MessageFormat:
    """Return a pattern as ICU reads it; raises ValueError with ICU's name for what is wrong."""
    from icu4py.messageformat import MessageFormat  # noqa: PLC0415 an extra of its own

    return MessageFormat(text, f"{locale.replace('-', '_')}@timezone={zone}")


_known_pattern = lru_cache(maxsize=1_000)(pattern)  # to read one takes a hundred times as long as to render it


def _render(what: str, text: str, locale: str, zone: str, values: dict[str, Value]) -> str:
    try:
        return _known_pattern(text, locale, zone).format(values)  # type: ignore[arg-type]
    except (ValueError, RuntimeError, TypeError) as error:
        raise RenderError(f"{what} cannot be rendered ({error})") from None


def _value(kind: Kind, given: Any, zone: str) -> Value:
    """Return an argument as ICU takes it; a date is noon where the phone is, so that it is that day there."""
    is_number = isinstance(given, int | float | Decimal) and not isinstance(given, bool) and math.isfinite(given)
    if kind == "number" and is_number:
        return cast("Value", given)
    if kind == "text" and isinstance(given, str):
        return given
    if kind == "time" and isinstance(given, str):
        at = datetime.fromisoformat(given)
        if len(given) == _DATE_CHARS:
            return datetime.combine(at.date(), time(12), ZoneInfo(zone))
        if at.tzinfo is not None:
            return at
    raise ValueError(f"a {kind} is needed")
