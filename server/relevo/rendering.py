"""What a push says: pure functions from an item to its text, and from an event to the message for one phone."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from relevo.model import Content, Delivery, Item, Target

_TITLE = "📋 Nueva Licitación"
_SIGNS = {"CLP": "$", "USD": "US$"}
_MAX_NAME = 1_000  # bytes: with the longest code and label a push stays below Expo's 4096


def tender(item: Item) -> tuple[str, str]:
    """Return title and body of a new tender's push: its name, and what it is worth when that is known."""
    name = _cut(item.nombre)
    worth = item.monto_label or money(item.monto, item.moneda)
    return _TITLE, f"{name} — {worth}" if worth else name


def message(content: Content, delivery: Delivery, target: Target, default_ttl_s: int) -> dict[str, Any]:
    """Return the push of one delivery: what its event says, where it goes, how long it is worth something.

    A repeat replaces what is shown already: by its tag on Android, by its collapse id on iOS (on Android that would
    only use up the few keys a phone has).
    """
    push = dict(content.push)
    once = f"relevo-{delivery.notification_event_id}"
    if target.platform == "ios":
        push.setdefault("collapseId", once)
    else:
        push.setdefault("tag", once)
    push.setdefault("sound", "default")
    push.setdefault("priority", "high" if delivery.lane == "urgent" else "default")
    push |= {
        "to": target.token,
        "title": content.title,
        "body": content.body,
        "ttl": _ttl(push.pop("ttl", None), target.seconds_left, default_ttl_s),
        "data": {
            **content.data,
            "notificationEventId": delivery.notification_event_id,
            "notificationDeliveryId": delivery.id,
            "installationId": str(delivery.installation_id),
            "pushProvider": delivery.provider,
        },
    }
    return push


def _ttl(wished: Any, seconds_left: float | None, default_s: int) -> int:
    """Return the remaining time to live: never beyond the deadline, whatever the event wished."""
    given = int(wished) if isinstance(wished, int | float) and not isinstance(wished, bool) and wished >= 0 else None
    left = default_s if given is None and seconds_left is None else given
    if seconds_left is not None:
        left = int(seconds_left) if left is None else min(left, int(seconds_left))
    return max(0, left or 0)


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
