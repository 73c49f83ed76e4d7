"""What a push says: pure functions from an item to its text."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_UP, Decimal

from relevo.model import Item

_TITLE = "📋 Nueva Licitación"
_SIGNS = {"CLP": "$", "USD": "US$"}
_MAX_NAME = 1_000  # bytes: with the longest code and label a push stays below Expo's 4096


def tender(item: Item) -> tuple[str, str]:
    """Return title and body of a new tender's push: its name, and what it is worth when that is known."""
    name = _cut(item.nombre)
    worth = item.monto_label or money(item.monto, item.moneda)
    return _TITLE, f"{name} — {worth}" if worth else name


def money(amount: Decimal | None, currency: str | None) -> str:
    """Write an amount as Chile does, without decimals: $120.000.000, US$1.501, CLF 1.501."""
    if amount is None or currency is None:
        return ""
    whole = f"{amount.quantize(Decimal(1), rounding=ROUND_HALF_UP):,}".replace(",", ".")
    return f"{_SIGNS[currency]}{whole}" if currency in _SIGNS else f"{currency} {whole}"


def _cut(name: str) -> str:
    """Cut a name that is too long for a push, letter by letter as JSON weighs them."""
    if _weight(name) <= _MAX_NAME:
        return name
    weight = _weight("…")
    for place, letter in enumerate(name):
        weight += _weight(letter)
        if weight > _MAX_NAME:
            return name[:place].rstrip() + "…"
    return name


def _weight(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode()) - 2
