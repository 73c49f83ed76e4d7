"""Texts of the pages that are no templates yet."""

from __future__ import annotations

from relevo.http.dashboard.i18n import gettext, language
from relevo.http.dashboard.spanish import SPANISH


def t(english: str, /, **parts: object) -> str:
    """Say a text in the language of the page; unknown ones stay English."""
    told = SPANISH.get(english) if language() == "es" else english
    told = gettext(english) if told is None else told
    if "%(" in told:
        return told % parts
    return told.format(**parts) if parts else told


def noted(english: str, /) -> str:
    """Note a text that `t` says later."""
    return english
