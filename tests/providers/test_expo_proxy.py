"""Expo through a proxy: asked for a way through, timed like everything else, and told nothing it need not know."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from relevo import config
from relevo.app import push_services
from relevo.core.proxies import Proxies
from support.expo_pushes import Make, message
from support.fake_expo import SEND, Answer, FakeExpo, regular
from support.forward_proxy import CERTIFICATE, FakeProxy

Through = Callable[..., FakeProxy]
SECURE, PLAIN = "https://push.example", "http://push.example"


@pytest.fixture
def through(fake: FakeExpo) -> Iterator[Through]:
    """Start proxies that lead to the fake Expo."""
    started: list[FakeProxy] = []

    def start(**how: Any) -> FakeProxy:
        started.append(FakeProxy(fake.url, **how).__enter__())
        return started[-1]

    yield start
    for proxy in started:
        proxy.__exit__(None, None, None)


@pytest.fixture(autouse=True)
def _trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust the certificate of push.example."""
    monkeypatch.setattr("certifi.where", lambda: str(CERTIFICATE))


def test_a_tunnel_is_asked_for_once_and_kept(fake: FakeExpo, make: Make, through: Through) -> None:
    """https goes through CONNECT, on one connection for many requests; the proxy sees neither token nor push."""
    proxy = through()
    expo = make(base_url=SECURE, access_token="s3cret", proxies=Proxies(https=proxy.url()))
    assert [expo.send([message()]).kind for _ in range(3)] == ["answered"] * 3
    assert proxy.targets == ["CONNECT push.example:443"]
    assert "s3cret" not in str(proxy.asked)
    assert [(asked.path, asked.headers["host"]) for asked in fake.asked] == [(SEND, "push.example")] * 3
    assert fake.asked[0].headers["authorization"] == "Bearer s3cret"
    assert not [name for asked in fake.asked for name in asked.headers if name.startswith("proxy-")]


def test_plain_requests_name_their_whole_address(fake: FakeExpo, make: Make, through: Through) -> None:
    """http goes to the proxy as it is, with the whole address; receipts too."""
    proxy = through()
    expo = make(base_url=PLAIN, proxies=Proxies(http=proxy.url()))
    assert expo.send([message()]).kind == "answered"
    assert expo.fetch_receipts(["t1"]).kind == "answered"
    assert proxy.targets[0] == f"POST {PLAIN}{SEND}"
    assert len(fake.asked) == len(proxy.asked) == 2


@pytest.mark.parametrize("base_url", [SECURE, PLAIN])
def test_a_password_is_given_to_the_proxy_alone(fake: FakeExpo, make: Make, through: Through, base_url: str) -> None:
    """User and password of the proxy's address, percent-encoded, are what it asks for; Expo never sees them."""
    proxy = through(password="relay:p@ss")
    address = proxy.url("relay:p%40ss")
    expo = make(base_url=base_url, proxies=Proxies(http=address, https=address))
    assert expo.send([message()]).kind == "answered"
    assert "proxy-authorization" not in fake.asked[0].headers


@pytest.mark.parametrize("base_url", [SECURE, PLAIN])
def test_a_proxy_that_says_no_has_sent_nothing(fake: FakeExpo, make: Make, through: Through, base_url: str) -> None:
    """A wrong password is no fault of the message: nothing was sent, it says so, and the password is not repeated."""
    address = through(password="relay:right").url("relay:hunter2")
    reply = make(base_url=base_url, proxies=Proxies(http=address, https=address)).send([message()])
    assert (reply.kind, fake.asked) == ("not_sent", [])
    assert "407" in f"{reply.code} {reply.message}"
    assert "hunter2" not in str(reply)


def test_a_proxy_that_is_not_there(make: Make) -> None:
    """Nothing was sent."""
    reply = make(base_url=SECURE, proxies=Proxies(https="http://127.0.0.1:9")).send([message()])
    assert (reply.kind, reply.code) == ("not_sent", "NoConnection")


def test_a_silent_proxy_is_given_up_in_the_time_for_connecting(make: Make, through: Through) -> None:
    """A proxy that takes the connection and never answers costs no more than connecting may."""
    expo = make(base_url=SECURE, connect_timeout_ms=300, proxies=Proxies(https=through(hangs=True).url()))
    began = time.monotonic()
    reply = expo.send([message()])
    assert (reply.kind, reply.code) == ("not_sent", "ConnectTimeout")
    assert 0.3 <= time.monotonic() - began < 20


def test_an_answer_through_a_tunnel_is_timed_as_a_whole(fake: FakeExpo, make: Make, through: Through) -> None:
    """However it drips, it ends with the request's time; and a later request asks for a new tunnel."""
    proxy = through()
    expo = make(base_url=SECURE, timeout_ms=1_500, proxies=Proxies(https=proxy.url()))
    fake.says(Answer(200, b"x" * 1_000, drip_s=0.2))
    reply = expo.send([message()])
    assert (reply.kind, reply.code) == ("unclear", "ReadTimeout")
    fake.answer = regular
    assert expo.send([message()]).kind == "answered"
    assert len(proxy.asked) == 2


def test_a_certificate_is_checked_through_a_tunnel(fake: FakeExpo, make: Make, through: Through) -> None:
    """The proxy cannot pose as another host: the certificate must be the push service's own."""
    reply = make(base_url="https://other.example", proxies=Proxies(https=through().url())).send([message()])
    assert (reply.kind, fake.asked) == ("not_sent", [])


def test_loopback_and_what_no_proxy_names_is_reached_directly(fake: FakeExpo, make: Make) -> None:
    """A sandbox on this machine needs no proxy, whatever is set; nor does what NO_PROXY names."""
    nowhere = "http://127.0.0.1:9"
    assert make(proxies=Proxies(http=nowhere, https=nowhere)).send([message()]).kind == "answered"
    direct = make(base_url=PLAIN, proxies=Proxies(http=nowhere, direct=(".example",))).send([message()])
    assert "gaierror" in direct.message, "it was looked up here, not by the proxy"


def test_the_settings_lead_there(fake: FakeExpo, through: Through) -> None:
    """HTTPS_PROXY of the environment is the proxy of the relay's own push service."""
    proxy = through()
    environ = {"DATABASE_URL": "postgresql://db/x", "EXPO_BASE_URL": SECURE, "HTTPS_PROXY": proxy.url()}
    with push_services.push_providers(config.load(environ, None)) as providers:
        assert providers["expo"].send([message()]).kind == "answered"
    assert proxy.targets == ["CONNECT push.example:443"]
