"""What Expo says of one message, in a ticket or a receipt: one classifier, a case per row of the table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relevo.core.model import Ticket
from relevo.providers.expo.provider import NO_TICKET, Expo
from support.expo_pushes import message, messages
from support.fake_expo import FakeExpo, as_json, ticket

NESTED_FCM = {"error": "ProviderError", "fault": "fcm", "fcm": {"error": "MismatchSenderId"}}
NESTED_APNS = {"error": "ProviderError", "fault": "apns", "apns": {"reason": "InvalidProviderToken", "statusCode": 403}}
UNKNOWN_INSIDE = {"error": "ProviderError", "fault": "fcm", "fcm": {"error": "QuotaExceeded"}}

ROWS = [
    ({"error": "DeviceNotRegistered"}, "invalid", "DeviceNotRegistered", False),
    ({"error": "MessageTooBig"}, "failed", "MessageTooBig", False),
    ({"error": "MessageRateExceeded"}, "retryable", "MessageRateExceeded", False),
    ({"error": "MismatchSenderId"}, "credential", "MismatchSenderId", True),
    ({"error": "InvalidCredentials"}, "credential", "InvalidCredentials", True),
    ({"error": "InvalidProviderToken"}, "credential", "InvalidProviderToken", True),
    (NESTED_FCM, "credential", "MismatchSenderId", True),
    (NESTED_APNS, "credential", "InvalidProviderToken", True),
    (NESTED_APNS | {"apns": {"error": "InvalidCredentials"}}, "credential", "InvalidCredentials", True),
    ({"fcm": {"error": "MismatchSenderId"}}, "credential", "MismatchSenderId", True),
    ({"error": "ExpoError"}, "retryable", "ExpoError", False),
    ({"error": "ProviderError"}, "retryable", "ProviderError", False),
    (UNKNOWN_INSIDE, "retryable", "ProviderError", False),
    ({"error": "ProviderError", "fault": "fcm", "fcm": "odd"}, "retryable", "ProviderError", False),
    ({"error": "ProviderError", "fault": ["odd"]}, "retryable", "ProviderError", False),
    ({"error": "ProviderError", "fcm": {"error": "DeviceNotRegistered"}}, "retryable", "ProviderError", False),
    ({"error": "DeveloperError"}, "failed", "DeveloperError", True),
    ({"error": "BrandNew"}, "retryable", "BrandNew", False),
    ({"error": 7}, "retryable", "Unknown", False),
    ({"error": ["DeviceNotRegistered"]}, "retryable", "Unknown", False),
    ({}, "retryable", "Unknown", False),
    (None, "retryable", "Unknown", False),
    ("odd", "retryable", "Unknown", False),
]


def ticket_for(fake: FakeExpo, expo: Expo, said: object) -> Ticket:
    """Return what becomes of a ticket."""
    fake.says(as_json({"data": [said]}))
    reply = expo.send([message()])
    assert reply.kind == "answered"
    return reply.tickets[0]


def receipt_for(fake: FakeExpo, expo: Expo, said: object) -> Ticket:
    """Return what becomes of a receipt."""
    fake.says(as_json({"data": {"t1": said}}))
    reply = expo.fetch_receipts(["t1"])
    assert reply.kind == "answered"
    return reply.receipts["t1"]


@pytest.mark.parametrize("ask", [ticket_for, receipt_for], ids=["ticket", "receipt"])
@pytest.mark.parametrize(("details", "fate", "code", "alert"), ROWS, ids=[json.dumps(row[0]) for row in ROWS])
def test_each_row(fake: FakeExpo, expo: Expo, ask: Any, details: Any, fate: str, code: str, alert: bool) -> None:
    """Ticket and receipt with the same error mean the same, as the table says."""
    got = ask(fake, expo, {"status": "error", "message": "so it is", "details": details})
    assert (got.fate, got.code, got.alert, got.id) == (fate, code, alert, None)
    assert got.message is None if code == "DeviceNotRegistered" else "so it is" in got.message


def test_ok(fake: FakeExpo, expo: Expo) -> None:
    """An ok ticket is sent and has an id; an ok receipt is the good end."""
    assert ticket_for(fake, expo, ticket(7)) == Ticket("sent", id=ticket(7)["id"])
    assert receipt_for(fake, expo, {"status": "ok"}) == Ticket("ok")


def test_words_alone_do_not_cost_a_token(fake: FakeExpo, expo: Expo) -> None:
    """Without a code, a message that sounds like DeviceNotRegistered is a retry with the raw answer kept."""
    words = '"ExponentPushToken[abcdefghijkl]" is not a registered push notification recipient'
    got = ticket_for(fake, expo, {"status": "error", "message": words, "extra": {"kept": True}})
    assert got.fate == "retryable"
    assert "not a registered push notification recipient" in (got.message or "")
    assert '"kept": true' in (got.message or "")


@pytest.mark.parametrize(
    "odd", [{}, {"id": ""}, {"id": None}, {"id": 7}, {"id": "x" * 201}, {"id": "a\x00b"}, {"id": "\ud800"}]
)
def test_accepted_without_a_usable_id(fake: FakeExpo, expo: Expo, odd: dict[str, Any]) -> None:
    """It was accepted, so it is never sent again; its stand-in id is told apart, alerts, and is never asked for."""
    got = ticket_for(fake, expo, {"status": "ok"} | odd)
    assert (got.fate, got.code, got.alert) == ("sent", "TicketWithoutId", True)
    assert got.id is not None
    assert got.id.startswith(NO_TICKET)
    assert len(got.id) <= 200
    assert got.id != ticket_for(fake, expo, {"status": "ok"} | odd).id
    fake.asked.clear()
    assert expo.fetch_receipts([got.id]).kind == "answered"
    assert fake.asked == []


@pytest.mark.parametrize("odd", [None, 7, "ok", [], {}, {"status": "error", "message": 7}, {"status": 7}])
def test_one_odd_ticket_costs_no_other(fake: FakeExpo, expo: Expo, odd: object) -> None:
    """Of a ticket that is none nobody knows what it means, unless it says error; those around it count."""
    fake.says(as_json({"data": [ticket(1), odd, ticket(2)]}))
    reply = expo.send(messages(3))
    fate = "retryable" if isinstance(odd, dict) and odd.get("status") == "error" else "unclear"
    assert [each.fate for each in reply.tickets] == ["sent", fate, "sent"]
    assert json.loads(reply.tickets[1].message or "") == odd


def test_odd_receipts_are_none_yet(fake: FakeExpo, expo: Expo) -> None:
    """What says neither ok nor error, or was not asked for, is not a receipt; the others count."""
    fake.says(as_json({"data": {"a": {"status": "ok"}, "b": None, "c": {"status": "pending"}, "z": {"status": "ok"}}}))
    assert expo.fetch_receipts(["a", "b", "c", "d"]).receipts == {"a": Ticket("ok")}


def test_strings_are_bounded_and_fit_for_postgres(fake: FakeExpo, expo: Expo) -> None:
    """Code and message are short and hold neither control characters nor NULs nor halves of characters."""
    long = "a\x00b\x1bc\ud800\n" + "é" * 9_000
    for said in (
        {"status": "error", "message": long, "details": {"error": "DeveloperError"}},
        {"status": "error", "message": long, "details": {"error": long}},
    ):
        got = ticket_for(fake, expo, said)
        assert got.code
        assert got.message
        assert len(got.code) <= 100
        assert len(got.message) <= 500
        for text in (got.code, got.message):
            assert text.isprintable()
            assert text.encode()


def test_raw_answers_are_trimmed(fake: FakeExpo, expo: Expo) -> None:
    """However much an unknown answer says, 500 characters of it are kept."""
    got = ticket_for(fake, expo, {"status": "error", "details": {"x": ["y" * 3_000] * 100}})
    assert got.message is not None
    assert len(got.message) == 500


@pytest.mark.parametrize(
    ("token", "short"),
    [
        ("ExponentPushToken[abcdefghijklmnop]", "ExponentPushToken[abcd…]"),
        ("ExpoPushToken[abcdefghijklmnop]", "ExpoPushToken[abcd…]"),
        ("F4E9C2A1-1111-4222-8333-444455556666", "F4E9…"),
    ],
)
@pytest.mark.parametrize("code", ["DeviceNotRegistered", "BrandNew"])
def test_tokens_are_shortened(fake: FakeExpo, expo: Expo, token: str, short: str, code: str) -> None:
    """No message holds a whole push token, of whichever shape."""
    said = {"status": "error", "message": f'"{token}" is gone', "details": {"error": code, "expoPushToken": token}}
    got = ticket_for(fake, expo, said)
    assert token not in (got.message or "")
    assert got.message is None if code == "DeviceNotRegistered" else short in (got.message or "")
