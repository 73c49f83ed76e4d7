"""The text of a digest without saved texts: how many events there are, and the names of the best."""

from __future__ import annotations

from collections.abc import Sequence

from relevo.core.locales import best
from relevo.core.wordings import Text

DEFAULT_LOCALE = "en"
ARGUMENTS = ("count", "more", "first", "second", "third")
"""The arguments that saved texts of digests may name."""
_TITLES = {"en": ("1 new for you", "{count} new for you"), "es": ("1 novedad para ti", "{count} novedades para ti")}
_MORE = {"en": "and {count} more", "es": "y {count} más"}
_LONGEST_NAME = 120


def text(locale: str | None, project_locale: str | None, count: int, names: Sequence[str]) -> Text:
    """Return what a digest of so many events says, of which some are named."""
    language = best(locale, tuple(_TITLES), DEFAULT_LOCALE, project_locale)
    one, several = _TITLES[language]
    lines = [shortened(name) for name in names]
    if count > len(lines) > 0:
        lines.append(_MORE[language].format(count=count - len(lines)))
    return Text((one if count == 1 else several).format(count=count), "\n".join(lines))


def shortened(name: str) -> str:
    """Return a name in one line that leaves room for others."""
    line = " ".join(name.split())
    return line if len(line) <= _LONGEST_NAME else line[: _LONGEST_NAME - 1].rstrip() + "…"
