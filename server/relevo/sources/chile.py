"""Shared parts of all sources of Chile's register: its name, codes, states and pages."""

from __future__ import annotations

import re
from urllib.parse import quote

from relevo.sources.text import clean

NAMESPACE = "chilecompra"
OPEN = "Publicada"
WITHDRAWN = ("Revocada", "Suspendida")
STATES = {5: OPEN, 6: "Cerrada", 7: "Desierta", 8: "Adjudicada", 15: "Revocada", 18: "Revocada", 19: "Suspendida"}

_CODE = re.compile(r"\d+-\d+-([A-Z][A-Z0-9])\d{2}")
_PAGE = "https://www.mercadopublico.cl/Procurement/Modules/RFB/DetailsAcquisition.aspx?idlicitacion="


def tender_code(value: object) -> str | None:
    """Return a tender's code, which also may be one of a kind not seen yet."""
    text = (clean(value, 100) or "").upper()
    return text if re.fullmatch(r"[A-Z0-9][A-Z0-9._/-]*", text) else None


def tipo_of(code: str) -> str | None:
    """Return the type that a code tells: the two characters before the year."""
    found = _CODE.fullmatch(code)
    return found[1] if found else None


def page_of(code: str) -> str:
    """Return the public page of a tender."""
    return _PAGE + quote(code)


def state_number(value: object) -> int | None:
    """Return a state's number."""
    text = clean(value, 10) or ""
    return int(text) if text.isdecimal() else None


def state_name(value: object) -> str | None:
    """Return a state's name from its number, or from words such as "5-Publicada" and "Publicada y disponible"."""
    text = clean(value, 100) or ""
    number = state_number(re.sub(r"\s*-.*$", "", text))
    if number is not None:
        return STATES.get(number) or re.sub(r"^\d+\s*-\s*", "", text)
    known = (name for name in dict.fromkeys(STATES.values()) if text.casefold().startswith(name.casefold()))
    return next(known, text or None)
