"""Values of sources, cleaned for storage: clean text, whole moments, exact amounts; nothing here raises."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Literal
from zoneinfo import ZoneInfo

from relevo.core.items import Reject

SANTIAGO = ZoneInfo("America/Santiago")
NOMBRE, DESCRIPCION, ORGANISMO, REGION, SHORT, URL, EXTERNAL_ID = 2_000, 20_000, 500, 200, 100, 2_000, 300
MAX_RUBROS = 2_000
_DAY_ENDS = (time(0), time(23, 59, 59))

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b\u2028\u2029\ufeff]")
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ]((?!24)\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)\s*(Z|[+-]\d\d(?::?\d\d)?)?)?", re.IGNORECASE
)
_CHILEAN = re.compile(r"(\d{1,2})[-/](\d{1,2})[-/](\d{4})(?:\s+((?!24)\d{1,2}):(\d\d)(?::(\d\d))?)?")
_THOUSANDS = re.compile(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?")
_LONE_POINT = re.compile(r"\d{1,3}\.\d{3}")
_COMMA = re.compile(r"\d+,\d+")
_PLAIN = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")
_MOST = Decimal(10) ** 18
_EARLIEST, _LATEST = 1900, 2199
_CURRENCIES = {"UF": "CLF", "PESO": "CLP", "PESO CHILENO": "CLP", "PESOS": "CLP", "DOLAR": "USD", "DÓLAR": "USD"}
_CURRENCIES |= {"$": "CLP", "US$": "USD", "€": "EUR", "EURO": "EUR", "UNIDAD DE FOMENTO": "CLF"}


def loads(body: bytes) -> Any:
    """Read JSON with exact numbers, or return None if it is none."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = body.decode("latin-1")
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=lambda _: None)
    except (ValueError, RecursionError, ArithmeticError):
        return None


def clean(value: object, limit: int | None = None) -> str | None:
    """Return text in one line without control characters, of at most `limit` characters; None if nothing is left."""
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        return None
    # A lone surrogate can be told in JSON but not be stored.
    text = str(value).encode("utf-8", "replace").decode()
    return " ".join(_CONTROL.sub(" ", text).split())[:limit].strip() or None


def at(value: object, *path: str) -> Any:
    """Follow keys down; None where the way ends."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def each(value: object) -> list[Any]:
    """Return a list as it is, a lone thing as a list of one, and nothing as none."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def within(value: object, keys: frozenset[str], depth: int = 6) -> Iterator[dict[str, Any]]:
    """Yield the outermost objects that have one of the keys, however lists and wrappers lie around them."""
    if isinstance(value, dict):
        if keys & value.keys():
            yield value
            return
        value = list(value.values())
    if isinstance(value, list) and depth:
        for inner in value:
            yield from within(inner, keys, depth - 1)


def moment(
    value: object, *, zone: ZoneInfo = SANTIAGO, end_of_day: bool = False, trust_offset: bool = True
) -> datetime | None:
    """Read a moment; without an offset, or with one that is not to be trusted, it is local time of the zone.

    A bare day is its first second, or its last with `end_of_day`.
    """
    day, clock, offset = _day_and_clock(value)
    clock = clock or ("23:59:59" if end_of_day else "00:00:00")
    read = _read(f"{day}T{clock}{offset if trust_offset else ''}")
    if read is None or not in_range(read):
        return None
    return read if read.tzinfo else read.replace(tzinfo=zone)


def is_out_of_range(value: object) -> bool:
    """Return whether a moment is well-formed and none that a tender may have, as 9999-12-31: a word for none."""
    day, clock, _ = _day_and_clock(value)
    read = _read(f"{day}T{clock or '00:00:00'}")
    return read is not None and not in_range(read)


def _read(written: str) -> datetime | None:
    try:
        return datetime.fromisoformat(written)
    except ValueError:
        return None


