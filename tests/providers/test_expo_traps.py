"""The nine things Expo's SDK does not do, and that our callers are spared."""

from __future__ import annotations

import time

import pytest

from relevo.providers.expo.provider import Expo
from support.expo_pushes import Make, message, messages
from support.fake_expo import Answer, FakeExpo, as_json, refusal, ticket


def test_1_no_message_is_lost(fake: FakeExpo, make: Make) -> None:
    """A tuple or a list of any length up to the limit: as many tickets as messages, in one request."""
    expo = make(max_messages=450)
    assert len(expo.send(tuple(messages(450))).tickets) == 450
    assert len(fake.asked) == 1


def test_2_one_chunk_per_call(fake: FakeExpo, expo: Expo) -> None:
    """A call is one request, so that no failure can swallow tickets that came before it."""
    with pytest.raises(ValueError, match="at most 100"):
        expo.send(messages(101))
    assert fake.asked == []
    fake.says(as_json({"data": [ticket(n) for n in range(100)]}), Answer(500))
    assert [expo.send(messages(100)).kind for _ in range(2)] == ["answered", "unclear"]


@pytest.mark.parametrize("to", ["ExpoPushToken[abc]", "f4e9c2a1-1111-4222-8333-444455556666", "not a token at all"])
def test_3_the_sdk_judges_no_token(fake: FakeExpo, expo: Expo, to: str) -> None:
    """Whatever `refuse` let through is sent; the SDK's own idea of a token raises nothing."""
    assert expo.send([message(), message(to=to)]).kind == "answered"
    assert fake.asked[0].body[1]["to"] == to


def test_3_a_list_of_recipients_does_not_raise(fake: FakeExpo, expo: Expo) -> None:
    """`refuse` stops it; sent nevertheless, its surplus tickets make the answer unclear, not an exception."""
    fake.says(as_json({"data": [ticket(1), ticket(2)]}))
    assert expo.send([message(to=["ExponentPushToken[a]", "ExponentPushToken[b]"])]).kind == "unclear"


def test_4_receipts_are_asked_for_with_authorization(fake: FakeExpo, make: Make) -> None:
    """Questions for receipts carry the access token, on the same connection."""
    expo = make(access_token="abc")
    expo.send([message()])
    expo.fetch_receipts(["t1"])
    assert [asked.headers["authorization"] for asked in fake.asked] == ["Bearer abc"] * 2
    assert fake.connections == 1


def test_5_nothing_waits_for_ever(fake: FakeExpo, make: Make) -> None:
    """Receipts have the same time limit as sending."""
    fake.says(Answer(200, delay_s=60))
    started = time.monotonic()
    assert make(timeout_ms=1_000).fetch_receipts(["t1"]).kind == "unclear"
    assert 1.0 <= time.monotonic() - started < 15


@pytest.mark.parametrize("answer", [refusal(429, "TOO_MANY_REQUESTS"), Answer(429, b"<html>"), as_json([], 429)])
def test_6_status_decides_not_exception(fake: FakeExpo, expo: Expo, answer: Answer) -> None:
    """In JSON, HTML or nonsense: 429 is throttled, whichever exception the SDK makes of it."""
    fake.says(answer)
    assert expo.send([message()]).kind == expo.fetch_receipts(["t1"]).kind == "throttled"


def test_7_missing_receipts_and_error_tickets(fake: FakeExpo, expo: Expo) -> None:
    """A missing receipt is absent from the answer, and an error ticket has no id at all."""
    fake.says(as_json({"data": {"a": {"status": "ok"}}}))
    assert set(expo.fetch_receipts(["a", "b"]).receipts) == {"a"}
    fake.says(as_json({"data": [{"status": "error", "details": {"error": "ExpoError"}}]}))
    assert expo.send([message()]).tickets[0].id is None


@pytest.mark.parametrize("code", ["ExpoError", "DeveloperError", "ProviderError", "MismatchSenderId"])
def test_8_codes_the_sdk_has_no_type_for(fake: FakeExpo, expo: Expo, code: str) -> None:
    """Codes unknown to the SDK keep their name."""
    fake.says(as_json({"data": [{"status": "error", "details": {"error": code}}]}))
    assert expo.send([message()]).tickets[0].code == code


def test_8_newer_fields_travel(fake: FakeExpo, expo: Expo) -> None:
    """Fields unknown to the SDK reach Expo."""
    expo.send([message(interruptionLevel="critical", collapseId="c", tag="t", richContent={"image": "i"})])
    assert {"interruptionLevel", "collapseId", "tag", "richContent"} <= set(fake.asked[0].body[0])


def test_9_our_session_names_the_content_type(fake: FakeExpo, expo: Expo) -> None:
    """Packed or not, the body is said to be JSON."""
    expo.send([message()])
    expo.send(messages(50))
    assert [asked.headers["content-type"] for asked in fake.asked] == ["application/json"] * 2
