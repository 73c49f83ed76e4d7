"""What a push says: pure functions from an item to its text."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

from relevo.model import Item

_TITLE = "📋 Nueva Licitación"
_SIGNS = {"CLP": "$", "USD": "US$"}
_MAX_NAME = 1_000


def tender(item: Item) -> tuple[str, str]:
    """Return title and body of a new tender's push: its name, and what it is worth when that is known."""
    name = item.nombre if len(item.nombre) <= _MAX_NAME else item.nombre[: _MAX_NAME - 1] + "…"
    worth = item.monto_label or money(item.monto, item.moneda)
    return _TITLE, f"{name} — {worth}" if worth else name


def money(amount: Decimal | None, currency: str | None) -> str:
    """Write an amount as Chile does, without decimals: $120.000.000, US$1.501, CLF 1.501."""
    if amount is None or currency is None:
        return ""
    whole = f"{amount.quantize(Decimal(1), rounding=ROUND_HALF_UP):,}".replace(",", ".")
    return f"{_SIGNS[currency]}{whole}" if currency in _SIGNS else f"{currency} {whole}"
