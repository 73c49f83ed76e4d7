"""What Expo says of a whole request, and what it means when it says nothing."""

from __future__ import annotations

import gzip
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from relevo.providers import http_connection
from relevo.providers.expo.provider import Expo
from support.expo_pushes import Make, message, messages
from support.fake_expo import RECEIPTS, Answer, FakeExpo, as_json, refusal, ticket

HTML = b"<html><body>Gateway trouble</body></html>"
LONG = as_json({"data": [ticket(1)]}).body + b" " * 5_000_000
AT_ONCE_S = 15.0
"""Far more than a busy machine takes beyond a limit, far less than without that limit."""
REDIRECT = {"Location": "http://127.0.0.1:1/elsewhere"}

SIGNALS = [
    (refusal(429, "TOO_MANY_REQUESTS"), "throttled", "TOO_MANY_REQUESTS"),
    (Answer(429, HTML), "throttled", "HTTP_429"),
    (refusal(400, "TOO_MANY_REQUESTS"), "throttled", "TOO_MANY_REQUESTS"),
    (refusal(200, "TOO_MANY_REQUESTS"), "throttled", "TOO_MANY_REQUESTS"),
    (refusal(401, "UNAUTHORIZED"), "unauthorised", "UNAUTHORIZED"),
    (refusal(403, "UNAUTHORIZED"), "unauthorised", "UNAUTHORIZED"),
    (refusal(400, "UNAUTHORIZED"), "unauthorised", "UNAUTHORIZED"),
    (refusal(200, "UNAUTHORIZED"), "unauthorised", "UNAUTHORIZED"),
    (Answer(401, HTML), "unauthorised", "HTTP_401"),
    (Answer(403, b""), "unauthorised", "HTTP_403"),
    (refusal(400, "PUSH_TOO_MANY_NOTIFICATIONS"), "too_many", "PUSH_TOO_MANY_NOTIFICATIONS"),
    (refusal(400, "PUSH_TOO_MANY_RECEIPTS"), "too_many", "PUSH_TOO_MANY_RECEIPTS"),
    (Answer(413, HTML), "too_many", "HTTP_413"),
    (refusal(400, "VALIDATION_ERROR"), "rejected", "VALIDATION_ERROR"),
    (Answer(400, HTML), "not_sent", "HTTP_400"),
    (Answer(404, b"[1]"), "not_sent", "HTTP_404"),
    (Answer(408, HTML), "not_sent", "HTTP_408"),
    (Answer(422, HTML), "not_sent", "HTTP_422"),
    (refusal(404, "NOT_FOUND"), "rejected", "NOT_FOUND"),
    (as_json({"data": [ticket(1)]}, 400), "not_sent", "HTTP_400"),
    (refusal(500, "INTERNAL_SERVER_ERROR"), "unclear", "INTERNAL_SERVER_ERROR"),
    (refusal(503, "TOO_MANY_REQUESTS"), "unclear", "TOO_MANY_REQUESTS"),
    (as_json({"data": [ticket(1)]}, 502), "unclear", "HTTP_502"),
    (Answer(504, HTML), "unclear", "HTTP_504"),
    (Answer(504, HTML, cut=5), "unclear", "HTTP_504"),
    (Answer(429, HTML, cut=5), "throttled", "HTTP_429"),
    (refusal(200, "BRAND_NEW"), "unclear", "BRAND_NEW"),
    (as_json({"errors": "odd"}), "unclear", "UnreadableAnswer"),
    (as_json({"errors": [7, None]}), "unclear", "UnreadableAnswer"),
    (as_json({"errors": [{"code": 7}]}), "unclear", "UnreadableAnswer"),
    (Answer(200, HTML), "unclear", "UnreadableAnswer"),
    (Answer(200, b""), "unclear", "UnreadableAnswer"),
    (Answer(204), "unclear", "UnreadableAnswer"),
    (Answer(200, b'{"data": [{"sta'), "unclear", "UnreadableAnswer"),
    (Answer(200, b"\xff\xfe\x00"), "unclear", "UnreadableAnswer"),
    (Answer(200, b"[" * 100_000), "unclear", "UnreadableAnswer"),
    (Answer(200, b'{"data": ' + b"[" * 50_000), "unclear", "UnreadableAnswer"),
    *[(as_json(odd), "unclear", "UnreadableAnswer") for odd in (None, 7, "data", [], [ticket(1)], {}, {"data": 7})],
    (as_json({"data": None}), "unclear", "UnreadableAnswer"),
    (Answer(200, b'{"data": []}', cut=3), "unclear", "ConnectionBroken"),
    (Answer(200, HTML, {"Content-Encoding": "gzip"}), "unclear", "ConnectionBroken"),
    (None, "unclear", "ConnectionBroken"),
    (Answer(302, HTML, REDIRECT), "not_sent", "HTTP_302"),
    (Answer(307, b"", REDIRECT), "not_sent", "HTTP_307"),
    (as_json({"data": [ticket(1)]}, 308, headers=REDIRECT), "not_sent", "HTTP_308"),
]


