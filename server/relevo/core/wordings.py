"""Wordings: what an event type says in several languages, and how that is rendered.

Texts are patterns of ICU's MessageFormat. They are read here; ICU writes the single numbers and times in them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time
from decimal import Decimal
from functools import cache, cached_property, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from zoneinfo import ZoneInfo

from relevo.core import patterns
from relevo.core.errors import MissingPartError
from relevo.core.icu_locales import icu_locale
from relevo.core.locales import zone_named
from relevo.core.patterns import CATEGORIES, Argument, Choice, Kind, Message, Number, PatternError

if TYPE_CHECKING:
    from icu4py.messageformat import MessageFormat

FIELDS = ("title", "body", "subtitle")
LONGEST = {"title": 500, "body": 2_000, "subtitle": 500}
MOST_TOGETHER = 65_536
"""How many bytes the texts of one event may have, in all languages together."""
MOST_LOCALES, MOST_ARGUMENTS, MOST_BYTES, MOST_STYLES = 50, 30, 100_000, 300
"""The limits of one type: its locales, its arguments, the bytes of its patterns in all languages together, and the
different styles of numbers and times in them, each counted once a locale: ICU takes up to 0.5 ms for each."""
MOST_TEXT = 500
_MOST_NUMBER, _MOST_FRACTION = 18, 38
_YEARS = range(1900, 2300)
_KEPT, _KEPT_BY_ITSELF = 256, 64
"""How many formatters stay in memory for all versions, and for one that is only tried: one takes 10 to 31 kB."""
_DATE_CHARS = len("2026-09-06")
Arguments = Mapping[str, Any]
"""The arguments of an event by name, as JSON has them."""
Value = int | float | str | Decimal | datetime
Formatter = Callable[[str, str], "MessageFormat"]
"""Returns how ICU writes a value, by style and locale."""


class RenderError(ValueError):
    """A text could not be rendered, or is too long; the message says which and why."""


class Text(NamedTuple):
    """The rendered text: with a subtitle only if there is one."""

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


def make_formatter(style: str, locale: str) -> MessageFormat:
    """Return how ICU writes one value in a locale, its `v`; raises ValueError with ICU's name for what is wrong."""
    from icu4py.messageformat import MessageFormat  # noqa: PLC0415 an extra of its own

    return MessageFormat(f"{{v{style}}}", f"{locale}@timezone=UTC")


kept_formatter = lru_cache(maxsize=_KEPT)(make_formatter)


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
    formatter: Formatter = field(default=kept_formatter, compare=False, repr=False)
    """How ICU writes single values: one that is only tried has formatters of its own, which go with it."""
    _read: dict[str, Message] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Wording:
        """Return a row of the table."""
        named = row["arguments"].items()
        kinds, samples = ({name: each[what] for name, each in named} for what in ("kind", "sample"))
        return cls(row["event_type"], row["default_locale"], row["texts"], kinds, samples, row["version"], row["zoned"])

    @cached_property
    def weight(self) -> int:
        """How many bytes its patterns have as JSON, in all languages together."""
        return len(json.dumps(self.texts, ensure_ascii=False).encode())

    @cached_property
    def fault(self) -> str | None:
        """Why it is not rendered, if it is not accepted: whoever may write to the table can save it unchecked."""
        if self.weight > MOST_BYTES:
            return f"its patterns have {self.weight} bytes in all languages together, and {MOST_BYTES} are the most"
        if len(self.texts) > MOST_LOCALES or len(self.kinds) > MOST_ARGUMENTS:
            return f"texts have at most {MOST_LOCALES} locales and {MOST_ARGUMENTS} arguments"
        styles = set()
        for locale, text in self.texts.items():
            for name, said in text.items():
                try:
                    styles |= {(locale, style) for style in patterns.styles(self.message(said))}
                except (PatternError, TypeError) as error:
                    return f"{locale} {name} cannot be rendered ({error})"
        if len(styles) > MOST_STYLES:
            return f"its texts have {len(styles)} styles of numbers and times, and {MOST_STYLES} are the most"
        return None

    def tried(self) -> Wording:
        """Return it with formatters of its own, so that it takes no room of those that are sent."""
        return replace(self, formatter=lru_cache(maxsize=_KEPT_BY_ITSELF)(make_formatter))

    def check_styles(self, locale: str, name: str) -> None:
        """Raise PatternError if ICU cannot write an argument of a text as its style demands, in any branch."""
        for style in patterns.styles(self.message(self.texts[locale][name])):
            try:
                trial = _TRIALS[style.split(",")[1].strip()]
                self.formatter(style, icu_locale(locale)).format({"v": trial})
            except (ValueError, RuntimeError) as error:
                raise PatternError(f"{{…{style}}} has a style that ICU rejects ({error})") from None

    def message(self, text: str) -> Message:
        """Return one of its patterns as it was read, once; raises PatternError."""
        known = self._read.get(text)
        if known is None:
            known = self._read[text] = patterns.parse(text)
        return known

    def render(self, locale: str, arguments: Arguments, zone: str | None = None) -> Text:
        """Render the text of one of its locales; raises RenderError."""
        if self.fault:
            raise RenderError(self.fault)
        known = zone_named(zone)
        values = {}
        for name, kind in self.kinds.items():
            try:
                values[name] = _value(kind, arguments[name], known)
            except (KeyError, ValueError, TypeError, ArithmeticError) as error:
                raise RenderError(f"argument {name} cannot be read ({type(error).__name__}: {error})") from None
        said = Text.of({name: self._render(locale, name, values) for name in self.texts[locale] if name in FIELDS})
        if too_long := [name for name in FIELDS if len(getattr(said, name)) > LONGEST[name]]:
            raise RenderError(f"{locale} {too_long[0]} has more than {LONGEST[too_long[0]]} characters once rendered")
        if not said.title.strip() and not said.body.strip():
            raise RenderError(f"{locale} shows nothing: its title and body are blank")
        return said

    def render_all(self, arguments: Arguments, zone: str | None = None) -> dict[str, Text]:
        """Render the texts of all its locales; raises RenderError."""
        return {locale: self.render(locale, arguments, zone) for locale in self.texts}

    def _render(self, locale: str, name: str, values: Mapping[str, Value]) -> str:
        try:
            return _Writer(icu_locale(locale), values, self.formatter).write(self.message(self.texts[locale][name]), 0)
        except (ValueError, RuntimeError, TypeError, KeyError) as error:
            raise RenderError(f"{locale} {name} cannot be rendered ({error})") from None


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


