"""What the sandbox's services do to streams and connections on demand, seen frame by frame."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from h2.errors import ErrorCodes

from relevo.core.errors import InvalidInputError
from relevo.core.known_services import NATIVE
from relevo.sandbox import Sandbox, push_service
from support import senders
from support.http2_frames import Frames
from support.native import message, opened

BODY = b'{"aps":{"alert":"Hola"}}'


@pytest.fixture(scope="module")
def running() -> Iterator[Sandbox]:
    """A sandbox with all services, and no hurry about tokens."""
    with Sandbox(native=True, apns_token_interval_s=0) as sandbox:
        yield sandbox


@pytest.fixture
def native(running: Sandbox) -> Sandbox:
    """That sandbox, as new."""
    running.clear_faults()
    running.reset()
    return running


class Apns:
    """A connection to APNs that has shown its token already."""

    def __init__(self, sandbox: Sandbox, *, greet: bool = True) -> None:
        self.sandbox = sandbox
        self.frames = Frames(sandbox.apns, sandbox.ca_file)
        self.headers = {
            "authorization": f"bearer {senders.provider_token(sandbox.apns_key_file)}",
            "apns-topic": senders.TOPIC,
        }
        if greet:
            assert self.frames.answered(self.ask("first")).status == 200
            self.frames.until(lambda: self.frames.limits[-1] == 1_000)

    def ask(self, name: str, *words: str, whole: bool = True) -> int:
        """Send a notification and return its stream."""
        token = self.sandbox.apns_token(name, *words)
        return self.frames.ask(f"/3/device/{token}", self.headers, BODY, whole=whole)

    def got(self, name: str, *words: str) -> int:
        """Return how many notifications a phone got."""
        return len(self.sandbox.received(self.sandbox.apns_token(name, *words)))


def test_one_stream_until_a_valid_token_was_seen(native: Sandbox) -> None:
    """A connection begins with one stream: a second one is refused unseen; after a valid token there may be many."""
    apns = Apns(native, greet=False)
    with apns.frames as frames:
        first = apns.ask("first", whole=False)
        assert frames.answered(apns.ask("second")).reset == ErrorCodes.REFUSED_STREAM
        frames.end(first)
        assert frames.answered(first).status == 200
        assert frames.limits == [1, 1_000]
        held = apns.ask("third", whole=False)
        assert frames.answered(apns.ask("fourth")).status == 200
        frames.end(held)
        assert frames.answered(held).status == 200
    assert apns.got("second") == 0


def test_a_wrong_token_leaves_it_at_one_stream(native: Sandbox) -> None:
    """A token that is not valid is told so, and opens nothing."""
    apns = Apns(native, greet=False)
    apns.headers["authorization"] = "bearer nonsense"
    with apns.frames as frames:
        for name in ("a", "b"):
            seen = frames.answered(apns.ask(name))
            assert (seen.status, json.loads(seen.body)) == (403, {"reason": "InvalidProviderToken"})
        assert frames.limits == [1]


def test_goaway_in_the_midst(native: Sandbox) -> None:
    """Streams below the last one are answered also after a GOAWAY, those above never, and their phones get nothing."""
    apns = Apns(native)
    with apns.frames as frames:
        late = apns.ask("late", "slow=0.2")
        good = apns.ask("good")
        cut = apns.ask("cut", "goaway")
        after = apns.ask("after")
        frames.drain()
        assert frames.goaway is not None
        assert frames.goaway.last_stream_id == good
        assert json.loads(frames.goaway.additional_data or b"") == {"reason": "Shutdown"}
        assert [frames.streams[each].status for each in (late, good, cut, after)] == [200, 200, None, None]
    assert [apns.got("late", "slow=0.2"), apns.got("good"), apns.got("cut", "goaway"), apns.got("after")] == [
        1,
        1,
        0,
        0,
    ]


def test_goaway_that_took_the_stream(native: Sandbox) -> None:
    """With -delivered the GOAWAY names the stream itself, which is never answered although its phone got it."""
    apns = Apns(native)
    with apns.frames as frames:
        taken = apns.ask("taken", "goaway-delivered")
        frames.drain()
        assert frames.goaway is not None
        assert (frames.goaway.last_stream_id, frames.streams[taken].status) == (taken, None)
    assert apns.got("taken", "goaway-delivered") == 1


@pytest.mark.parametrize(
    ("word", "code", "got"),
    [
        ("refused", ErrorCodes.REFUSED_STREAM, 0),
        ("stream-error", ErrorCodes.INTERNAL_ERROR, 0),
        ("stream-error-delivered", ErrorCodes.INTERNAL_ERROR, 1),
        ("truncated", ErrorCodes.INTERNAL_ERROR, 1),
    ],
)
def test_streams_that_end_early(native: Sandbox, word: str, code: int, got: int) -> None:
    """One stream is reset, and the others of its connection go on."""
    apns = Apns(native)
    with apns.frames as frames:
        ended, other = apns.ask("ana", word), apns.ask("other")
        assert frames.answered(ended).reset == code
        assert frames.answered(other).status == 200
    assert apns.got("ana", word) == got


def test_half_an_answer(native: Sandbox) -> None:
    """An answer that is cut short has its status and half its body."""
    with Frames(native.fcm, native.ca_file) as frames:
        headers = {"authorization": f"Bearer {senders.access_token(native)}"}
        body = json.dumps({"message": {"token": native.fcm_token("ana", "truncated")}}).encode()
        seen = frames.answered(frames.ask("/v1/projects/relevo-sandbox/messages:send", headers, body))
    assert (seen.status, seen.ended) == (200, False)
    assert 0 < len(seen.body) < int(seen.headers["content-length"])


def test_streams_shrink(native: Sandbox) -> None:
    """The number of streams shrinks as told; what is over it is refused, and what was open before goes on."""
    apns = Apns(native)
    with apns.frames as frames:
        open_before = [apns.ask(f"open{number}", "slow=0.5") for number in range(3)]
        shrunk = apns.ask("ana", "streams=2")
        assert frames.answered(shrunk).status == 200
        frames.until(lambda: frames.limits[-1] == 2)
        assert frames.answered(apns.ask("over")).reset == ErrorCodes.REFUSED_STREAM
        assert [frames.answered(each).status for each in open_before] == [200, 200, 200]
        assert frames.answered(apns.ask("within")).status == 200
    assert apns.got("ana", "streams=2") == 1


@pytest.mark.parametrize(("word", "got"), [("reset", 0), ("reset-delivered", 1)])
def test_a_connection_that_is_cut(native: Sandbox, word: str, got: int) -> None:
    """The connection ends without an answer and without a GOAWAY, before or after the message was taken."""
    apns = Apns(native)
    with apns.frames as frames:
        stream = apns.ask("ana", word)
        frames.drain()
        assert (frames.streams[stream].status, frames.goaway) == (None, None)
    assert apns.got("ana", word) == got


@pytest.mark.parametrize(("word", "got"), [("hang", 0), ("hang-delivered", 1)])
def test_an_answer_that_never_comes(native: Sandbox, word: str, got: int) -> None:
    """Other streams are answered, that one never."""
    apns = Apns(native)
    with apns.frames as frames:
        stream = apns.ask("ana", word)
        for number in range(3):
            assert frames.answered(apns.ask(f"other{number}")).status == 200
        assert frames.streams[stream].status is None
    assert apns.got("ana", word) == got


@pytest.mark.parametrize("service", NATIVE)
def test_every_code_of_a_service(native: Sandbox, service: str) -> None:
    """Each code can be had by a token's name, and by a rule for a share of the requests."""
    for code, answer in push_service.of(service).answers.items():
        status, _ = send(native, service, code)
        assert status == answer.status, code
        native.add_fault(code, service=service, times=1)
        assert send(native, service)[0] == status
    assert send(native, service)[0] in (200, 201)


