"""The wire: what a request looks like, connections kept per thread, and secrets that stay where they belong."""

from __future__ import annotations

import ast
import gc
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from relevo import __version__, providers
from relevo.core.model import Reply
from relevo.core.ports import PushProvider
from relevo.providers.expo.provider import Expo
from support.expo_pushes import Make, message, messages
from support.fake_expo import RECEIPTS, SEND, Answer, FakeExpo, as_json, refusal, regular, ticket
from support.processes import PATIENCE_S

SECRET = "s3cr3t-access-token"
EVERY_FIELD: dict[str, Any] = {
    "to": "ExpoPushToken[abcdef]",
    "data": {"deep": {"er": [1, None, "ñ"]}},
    "title": "Título",
    "body": "Cuerpo",
    "ttl": 60,
    "expiration": 1_900_000_000,
    "priority": "high",
    "categoryId": "c",
    "richContent": {"image": "https://example.org/a.png"},
    "collapseId": "e1",
    "subtitle": "s",
    "sound": "default",
    "badge": 0,
    "interruptionLevel": "time-sensitive",
    "relevanceScore": 0.5,
    "filterCriteria": "f",
    "threadId": "t",
    "targetContentId": "tc",
    "mutableContent": True,
    "contentAvailable": True,
    "channelId": "default",
    "icon": "i",
    "tag": "e1",
}


def test_it_is_a_push_provider(expo: Expo) -> None:
    """The adapter fulfils the port."""
    provider: PushProvider = expo
    assert (provider.name, provider.max_messages, provider.max_receipts) == ("expo", 100, 300)


def test_every_field_arrives(fake: FakeExpo, expo: Expo) -> None:
    """All fields of a message pass through as they are, whatever kind of mapping holds them."""
    assert expo.send([EVERY_FIELD, MappingProxyType(EVERY_FIELD)]).kind == "answered"
    assert fake.asked[0].path == SEND
    assert fake.asked[0].body == [EVERY_FIELD, EVERY_FIELD]


def test_always_an_array(fake: FakeExpo, expo: Expo) -> None:
    """One message travels in an array too."""
    assert len(expo.send([message()]).tickets) == 1
    assert fake.asked[0].body == [message()]


def test_tickets_in_order(fake: FakeExpo, expo: Expo) -> None:
    """Tickets come one per message, in their order, in one request."""
    reply = expo.send(messages(100))
    assert [each.id for each in reply.tickets] == [ticket(number)["id"] for number in range(100)]
    assert len(fake.asked) == 1


def test_headers(fake: FakeExpo, make: Make) -> None:
    """Sending and asking for receipts, we say who we are, what we send and what we take; and nothing else."""
    expo = make(access_token=SECRET)
    expo.send([message()])
    expo.fetch_receipts(["t1"])
    for asked in fake.asked:
        assert asked.headers["authorization"] == f"Bearer {SECRET}"
        assert asked.headers["user-agent"] == f"relevo/{__version__}"
        assert asked.headers["content-type"] == asked.headers["accept"] == "application/json"
        assert "cookie" not in asked.headers
    assert [asked.path for asked in fake.asked] == [SEND, RECEIPTS]
    assert fake.asked[1].body == {"ids": ["t1"]}


def test_no_authorization_without_a_token(fake: FakeExpo, make: Make) -> None:
    """Without an access token, or with an empty one, nothing is claimed."""
    for token in (None, "", " \n"):
        make(access_token=token).send([message()])
    assert [asked.headers.get("authorization") for asked in fake.asked] == [None] * 3


def test_gzip_above_the_threshold_only(fake: FakeExpo, expo: Expo) -> None:
    """Bodies of more than 1024 bytes are compressed, smaller ones are not; receipts too."""
    empty = len(json.dumps([message(body="")], ensure_ascii=False, separators=(",", ":")).encode())
    expo.send([message(body="x" * (1_024 - empty))])
    expo.send([message(body="x" * (1_025 - empty))])
    expo.fetch_receipts(["t1"])
    expo.fetch_receipts([ticket(number)["id"] for number in range(300)])
    assert [asked.packed for asked in fake.asked] == [False, True, False, True]
    assert len(fake.asked[0].wire) == 1_024
    assert len(fake.asked[1].wire) < 500
    assert len(fake.asked[3].body["ids"]) == 300


