"""Push services that are slow and well, or silent to one phone: nothing is pushed twice, and nobody waits for another."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from relevo.client import verbs
from relevo.core.model import Ticket
from relevo.delivery.sending.bad_messages import BadMessageSearch
from relevo.delivery.settling.replies import ReplyHandler
from relevo.providers.http2 import client as http2
from relevo.sandbox import Sandbox
from relevo.sandbox.services.exchange import Service
from support import mixed_phones, native
from support.sending_worker import Relay

PHONES = 24
TIMEOUT_MS = 5_000


@pytest.fixture(scope="session")
def push_service() -> Iterator[Sandbox]:
    """The sandbox of these tests: Expo, FCM, APNs and Web Push."""
    with Sandbox(native=True, apns_token_interval_s=0) as running:
        yield running


@pytest.fixture
def worker(relay, sandbox) -> Relay:
    """A worker whose requests may take two seconds."""
    made: Relay = relay(**mixed_phones.addresses(sandbox), push_request_timeout_ms=2_000)
    return made


def tell_phones(
    worker: Relay, sandbox: Sandbox, kind: str, words: dict[int, list[str]], count: int = PHONES
) -> list[str]:
    """Register phones of a kind, tell them all, and return their tokens."""
    phones = [mixed_phones.installation(sandbox, kind, f"p{number}", *words.get(number, [])) for number in range(count)]
    ids = [verbs.register(worker.conn, phone) for phone in phones]
    worker.phones |= {f"p{number}": each for number, each in enumerate(ids)}
    worker.enqueue(audience=ids)
    worker.fan_out()
    return [str(phone.token) for phone in phones]


@pytest.mark.parametrize("kind", ["android", "browser"])
def test_a_slow_service_gets_nothing_twice(
    worker: Relay, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Streams that could not end in time are not begun: they cost no attempt, go soon, and nobody gets two pushes."""
    monkeypatch.setattr(Service, "streams", lambda _self, _peer: 6)
    tokens = tell_phones(worker, sandbox, kind, {number: ["slow=0.6"] for number in range(PHONES)})
    for _ in range(30):
        worker.dispatch()
        if worker.states() == {"ok": PHONES}:
            break
        worker.travel(seconds=2)
    assert worker.states() == {"ok": PHONES}
    assert [mixed_phones.received(sandbox, token) for token in tokens] == [1] * PHONES
    assert {row["attempt_count"] for row in worker.deliveries()} == {1}
    assert worker.rows("select from relevo.failed_attempts") == []


@pytest.mark.parametrize("kind", ["android", "iphone", "browser"])
def test_one_silent_phone_delays_no_other(relay, sandbox: Sandbox, kind: str) -> None:
    """What was answered is recorded while one stream of the same request waits for its answer."""
    worker: Relay = relay(**mixed_phones.addresses(sandbox), push_request_timeout_ms=TIMEOUT_MS)
    tokens = tell_phones(worker, sandbox, kind, {5: ["hang"]})
    worker.dispatch()
    found = worker.delivery("p5")
    others = [each["updated_at"] for each in worker.deliveries() if each["status"] == "ok"]
    assert found["updated_at"] - max(others) > timedelta(seconds=1), "the others were recorded while it hung"
    assert (found["status"], found["attempt_count"], found["last_error_code"]) == ("retryable", 1, "ReadTimeout")
    assert worker.states() == {"ok": PHONES - 1, "retryable": 1}
    assert sum(mixed_phones.received(sandbox, token) for token in tokens) == PHONES - 1
    assert worker.rows("select from relevo.push_requests where answered_at is null") == []


def test_one_silent_phone_opens_no_breaker(relay, sandbox: Sandbox) -> None:
    """However often a phone that was silent is tried again: that says nothing of its service."""
    worker: Relay = relay(**mixed_phones.addresses(sandbox), push_request_timeout_ms=500)
    tell_phones(worker, sandbox, "android", {0: ["hang"]}, 2)
    for _ in range(30):  # on a busy machine a request may not be begun in time, which is no attempt
        worker.dispatch()
        worker.travel(hours=2)
        if worker.delivery("p0")["attempt_count"] == 6:
            break
    assert worker.delivery("p0")["attempt_count"] == 6
    assert worker.project(mixed_phones.PARTS["android"])["breaker"] == "closed"
    assert worker.incidents() == []


def test_silence_to_everybody_opens_the_breaker(relay, sandbox: Sandbox) -> None:
    """Phones that were never tried before are believed: a service that answers nobody is not asked on and on."""
    worker: Relay = relay(**mixed_phones.addresses(sandbox), push_request_timeout_ms=500, push_breaker_failures=2)
    for name in ("ana", "eva"):
        [phone] = mixed_phones.register(worker.conn, sandbox, ["android"], name, "hang").values()
        worker.enqueue(audience=[phone])
        worker.fan_out()
        for _ in range(30):  # likewise
            worker.dispatch()
            if worker.deliveries()[-1]["attempt_count"]:
                break
            worker.travel(seconds=2)
    assert worker.project(mixed_phones.PARTS["android"])["breaker"] == "open"


@pytest.mark.parametrize(
    ("attempts", "probe", "code", "known"),
    [
        ([1], False, "ReadTimeout", True),
        ([1, 3], False, "ReadTimeout", True),
        ([0], False, "ReadTimeout", False),
        ([1, 0], False, "ReadTimeout", False),
        ([0, 1], False, "ReadTimeout", False),
        ([1], True, "ReadTimeout", False),
        ([1], False, "HTTP_502", False),
    ],
)
def test_which_silence_says_nothing_of_the_service(attempts: list[int], probe: bool, code: str, known: bool) -> None:
    """Only that to phones that were all tried before: one of a request that was never tried makes its silence news."""
    replies = ReplyHandler(cast("Any", SimpleNamespace(probe=probe)), BadMessageSearch(100), troubled=False)
    pushes = [native.delivery("t", "fcm", attempt_count=spent) for spent in attempts]
    assert replies._is_known_silence(pushes, Ticket("unclear", code=code)) == known


def test_goaway_leaves_nothing_waiting(relay, sandbox: Sandbox) -> None:
    """What a GOAWAY left out goes on over a new connection in the same call: one dispatch sends everything."""
    worker: Relay = relay(**mixed_phones.addresses(sandbox), push_request_timeout_ms=29_000)
    words = {number: ["goaway*1"] for number in range(5, PHONES, 7)}
    tokens = tell_phones(worker, sandbox, "android", words)
    worker.dispatch()
    assert worker.states() == {"ok": PHONES}
    assert [mixed_phones.received(sandbox, token) for token in tokens] == [1] * PHONES


@pytest.mark.parametrize("kind", ["android", "iphone"])
def test_connections_outlive_the_threads_that_use_them(
    relay, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Seven pushes one after another, each by a thread of its own, take one TLS handshake."""
    opened: list[Any] = []
    connect = http2.connect
    monkeypatch.setattr(http2, "connect", lambda *args, **more: opened.append(args) or connect(*args, **more))
    monkeypatch.setattr("relevo.delivery.projects.request_pool._IDLE_S", 0.0)
    worker: Relay = relay(**mixed_phones.addresses(sandbox))
    [phone] = mixed_phones.register(worker.conn, sandbox, [kind], "ana").values()
    for _ in range(7):
        worker.enqueue(audience=[phone])
        worker.fan_out()
        worker.dispatch()
    assert worker.states() == {"ok": 7}
    assert len(opened) == 1