_NOON = datetime(2026, 9, 6, 12, tzinfo=UTC)
_TRIALS: dict[str, Value] = {"number": 1, "date": _NOON, "time": _NOON}
_CATEGORY = {
    kind: f", {kind}, {' '.join(f'{each} {{{each}}}' for each in CATEGORIES)}" for kind in ("plural", "selectordinal")
}


class _Writer(NamedTuple):
    """Writes messages in a locale, with their values."""

    locale: str
    values: Mapping[str, Value]
    formatter: Formatter

    def write(self, message: Message, number: Value) -> str:
        """Write a message; `number` is that of the plural around it."""
        return "".join(part if isinstance(part, str) else self._part(part, number) for part in message)

    def _part(self, part: Argument | Number | Choice, number: Value) -> str:
        if isinstance(part, Number):
            return self._format("", number)
        value = self.values[part.name]
        if isinstance(part, Argument):
            return value if isinstance(value, str) else self._format(part.style, value)
        if part.type == "select":
            return self.write(part.branches.get(str(value), part.branches["other"]), number)
        left = cast("Decimal", value) - part.offset if part.offset else value
        chosen = next((each for each in part.branches if each[0] == "=" and int(each[1:]) == value), None)
        if chosen is None:
            chosen = self._format(_CATEGORY[part.type], left)
        return self.write(part.branches.get(chosen, part.branches["other"]), left)

    def _format(self, style: str, value: Value) -> str:
        return self.formatter(style, self.locale).format({"v": value})


def _value(kind: Kind, given: Any, zone: str) -> Value:
    """Return an argument as ICU takes it: a time as the clocks of a zone show it, a date as its noon."""
    if kind == "number" and isinstance(given, int | float | Decimal) and not isinstance(given, bool):
        return _number(given)
    if kind == "text" and isinstance(given, str):
        if len(given) > MOST_TEXT:
            raise ValueError(f"a text has at most {MOST_TEXT} characters")
        return given
    if kind == "time" and isinstance(given, str):
        at = datetime.fromisoformat(given)
        if at.year not in _YEARS:
            raise ValueError(f"a time is between the years {_YEARS[0]} and {_YEARS[-1]}")
        if len(given) == _DATE_CHARS:
            return datetime.combine(at.date(), time(12), UTC)
        if at.tzinfo is not None:
            return at.astimezone(ZoneInfo(zone)).replace(tzinfo=UTC)
    raise ValueError(f"a {kind} is needed")


def _number(given: float | Decimal) -> Value:
    """Return a number of at most 18 digits before the point and 38 behind it, as `relevo.arguments_complaint` does."""
    if isinstance(given, int):
        fits = abs(given) < 10**_MOST_NUMBER
    else:
        exact = given if isinstance(given, Decimal) else Decimal(repr(given))
        exponent = exact.as_tuple().exponent
        fits = isinstance(exponent, int) and exact.adjusted() < _MOST_NUMBER and exponent >= -_MOST_FRACTION
    if not fits:
        raise ValueError(f"a number has at most {_MOST_NUMBER} digits before the point and {_MOST_FRACTION} behind it")
    return given
