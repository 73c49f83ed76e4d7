"""Webhooks: signed as Standard Webhooks are, to addresses an operator wrote down, and nowhere else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from relevo.providers.http2.client import CallTime, Request
from relevo.providers.http_connection import look_up
from relevo.providers.push_projects import PushProjects
from relevo.providers.webhook.provider import Webhook, WebhookAddress, read_addresses
from relevo.providers.webpush.provider import WebPush
from support.fake_http_server import Answer, Asked, FakeServer
from support.processes import eventually

KEY = b"k" * 32
SECRET = "whsec_" + base64.b64encode(KEY).decode()
MESSAGE: dict[str, Any] = {"to": "billing", "title": "¡Hola!", "data": {"notificationDeliveryId": 17, "x": 1}}


class Receiver(FakeServer):
    """Answers with a status."""

    status = 200
    drip_s = 0.0

    def answer(self, _asked: Asked) -> Answer:
        """Answer."""
        return Answer(self.status, b"said", drip_s=self.drip_s)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver on loopback."""
    with Receiver() as server:
        yield server


def webhook(receiver: Receiver, **more: Any) -> Webhook:
    """Make the provider for it, by the clock of 2023."""
    address = WebhookAddress(f"{receiver.url}/hook?a=1", [KEY])
    usual = {"timeout_ms": 5_000, "connect_timeout_ms": 2_000, "allow_private": True, "clock": lambda: 1_700_000_000.9}
    return Webhook(more.pop("addresses", {"billing": address}), **usual | more)


def test_it_is_signed_so_that_a_receiver_can_check_it(receiver: Receiver) -> None:
    """Id, time and body are signed with the address's secret; the token, which is a name of ours, is not sent."""
    assert webhook(receiver).send([MESSAGE]).tickets[0].fate == "ok"
    [asked] = receiver.asked
    assert (asked.method, asked.path, asked.query) == ("POST", "/hook", {"a": "1"})
    name, at = asked.headers["webhook-id"], asked.headers["webhook-timestamp"]
    assert (name, at) == ("msg_17", "1700000000")
    wanted = base64.b64encode(hmac.new(KEY, f"{name}.{at}.".encode() + asked.body, hashlib.sha256).digest()).decode()
    assert asked.headers["webhook-signature"] == f"v1,{wanted}"
    assert json.loads(asked.body) == {key: value for key, value in MESSAGE.items() if key != "to"}


def test_a_repeat_has_the_same_id(receiver: Receiver) -> None:
    """A delivery that is sent again is known by its id."""
    hook = webhook(receiver)
    hook.send([MESSAGE])
    hook.send([MESSAGE])
    assert {asked.headers["webhook-id"] for asked in receiver.asked} == {"msg_17"}


@pytest.mark.parametrize(
    ("status", "fate"), [(400, "retryable"), (403, "retryable"), (404, "retryable"), (410, "failed")]
)
def test_what_a_refusal_means(receiver: Receiver, status: int, fate: str) -> None:
    """A receiver that refuses is tried again, bounded by attempts; one that is gone for good is not."""
    receiver.status = status
    [ticket] = webhook(receiver).send([MESSAGE]).tickets
    assert (ticket.fate, ticket.code) == (fate, f"HTTP_{status}")


def test_an_answer_that_drips_ends_with_the_time(receiver: Receiver) -> None:
    """However slowly an answer's head comes, the request is over after its timeout, and unclear."""
    receiver.drip_s = 0.1  # a head of more than a hundred bytes takes ten seconds
    began = time.monotonic()
    reply = webhook(receiver, timeout_ms=1_000).send([MESSAGE])
    assert (reply.kind, reply.code) == ("unclear", "ReadTimeout")
    assert time.monotonic() - began < 8


