"""What a push says: pure functions from an item to its text, and from an event to the message for one phone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

import orjson

from relevo.client.checks import is_blank
from relevo.core.model import Content, Delivery, Item, Lane, WrittenMessage

_PERSONAL = ("to", "ttl", "data")
_PERSONAL_DATA = ("notificationDeliveryId", "installationId", "pushProvider")
_quoted = json.encoder.encode_basestring

_TITLE = "📋 Nueva Licitación"
_SIGNS = {"CLP": "$", "USD": "US$"}
_LONGEST_TTL_S = 2_419_200
_MAX_NAME = 1_000  # bytes: with the longest code and label a push stays below Expo's 4096


def tender(item: Item) -> tuple[str, str]:
    """Return title and body of a new tender's push: its name, and what it is worth when that is known."""
    name = _cut(item.nombre)
    worth = item.monto_label or money(item.monto, item.moneda)
    return _TITLE, f"{name} — {worth}" if worth else name


def news(item: Item) -> tuple[str, str]:
    """Return title and body of the push of an item that is no tender: what it is called, and how it begins."""
    return _cut(item.nombre), _cut(item.descripcion or "")


class Draft(NamedTuple):
    """What the pushes of one event to phones of one kind have in common."""

    fields: Mapping[str, Any]
    data: Mapping[str, Any]
    ttl_s: int | None

    def message(self, delivery: Delivery, default_ttl_s: int) -> dict[str, Any]:
        """Return the push of one delivery: where it goes, how long it is worth something, and its names for the app."""
        message = dict(self.fields)
        message["to"] = delivery.token
        message["ttl"] = _ttl(self.ttl_s, delivery.seconds_left, default_ttl_s)
        message["data"] = {
            **self.data,
            "notificationDeliveryId": delivery.id,
            "installationId": str(delivery.installation_id),
            "pushProvider": delivery.provider,
        }
        return message


class Template(NamedTuple):
    """A draft that is written as JSON already, up to what differs from phone to phone."""

    draft: Draft
    default_ttl_s: int
    head: str
    """Everything but its last entries: in `data` the delivery's own names, behind it where and how long it goes."""


def template(draft: Draft, provider: str, default_ttl_s: int) -> Template | None:
    """Write a draft down, or None if it has to be written message by message."""
    fields = {key: value for key, value in draft.fields.items() if key not in _PERSONAL}
    data = {key: value for key, value in draft.data.items() if key not in _PERSONAL_DATA}
    try:
        written = orjson.dumps({**fields, "data": {**data, "pushProvider": provider}}).decode()
    except TypeError:  # such as a number that is too long for it
        return None
    return Template(draft, default_ttl_s, written.removesuffix("}}"))


class Push(WrittenMessage):
    """The push of one delivery, written by its event's template; as a mapping it is what the draft says."""

    __slots__ = ("_delivery", "_message", "_template")

    def __init__(self, template: Template, delivery: Delivery) -> None:
        self._template = template
        self._delivery = delivery
        self._message: dict[str, Any] | None = None

    def json(self) -> str:
        """Return it as it is sent."""
        draft, default_ttl_s, head = self._template
        delivery = self._delivery
        ttl = _ttl(draft.ttl_s, delivery.seconds_left, default_ttl_s)
        names = f'"notificationDeliveryId":{delivery.id},"installationId":"{delivery.installation_id}"'
        return f'{head},{names}}},"to":{_quoted(str(delivery.token))},"ttl":{ttl}}}'

    def _whole(self) -> dict[str, Any]:
        if self._message is None:
            self._message = self._template.draft.message(self._delivery, self._template.default_ttl_s)
        return self._message

    def __getitem__(self, key: str) -> Any:
        """Return one of its entries."""
        return self._whole()[key]

    def __iter__(self) -> Iterator[str]:
        """Go through the names of its entries."""
        return iter(self._whole())

    def __len__(self) -> int:
        """Return how many entries it has."""
        return len(self._whole())


def draft(content: Content, lane: Lane, *, ios: bool) -> Draft:
    """Write down what an event says to every phone of one kind.

    A repeat replaces what is shown already: by its tag on Android, by its collapse id on iOS (on Android that would
    only use up the few keys a phone has). An event without a word is for the app alone: nothing is shown or heard.
    """
    if not (is_blank(content.title) and is_blank(content.body)):
        fields = {
            "sound": "default",
            "priority": "high" if lane == "urgent" else "default",
            "collapseId" if ios else "tag": f"relevo-{content.id}",
            **content.push,
            "title": content.title,
            "body": content.body,
        }
    else:
        # Apple takes a push for the app alone only at normal priority
        quiet = (
            {"contentAvailable": True, "priority": "normal"}
            if ios
            else {"priority": "high" if lane == "urgent" else "normal"}
        )
        fields = {**quiet, **content.push}
    wished = fields.pop("ttl", None)
    sane = isinstance(wished, int | float) and not isinstance(wished, bool) and 0 <= wished <= _LONGEST_TTL_S
    return Draft(fields, {**content.data, "notificationEventId": content.id}, int(wished) if sane else None)


def _ttl(wished: int | None, seconds_left: float | None, default_s: int) -> int:
    """Return the remaining time to live: never beyond the deadline, whatever the event wished."""
    if seconds_left is None:
        return default_s if wished is None else wished
    left = max(0, int(seconds_left))
    return left if wished is None else min(left, wished)


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