def is_bare_day(value: object) -> bool:
    """Return whether a moment is told as a day alone."""
    day, clock, _ = _day_and_clock(value)
    return bool(day and not clock)


def midnights(publicada_at: datetime | None, cierra_at: datetime | None) -> tuple[str, ...]:
    """Name the dates that a source of Chile, which tells times alone, means as days: their first or last second."""
    told = {"publicada_at": publicada_at, "cierra_at": cierra_at}
    return tuple(name for name, at in told.items() if at and at.astimezone(SANTIAGO).time() in _DAY_ENDS)


def link(value: object) -> str | None:
    """Return a web address; any other, a script among them, is none."""
    address = clean(value, URL)
    return address if address and address.lower().startswith(("http://", "https://")) else None


def _day_and_clock(value: object) -> tuple[str, str, str]:
    """Take a moment apart into its day, time and offset, in ISO's form; what is not told or not readable is empty."""
    text = clean(value, 50) or ""
    if found := _ISO.fullmatch(text):
        day, clock, offset = found.groups(default="")
        return day, clock, offset.upper()
    if found := _CHILEAN.fullmatch(text):
        day, month, year, hour, minute, second = found.groups(default="00")
        clock = f"{hour:0>2}:{minute}:{second}" if found[4] else ""
        return f"{year}-{month:0>2}-{day:0>2}", clock, ""
    return "", "", ""


def amount(value: object, *, lone_point: Literal["thousands", "decimal"] = "thousands") -> Decimal | None:
    """Read an amount of money, also "70.063,00"; what is not above zero says nothing.

    Points between thousands are a habit of texts: a number that came as one is what it says. `lone_point` says what
    the one point in a text like "1.234" is.
    """
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return _money(str(value))
    text = re.sub(r"^(?:US\$|[A-Z]{3}|[$€])\s*", "", (clean(value, 50) or "").replace(" ", ""))
    if _THOUSANDS.fullmatch(text) and not (lone_point == "decimal" and _LONE_POINT.fullmatch(text)):
        text = text.replace(".", "").replace(",", ".")
    elif _COMMA.fullmatch(text):
        text = text.replace(",", ".")
    elif not _PLAIN.fullmatch(text):
        return None
    return _money(text)


def _money(text: str) -> Decimal | None:
    try:
        read = Decimal(text).quantize(Decimal("0.01"))
    except InvalidOperation:
        return None
    return read if 0 < read < _MOST else None


def currency(value: object) -> str | None:
    """Return a currency's code of three letters."""
    text = (clean(value, 50) or "").upper()
    text = _CURRENCIES.get(text, text)
    return text if re.fullmatch(r"[A-Z]{3}", text) else None


def code(value: object) -> str | None:
    """Return a classification's code as text, without a blank or the .0 of a number that was a float once."""
    text = (clean(value, 30) or "").replace(" ", "")
    return re.sub(r"\.0+$", "", text) or None


def codes(values: list[object]) -> tuple[str, ...]:
    """Return the codes told, each once, in their order."""
    return tuple(dict.fromkeys(found for value in values if (found := code(value))))[:MAX_RUBROS]


def file_name(name: str) -> str:
    """Return a file's name as text that can be stored: bytes that are no UTF-8 are written out."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def in_range(moment_: datetime) -> bool:
    """Return whether a moment is one that a tender may have; beyond these lie only placeholders."""
    return _EARLIEST < moment_.year < _LATEST


def reject(place: str, reason: str, *, external_id: str | None = None, retry: bool = False) -> Reject:
    """Return a reject that fits its table."""
    said = clean(reason, 500) or "unusable"
    return Reject(clean(place, 1_000) or "?", said, clean(external_id, EXTERNAL_ID), retry)


def number(value: object) -> float | None:
    """Read a small number, as demos tell them."""
    read = clean(value, 20) or ""
    return float(read) if re.fullmatch(r"-?\d{1,6}(?:\.\d+)?", read) else None
