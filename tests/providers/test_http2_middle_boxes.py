"""HTTP/2 through real middle boxes that end while a hundred messages are under way: nobody is told what is not so."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relevo.core.model import Reply
from relevo.providers.fcm.provider import Fcm
from relevo.sandbox import Sandbox
from relevo.sandbox.push_service import phone_key
from support import native
from support.native import ANDROID
from support.optional_parts import find_part
from support.processes import eventually

NGINX = """
daemon off; error_log {folder}/log; pid {folder}/pid; worker_processes 1; worker_shutdown_timeout 1s;
events {{ worker_connections 1024; }}
http {{
  http2_max_concurrent_streams {streams}; access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{
    listen 127.0.0.1:{port} ssl http2; ssl_certificate {pair}; ssl_certificate_key {pair};
    location / {{ proxy_pass https://127.0.0.1:{behind}; proxy_http_version 1.1; }}
  }}
}}
"""
HAPROXY = """
global
  hard-stop-after 1s
  tune.h2.max-concurrent-streams {streams}
defaults
  mode http
  timeout connect 5s
  timeout client 20s
  timeout server 20s
frontend door
  bind 127.0.0.1:{port} ssl crt {pair} alpn h2
  default_backend sandbox
backend sandbox
  server sandbox 127.0.0.1:{behind} ssl verify none alpn h2
"""
BOXES: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "nginx": (NGINX, lambda file: ["-e", str(file.parent / "log"), "-p", str(file.parent), "-c", str(file)]),
    "haproxy": (HAPROXY, lambda file: ["-db", "-f", str(file)]),
}
SLOW = "slow=0.3"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """The push services behind the boxes."""
    with Sandbox(native=True, apns_token_interval_s=0) as made:
        yield made


class Box:
    """A running middle box before the sandbox's FCM, which takes so many streams at once."""

    def __init__(self, name: str, streams: int, sandbox: Sandbox, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        text, arguments = BOXES[name]
        behind = sandbox.fcm.rpartition(":")[2]
        file, pair = folder / "config", sandbox.ca_file.parent / "server.pem"
        file.write_text(text.format(folder=folder, port=self.port, behind=behind, pair=pair, streams=streams))
        command = ["setpriv", "--pdeathsig=KILL", find_part(name), *arguments(file)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.url = f"https://127.0.0.1:{self.port}"
        eventually(self._is_up, f"{name} does not listen")

    def _is_up(self) -> bool:
        assert self.process.poll() is None, "it ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def end(self) -> None:
        """End it, unless it has."""
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def boxed(sandbox: Sandbox, tmp_path: Path) -> Iterator[Callable[[str, int], Box]]:
    """Start middle boxes."""
    started: list[Box] = []

    def start(name: str, streams: int) -> Box:
        started.append(Box(name, streams, sandbox, tmp_path))
        return started[-1]

    yield start
    for box in started:
        box.end()


def received(sandbox: Sandbox, tokens: list[str]) -> list[int]:
    """Count the pushes that each phone got."""
    phones = sandbox.phones()
    return [int(phones.get(phone_key(token), {"received": 0})["received"]) for token in tokens]


def send_while(fcm: Fcm, sandbox: Sandbox, tokens: list[str], meanwhile: Callable[[], None]) -> Reply:
    """Send to all at once, and do something once the first of them has its message."""
    replies: list[Reply] = []
    messages = [native.message(token) for token in tokens]
    sending = threading.Thread(target=lambda: replies.append(fcm.send(messages, ANDROID)))
    sending.start()
    eventually(lambda: any(received(sandbox, tokens)))
    meanwhile()
    sending.join(30)
    return replies[0]


@pytest.mark.parametrize(
    ("name", "ending", "streams"),
    [
        pytest.param(name, ending, streams, id=f"{name}-{ending.name}", marks=pytest.mark.needs(name))
        for name, ending, streams in [
            ("nginx", signal.SIGHUP, 40),
            ("nginx", signal.SIGTERM, 100),
            ("haproxy", signal.SIGUSR1, 40),
            ("haproxy", signal.SIGTERM, 100),
        ]
    ],
)
def test_a_box_that_ends_amid_a_hundred_messages(
    boxed: Callable[[str, int], Box], sandbox: Sandbox, name: str, ending: signal.Signals, streams: int
) -> None:
    """What was answered came, what is said not to be sent never comes, nothing comes twice; all else is unclear."""
    box = boxed(name, streams)
    tokens = [
        sandbox.fcm_token(f"{name}-{ending.name}-{number}", *([SLOW] if number % 10 else [])) for number in range(100)
    ]
    with native.fcm(sandbox, base_url=box.url) as fcm, native.fcm(sandbox) as straight:
        reply = send_while(fcm, sandbox, tokens, lambda: box.process.send_signal(ending))
        if ending is not signal.SIGHUP:
            box.process.wait(20)
        last: Any = straight.send([native.message(sandbox.fcm_token("last", SLOW))], ANDROID)
        assert last.tickets[0].fate == "ok"  # whatever the box let through came before it
        fates = [ticket.fate for ticket in reply.tickets]
        came = received(sandbox, tokens)
        assert len(fates) == 100
        assert {count for fate, count in zip(fates, came, strict=True) if fate == "ok"} <= {1}
        assert {count for fate, count in zip(fates, came, strict=True) if fate == "not_sent"} <= {0}
        assert {*fates} <= {"ok", "not_sent", "unclear"}
        assert max(came) == 1
        if ending is signal.SIGHUP:
            again = fcm.send([native.message(token) for token in tokens[::10]], ANDROID)
            assert [ticket.fate for ticket in again.tickets] == ["ok"] * 10