def test_limited_words_and_retry_after(native: Sandbox) -> None:
    """A word with *N ends after N times; retry-after goes along with a code."""
    seen = [send(native, "fcm", "QUOTA_EXCEEDED*2", "retry-after=7") for _ in range(3)]
    assert [(status, headers.get("retry-after")) for status, headers in seen] == [(429, "7"), (429, "7"), (200, None)]


def test_words_that_do_not_exist(native: Sandbox) -> None:
    """A word of another service, or a slip, is refused where it is written."""
    for make in (
        lambda: native.fcm_token("ana", "BadDeviceToken"),
        lambda: native.apns_token("ana", "UNREGISTERED"),
        lambda: native.subscription("ana", "slow=x"),
        lambda: native.add_fault("goaway", service="sms"),
        lambda: native.add_fault("goaway", service="apns", on="token"),
        lambda: native.apns_token("ana", environment="staging"),
    ):
        with pytest.raises(InvalidInputError):
            make()


def send(sandbox: Sandbox, service: str, *words: str) -> tuple[int, dict[str, str]]:
    """Send one message to a phone with these faults; return status and headers of the answer.

    A service of which nothing here knows how it is written to is written to by its adapter.
    """
    if service not in ("fcm", "apns", "webpush"):
        return by_adapter(sandbox, service, *words), {}
    url, path, headers, body = prepared(sandbox, service, *words)
    with Frames(url, sandbox.ca_file) as frames:
        seen = frames.answered(frames.ask(path, headers, body))
        return seen.status or 0, seen.headers


def by_adapter(sandbox: Sandbox, service: str, *words: str) -> int:
    """Send one message by the adapter, and return the status of its answer; with a new access token it may be sent again."""
    before = sandbox.totals()["services"][service]
    part = push_service.of(service).trial.part
    with opened(service, sandbox) as adapter:
        adapter.send(
            [message(sandbox.token(service, "ana", *words))], "::".join(filter(None, (service, "default", part)))
        )
    after = sandbox.totals()["services"][service]
    return max(int(status) for status, count in after.items() if count != before.get(status, 0))


def prepared(sandbox: Sandbox, service: str, *words: str) -> tuple[str, str, dict[str, str], bytes]:
    """Return address, path, headers and body of a good request."""
    if service == "fcm":
        headers = {"authorization": f"Bearer {senders.access_token(sandbox)}"}
        body: Any = {"message": {"token": sandbox.fcm_token("ana", *words), "data": {}}}
        return sandbox.fcm, "/v1/projects/relevo-sandbox/messages:send", headers, json.dumps(body).encode()
    if service == "apns":
        token = senders.provider_token(sandbox.apns_key_file)
        headers = {"authorization": f"bearer {token}", "apns-topic": senders.TOPIC}
        return sandbox.apns, f"/3/device/{sandbox.apns_token('ana', *words)}", headers, BODY
    endpoint, body = senders.encrypted(sandbox.subscription("ana", *words), b'{"title":"Hola"}')
    headers = {"authorization": senders.vapid(sandbox), "ttl": "60", "content-encoding": "aes128gcm"}
    return sandbox.webpush, endpoint.removeprefix(sandbox.webpush), headers, body
