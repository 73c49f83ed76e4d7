"""The HTTP/2 client's connections: when one is kept, probed or replaced, where it leads, by TLS and through proxies."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest

from relevo.core.proxies import Proxies
from support.http2_exchange import Client, exchange, kinds
from support.processes import eventually
from support.scripted_http2 import Peer, answer_all


def test_an_idle_connection_is_probed(
    served: Any, client: Client, http2: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a long idle time a PING is answered before anything is written; a fresh connection needs none."""
    server = served()
    ours = client(server)
    exchange(ours, 1)
    exchange(ours, 1)
    assert server.peers[0].pings == 0
    monkeypatch.setattr(http2, "PROBE_AFTER_S", 0)
    assert kinds(exchange(ours, 1)) == ["200"]
    assert (server.peers[0].pings, len(server.peers)) == (1, 1)


def test_a_dead_connection_is_replaced_before_anything_is_written(
    served: Any, client: Client, http2: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that no longer answers a PING gets no request: a new one does, and nothing is unknown."""

    def dying(peer: Peer) -> None:
        peer.answer(peer.wait_for(1)[0])
        peer.answers_pings = False
        peer.wait_for_end()

    server = served(dying, answer_all)
    ours = client(server)
    exchange(ours, 1)
    monkeypatch.setattr(http2, "PROBE_AFTER_S", 0)
    monkeypatch.setattr(http2, "PROBE_S", 0.3)
    assert kinds(exchange(ours, 2)) == ["200"] * 2
    assert [len(peer.asked) for peer in server.peers] == [1, 2]


def test_names_are_looked_up_for_every_connection(served: Any, client: Client) -> None:
    """Each connect asks anew where the host is, and takes the next address if one refuses."""
    asked: list[str] = []

    def resolve(host: str, port: int, patience_s: float) -> list[str]:
        asked.append(host)
        return ["127.0.0.2", "127.0.0.1"]

    ours = client(served(), resolve=resolve)
    for _ in range(2):
        assert kinds(exchange(ours, 1)) == ["200"]
        ours.close()
    assert asked == ["push.example"] * 2


def test_an_address_that_is_refused(served: Any, client: Client, http2: ModuleType) -> None:
    """A resolver's refusal is told in its own words, and nothing is connected to."""

    def resolve(host: str, port: int, patience_s: float) -> list[str]:
        raise http2.RefusedAddressError("it leads to a private address")

    [outcome] = exchange(client(served(), resolve=resolve), 1)
    assert outcome == http2.NotSent("RefusedAddress", "it leads to a private address")


def test_nobody_listens(client: Client) -> None:
    """Without a connection nothing was sent."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert kinds(exchange(client(f"https://push.example:{port}"), 2)) == ["NotSent NoConnection"] * 2


def test_a_server_that_never_greets(client: Client) -> None:
    """Connecting, TLS and the first settings have their own time; when it is over nothing was sent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ours = client(f"https://push.example:{silent.getsockname()[1]}", connect_s=0.3)
        assert kinds(exchange(ours, 1)) == ["NotSent ConnectTimeout"]


def test_an_unknown_authority_is_refused(served: Any, client: Client, http2: ModuleType) -> None:
    """A certificate that no known authority signed, or of another name, is no connection."""
    server = served()
    assert kinds(exchange(client(server, tls=http2.tls_context()), 1)) == ["NotSent NoConnection"]
    other = server.origin.replace("push.example", "other.example")
    assert kinds(exchange(client(other), 1)) == ["NotSent NoConnection"]


def test_tls_is_new_enough(http2: ModuleType) -> None:
    """TLS 1.1 and older are not spoken."""
    assert http2.tls_context().minimum_version.name == "TLSv1_2"


@pytest.mark.parametrize("origin", ["http://push.example", "https://", "https://push.example/path"])
def test_an_origin_is_https_and_no_more(client: Client, origin: str) -> None:
    """An origin that is none is refused with an example."""
    with pytest.raises(ValueError, match="https://host:port"):
        client(origin)


class Tunnel:
    """A proxy that knows CONNECT alone, and leads everything to one port."""

    def __init__(self, port: int, status: int = 200) -> None:
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://relay:s3cret@127.0.0.1:{self._door.getsockname()[1]}"
        self.asked: list[bytes] = []
        self._port, self._status = port, status
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Take no more."""
        self._door.close()

    def _serve(self) -> None:
        link, _ = self._door.accept()
        with link:
            self.asked.append(link.recv(65_536))
            link.sendall(f"HTTP/1.1 {self._status} x\r\n\r\n".encode())
            if self._status == 200:
                self._lead_on(link)

    def _lead_on(self, link: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self._port)) as far:
            back = threading.Thread(target=self._copy, args=(far, link), daemon=True)
            back.start()
            self._copy(link, far)
            back.join(20)

    @staticmethod
    def _copy(here: socket.socket, there: socket.socket) -> None:
        with suppress(OSError):
            while data := here.recv(65_536):
                there.sendall(data)
        for end in (here, there):
            with suppress(OSError):  # wakes who reads in the other thread, as closing would not
                end.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(("status", "became"), [(200, "200"), (407, "NotSent NoConnection")])
def test_through_a_proxy(served: Any, client: Client, status: int, became: str) -> None:
    """A proxy is asked for a way through, with its password, and looks the name up itself; its no is not sent."""
    server = served()
    tunnel = Tunnel(int(server.origin.rpartition(":")[2]), status)
    ours = client(server, proxies=Proxies(https=tunnel.url), resolve=lambda *_: pytest.fail("looked up here"))
    [outcome] = exchange(ours, 1)
    assert kinds([outcome]) == [became]
    assert tunnel.asked[0].startswith(f"CONNECT {server.origin.removeprefix('https://')} ".encode())
    assert b"Proxy-Authorization: Basic " in tunnel.asked[0]
    assert "s3cret" not in str(outcome)
    tunnel.close()


def test_the_connection_is_left_to_nobody(served: Any, client: Client) -> None:
    """A closed client hangs up, and opens again when it is used."""
    ended = threading.Event()
    server = served(lambda peer: (peer.answer(peer.wait_for(1)[0]), peer.wait_for_end(), ended.set()), answer_all)
    ours = client(server)
    exchange(ours, 1)
    ours.close()
    eventually(ended.is_set)
    assert kinds(exchange(ours, 1)) == ["200"]
