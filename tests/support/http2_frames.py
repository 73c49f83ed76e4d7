"""A client of HTTP/2 that shows every frame it gets: what a server does to streams is then seen, not guessed."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from hyperframe.frame import GoAwayFrame

from support.processes import PATIENCE_S


@dataclass
class Seen:
    """What came back on one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int | None:
        """Return the status of an answer that began."""
        return int(self.headers[":status"]) if self.headers else None


class Frames:
    """One connection; `ask` sends without waiting, `until` reads until something holds."""

    def __init__(self, url: str, ca_file: object, *, alpn: Sequence[str] = ("h2",)) -> None:
        context = ssl.create_default_context(cafile=str(ca_file))
        context.set_alpn_protocols(list(alpn))
        host, port = urlsplit(url).hostname or "", urlsplit(url).port or 443
        self._socket = context.wrap_socket(socket.create_connection((host, port), PATIENCE_S), server_hostname=host)
        self._socket.settimeout(0.2)
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._h2.initiate_connection()
        self._authority = f"{host}:{port}"
        self.streams: dict[int, Seen] = {}
        self.limits: list[int] = []
        self.goaway: GoAwayFrame | None = None
        self._unread = b""
        self.closed = False
        self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, path: str, headers: dict[str, str], body: bytes, *, whole: bool = True) -> int:
        """Send a request, or all of it but its end, and return its stream."""
        stream = self._h2.get_next_available_stream_id()
        pseudo = {":method": "POST", ":scheme": "https", ":authority": self._authority, ":path": path}
        self._h2.send_headers(stream, [*pseudo.items(), *headers.items()])
        self._h2.send_data(stream, body, end_stream=whole)
        self.streams[stream] = Seen()
        self._flush()
        return stream

    def end(self, stream: int) -> None:
        """Send the end of a request."""
        self._h2.end_stream(stream)
        self._flush()

    def until(self, holds: Callable[[], object]) -> None:
        """Read until something holds; what never does fails after a while."""
        ends = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < ends, (self.streams, self.limits, self.goaway, self.closed)
            assert not self.closed, (self.streams, self.goaway)
            self._read()

    def answered(self, stream: int) -> Seen:
        """Return what came back on a stream, once it is whole or was reset."""
        self.until(lambda: self.streams[stream].ended or self.streams[stream].reset is not None)
        return self.streams[stream]

    def drain(self) -> None:
        """Read until the server has hung up."""
        ends = time.monotonic() + PATIENCE_S
        while not self.closed:
            assert time.monotonic() < ends, self.streams
            self._read()

    def _read(self) -> None:
        try:
            data = self._socket.recv(65_536)
        except TimeoutError:
            return
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return
        self._unread += data
        while (frame := self._next_frame()) is not None:
            if frame[3] == GoAwayFrame.type:
                self.goaway = GoAwayFrame(0)
                self.goaway.parse_body(memoryview(frame[9:]))
                continue
            for event in self._h2.receive_data(frame):
                self._take(event)
        self._flush()

    def _next_frame(self) -> bytes | None:
        """Return the next whole frame; a GOAWAY is kept from h2, which would take nothing after it."""
        end = 9 + int.from_bytes(self._unread[:3], "big")
        if len(self._unread) < end:
            return None
        frame, self._unread = self._unread[:end], self._unread[end:]
        return frame

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RemoteSettingsChanged():
                if limit := event.changed_settings.get(h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS):
                    self.limits.append(limit.new_value)
                    self._h2.remote_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 2**31 - 1
                    self._h2.remote_settings.acknowledge()  # what is over the limit is for the server to refuse
            case h2.events.ResponseReceived():
                self.streams[event.stream_id].headers = dict(event.headers)
            case h2.events.DataReceived():
                self.streams[event.stream_id].body += event.data
            case h2.events.StreamEnded():
                self.streams[event.stream_id].ended = True
            case h2.events.StreamReset():
                self.streams[event.stream_id].reset = int(event.error_code)

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data:
            try:
                self._socket.sendall(data)
            except OSError:
                self.closed = True
