"""Sources through a proxy: found by the scheme, past the guard that judges where a request leads, timed as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from relevo.sources.http import Http, Trouble
from support.fake_http_server import Answer, Asked, FakeServer
from support.forward_proxy import CERTIFICATE, FakeProxy
from support.source_context import settings_for

Lead = Callable[..., tuple[FakeProxy, FakeServer]]


@pytest.fixture
def lead() -> Iterator[Lead]:
    """Start a server that answers as told, and a proxy that leads to it and nowhere else."""
    started: list[Any] = []

    def start(answer: Callable[[Asked], Answer] = lambda _: Answer(200, b"ok"), **how: Any) -> Any:
        server = FakeServer(answer).__enter__()
        proxy = FakeProxy(server.url, **how).__enter__()
        started.extend([proxy, server])
        return proxy, server

    yield start
    for each in started:
        each.__exit__(None, None, None)


@pytest.fixture(autouse=True)
def _trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust the certificate of tenders.example."""
    monkeypatch.setattr("requests.adapters.DEFAULT_CA_BUNDLE_PATH", str(CERTIFICATE))


def client(proxy: str, **more: object) -> Http:
    """Make a client that goes through a proxy and may not reach private addresses."""
    return Http(settings_for(http_proxy=proxy, https_proxy=proxy, **{"http_allow_private": "false"} | more))


def refusal(asking: Http, url: str) -> Trouble:
    """Return the trouble that asking causes."""
    with pytest.raises(Trouble) as caught:
        asking.get(url)
    return caught.value


def test_https_goes_through_a_tunnel_and_http_as_it_is(lead: Lead) -> None:
    """A proxy on a private address leads out; it sees of https the host alone, of http the whole address."""
    proxy, server = lead()
    asking = client(proxy.url())
    assert asking.get("https://tenders.example/day", {"ticket": "hunter2"}).body == b"ok"
    assert asking.post("http://tenders.example/search", {"page": 1}).body == b"ok"
    assert proxy.targets == ["CONNECT tenders.example:443", "POST http://tenders.example/search"]
    assert [asked.path for asked in server.asked] == ["/day", "/search"]
    assert "hunter2" not in str(proxy.asked)


def test_the_proxy_s_password_is_its_own(lead: Lead) -> None:
    """It is handed over for https and for http, and reaches no source."""
    proxy, server = lead(password="relay:secret")
    asking = client(proxy.url("relay:secret"))
    assert asking.get("https://tenders.example/").status == asking.get("http://tenders.example/").status == 200
    assert not [name for asked in server.asked for name in asked.headers if name.startswith("proxy-")]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_says_no_is_named(lead: Lead, scheme: str) -> None:
    """What is wrong is said in words that lead to the setting, without the password."""
    proxy, server = lead(password="relay:right")
    if scheme == "http":
        assert client(proxy.url("relay:hunter2")).get("http://tenders.example/").status == 407
    else:
        trouble = refusal(client(proxy.url("relay:hunter2")), "https://tenders.example/")
        assert trouble.outcome == "unavailable"
        assert "HTTPS_PROXY" in trouble.detail
        assert "hunter2" not in trouble.detail
    assert server.asked == []
    gone = refusal(client("http://127.0.0.1:9"), f"{scheme}://tenders.example/")
    assert (gone.outcome, "HTTPS_PROXY" in gone.detail) == ("unavailable", True)


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1/",
        "https://192.168.1.1:8443/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://localhost/",
        "http://127.0.0.1/",
    ],
)
def test_a_proxy_is_no_way_around_the_guard(lead: Lead, url: str) -> None:
    """Where a request leads is judged, however it is spelled, though the proxy would make the connection."""
    proxy, server = lead()
    trouble = refusal(client(proxy.url()), url)
    assert (trouble.outcome, "private address" in trouble.detail) == ("rejected", True)
    assert (proxy.asked, server.asked) == ([], [])
    assert client(proxy.url(), http_allow_private="true").get("http://10.0.0.1/").body == b"ok"


def test_a_redirect_is_judged_and_led_anew(lead: Lead) -> None:
    """A source behind the proxy that redirects to a private address is refused; to a public one it goes on."""

    def answer(asked: Asked) -> Answer:
        there = {"/in": "http://10.0.0.1/", "/out": "http://tenders.example/there"}.get(asked.path)
        return Answer(302, b"", {"Location": there}) if there else Answer(200, b"there")

    proxy, _ = lead(answer)
    asking = client(proxy.url())
    assert asking.get("http://tenders.example/out").body == b"there"
    assert refusal(asking, "http://tenders.example/in").outcome == "rejected"
    assert not [target for target in proxy.targets if "10.0.0.1" in target]


def test_a_silent_proxy_costs_no_more_than_the_limit(lead: Lead) -> None:
    """A proxy that never answers is cut off with the request."""
    proxy, _ = lead(hangs=True)
    for url in ("https://tenders.example/", "http://tenders.example/"):
        trouble = refusal(client(proxy.url(), http_timeout_ms=300), url)
        assert trouble.outcome == "unavailable"
        # The limit of the whole answer and that of a silence end in the same instant.
        assert trouble.detail in ("no whole answer within 300 ms", "no answer in time")


def test_what_no_proxy_names_is_reached_directly(lead: Lead) -> None:
    """NO_PROXY, and loopback in any case, leave the proxy out."""
    proxy, server = lead()
    allowed = {"http_allow_private": "true"}
    assert client(proxy.url(), **allowed).get(server.url).body == b"ok"
    trouble = refusal(client(proxy.url(), no_proxy="tenders.example", **allowed), "http://tenders.example/")
    assert trouble.outcome == "unavailable"
    assert proxy.asked == []
