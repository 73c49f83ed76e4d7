"""The short forms of composing and of settling do what the careful ones do, or leave it to them: claims by chance."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event as Flag
from typing import Any
from uuid import uuid4

import pytest

from relevo.core.messages import Message
from relevo.core.model import Budget, Content, Delivery
from relevo.delivery.claiming.claim import Claim
from relevo.delivery.composing.messages import MessageBuilder
from relevo.delivery.projects.allowance import Allowance
from relevo.delivery.projects.rate_and_breaker import Grant
from relevo.delivery.worker_services import ClaimContext
from relevo.providers.expo import provider as expo
from relevo.runtime.runs import Run, RunContext
from relevo.sandbox import Sandbox
from support import mixed_phones
from support.sending_worker import Relay
from support.soak import cases

CLAIMS = cases(300, whole=6_000)
FIELDS: list[dict[str, Any]] = [
    {},
    {"sound": "default", "badge": 3, "channelId": "offers"},
    {"badge": "unread"},
    {"ttl": 60, "priority": "high"},
    {"ttl": "soon"},
    {"collapse": "chat:7", "opens": True},
    {"collapse": "ñ" * 80},
    {"richContent": {"image": "https://a.b/c.png"}, "interruptionLevel": "passive"},
    {"categoryId": "c", "mutableContent": True, "subtitle": "s"},
    {"to": "somebody", "data": 7},
    {"unreadable": float("nan")},
]
DATA: list[dict[str, Any]] = [
    {},
    {"chat": 7, "ñ": [1, None, {"b": 2.5}]},
    {"notificationDeliveryId": "mine", "installationId": 1, "pushProvider": "x"},
    {"a": "x" * 2_900},
    {"a": "ñ" * 1_990},
    {"number": 2**70},
    {"number": float("inf")},
    {"half": "\ud800"},
    {"url": "https://a.b/c", "badge": 1},
]
TEXTS = ["", "Ana", "\u200b", "ñ📋", 'a "quoted"\n\\ one', "x" * 500]
PLATFORMS = {"expo": ("ios", "android", "unknown")} | {
    kind: (each.platform,) for kind, each in mixed_phones.TRIALS.items()
}
OBSTACLES = (None,) * 60 + ("event_ended", "quiet_hours", "opted_out")


@pytest.fixture(scope="session")
def push_service() -> Iterator[Sandbox]:
    """The sandbox of these tests, with every push service."""
    with Sandbox(native=True, apns_token_interval_s=0) as running:
        yield running


@pytest.fixture
def worker(relay: Any, sandbox: Sandbox) -> Relay:
    """A worker that sends by every push service, and has a composer for one event type."""
    made: Relay = relay(**mixed_phones.addresses(sandbox))
    return made


def content(chance: random.Random, number: int) -> Content:
    """Return what an event says."""
    return Content(number, chance.choice(TEXTS), chance.choice(TEXTS), chance.choice(DATA), chance.choice(FIELDS))


def delivery(chance: random.Random, number: int, event: int, kind: str, token: str | None) -> Delivery:
    """Return a delivery of an event to a phone of a kind."""
    return Delivery(
        event_day=datetime.now(UTC).date(),
        id=number,
        notification_event_id=event,
        installation_id=uuid4(),
        event_type="composed" if chance.random() < 1 / 60 else "chat",
        provider=mixed_phones.SERVICE_OF[kind],
        project=mixed_phones.PARTS[kind],
        lane="bulk",
        at_most_once=False,
        status="pending",
        attempt_count=0,
        lapse_count=0,
        deadline_at=None,
        token=chance.choice((None, "", "x y", "\ud800")) if chance.random() < 1 / 60 else token,
        token_version=1,
        platform=chance.choice(PLATFORMS[kind]),
        obstacle=chance.choice(OBSTACLES),  # type: ignore[arg-type]
        seconds_left=chance.choice((None, None, 0.0, 59.9, -3.0, 1e7)),
        created_at=datetime.now(UTC),
        quiet_until=chance.choice((None, None, None, datetime.now(UTC))),
    )


def on_the_wire(context: ClaimContext, message: Message) -> object:
    """Return what a push service is sent of a message, but for when APNs is to forget it."""
    if context.provider.name == "expo":
        return json.loads(expo._body([message]))
    ready: Any = context.provider._ready(message, context.project.rpartition("::")[2])  # type: ignore[attr-defined]
    match context.provider.name:
        case "apns":
            return {name: value for name, value in ready[0] if name != "apns-expiration"}, json.loads(ready[1])
        case "webpush":
            return ready.token, ready.headers, json.loads(ready.body)
        case _:
            return json.loads(ready)


def context_of(worker: Relay, claim: Claim, composers: dict[str, Any]) -> ClaimContext:
    """Return what the parts of a claim share."""
    app = worker.app
    of_run = RunContext(0, "dispatch", "", "manual", app.worker.worker_id, None, datetime.now(UTC))
    run = Run(of_run, app.settings, app.database, Budget(60_000, 1_000), None, None, Flag())
    services = replace(app.services, composers=composers)
    return ClaimContext(services, run, claim, "bulk", services.pools[claim.project], Allowance(Grant(1_000)))


@pytest.mark.parametrize("kind", mixed_phones.ONE_OF_EACH)
def test_both_ways_to_compose_write_the_same(worker: Relay, sandbox: Sandbox, kind: str) -> None:
    """What is composed plainly is sent byte for byte as JSON what the careful way sends, and nothing of it is answered."""
    chance, seen = random.Random(11), Counter[str]()
    token = mixed_phones.installation(sandbox, kind, "ana").token

    def plainly(builder: MessageBuilder, _: Sequence[Delivery]) -> bool:
        return False

    careful_builder = type("CarefulBuilder", (MessageBuilder,), {"_compose_plainly": plainly})
    for _ in range(CLAIMS // 4):
        contents = {n: content(chance, n) for n in range(1, chance.choice((2, 2, 4)))}
        if chance.random() < 1 / 20:
            contents.pop(1)
        events = [*contents, 1] if chance.random() < 1 / 30 else [*contents] or [1]
        deliveries = tuple(
            delivery(chance, n, chance.choice(events), kind, token) for n in range(1, chance.randint(2, 9))
        )
        claim = Claim(uuid4(), "dispatch", mixed_phones.PARTS[kind], 60_000, deliveries, contents=contents)
        composers = {"composed": lambda message, _: message} if chance.random() < 1 / 2 else {}
        short, careful = (made(context_of(worker, claim, composers)) for made in (MessageBuilder, careful_builder))
        plain = short._compose_plainly
        went: list[bool] = []
        short._compose_plainly = lambda some, plain=plain, went=went: went.append(plain(some)) or went[0]  # type: ignore[method-assign]
        built, expected = short.build(deliveries), careful.build(deliveries)
        seen["plain" if went == [True] else "left"] += 1
        assert built == expected
        assert short.messages.keys() == careful.messages.keys()
        if went == [True]:
            assert expected.answers == []
            for key, message in short.messages.items():
                assert on_the_wire(short.context, message) == on_the_wire(careful.context, careful.messages[key])
    assert min(seen["plain"], seen["left"]) > CLAIMS / 40, seen
