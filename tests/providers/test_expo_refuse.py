"""What must not be sent at all: malformed tokens and messages of too many bytes."""

from __future__ import annotations

import json
from enum import Enum
from types import MappingProxyType
from uuid import uuid4

import pytest

from relevo.providers.expo.provider import Expo
from support.expo_pushes import Make, message

UUID = "f4e9c2a1-1111-4222-8333-444455556666"


@pytest.fixture
def idle(make: Make) -> Expo:
    """An adapter that is never asked to send."""
    return make()


@pytest.mark.parametrize(
    "to",
    [
        "ExponentPushToken[xxxxxxxxxxxxxxxxxxxxxx]",
        "ExpoPushToken[a]",
        "ExpoPushToken[-_=+/:.ñ]",
        f"ExponentPushToken[{'x' * 150}]",
        UUID,
        UUID.upper(),
    ],
)
def test_the_three_shapes_pass(idle: Expo, to: str) -> None:
    """Both bracketed shapes and a bare UUID are tokens, asked for one by one or together."""
    assert idle.refuse(message(to=to)) is None
    assert not idle.refuses_any([UUID, to])


@pytest.mark.parametrize(
    "to",
    [
        None,
        7,
        "",
        ["ExponentPushToken[a]"],
        "ExponentPushToken[]",
        "ExponentPushToken",
        "ExponentPushTokenGARBAGE",
        "ExponentPushToken[a",
        "ExponentPushToken[a]b",
        "xExponentPushToken[a]",
        "ExponentPushToken[a]\n",
        "ExponentPushToken[a b]",
        "ExponentPushToken[a\x00b]",
        "ExponentPushToken[a]]",
        "ExponentPushToken[[a]",
        "exponentpushtoken[a]",
        f"ExponentPushToken[{'x' * 151}]",
        f"{UUID}\n",
        f"{UUID}0",
        UUID.replace("-", ""),
        "fcm:APA91bHun4MxP5egoKMwt2KZFBaFUH-1RYqx",
    ],
)
def test_malformed_tokens(idle: Expo, to: object) -> None:
    """Anything else would raise in the SDK or fail a whole request."""
    refused = idle.refuse(message(to=to))
    assert refused is not None
    assert (refused.fate, refused.code) == ("invalid", "MalformedToken")
    assert idle.refuse({"title": "to nobody"}) == refused
    assert idle.refuses_any([UUID, to, UUID])


@pytest.mark.parametrize("letter", ["x", "ñ", "€", "🚀", '"', "\n", "\x00"])
def test_too_many_bytes(idle: Expo, letter: str) -> None:
    """4096 bytes of compact JSON in UTF-8 pass, without counting `to`; one more does not."""

    def size(body: str) -> int:
        rest = {key: value for key, value in message(body=body).items() if key != "to"}
        return len(json.dumps(rest, ensure_ascii=False, separators=(",", ":")).encode())

    count = (4_096 - size("")) // (size(letter) - size(""))
    body = letter * count
    body += "x" * (4_096 - size(body))
    assert idle.refuse(message(body=body)) is None
    refused = idle.refuse(message(body=body + "x"))
    assert refused is not None
    assert (refused.fate, refused.code) == ("failed", "MessageTooBig")
    assert "4097" in (refused.message or "")


def test_half_a_character_is_counted(idle: Expo) -> None:
    """A lone surrogate, which UTF-8 does not know, is no reason to stumble."""
    assert idle.refuse(message(body="\ud800" * 2_000)) is None


@pytest.mark.parametrize(
    "data",
    [
        object(),
        float("nan"),
        {"x": float("inf")},
        {"a": {"b": {"c": {"d": {1, 2}}}}},
        {(1,): 2},
        uuid4(),
        {"n": Enum("Odd", "A").A},
    ],
)
def test_what_is_no_json(idle: Expo, data: object) -> None:
    """What cannot be written as JSON is not sent, and costs no other message its request."""
    refused = idle.refuse(message(data=data))
    assert refused is not None
    assert (refused.fate, refused.code) == ("failed", "MalformedMessage")


@pytest.mark.parametrize("data", [[1, 2.5, None], {"deep": {"deeper": {"deepest": {"end": 1}}}}, 10**30, {"f": 1.5}])
def test_unusual_messages_pass(idle: Expo, data: object) -> None:
    """Lists, floats, depth and big numbers are weighed, not refused."""
    assert idle.refuse(message(data=data)) is None
    assert idle.refuse(MappingProxyType(message(data=data))) is None