def test_big_requests_arrive_whole(fake: FakeExpo, expo: Expo) -> None:
    """A hundred messages of 4 kB that hardly compress are written to their end."""
    big = [
        message(n, body="".join(chr(0x4E00 + (n * 7919 + i * i * 31) % 20_000) for i in range(1_200)))
        for n in range(100)
    ]
    assert expo.send(big).kind == "answered"
    assert fake.asked[0].body == big


def test_a_path_in_the_address_is_kept(fake: FakeExpo, make: Make) -> None:
    """The SDK would drop it when sending and keep it when asking for receipts."""
    expo = make(base_url=f"{fake.url}/sandbox/")
    expo.send([message()])
    expo.fetch_receipts(["t1"])
    assert [asked.path for asked in fake.asked] == [f"/sandbox{SEND}", f"/sandbox{RECEIPTS}"]


@pytest.mark.parametrize("address", ["", "exp.host", "ftp://exp.host", "https://", "https://me:pw@exp.host"])
def test_addresses_that_are_none(make: Make, address: str) -> None:
    """A wrong address is refused at once, and a password in it is not repeated."""
    with pytest.raises(ValueError, match="http") as caught:
        make(base_url=address)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("token", ["two words", "with\r\nX-Header: 1", "ñandú"])
def test_tokens_that_cannot_travel(make: Make, token: str) -> None:
    """An access token that does not fit into a header is refused at once, without repeating it."""
    with pytest.raises(ValueError, match="access token") as caught:
        make(access_token=token)
    assert token not in str(caught.value)


def test_the_environment_is_not_asked(
    fake: FakeExpo, expo: Expo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither a proxy nor a .netrc of the environment has a say."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password pw\n")
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("NETRC", str(netrc))
    assert expo.send([message()]).kind == "answered"
    assert "authorization" not in fake.asked[0].headers


def test_redirects_lead_nowhere(fake: FakeExpo, make: Make) -> None:
    """A redirect is not followed, so that nobody else gets the messages or the access token."""
    with FakeExpo() as thief:
        for status in (301, 302, 303, 307, 308):
            fake.says(Answer(status, b"", {"Location": thief.url + SEND}))
            make(access_token=SECRET).send([message()])
        assert thief.asked == []
    assert len(fake.asked) == 5


def test_cookies_are_not_kept(fake: FakeExpo, expo: Expo) -> None:
    """What the server sets is not brought back."""
    fake.says(as_json({"data": [ticket(1)]}, headers={"Set-Cookie": "a=b; path=/"}))
    expo.send([message()])
    expo.send([message()])
    assert "cookie" not in fake.asked[1].headers


def test_a_thread_keeps_its_connection(fake: FakeExpo, expo: Expo) -> None:
    """Sending and receipts of one thread share one connection, also after refusals."""
    fake.says(as_json({"data": [ticket(1)]}), refusal(429, "TOO_MANY_REQUESTS"), Answer(504, b"<html>"), Answer(400))
    for _ in range(4):
        expo.send([message()])
    fake.answer = regular
    assert expo.fetch_receipts(["t1"]).kind == "answered"
    assert fake.connections == 1


def test_threads_do_not_meet(fake: FakeExpo, make: Make) -> None:
    """Eight threads send at once on eight connections, and each gets the answers to its own messages."""
    expo = make()
    ready = threading.Barrier(8)

    def echo(asked: Any) -> Answer:
        return as_json({"data": [{"status": "ok", "id": each["tag"]} for each in asked.body]})

    def work(worker: int) -> bool:
        ready.wait(PATIENCE_S)
        tags = [[f"{worker}-{turn}-{n}" for n in range(20)] for turn in range(20)]
        replies = [expo.send([message(tag=tag) for tag in turn]) for turn in tags]
        ready.wait(PATIENCE_S)
        return [[each.id for each in reply.tickets] for reply in replies] == tags

    fake.answer = echo
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert fake.connections == 8
    assert len(fake.asked) == 160


