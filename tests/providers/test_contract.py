"""What every push service must do behind the port, whatever it speaks: Expo, and webhooks."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from fakes import expo as fake_expo
from fakes.server import Answer, Asked, FakeServer
from relevo.core.model import Message, Reply
from relevo.core.ports import PushProvider
from relevo.providers.expo import Expo
from relevo.providers.webhook import Webhook, read_addresses

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
TOKEN = {"expo": "ExponentPushToken[ana]", "webhook": "billing"}


@dataclass
class World:
    """A push service and the server behind it, whose answers a test decides."""

    kind: str
    stack: ExitStack
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang: threading.Event | None = None
    provider: PushProvider = field(init=False)

    def __post_init__(self) -> None:
        self.provider = self._expo() if self.kind == "expo" else self._webhook()

    def _expo(self) -> PushProvider:
        self.expo = self.stack.enter_context(fake_expo.FakeExpo())
        self.expo.answer = self._answer_expo  # type: ignore[method-assign, assignment]
        return self.make(self.expo.url)

    def _webhook(self) -> PushProvider:
        self.server = self.stack.enter_context(FakeServer(self._answer))
        return self.make(self.server.url)

    def make(self, url: str, timeout_ms: int = 5_000) -> PushProvider:
        """Make the adapter for an address."""
        if self.kind == "expo":
            made: PushProvider = Expo(base_url=url, access_token=None, timeout_ms=timeout_ms, connect_timeout_ms=2_000)
        else:
            addresses = read_addresses(f'{{"billing": {{"url": "{url}/hook", "secret": "{SECRET}"}}}}')
            made = Webhook(addresses, timeout_ms=timeout_ms, connect_timeout_ms=2_000, allow_private=True)
        self.stack.callback(made.close)
        return made

    def _answer_expo(self, asked: fake_expo.Asked) -> fake_expo.Answer:
        if self.hang:
            self.hang.wait(30)
        if self.status == 200:
            return fake_expo.regular(asked)
        return fake_expo.Answer(self.status, b"{}", self.headers)

    def _answer(self, _asked: Asked) -> Answer:
        if self.hang:
            self.hang.wait(30)
        return Answer(self.status, b"thank you" * 10_000, self.headers)

    def message(self, **more: Any) -> Message:
        """Return a message to somebody this service knows."""
        return {"to": TOKEN[self.kind], "title": "Hola", "data": {"notificationDeliveryId": 7}} | more

    def send(self) -> Reply:
        """Send one message."""
        return self.provider.send([self.message()], "default")


@pytest.fixture(params=["expo", "webhook"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Each adapter before a server of its own."""
    with ExitStack() as stack:
        yield World(request.param, stack)


def test_it_names_itself_and_its_limits(world: World) -> None:
    """A name for the provider columns, at least one message a request, and how many receipts one may ask for."""
    assert world.provider.name == world.kind
    assert world.provider.max_messages >= 1
    assert world.provider.max_receipts >= 0


def test_what_is_accepted_has_one_ticket_each(world: World) -> None:
    """An accepted message has a ticket with an id: sent, to be confirmed, or ok where there are no receipts."""
    reply = world.send()
    [ticket] = reply.tickets
    assert reply.kind == "answered"
    assert ticket.fate == ("sent" if world.provider.max_receipts else "ok")
    assert ticket.id


def test_nothing_to_send_asks_nobody(world: World) -> None:
    """An empty request is answered without one."""
    assert world.provider.send([], "default") == Reply("answered")


def test_more_than_fits_is_our_mistake(world: World) -> None:
    """More messages than one request holds are a mistake of the caller, not an answer."""
    with pytest.raises(ValueError, match="request"):
        world.provider.send([world.message()] * (world.provider.max_messages + 1), "default")


@pytest.mark.parametrize("token", [None, 7, "", "nobody knows me", "https://example.com/hook"])
def test_a_token_it_does_not_know_is_refused_before_it_is_sent(world: World, token: object) -> None:
    """A malformed or unknown token is a final ticket, by itself and in a message; never an address."""
    ticket = world.provider.refuse_token(token)
    assert ticket is not None
    assert ticket.fate in ("invalid", "failed")
    assert world.provider.refuse({"to": token, "title": "x"}) == ticket
    assert world.provider.refuse(world.message()) is None


def test_too_much_is_refused(world: World) -> None:
    """A message beyond what the service bears, or that is no JSON, is a final ticket that touches no token."""
    for bad in ({"body": "x" * 100_000}, {"data": {"x": float("nan")}}, {"data": {"x": object()}}):
        ticket = world.provider.refuse(world.message(**bad))
        assert ticket is not None
        assert ticket.fate == "failed"


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_server_error_may_have_been_accepted(world: World, status: int) -> None:
    """Of a 5xx nobody knows: it is unclear, never a yes or a no."""
    world.status = status
    assert world.send().kind == "unclear"


def test_throttling_is_told_with_its_pause(world: World) -> None:
    """A 429 means that nothing was accepted, and how long to wait."""
    world.status, world.headers = 429, {"Retry-After": "7"}
    reply = world.send()
    assert (reply.kind, reply.retry_after_ms) == ("throttled", 7_000)


def test_a_redirect_is_not_followed(world: World) -> None:
    """Whoever redirects gets nothing sent after; it is not taken for a yes."""
    world.status, world.headers = 302, {"Location": "http://127.0.0.1:9/elsewhere"}
    reply = world.send()
    assert reply.kind == "not_sent" or [ticket.fate for ticket in reply.tickets] == ["retryable"]


def test_no_connection_means_not_sent(world: World) -> None:
    """Nobody listens: definitely not sent."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    reply = world.make(f"http://127.0.0.1:{port}").send([world.message()], "default")
    assert reply.kind == "not_sent"


def test_an_answer_that_does_not_come_is_unclear(world: World) -> None:
    """A request whose answer does not come in time ends by itself, and nobody knows whether it was taken."""
    world.hang = threading.Event()
    address = world.expo.url if world.kind == "expo" else world.server.url
    reply = world.make(address, timeout_ms=300).send([world.message()], "default")
    world.hang.set()
    assert (reply.kind, reply.code) == ("unclear", "ReadTimeout")


def test_many_threads_at_once(world: World) -> None:
    """Each thread gets the answer to its own request."""
    replies: list[Reply] = []
    threads = [threading.Thread(target=lambda: replies.append(world.send())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [reply.kind for reply in replies] == ["answered"] * 8


def test_receipts_of_nothing(world: World) -> None:
    """Asked for no receipts, it says that it has none."""
    assert world.provider.fetch_receipts([], "default").receipts == {}
