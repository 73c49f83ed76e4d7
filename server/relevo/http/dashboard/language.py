"""The language of a page: English stands in the code, every other language in a table beside it."""

from __future__ import annotations

import re
from contextvars import ContextVar

from fastapi import Request

from relevo.core.phrases import Phrase, filled
from relevo.http.dashboard.spanish import SPANISH
from relevo.http.dashboard.spanish_health import HEALTH
from relevo.http.dashboard.spanish_names import NAMES
from relevo.operators import health
from relevo.operators.health import Problem

COOKIE = "relevo_language"
LANGUAGES = {"en": "English", "es": "Español"}
_TABLES: dict[str, dict[str, str]] = {"en": {}, "es": HEALTH | NAMES | SPANISH}
_DECIMAL = re.compile(r"\d+\.\d+ (?:ms|s|min|h)")
_spoken: ContextVar[str] = ContextVar("language", default="en")


def t(english: str, /, **parts: object) -> str:
    """Say a text in the language of the page: `t("Due for {time}", time=duration(7))`; unknown ones stay English."""
    told = _TABLES[_spoken.get()].get(english, english)
    return told.format(**parts) if parts else told


def said(told: str) -> str:
    """Say what other parts of Relevo tell in the language of the page, as far as it is known in it."""
    return _filled(t(told.template), told) if isinstance(told, Phrase) else str(told)


def in_three(problem: Problem) -> tuple[str, str, str]:
    """Say in the language of the page what is wrong, why, and what to do, as far as a problem tells each."""
    what, why, remedy = health.in_three(t(problem.template))
    return _filled(what, problem), _filled(why, problem), _filled(remedy, problem)


def _filled(template: str, told: Phrase) -> str:
    apart = "." if spoken() == "es" else ","
    parts = {name: _with_comma(part) if spoken() == "es" else part for name, part in told.parts.items()}
    return filled(template, parts, said, lambda number: f"{number:,}".replace(",", apart))


def _with_comma(part: object) -> object:
    """Write a time such as 0.26 s with a comma; anything else stays what it is."""
    is_time = isinstance(part, str) and not isinstance(part, Phrase) and _DECIMAL.fullmatch(part)
    return str(part).replace(".", ",") if is_time else part


def noted(english: str, /) -> str:
    """Note a text that `t` says later, so that it is not forgotten in any language."""
    return english


def spoken() -> str:
    """Return the language of the page that is being written."""
    return _spoken.get()


def speak(language: str) -> None:
    """Write the rest of this request's page in a language of ours."""
    _spoken.set(language if language in LANGUAGES else "en")


def wanted(request: Request) -> str:
    """Return the language somebody chose on a page, else the first of ours that the browser asks for."""
    chosen = request.cookies.get(COOKIE, "")
    asked = request.headers.get("accept-language", "")[:200].split(",")
    for each in (chosen, *(part.split(";")[0].strip()[:2].lower() for part in asked)):
        if each in LANGUAGES:
            return each
    return "en"
