"""The content of a push: pure functions from an item to its text, and from an event to the draft of its messages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from relevo.client.checks import is_blank
from relevo.core.items import Item
from relevo.core.messages import Draft
from relevo.core.model import Content, Lane
from relevo.core.push_overrides import for_phone, without_loud

UNREAD = "unread"
"""The badge that asks for how much is unread."""
_TITLE = "📋 Nueva Licitación"
_SIGNS = {"CLP": "$", "USD": "US$"}
_LONGEST_TTL_S = 2_419_200
_LONGEST_COLLAPSE = 64  # Apple takes so many bytes
_MAX_NAME = 1_000  # bytes: with the longest code and label a push stays below Expo's 4096


def tender(item: Item) -> tuple[str, str]:
    """Return title and body of a new tender's push: its name, and what it is worth when that is known."""
    name = _cut(item.nombre)
    worth = item.monto_label or money(item.monto, item.moneda)
    return _TITLE, f"{name} — {worth}" if worth else name


def news(item: Item) -> tuple[str, str]:
    """Return title and body of the push of an item that is no tender: what it is called, and how it begins."""
    return _cut(item.nombre), _cut(item.descripcion or "")


def draft(
    content: Content,
    lane: Lane,
    *,
    ios: bool,
    default_ttl_s: int,
    unread: int | None = None,
    quiet_channel: str | None = None,
    provider: str = "",
    platform: str | None = None,
) -> Draft:
    """Write down what an event says to every phone of one kind; `unread` is the badge of one that asks for that.

    Of the fields for one platform, those of the phone's platform are taken, and no others; a provider that is not one
    of ours gets them all.

    With a `quiet_channel`, which may be empty, it makes no sound: the phone has quiet hours.

    A repeat replaces what is shown already: by its tag on Android, by its collapse id on iOS (on Android that would
    only use up the few keys a phone has). An event without a word is for the app alone: nothing is shown or heard.
    One with a collapse key takes the place of the former of its key, at the push service, too. iOS shows an urgent one
    during a Focus if the app has Apple's entitlement, and treats it as an ordinary one otherwise.
    """
    given = dict(content.push)
    collapse, opens = given.pop("collapse", None), given.pop("opens", None)
    if given.get("badge") == UNREAD:
        given = {key: value for key, value in given.items() if key != "badge"} | (
            {} if unread is None else {"badge": unread}
        )
    push, filled = for_phone(given, provider, platform)
    silent = is_blank(content.title) and is_blank(content.body)
    if not silent:
        fields = {
            "sound": "default",
            "priority": "high" if lane == "urgent" else "default",
            **({"interruptionLevel": "time-sensitive"} if lane == "urgent" and ios else {}),
            "collapseId" if ios else "tag": f"relevo-{content.id}",
            **_replacing(collapse, ios=ios),
            **push,
            "title": content.title,
            "body": content.body,
        }
        if quiet_channel is not None:
            fields = _without_sound(fields, quiet_channel, ios=ios)
    else:
        # Apple takes a push for the app alone only at normal priority
        quiet = (
            {"contentAvailable": True, "priority": "normal"}
            if ios
            else {"priority": "high" if lane == "urgent" else "normal"}
        )
        fields = {**quiet, **_replacing(collapse, ios=ios), **push}
    wished = fields.pop("ttl", None)
    sane = isinstance(wished, int | float) and not isinstance(wished, bool) and 0 <= wished <= _LONGEST_TTL_S
    data = {**content.data, **filled, "notificationEventId": content.id, **({"reportOpened": True} if opens else {})}
    return Draft(fields, data, int(wished) if sane else None, default_ttl_s, silent)


def _without_sound(fields: Mapping[str, Any], channel: str, *, ios: bool) -> dict[str, Any]:
    """Return the fields of a push that lights no screen: on Android the channel rings, so it goes by a quiet one."""
    quiet = {"priority": "normal", "interruptionLevel": "passive"}
    if channel and not ios:
        quiet["channelId"] = channel
    hushed = {key: value for key, value in without_loud(fields, {"sound", *quiet}).items() if key != "sound"}
    return hushed | quiet


def _replacing(collapse: str | None, *, ios: bool) -> dict[str, Any]:
    """Return the fields by which a push takes the place of another: the type and collapse key, or their hash."""
    if collapse is None:
        return {}
    fits = len(collapse) <= _LONGEST_COLLAPSE and collapse.isascii() and collapse.isprintable()
    name = collapse if fits else f"relevo-{hashlib.sha256(collapse.encode()).hexdigest()[:40]}"
    return {"collapseId": name} if ios else {"collapseId": name, "tag": name}


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