@pytest.mark.parametrize(
    ("answer", "kind", "code"), SIGNALS, ids=[f"{row[2]}-{row[1]}-{n}" for n, row in enumerate(SIGNALS)]
)
def test_each_signal(fake: FakeExpo, expo: Expo, answer: Answer | None, kind: str, code: str) -> None:
    """Sending and asking for receipts, each signal is a value, made of status and code; and the next request works."""
    fake.says(answer)
    sent, reported = expo.send([message()]), expo.fetch_receipts(["t1"])
    assert (sent.kind, reported.kind) == (kind, kind)
    assert sent.code == code
    assert reported.code == code
    assert sent.tickets == ()
    assert reported.receipts == {}
    assert len(fake.asked) == 2, "nothing is ever asked again by itself"
    fake.says(as_json({"data": [ticket(1)]}))
    assert expo.send([message()]).kind == "answered"


@pytest.mark.parametrize("data", [[], [ticket(1)], [ticket(n) for n in range(3)], {}, {"a": {"status": "ok"}}])
def test_mismatched_tickets(fake: FakeExpo, expo: Expo, data: Any) -> None:
    """If the tickets are not as many as the messages, nobody knows whose they are."""
    fake.says(as_json({"data": data}))
    assert expo.send(messages(2)).kind == "unclear"


def test_receipts_of_the_wrong_shape(fake: FakeExpo, expo: Expo) -> None:
    """A list where a map of receipts should be is unreadable; an empty map is an answer."""
    fake.says(as_json({"data": [{"status": "ok"}]}), as_json({"data": {}}))
    assert expo.fetch_receipts(["t1"]).kind == "unclear"
    assert expo.fetch_receipts(["t1"]).kind == "answered"


def test_no_errors_are_none(fake: FakeExpo, expo: Expo) -> None:
    """An empty list of errors beside the tickets takes nothing from them."""
    fake.says(as_json({"data": [ticket(1)], "errors": []}))
    assert expo.send([message()]).tickets[0].fate == "sent"


def test_the_code_we_know_tells(fake: FakeExpo, expo: Expo) -> None:
    """Of several errors the one whose code we know decides."""
    fake.says(as_json({"errors": [{"code": "ODD"}, {"code": "UNAUTHORIZED", "message": "who?"}]}, 400))
    reply = expo.send([message()])
    assert (reply.kind, reply.code, reply.message) == ("unauthorised", "UNAUTHORIZED", "who?")


def test_mixed_projects(fake: FakeExpo, expo: Expo) -> None:
    """The error's details say which token belongs to which project; tokens of others are no business of ours."""
    to = [each["to"] for each in messages(3)]
    details = {"@me/one": [to[0], to[2], "ExponentPushToken[stranger]"], "@me/two": [to[1], 7]}
    fake.says(refusal(400, "PUSH_TOO_MANY_EXPERIENCE_IDS", details=details))
    reply = expo.send(messages(3))
    assert reply.kind == "mixed_projects"
    assert reply.projects == {to[0]: "@me/one", to[1]: "@me/two", to[2]: "@me/one"}


@pytest.mark.parametrize(
    "details",
    [
        None,
        {"\x00": [messages(2)[0]["to"]]},
        "odd",
        ["odd"],
        {},
        {"@me/one": "odd"},
        {"@me/one": [7, None, {}]},
        {"@me/one": ["ExponentPushToken[stranger]"]},
        {"@me/one": [each["to"] for each in messages(2)]},
        {"": [messages(2)[0]["to"]]},
    ],
)
def test_mixed_projects_without_a_split(fake: FakeExpo, expo: Expo, details: object) -> None:
    """A map that would not split the messages is no map: they are rejected, so that halving goes on."""
    fake.says(refusal(400, "PUSH_TOO_MANY_EXPERIENCE_IDS", details=details))
    reply = expo.send(messages(2))
    assert (reply.kind, reply.projects) == ("rejected", {})


def test_a_project_keeps_its_name(fake: FakeExpo, expo: Expo) -> None:
    """A project is not taken for a token, even if it is named by a UUID; a name that is too long is cut."""
    names = ["f4e9c2a1-1111-4222-8333-444455556666", "@me/" + "x" * 300]
    fake.says(refusal(400, "PUSH_TOO_MANY_EXPERIENCE_IDS", details={names[n]: [message(n)["to"]] for n in (0, 1)}))
    projects = expo.send(messages(2)).projects
    assert projects[message(0)["to"]] == names[0]
    assert len(projects[message(1)["to"]]) == 200


