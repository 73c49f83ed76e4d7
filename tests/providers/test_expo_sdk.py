"""Expo's SDK beside our way through its client: both send the same and say the same, for every answer of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from providers.test_expo_answers import ROWS
from providers.test_expo_requests import SIGNALS
from relevo.core.model import Reply
from relevo.providers.expo import provider as module
from relevo.providers.expo.provider import NO_TICKET, Expo
from support.expo_pushes import message, messages
from support.fake_expo import Answer, FakeExpo, as_json, ticket

ODD = [
    None,
    7,
    "ok",
    [],
    {},
    {"status": 7},
    {"status": "ok"},
    {"status": "ok", "id": 7},
    {"status": "ok", "id": "\ud800"},
]
TICKETS = [{"status": "error", "message": "so it is", "details": row[0]} for row in ROWS] + ODD
ANSWERS = [
    *[row[0] for row in SIGNALS],
    *[as_json({"data": [each, ticket(1)]}) for each in TICKETS],
    *[as_json({"data": [ticket(number) for number in range(count)]}) for count in (0, 1, 2, 3)],
    *[as_json({"data": [ticket(1), ticket(2)]}, status) for status in (201, 302, 400, 502)],
    as_json({"data": [], "errors": []}),
    as_json({"data": {"a": ticket(1)}}),
    as_json({"data": [{"status": "ok", "id": "a", "worth": float("nan")}, ticket(1)]}),
    Answer(200, b'\xef\xbb\xbf{"data": []}'),
]
WRITTEN: list[Mapping[str, Any]] = [
    message(),
    message(body='"\\\n\x00\x7fñ€🚀'),
    message(body="half a character: \ud800"),
    message(data={1: 2, None: True, 1.5: [1, (2, 3)], "big": 10**30, "small": -(2**63), "far": 1e300}),
    MappingProxyType(message(data={})),
]


class SdkMessage:
    """A message as the SDK takes it; it counts the answers by `to`, and a string counts as one."""

    to = ""

    def __init__(self, sent: Mapping[str, Any]) -> None:
        self.get_payload = lambda: dict(sent)


def by_the_sdk(expo: Expo, sent: list[Mapping[str, Any]]) -> Reply:
    """Send by the SDK alone, with an object for each message and each ticket."""
    client = expo._client()
    client.session.begin(30, 30)
    try:
        said = client.publish_multiple([SdkMessage(each) for each in sent])
    except module._TROUBLE as trouble:
        return module._reply(trouble, sent, client.session.stage)
    pairs = zip(said, client.session.answer.raw, strict=True)
    return Reply("answered", tuple(module.classify(each, raw) for each, raw in pairs))


def comparable(reply: Reply) -> tuple[Any, ...]:
    """Return a reply without what is drawn by chance, the ids that stand for none."""
    tickets = [each._replace(id=NO_TICKET) if (each.id or "").startswith(NO_TICKET) else each for each in reply.tickets]
    return reply.kind, tickets, reply.code, reply.message, reply.retry_after_ms, reply.projects


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_both_say_the_same(fake: FakeExpo, expo: Expo, answer: Answer | None) -> None:
    """Whatever Expo answers, reading it beside the SDK's objects means what reading it through them means."""
    fake.says(answer)
    sent: list[Mapping[str, Any]] = [*messages(2)]
    assert comparable(expo.send(sent)) == comparable(by_the_sdk(expo, sent))
    assert len(fake.asked) == 2


@pytest.mark.parametrize("written", WRITTEN, ids=range(len(WRITTEN)))
def test_both_send_the_same(fake: FakeExpo, expo: Expo, written: Mapping[str, Any]) -> None:
    """Whatever the SDK can write arrives the same when it is written without it."""
    expo.send([written])
    by_the_sdk(expo, [written])
    ours, theirs = fake.asked
    assert (ours.body, ours.path) == (theirs.body, theirs.path)


@pytest.mark.parametrize("odd", [object(), {1, 2}, b"bytes", {(1, 2): 3}])
def test_both_refuse_the_same(fake: FakeExpo, expo: Expo, odd: object) -> None:
    """What the SDK cannot write, nobody writes."""
    sent: list[Mapping[str, Any]] = [message(), message(data=odd)]
    assert comparable(expo.send(sent)) == comparable(by_the_sdk(expo, sent))
    assert fake.asked == []