def test_close_closes_all_connections(fake: FakeExpo, make: Make) -> None:
    """After close() no connection is open, whichever thread made it; sending again makes a new one."""
    expo = make()
    ready = threading.Barrier(4)
    done = threading.Event()

    def work() -> None:
        expo.send([message()])
        ready.wait(PATIENCE_S)
        done.wait(PATIENCE_S)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    ready.wait(PATIENCE_S)
    fake.wait_until_open(3)
    expo.close()
    fake.wait_until_open(0)
    done.set()
    for thread in threads:
        thread.join()
    assert expo.send([message()]).kind == "answered"


def test_a_connection_in_use_is_closed_after_its_request(fake: FakeExpo, expo: Expo) -> None:
    """Closed while Expo is asked, a provider gets the answer, and keeps no connection."""

    def closing(asked: Any) -> Answer:
        expo.close()
        return regular(asked)

    fake.answer = closing
    assert expo.send([message()]).kind == "answered"
    assert expo._client().session._kept is None
    fake.wait_until_open(0)


def test_a_thread_takes_its_connection_along(fake: FakeExpo, make: Make) -> None:
    """Connections of threads that have ended do not pile up."""
    expo = make()
    for _ in range(5):
        thread = threading.Thread(target=expo.send, args=([message()],))
        thread.start()
        thread.join()
    gc.collect()
    fake.wait_until_open(0)
    assert fake.connections == 5


def test_a_dropped_idle_connection_is_noticed(fake: FakeExpo, expo: Expo) -> None:
    """A kept connection that the server closed meanwhile is replaced before anything is written on it."""
    fake.says(as_json({"data": [ticket(1)]}, hang_up=True))
    for number in range(1, 4):
        assert expo.send([message()]).kind == "answered"
        assert fake.connections == number
        fake.wait_until_open(0)


def test_an_idle_connection_is_given_up_in_time(fake: FakeExpo, expo: Expo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection unused for long is replaced before the server tires of it."""
    expo.send([message()])
    monkeypatch.setattr("relevo.providers.expo.wire.MAX_IDLE_S", 0.01)
    time.sleep(0.02)
    assert expo.send([message()]).kind == "answered"
    assert fake.connections == 2


def test_a_broken_connection_is_never_tried_again(fake: FakeExpo, expo: Expo) -> None:
    """The server read the request and died: unclear, asked exactly once, on a fresh and on a kept connection."""
    fake.says(None)
    assert expo.send([message()]).kind == "unclear"
    fake.says(as_json({"data": [ticket(1)]}), None)
    assert expo.send([message()]).kind == "answered"
    assert expo.send([message()]).kind == "unclear"
    assert len(fake.asked) == 3


@pytest.mark.parametrize("echo", [refusal(401, "UNAUTHORIZED", f"bad token {SECRET}"), Answer(500, SECRET.encode())])
def test_the_access_token_stays_with_us(
    fake: FakeExpo, make: Make, caplog: pytest.LogCaptureFixture, echo: Answer
) -> None:
    """It is in no reply, repr or log line, even if the server repeats it."""
    caplog.set_level(logging.DEBUG)
    expo = make(access_token=SECRET)
    fake.says(echo)
    said: list[Any] = [expo.send([message()]), expo.fetch_receipts(["t1"])]
    fake.says(as_json({"data": [{"status": "error", "message": SECRET}]}))
    said += [expo.send([message()]), expo, vars(expo)["_sessions"], expo._client().session]
    assert SECRET not in " ".join(map(repr, said))
    assert SECRET not in caplog.text


def test_tokens_in_request_errors_are_shortened(fake: FakeExpo, expo: Expo, caplog: pytest.LogCaptureFixture) -> None:
    """What Expo says of a whole request holds no push token, and is bounded."""
    caplog.set_level(logging.DEBUG)
    to = message()["to"]
    for answer in (refusal(400, "X" * 300, f'"{to}" is odd ' * 99), Answer(400, f"<p>{to}\x00".encode() * 99)):
        fake.says(answer)
        reply: Reply = expo.send([message()])
        assert to not in repr(reply)
        assert len(reply.code or "") <= 100
        assert len(reply.message or "") <= 500
        assert (reply.message or "").isprintable()
    assert to not in caplog.text


def test_only_this_file_knows_the_sdk() -> None:
    """Nothing else of the package imports Expo's SDK."""
    package = Path(providers.__file__).parents[1]
    knowing = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        if "exponent_server_sdk" in ast.unparse(node)
    }
    assert knowing == {"providers/expo/provider.py"}