NOON = datetime(2026, 2, 9, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "wait_ms"),
    [
        ({"Retry-After": "7"}, 7_000),
        ({"Retry-After": "1.5"}, 1_500),
        ({"Retry-After": "99999"}, 86_400_000),
        ({"Retry-After": "9" * 400}, 0),
        ({"Retry-After": "-7"}, 0),
        ({"Retry-After": "soon"}, 0),
        ({"Retry-After": format_datetime(NOON + timedelta(seconds=30), usegmt=True)}, 30_000),
        ({"Retry-After": format_datetime(NOON - timedelta(seconds=30), usegmt=True)}, 0),
        ({"Retry-After": format_datetime(NOON + timedelta(days=3), usegmt=True)}, 86_400_000),
        ({"Retry-After": format_datetime(datetime.now(UTC) + timedelta(days=3), usegmt=True), "Date": ""}, 86_400_000),
        ({}, 0),
    ],
)
def test_retry_after(fake: FakeExpo, expo: Expo, headers: dict[str, str], wait_ms: int) -> None:
    """Retry-After in seconds or as a date, by the server's clock, is honoured up to a day; nonsense is none."""
    date = {"Date": format_datetime(NOON, usegmt=True)}
    fake.says(refusal(429, "TOO_MANY_REQUESTS", headers=date | headers))
    assert expo.send([message()]).retry_after_ms == wait_ms
    assert expo.fetch_receipts(["t1"]).retry_after_ms == wait_ms


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"x", delay_s=60),
        Answer(200, b'{"data":[]}' * 999, drip_s=0.02),
        Answer(200, b'{"data":[]}', drip_s=0.2, drip_head=True),
        Answer(200, b"x", {"Content-Length": "999"}),
    ],
    ids=["silent", "dripping body", "dripping head", "hanging"],
)
def test_the_whole_takes_no_longer_than_its_time(fake: FakeExpo, make: Make, answer: Answer) -> None:
    """Silent, dripping or hanging: after timeout_ms it is over, unclear, and the connection is not used again."""
    fake.says(answer, as_json({"data": [ticket(1)]}))
    expo = make(timeout_ms=1_000)
    started = time.monotonic()
    reply = expo.send([message()])
    assert (reply.kind, reply.code) == ("unclear", "ReadTimeout")
    assert 1.0 <= time.monotonic() - started < AT_ONCE_S
    expo._connect_s = expo._total_s = AT_ONCE_S
    assert expo.send([message()]).kind == "answered"
    assert fake.connections == 2


@pytest.fixture
def full() -> Iterator[str]:
    """An address that takes no further connection, and does not say so."""
    with swallowing("127.0.0.1", 0) as address:
        yield address


@contextmanager
def swallowing(host: str, port: int) -> Iterator[str]:
    """Listen where no further connection is taken, and nobody is told so."""
    with socket.socket() as server:
        server.bind((host, port))
        server.listen(0)
        waiting: list[socket.socket] = []
        with suppress(TimeoutError):
            while True:
                waiting.append(socket.create_connection(server.getsockname(), timeout=0.2))
        yield f"http://{host}:{server.getsockname()[1]}"
        for each in waiting:
            each.close()


@pytest.fixture
def mute() -> Iterator[str]:
    """An address that takes connections and never says a word, as seen by TLS."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(8)
        yield f"https://127.0.0.1:{server.getsockname()[1]}"


def free_address() -> str:
    """Return an address where nobody listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_connection_that_takes_too_long(make: Make, full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection within connect_timeout_ms is definite: nothing was sent, and it is not tried again."""
    dialled: list[object] = []
    dial = http_connection.dial
    monkeypatch.setattr(http_connection, "dial", lambda *place: dialled.append(place) or dial(*place))
    started = time.monotonic()
    reply = make(base_url=full, connect_timeout_ms=400).send([message()])
    assert (reply.kind, reply.code) == ("not_sent", "ConnectTimeout")
    assert 0.4 <= time.monotonic() - started < AT_ONCE_S
    assert len(dialled) == 1


def test_one_dead_address_does_not_hide_the_next(fake: FakeExpo, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a name's several addresses each gets its share of the time to connect."""
    port = int(fake.url.rpartition(":")[2])
    dial = http_connection.dial
    monkeypatch.setattr(http_connection, "dial", lambda _, *place: dial(["127.0.0.2", "127.0.0.1"], *place))
    with swallowing("127.0.0.2", port):
        assert make(connect_timeout_ms=1_000).send([message()]).kind == "answered"


def test_tls_that_never_begins(make: Make, mute: str) -> None:
    """A handshake that hangs is a connection that takes too long, although bytes have flown."""
    started = time.monotonic()
    reply = make(base_url=mute, timeout_ms=60_000, connect_timeout_ms=200).send([message()])
    assert (reply.kind, reply.code) == ("not_sent", "ConnectTimeout")
    assert time.monotonic() - started < AT_ONCE_S


def test_tls_with_somebody_else(fake: FakeExpo, make: Make) -> None:
    """Who does not speak TLS gets no request."""
    reply = make(base_url=fake.url.replace("http:", "https:"), access_token="secret").send([message()])
    assert (reply.kind, reply.code) == ("not_sent", "NoConnection")


@pytest.mark.parametrize(
    "base_url",
    [free_address(), "http://no-such-host.invalid", f"http://{'x' * 70}.invalid"],
    ids=["refused", "unknown", "no name"],
)
def test_no_connection(make: Make, base_url: str) -> None:
    """Refused or not to be found: definitely not sent."""
    expo = make(base_url=base_url)
    assert expo.send([message()]).kind == "not_sent"
    assert expo.fetch_receipts(["t1"]).kind == "not_sent"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, LONG),
        Answer(200, gzip.compress(LONG * 10, 1), {"Content-Encoding": "gzip"}),
        Answer(200, gzip.compress(LONG, 1), {"Content-Encoding": "gzip"}),
    ],
    ids=["plain", "packed nonsense", "packed"],
)
def test_answers_are_bounded(fake: FakeExpo, expo: Expo, answer: Answer) -> None:
    """An answer of more than 4 MB, also once unpacked, is not read to its end."""
    fake.says(answer, as_json({"data": [ticket(1)]}))
    assert expo.send([message()]).kind == "unclear"
    assert expo.send([message()]).kind == "answered"