def test_a_body_that_never_ends_is_not_waited_for() -> None:
    """The status is all there is to know: what follows it costs no time."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        over = threading.Event()

        def answer() -> None:
            with listening.accept()[0] as met:
                met.recv(65_536)
                met.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
                over.wait(30)

        serving = threading.Thread(target=answer)
        serving.start()
        address = WebhookAddress(f"http://127.0.0.1:{listening.getsockname()[1]}/", [KEY])
        hook = Webhook({"billing": address}, timeout_ms=20_000, connect_timeout_ms=2_000, allow_private=True)
        began = time.monotonic()
        [ticket] = hook.send([MESSAGE]).tickets
        took_s = time.monotonic() - began
        over.set()
        serving.join()
    assert ticket.fate == "ok"
    assert took_s < 15


def test_private_addresses_are_refused(receiver: Receiver) -> None:
    """Without leave for loopback nothing is sent there, and plain http leads nowhere at all."""
    [ticket] = webhook(receiver, allow_private=False).send([MESSAGE]).tickets
    assert (ticket.fate, ticket.code, ticket.alert) == ("failed", "RefusedAddress", True)
    assert receiver.asked == []


@pytest.mark.parametrize("found", [["10.0.0.1", "8.8.8.8"], ["8.8.8.8", "10.0.0.1"]])
def test_a_name_with_one_private_address_is_refused(monkeypatch: pytest.MonkeyPatch, found: list[str]) -> None:
    """A name that leads to the internet and into the private network is refused, whichever address comes first."""
    looked_up = [(2, 1, 6, "", (address, 9)) for address in found]
    monkeypatch.setattr("relevo.providers.lookups.socket.getaddrinfo", lambda *_, **_more: looked_up)
    address = WebhookAddress("https://hook.example:9/", [KEY])
    [ticket] = Webhook({"billing": address}, timeout_ms=200, connect_timeout_ms=100).send([MESSAGE]).tickets
    assert (ticket.fate, ticket.code, ticket.alert) == ("failed", "RefusedAddress", True)


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads elsewhere later is looked up once."""
    looked: list[str] = []

    def lookup(host: str, port: int, *_: Any, **_more: Any) -> list[Any]:
        looked.append(host)
        return [(2, 1, 6, "", ("127.0.0.1" if len(looked) == 1 or host == "127.0.0.1" else "127.0.0.9", port))]

    monkeypatch.setattr("relevo.providers.lookups.socket.getaddrinfo", lookup)
    named = {"billing": WebhookAddress(receiver.url.replace("127.0.0.1", "hook.example"), [KEY])}
    [ticket] = webhook(receiver, addresses=named, allow_private=False).send([MESSAGE]).tickets
    assert (ticket.code, looked, receiver.asked) == ("RefusedAddress", ["hook.example"], [])
    looked.clear()
    [ticket] = webhook(receiver, addresses=named).send([MESSAGE]).tickets
    assert (ticket.fate, looked, len(receiver.asked)) == ("ok", ["hook.example", "127.0.0.1"], 1)


class Resolver:
    """Hangs until it may answer; counts how often it was asked, by host."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[str] = []

    def lookup(self, host: str, port: int, *_: Any, **_more: Any) -> list[Any]:
        """Answer loopback, in the end."""
        self.asked.append(host)
        self.answers.wait()
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    @staticmethod
    def hanging() -> int:
        """Count the threads that wait for an answer."""
        return sum(thread.name == "relevo-lookup" for thread in threading.enumerate())


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    """A resolver in the place of the system's, which hangs until the test lets it go."""
    made = Resolver()
    monkeypatch.setattr("relevo.providers.lookups.socket.getaddrinfo", made.lookup)
    yield made
    made.answers.set()
    eventually(lambda: made.hanging() == 0, "the look-ups end")


def test_a_resolver_that_hangs_ends_with_the_time(receiver: Receiver, resolver: Resolver) -> None:
    """A look-up that hangs costs a request its time to connect and no more; all to that host hold one thread."""
    hook = webhook(receiver, timeout_ms=60_000, connect_timeout_ms=20)
    replies = [hook.send([MESSAGE]) for _ in range(5)]
    assert {(reply.kind, reply.code) for reply in replies} == {("not_sent", "ConnectTimeout")}
    assert (len(resolver.asked), resolver.hanging()) == (1, 1)
    assert receiver.asked == []
    resolver.answers.set()
    eventually(lambda: hook.send([MESSAGE]).kind == "answered", "once it answers, all goes on")


def test_the_time_of_the_request_bounds_a_look_up(receiver: Receiver, resolver: Resolver) -> None:
    """However long connecting may take, what is left of the request's time is the end."""
    reply = webhook(receiver, timeout_ms=20, connect_timeout_ms=60_000).send([MESSAGE])
    assert (reply.kind, reply.code) == ("not_sent", "ConnectTimeout")


def test_look_ups_that_hang_are_bounded(resolver: Resolver) -> None:
    """A resolver that hangs for many hosts holds so many threads and no more; the rest are told at once."""
    addresses = {f"h{n}": WebhookAddress(f"https://h{n}.example/", [KEY]) for n in range(40)}
    hook = Webhook(addresses, timeout_ms=60_000, connect_timeout_ms=5)
    replies = [hook.send([{"to": name}]) for name in addresses]
    assert {(reply.kind, reply.code) for reply in replies} == {("not_sent", "ConnectTimeout")}
    assert resolver.hanging() == 32


