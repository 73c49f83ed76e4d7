"""The language of what people read: texts are English in code and templates, locale/ has their translations.

`_("Event %(id)s", id=7)` translates, `N_` marks a text that is translated later, `make texts` collects both.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from gettext import NullTranslations, translation
from pathlib import Path

from markupsafe import Markup

from relevo.core.phrases import Phrase, filled

COOKIE = "relevo_language"
LANGUAGES = {"en": "English", "es": "Español"}
LOCALE, DOMAIN = Path(__file__).with_name("locale"), "dashboard"
_CATALOGS = {
    code: NullTranslations() if code == "en" else translation(DOMAIN, LOCALE, [code], fallback=False)
    for code in LANGUAGES
}
_DECIMAL_TIME = re.compile(r"\d+\.\d+ (?:ms|s|min|h)")
_SPANISH_SIGNS = str.maketrans(",.", ".,")
_language: ContextVar[str] = ContextVar("language", default="en")


def gettext(message: str, /, **parts: object) -> str:
    """Translate a text into the language of the page, and fill its parts in: `_("in %(time)s", time="3 h")`."""
    return _fill(_CATALOGS[language()].gettext(message), parts) if message else ""


_ = gettext


def ngettext(one: str, many: str, n: int, /, **parts: object) -> str:
    """Translate a text that goes with a count: `ngettext("%(n)s phone", "%(n)s phones", 1200)`."""
    return _fill(_CATALOGS[language()].ngettext(one, many, n), {"n": with_signs(f"{n:,}"), **parts})


def _fill(text: str, parts: dict[str, object]) -> str:
    """Fill parts in; where one of them is markup the whole is, and the others are escaped."""
    if any(hasattr(part, "__html__") for part in parts.values()):
        return Markup(text) % parts  # noqa: S704 a text of ours
    return text % parts if parts else text


def N_(message: str, /) -> str:  # noqa: N802 the name that gettext's tools know
    """Mark a text that is translated where it is shown."""
    return message


def translated(told: str) -> str:
    """Translate what other parts of Relevo tell: a phrase with its parts; any other text stays as it is."""
    if not isinstance(told, Phrase):
        return str(told)
    catalog = _CATALOGS[language()]
    return fill_phrase(catalog.ngettext(*told.forms) if told.forms else catalog.gettext(told.template), told)


def fill_phrase(template: str, told: Phrase) -> str:
    """Fill the parts of a phrase into its template, translated already; numbers and phrases as the language says."""
    parts = {name: with_signs(part) if _is_time(part) else part for name, part in told.parts.items()}
    return filled(template, parts, translated, lambda number: with_signs(f"{number:,}"))


def _is_time(part: object) -> bool:
    """Return whether a part is a time such as 0.26 s."""
    return isinstance(part, str) and not isinstance(part, Phrase) and _DECIMAL_TIME.fullmatch(part) is not None


def with_signs(number: object) -> str:
    """Write the points and commas of an English number as the language of the page does."""
    return str(number).translate(_SPANISH_SIGNS) if language() == "es" else str(number)


def language() -> str:
    """Return the language of the page that is being written."""
    return _language.get()


def use_language(code: str) -> None:
    """Write the rest of this request's page in a language of ours."""
    _language.set(code if code in LANGUAGES else "en")


def language_for(chosen: str, accepted: str) -> str:
    """Return the language somebody chose on a page, else the first of ours that the browser asks for."""
    asked = (part.split(";")[0].strip()[:2].lower() for part in accepted[:200].split(","))
    return next((each for each in (chosen, *asked) if each in LANGUAGES), "en")
