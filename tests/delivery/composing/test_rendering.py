"""What a push says, by table."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from relevo.core.items import Item
from relevo.core.model import Content, Delivery
from relevo.delivery.composing import rendering
from relevo.providers.expo import message as expo_message


def item(nombre: str = "Aseo", **reported: object) -> Item:
    """A tender of which little is told."""
    return Item("chilecompra", "1-2-LE26", nombre, "x", **reported)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("amount", "currency", "said"),
    [
        ("120000000", "CLP", "$120.000.000"),
        ("1501", "USD", "US$1.501"),
        ("1501", "CLF", "CLF 1.501"),
        ("1501", "UTM", "UTM 1.501"),
        ("1501", "EUR", "EUR 1.501"),
        ("0", "CLP", "$0"),
        ("999", "CLP", "$999"),
        ("1000", "CLP", "$1.000"),
        ("1500.50", "CLP", "$1.501"),
        ("1500.49", "CLP", "$1.500"),
        ("2.5", "CLF", "CLF 3"),
        ("0.4", "CLF", "CLF 0"),
        ("999999999999999999.99", "CLP", "$1.000.000.000.000.000.000"),
        ("1E+3", "CLP", "$1.000"),
        (None, "CLP", ""),
        ("5", None, ""),
        (None, None, ""),
    ],
)
def test_money_is_written_as_in_chile(amount: str | None, currency: str | None, said: str) -> None:
    """Dots between thousands, no decimals, the half rounded up, the sign of the currency in front."""
    assert rendering.money(None if amount is None else Decimal(amount), currency) == said


@pytest.mark.parametrize(
    ("reported", "body"),
    [
        ({}, "Aseo"),
        ({"monto": Decimal(120_000_000), "moneda": "CLP"}, "Aseo — $120.000.000"),
        ({"monto": Decimal(1_501), "moneda": "USD"}, "Aseo — US$1.501"),
        ({"monto": Decimal(1_501), "moneda": "CLF"}, "Aseo — CLF 1.501"),
        ({"monto_label": "Entre 100 y 1.000 UTM"}, "Aseo — Entre 100 y 1.000 UTM"),
        ({"monto": Decimal(5), "moneda": "CLP", "monto_label": "Hasta 100 UTM"}, "Aseo — Hasta 100 UTM"),
        ({"monto": Decimal(5)}, "Aseo"),
        ({"moneda": "CLP"}, "Aseo"),
        ({"descripcion": "Limpieza", "organismo": "Hospital"}, "Aseo"),
    ],
)
def test_a_tenders_push(reported: dict[str, object], body: str) -> None:
    """The title is always the same; the body is the name and, when it is known, what the tender is worth."""
    assert rendering.tender(item(**reported)) == ("📋 Nueva Licitación", body)


@pytest.mark.parametrize(
    ("letter", "kept"), [("x", 1_000), ("ñ", 500), ("한", 333), ("📋", 250), ('"', 500), ("\\", 500), ("\x01", 166)]
)
def test_long_names_are_cut_by_their_weight(letter: str, kept: int) -> None:
    """A name that fits into 1000 bytes is not touched; a longer one is cut to fit and ends in an ellipsis."""
    fitting = letter * kept
    assert rendering.tender(item(fitting))[1] == fitting
    cut = rendering.tender(item(letter * 2_000))[1]
    assert cut.endswith(f"{letter}…")
    assert kept - 5 <= len(cut) <= kept + 1
    assert len(json.dumps(cut, ensure_ascii=False).encode()) - 2 <= 1_000


def test_a_cut_leaves_no_blank_before_the_ellipsis() -> None:
    """Where the cut falls behind a word, the ellipsis stands at the word."""
    assert rendering.tender(item("x" * 996 + " palabra"))[1] == "x" * 996 + "…"


def test_what_it_is_worth_survives_a_cut() -> None:
    """A long name does not push the amount out."""
    body = rendering.tender(item("x" * 2_000, monto=Decimal(5), moneda="CLP"))[1]
    assert body.endswith("x… — $5")


def delivery(**more: Any) -> Delivery:
    """A delivery to a phone of the usual kind."""
    columns: dict[str, Any] = {"token": "ExponentPushToken[abc]", "token_version": 1, "platform": "android"} | more
    return Delivery(
        date(2026, 1, 1), 7, 5, UUID(int=9), "a", "expo", "default", "bulk", False, "pending", 0, 0, None, **columns
    )


@pytest.mark.parametrize("seconds_left", [None, 12.5, -3.0])
@pytest.mark.parametrize("to", ["ExponentPushToken[abc]", 'ExpoPushToken["\\ñ📋]'])
@pytest.mark.parametrize("ios", [False, True])
@pytest.mark.parametrize(
    ("data", "push"),
    [
        ({}, {}),
        ({"a": {"b": [1, 2.5, None, "ñ"]}, "quote": '"}}', "end": "}}"}, {"ttl": 60, "badge": 1}),
        ({"installationId": "mine", "notificationDeliveryId": 1, "pushProvider": "x"}, {"to": "me", "data": {"a": 1}}),
        ({"end": {"deep": {}}}, {"sound": None, "richContent": {"image": "https://example.org/%s{}"}}),
    ],
)
def test_a_written_push_says_what_its_draft_says(data, push, ios, to, seconds_left) -> None:
    """What is sent by a template is, as JSON and for whoever looks into it, what the draft makes of the delivery."""
    content = Content(5, 'A "title" — ñ', "%s {body}\n", data, push)
    draft = rendering.draft(content, "bulk", ios=ios, default_ttl_s=3600)
    phone = delivery(token=to, seconds_left=seconds_left, platform="ios" if ios else "android")
    write = expo_message.writer(draft, "expo")
    assert write is not None
    written = write(phone)
    assert json.loads(written.json()) == draft.message(phone) == dict(written)
    assert json.loads(written.json(), object_pairs_hook=len_of_pairs) == len(draft.message(phone))


def len_of_pairs(pairs: list[tuple[str, Any]]) -> int:
    """Count an object's entries, none of which may come twice."""
    assert len(dict(pairs)) == len(pairs)
    return len(pairs)


@pytest.mark.parametrize("odd", [1 << 70, "\ud800"])
def test_what_has_no_template_is_written_one_by_one(odd) -> None:
    """A number too long for the fast writer, and half a character, are left to the other one."""
    draft = rendering.draft(Content(5, "A", "b", {"odd": odd}, {}), "bulk", ios=False, default_ttl_s=3600)
    assert expo_message.writer(draft, "expo") is None


@pytest.mark.parametrize(("channel", "ios"), [("quiet", False), ("quiet", True), ("", False), ("", True)])
def test_without_a_sound_an_android_phone_has_the_quiet_channel(channel: str, ios: bool) -> None:
    """Where a channel is set Android goes by it, and no iPhone is told of one; the sound goes either way, and the text stays."""
    said = rendering._without_sound({"title": "A", "sound": "default", "channelId": "loud"}, channel, ios=ios)
    assert said == {
        "title": "A",
        "priority": "normal",
        "interruptionLevel": "passive",
        "channelId": channel if channel and not ios else "loud",
    }