def test_hanging_look_ups_of_strangers_stop_nobody_else(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that receivers and browsers choose fill places of their own; Expo, FCM and APNs are looked up meanwhile."""
    names = [f"h{n}.example" for n in range(40)]
    short = {"timeout_ms": 2, "connect_timeout_ms": 1}
    hook = Webhook({name: WebhookAddress(f"https://{name}/", [KEY]) for name in names}, **short)
    browsers = WebPush(PushProjects(None), **short)
    for name in names:
        hook.send([{"to": name}])
        browsers._client_of(name, is_trusted=False).exchange([Request((), b"")], CallTime(0.001))
    assert resolver.hanging() == 64
    monkeypatch.undo()
    assert look_up("127.0.0.1", 443, 20.0) == ["127.0.0.1"]


def test_a_receiver_may_be_slow_at_tls() -> None:
    """Once a receiver took the connection, TLS has the whole time of the request: it is no dead address."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = WebhookAddress(f"https://127.0.0.1:{mute.getsockname()[1]}/", [KEY])
        hook = Webhook({"billing": address}, timeout_ms=600, connect_timeout_ms=300, allow_private=True)
        began = time.monotonic()
        reply = hook.send([MESSAGE])
    assert (reply.kind, reply.code) == ("not_sent", "ConnectTimeout")
    assert time.monotonic() - began >= 0.6


def test_a_host_that_is_not_there(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the resolver refuses is tried again later, and nothing of it stays."""

    def lookup(*_asked: Any, **_more: Any) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("relevo.providers.lookups.socket.getaddrinfo", lookup)
    hook = webhook(receiver)
    assert [(hook.send([MESSAGE]).kind, hook.send([MESSAGE]).code)] == [("not_sent", "NoConnection")]
    assert hook._lookups._under_way == {}


NEWS = {"to": "billing", "type": "token.disabled", "data": {"project": "shop"}}


@pytest.mark.parametrize(
    ("message", "sending", "is_taken"),
    [
        pytest.param(MESSAGE, "webhook::shop", True, id="a message of the project"),
        pytest.param(MESSAGE, "webhook::club", False, id="a message of another project"),
        pytest.param(NEWS, "relevo.news::billing", True, id="news of the project"),
        pytest.param(NEWS | {"data": {"project": "club"}}, "relevo.news::shop", False, id="news of another project"),
        pytest.param(NEWS | {"data": {}}, "relevo.news::shop", False, id="news of no project"),
    ],
)
def test_an_address_of_one_project(receiver: Receiver, message: Any, sending: str, is_taken: bool) -> None:
    """An address that names a project gets nothing of other projects, whoever wrote its name."""
    entry = {"url": f"{receiver.url}/hook", "secret": SECRET, "project": "shop"}
    addresses = read_addresses(json.dumps({"billing": entry}))
    [ticket] = webhook(receiver, addresses=addresses).send([message], sending).tickets
    assert (ticket.fate, ticket.code) == (("ok", None) if is_taken else ("failed", "AddressOfAnotherProject"))
    assert len(receiver.asked) == is_taken


@pytest.mark.parametrize(("sending", "is_taken"), [("webhook::shop", True), ("webhook::club", False)])
def test_a_name_that_carries_its_project(receiver: Receiver, sending: str, is_taken: bool) -> None:
    """What a token of one project registered means the name without the project, for that project alone."""
    hook = webhook(
        receiver, addresses=read_addresses(json.dumps({"billing": {"url": f"{receiver.url}/hook", "secret": SECRET}}))
    )
    message = MESSAGE | {"to": "shop/billing"}
    assert hook.refuse(message) is None
    [ticket] = hook.send([message], sending).tickets
    assert (ticket.fate, ticket.code) == (("ok", None) if is_taken else ("failed", "UnknownAddress"))
    assert hook.refuse_token("shop/other") is not None


def test_secrets_do_not_show(receiver: Receiver) -> None:
    """Neither the provider nor its addresses repeat a secret or an address."""
    hook = webhook(receiver)
    said = f"{hook!r} {hook._read()} {hook.refuse_token('other')} {hook.send([MESSAGE])}"
    assert "kkkk" not in said
    assert receiver.url not in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ("[]", "an object of names"),
        ('{"a": {}}', "a needs a url"),
        ('{"a": {"url": "ftp://x/y", "secret": "' + SECRET + '"}}', "a needs a url"),
        ('{"a": {"url": "https://user:pw@x/y", "secret": "' + SECRET + '"}}', "a needs a url"),
        ('{"a": {"url": "https://:pw@x/y", "secret": "' + SECRET + '"}}', "a needs a url"),
        ('{"a": {"url": "https://x/año", "secret": "' + SECRET + '"}}', "a needs a url"),
        ('{"a": {"url": "https://x/a b", "secret": "' + SECRET + '"}}', "a needs a url"),
        ('{"a": {"url": "https://x:99999/y", "secret": "' + SECRET + '"}}', "a needs a url"),
        ('{"a": {"url": "https://[bad/y", "secret": "' + SECRET + '"}}', "a needs a url"),
        ("[" * 100_000, "no JSON"),
        ('{"a": {"url": "https://x/y", "secret": "' + SECRET + '", "project": 1}}', "a needs a project"),
        ('{"a": {"url": "https://x/y", "secret": "short"}}', "a needs a secret"),
        ('{"a": {"url": "https://x/y", "secret": "whsec_c2hvcnQ="}}', "a needs a secret"),
    ],
)
def test_a_file_that_is_not_as_it_should_be(text: str, words: str) -> None:
    """What is wrong is said by name, without the secret."""
    with pytest.raises(ValueError, match=words) as caught:
        read_addresses(text)
    assert "c2hvcnQ" not in str(caught.value)