def in_chunks(body: bytes, *, whole: bool = True, **headers: str) -> Answer:
    """Return an answer in chunks, as Expo sends them; not `whole`, it lacks its end."""
    pieces = [body[start : start + 9] for start in range(0, len(body), 9)]
    wire = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    more = {"Content-Length": "", "Transfer-Encoding": "chunked"} | named
    return Answer(200, wire + b"0\r\n\r\n" * whole, more, hang_up=not whole)


def test_answers_in_chunks(fake: FakeExpo, expo: Expo) -> None:
    """Chunks, compressed or not, are put together on a kept connection; without their end nothing is believed."""
    body = as_json({"data": [ticket(1)]}).body
    fake.says(in_chunks(body), in_chunks(gzip.compress(body), Content_Encoding="gzip"), in_chunks(body, whole=False))
    assert [expo.send([message()]).kind for _ in range(3)] == ["answered", "answered", "unclear"]
    assert fake.connections == 1


@pytest.mark.parametrize(
    ("base_url", "word"),
    [("https://localhost:1", "ConnectionRefusedError"), ("http://no-such-host.invalid", "gaierror")],
)
def test_trouble_is_named_by_its_own_cause(make: Make, base_url: str, word: str) -> None:
    """Also when asked while another error is being handled, the words are about this one."""
    try:
        socket.create_connection(("127.0.0.1", 1), timeout=0.0001)
    except OSError:
        reply = make(base_url=base_url).send([message()])
    assert (reply.code, reply.message) == ("NoConnection", f"no connection ({word})")


def test_packed_answers_are_read(fake: FakeExpo, expo: Expo) -> None:
    """Expo may compress its answers."""
    plain = as_json({"data": [ticket(1)]})
    fake.says(Answer(200, gzip.compress(plain.body), {"Content-Encoding": "gzip"}))
    assert expo.send([message()]).kind == "answered"


@pytest.mark.parametrize("odd", [{"data": object()}, {"data": {(1, 2): 3}}])
def test_what_cannot_be_written_is_rejected(fake: FakeExpo, expo: Expo, odd: dict[str, Any]) -> None:
    """A message that is no JSON rejects its request before it is made, also after a good one."""
    assert expo.send([message()]).kind == "answered"
    reply = expo.send([message(), message(**odd)])
    assert (reply.kind, reply.code) == ("rejected", "MalformedMessage")
    assert len(fake.asked) == 1


def test_one_request_at_a_time(fake: FakeExpo, make: Make) -> None:
    """More than one request's worth is the caller's mistake; none at all needs no request."""
    expo = make(max_messages=3, max_receipts=2)
    with pytest.raises(ValueError, match="at most 3 messages"):
        expo.send(messages(4))
    with pytest.raises(ValueError, match="at most 2 receipts"):
        expo.fetch_receipts(["a", "b", "c"])
    assert expo.send([]).kind == expo.fetch_receipts([]).kind == "answered"
    assert fake.asked == []


def test_receipts_of_a_failed_question_say_nothing(fake: FakeExpo, expo: Expo) -> None:
    """A failed getReceipts has no receipts at all."""
    fake.says(Answer(500, HTML))
    assert expo.fetch_receipts(["t1"]).receipts == {}
    assert fake.asked[0].path == RECEIPTS
