"""Numbers, times and durations as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from relevo.http.dashboard.html import Markup, el, text
from relevo.http.dashboard.language import spoken, t

_CODE = re.compile(r"`([^`]{1,400})`")
_INSTANT = re.compile(r"\b(\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?)Z")
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
_SHORT_S = 10
_SPANISH_SIGNS = str.maketrans(",.", ".,")


def number(value: float | None) -> str:
    """Write a number with its thousands apart: 12,345, in Spanish 12.345; none at all as a dash."""
    if value is None:
        return "—"
    return _apart(f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.1f}")  # noqa: PLR2004


def _apart(written: str) -> str:
    """Write points and commas as the language of the page does."""
    return written.translate(_SPANISH_SIGNS) if spoken() == "es" else written


def count(value: int, one: str, many: str = "") -> str:
    """Write a count with its noun."""
    return f"{number(value)} {t(one) if value == 1 else t(many or one + 's')}"


def percent(some: int, of_all: int) -> str:
    """Write a share: 98.5%; of nothing as a dash, and less than all never as all."""
    if not of_all:
        return "—"
    share = some / of_all * 100
    if some < of_all:
        share = min(share, 99.9)
    written = _apart(f"{share:.0f}" if share == int(share) else f"{share:.1f}")
    return f"{written} %" if spoken() == "es" else f"{written}%"


def duration(seconds: float | None) -> str:
    """Write how long: 180 ms, 4.2 s, 3 min, 5 h, 2 days."""
    if seconds is None:
        return "—"
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < _MINUTE_S:
        return _apart(f"{seconds:.1f} s") if seconds < _SHORT_S else f"{seconds:.0f} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    if seconds < 2 * _DAY_S:
        return f"{seconds / _HOUR_S:.0f} h"
    return t("{n} days", n=f"{seconds / _DAY_S:.0f}")


def size(value: int | None) -> str:
    """Write how many bytes: 3.2 MB."""
    if value is None:
        return "—"
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:  # noqa: PLR2004
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else _apart(f"{amount:.1f} {unit}")  # noqa: PLR2004
        amount /= 1000
    return _apart(f"{amount:.1f} TB")


def ago(moment: datetime | None, now: datetime) -> Markup:
    """Write an instant as how long ago it was, or how soon it comes; the exact one is its title."""
    if moment is None:
        return text(t("never"))
    away = (now - moment).total_seconds()
    told = t("{time} ago", time=duration(away)) if away >= 0 else t("in {time}", time=duration(-away))
    if abs(away) < 1:
        told = t("just now") if away >= 0 else t("in a moment")
    return _time(moment, told)


def instant(moment: datetime | None) -> Markup:
    """Write an instant; a script turns it into the viewer's own time, and the exact one is its title."""
    if moment is None:
        return text("—")
    return _time(moment, f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC", local=True)


def _time(moment: datetime, told: str, *, local: bool = False) -> Markup:
    exact = moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return el("time", told, datetime=exact, title=exact, data_local=local)


def sentence(told: Any) -> Markup:
    """Write a sentence of ours in which `commands` stand between backticks, and its instants as other instants."""
    parts = _CODE.split(str(told))
    return Markup("".join(el("code", part) if place % 2 else _with_times(part) for place, part in enumerate(parts)))


def _with_times(told: str) -> Markup:
    parts = _INSTANT.split(told)
    return Markup("".join(_read(part) if place % 2 else text(part) for place, part in enumerate(parts)))


def _read(written: str) -> Markup:
    """Write an instant of a sentence; what only looks like one stays as it is."""
    try:
        return instant(datetime.fromisoformat(written).replace(tzinfo=UTC))
    except ValueError:
        return text(f"{written}Z")
