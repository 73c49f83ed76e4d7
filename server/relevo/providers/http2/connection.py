"""An open HTTP/2 connection: bytes in and out of a socket, frames by h2, everything within a time.

h2 takes a GOAWAY for the end of the connection and refuses the answers that follow it. So GOAWAY frames are read here,
and h2 never sees them. `jh2` has the same calls and takes less CPU; it is used if it is installed.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from relevo.providers.http_connection import BrokenAnswerError, left

__all__ = ["Event", "Goaway", "HeaderTuple", "Http2Connection", "NeverIndexedHeaderTuple", "events"]

if TYPE_CHECKING:
    from h2 import config, connection, events, exceptions, settings
    from hpack import Encoder, HeaderTuple, NeverIndexedHeaderTuple
else:
    try:
        from jh2 import config, connection, events, exceptions, settings
        from jh2.hpack import HeaderTuple, NeverIndexedHeaderTuple

        Encoder = None
    except ImportError:
        from h2 import config, connection, events, exceptions, settings
        from hpack import Encoder, HeaderTuple, NeverIndexedHeaderTuple

_PIECE = 65_536
_RECORD = 16_384
_FRAME_HEAD = 9
_LONGEST_FRAME = 16_384
_GOAWAY = 7
_GOAWAY_LEAST = 8
_LARGEST_STREAM_ID = 2**31 - 1
_PING = b"relevo??"
_DATA = 0
_MOST_FRAMES, _FRAMES_PER_S, _FRAMES_PER_ANSWER = 2_000, 100, 20
"""How many frames are read at once, in a second and for each answer: more than that is a flood."""


class Goaway(NamedTuple):
    """The other side begins no stream above `last_stream_id` any more, and has begun none."""

    last_stream_id: int
    error_code: int
    text: str


Event = events.Event | Goaway


class Http2Connection:
    """One connection, for any number of streams; owned by one thread. Its errors are OSErrors."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._frames = _Frames()
        self._http = connection.H2Connection(
            config.H2Configuration(
                client_side=True,
                header_encoding=False,
                validate_outbound_headers=False,  # they are made here
                normalize_outbound_headers=False,
                validate_inbound_headers=False,  # read as data, and the status is checked
                normalize_inbound_headers=False,
            )
        )
        if Encoder is not None:
            self._http.encoder = _PlainEncoder()
        self._out = bytearray()
        self._queued = 0
        self.offered = 0
        """How many bytes may have left."""
        self._is_writable = True
        self.is_going_away = False
        """Whether the other side wants no new streams."""
        self.used_at = time.monotonic()
        self._frames_left = float(_MOST_FRAMES)
        self._trouble: OSError | None = None
        """The error that broke the connection, while answers that came before are not taken yet."""

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def __del__(self) -> None:
        self.close()  # a thread may end and leave it behind

    def start(self, until: float) -> None:
        """Greet the other side, and wait for its settings: they say how many streams it takes."""
        self._socket.setblocking(False)
        self._http.local_settings = settings.Settings(
            client=True, initial_values={settings.SettingCodes.ENABLE_PUSH: 0}
        )
        self._http.initiate_connection()
        while not any(isinstance(event, events.RemoteSettingsChanged) for event in self.transfer(until)):
            left(until)

    def is_alive(self, until: float, *, probe: bool) -> bool:
        """Return whether a request may be written: nothing said the connection ends, and a PING was answered."""
        try:
            self._drain()
            if probe and not self.is_going_away:
                self._http.ping(_PING)
                while not any(isinstance(event, events.PingAckReceived) for event in self.transfer(until)):
                    left(until)
        except OSError:
            return False
        if self.is_going_away or self._trouble is not None:
            return False
        return self._http.highest_outbound_stream_id < _LARGEST_STREAM_ID - 2_000

    def _drain(self) -> None:
        while (piece := self._read()) is not None:
            self._received(piece)

    @property
    def window(self) -> int:
        """How many bytes of bodies the other side takes now, over all streams."""
        return self._http.outbound_flow_control_window

    @property
    def most_streams(self) -> int:
        """How many streams the other side takes at once, as it last said."""
        return self._http.remote_settings.max_concurrent_streams

    def begin(self, headers: Sequence[HeaderTuple | NeverIndexedHeaderTuple], *, end_stream: bool) -> tuple[int, int]:
        """Queue the headers of a request; return its stream and how many bytes were queued before it."""
        self._queue()
        before = self._queued
        try:
            stream_id = self._http.get_next_available_stream_id()
            self._http.send_headers(stream_id, headers, end_stream=end_stream)
        except exceptions.ProtocolError as error:
            raise BrokenAnswerError("no stream can be begun") from error
        return stream_id, before

    def send(self, stream_id: int, rest: memoryview) -> memoryview:
        """Queue as much of a body as the windows allow; return what is left of it."""
        while rest:
            room = min(self._http.local_flow_control_window(stream_id), self._http.max_outbound_frame_size)
            if room <= 0:
                break
            piece, rest = rest[:room], rest[room:]
            self._http.send_data(stream_id, bytes(piece), end_stream=not rest)
        return rest

    def reset(self, stream_id: int) -> None:
        """Give a stream up."""
        with contextlib.suppress(exceptions.ProtocolError):
            self._http.reset_stream(stream_id, 8)  # CANCEL

    def acknowledge(self, event: events.DataReceived) -> None:
        """Allow the other side to send as much again."""
        with contextlib.suppress(exceptions.ProtocolError):
            self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)

    def transfer(self, until: float) -> list[Event]:
        """Write what is queued and return what came; waits for something to come.

        Raises TimeoutError if that takes too long, another OSError if the connection broke.
        """
        if self._trouble is not None:
            raise self._trouble
        try:
            while True:
                self._write()
                piece = self._read()
                if piece is not None:
                    return self._received(piece)
                self._wait(until)
        except ValueError as error:  # what a closed socket raises
            raise BrokenAnswerError("the connection was closed here") from error

    def _queue(self) -> None:
        data = self._http.data_to_send()
        self._queued += len(data)
        self._out += data

    def _write(self) -> None:
        """Write until it would block; if the other side takes no more, what it said before is still to be read."""
        self._queue()
        while self._out and self._is_writable:
            piece = bytes(self._out[:_RECORD])
            self.offered = max(self.offered, self._queued - len(self._out) + len(piece))
            try:
                del self._out[: self._socket.send(piece)]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError:
                self._is_writable = False

    def _read(self) -> bytes | None:
        try:
            piece = self._socket.recv(_PIECE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        if not piece:
            raise BrokenAnswerError("the other side hung up")
        return piece

    def _wait(self, until: float) -> None:
        ready = select.poll()
        ready.register(self._socket, select.POLLIN | (select.POLLOUT if self._out and self._is_writable else 0))
        if not ready.poll(left(until) * 1_000):
            raise TimeoutError("the time is over")

    def _received(self, piece: bytes) -> list[Event]:
        """Return what came; what was whole before a frame that breaks the connection counts."""
        now = time.monotonic()
        self._allow((now - self.used_at) * _FRAMES_PER_S)
        self.used_at = now
        met: list[Event] = []
        try:
            for frame in self._frames.split(piece):
                self._pay_for(frame)
                if isinstance(frame, Goaway):
                    self.is_going_away = True
                    met.append(frame)
                else:
                    found = self._http.receive_data(frame)
                    met += found
                    self._allow(_FRAMES_PER_ANSWER * sum(isinstance(each, events.StreamEnded) for each in found))
        except exceptions.ProtocolError as error:
            self._trouble = BrokenAnswerError("the answer is no HTTP/2")
            self._trouble.__cause__ = error
        except BrokenAnswerError as error:
            self._trouble = error
        if self._trouble is not None and not met:
            raise self._trouble
        return met

    def _allow(self, frames: float) -> None:
        self._frames_left = min(_MOST_FRAMES, self._frames_left + frames)

    def _pay_for(self, frame: bytes | Goaway) -> None:
        """Count a frame, a long one that is no body by its kilobytes; raises BrokenAnswerError if that is a flood."""
        is_long = not isinstance(frame, Goaway) and frame[3] != _DATA
        self._frames_left -= 1 + (len(frame) >> 10 if is_long else 0)
        if self._frames_left < 0:
            raise BrokenAnswerError("the other side sends frames that answer nothing")


if Encoder is not None:

    class _PlainEncoder(Encoder):
        """Without Huffman coding, which is a quarter of the CPU when it is done in Python."""

        def encode(self, headers: Any, huffman: bool = False) -> bytes:
            """Encode a request's headers."""
            return super().encode(headers, huffman=huffman)


class _Frames:
    """Splits what comes into frames; a GOAWAY is read here, all others stay bytes."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def split(self, piece: bytes) -> Iterator[bytes | Goaway]:
        """Return the whole frames, and keep what is left of the last; raises BrokenAnswerError for one too long."""
        data = self._rest
        data += piece
        at = 0
        try:
            while len(data) - at >= _FRAME_HEAD:
                length = int.from_bytes(data[at : at + 3], "big")
                if length > _LONGEST_FRAME:
                    raise BrokenAnswerError("the answer is no HTTP/2")
                if len(data) - at < _FRAME_HEAD + length:
                    return
                frame = bytes(data[at : at + _FRAME_HEAD + length])
                at += len(frame)
                is_goaway = frame[3] == _GOAWAY and length >= _GOAWAY_LEAST
                yield _goaway(frame[_FRAME_HEAD:]) if is_goaway else frame
        finally:
            del data[:at]


def _goaway(payload: bytes) -> Goaway:
    text = "".join(filter(str.isprintable, payload[8:208].decode("utf-8", "replace")))
    return Goaway(int.from_bytes(payload[:4], "big") & _LARGEST_STREAM_ID, int.from_bytes(payload[4:8], "big"), text)
