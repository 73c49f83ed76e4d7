"""An HTTP/2 server that does what a test's script says, frame by frame.

A script gets the connection: it waits for requests, answers, refuses, says GOAWAY, or hangs up. It runs once per
connection, in a thread of its own; after the last script of the list every further connection gets the last one again.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from hyperframe.frame import GoAwayFrame, RstStreamFrame

from support.forward_proxy import CERTIFICATE

REFUSED_STREAM = 7
CANCEL = 8
Settings = h2.settings.SettingCodes
Script = Callable[["Peer"], None]
_PATIENCE_S = 20


@dataclass
class Asked:
    """One request: whole once its body has ended."""

    stream_id: int
    headers: dict[str, str]
    body: bytearray = field(default_factory=bytearray)
    is_whole: bool = False
    is_answered: bool = False
    never_indexed: frozenset[str] = frozenset()

    @property
    def path(self) -> str:
        """Where to."""
        return self.headers[":path"]


class HungUpError(Exception):
    """The client has gone."""


class Peer:
    """One connection as its script sees it."""

    def __init__(self, link: ssl.SSLSocket, settings: dict[Settings, int]) -> None:
        self._link = link
        self._http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self._http.local_settings = h2.settings.Settings(client=False, initial_values=settings)
        self.asked: dict[int, Asked] = {}
        self.pings = 0
        self.resets: list[int] = []
        self.most_open = 0
        self.acknowledges = True
        """Whether received bytes are given back to the client's windows."""
        self.answers_pings = True

    def greet(self) -> None:
        """Send the settings."""
        self._http.initiate_connection()
        self.flush()

    def flush(self) -> None:
        """Send what is due."""
        self._link.sendall(self._http.data_to_send())

    def wait_for(self, count: int) -> list[Asked]:
        """Return the first whole requests, once there are so many."""
        while len(whole := [each for each in self.asked.values() if each.is_whole]) < count:
            self.read()
        return whole[:count]

    def wait_for_end(self) -> None:
        """Read until the client hangs up."""
        try:
            while True:
                self.read()
        except HungUpError:
            return

    def read(self) -> None:
        """Take what comes next."""
        try:
            data = self._link.recv(65_536)
        except OSError:
            data = b""
        if not data:
            raise HungUpError
        for event in self._http.receive_data(data):
            self._take(event)
        if self.answers_pings:
            self.flush()
        else:
            self._http.data_to_send()

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived():
                hidden = {str(header[0]) for header in event.headers if not header.indexable}  # type: ignore[union-attr]
                headers = {str(name): str(value) for name, value in event.headers}
                self.asked[event.stream_id] = Asked(event.stream_id, headers, never_indexed=frozenset(hidden))
                self.most_open = max(self.most_open, self._http.open_inbound_streams)
            case h2.events.DataReceived():
                self.asked[event.stream_id].body += event.data
                if self.acknowledges:
                    self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded():
                self.asked[event.stream_id].is_whole = True
            case h2.events.StreamReset():
                self.resets.append(event.stream_id)
            case h2.events.PingReceived():
                self.pings += 1
            case _:
                pass

    def answer(self, asked: Asked, status: int = 200, body: bytes = b"", *, end: bool = True, **headers: str) -> None:
        """Answer a request; without `end` its body stays open."""
        stream_id = asked.stream_id
        asked.is_answered = True
        named = [(name.replace("_", "-"), value) for name, value in headers.items()]
        self._http.send_headers(stream_id, [(":status", str(status)), *named], end_stream=end and not body)
        self.flush()
        while body:
            room = min(self._http.local_flow_control_window(stream_id), self._http.max_outbound_frame_size)
            if not room:
                self.read()
                continue
            piece, body = body[:room], body[room:]
            self._http.send_data(stream_id, piece, end_stream=end and not body)
            self.flush()

    def set(self, **settings: int) -> None:
        """Change settings: `set(MAX_CONCURRENT_STREAMS=1)`."""
        self._http.update_settings({Settings[name]: value for name, value in settings.items()})
        self.flush()

    def open_windows(self, size: int, stream_id: int | None = None) -> None:
        """Let the client send so many bytes more."""
        self._http.increment_flow_control_window(size, stream_id)
        self.flush()

    def reset(self, asked: Asked, code: int) -> None:
        """Reset a stream."""
        self._link.sendall(RstStreamFrame(asked.stream_id, error_code=code).serialize())

    def goaway(self, last: int, code: int = 0, text: bytes = b"") -> None:
        """Say GOAWAY, and go on."""
        frame = GoAwayFrame(0, last_stream_id=last, error_code=code, additional_data=text)
        self._link.sendall(frame.serialize())

    def say(self, raw: bytes) -> None:
        """Send bytes as they are."""
        self._link.sendall(raw)

    def hang_up(self) -> None:
        """Close the connection."""
        self._link.close()


class ScriptedHttp2:
    """The server; `peers` are its connections so far."""

    def __init__(
        self, *scripts: Script, settings: dict[Settings, int] | None = None, protocols: Sequence[str] = ("h2",)
    ) -> None:
        self._scripts = scripts or (answer_all,)
        self._settings = settings or {}
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(CERTIFICATE)
        self._tls.set_alpn_protocols(list(protocols))
        self._door = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._links: list[socket.socket] = []
        self.peers: list[Peer] = []
        self.errors: list[BaseException] = []
        self.origin = f"https://push.example:{self._door.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        for link in self._links:
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(_PATIENCE_S)
        if error is None and self.errors:
            raise self.errors[0]

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        count = 0
        while True:
            try:
                link, _ = self._door.accept()
            except OSError:
                return
            self._links.append(link)
            script = self._scripts[min(count, len(self._scripts) - 1)]
            count += 1
            self._start(lambda link=link, script=script: self._serve(link, script))  # type: ignore[misc]

    def _serve(self, plain: socket.socket, script: Script) -> None:
        try:
            plain.settimeout(_PATIENCE_S)
            link = self._tls.wrap_socket(plain, server_side=True)
        except OSError:
            return
        self._links.append(link)
        peer = Peer(link, self._settings)
        self.peers.append(peer)
        try:
            peer.greet()
            script(peer)
        except (HungUpError, OSError, h2.exceptions.ProtocolError):
            pass
        except BaseException as error:  # noqa: BLE001 the test's own fault, raised in its thread
            self.errors.append(error)
        finally:
            link.close()


def answer_all(peer: Peer) -> None:
    """Answer every request with 200 and its own path."""
    while True:
        for asked in list(peer.asked.values()):
            if asked.is_whole and not asked.is_answered:
                peer.answer(asked, body=asked.path.encode())
        peer.read()
