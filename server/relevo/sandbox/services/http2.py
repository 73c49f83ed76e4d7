"""One HTTP/2 connection of a client: streams in, answers out, and all that may go wrong between."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame, SettingsFrame

from relevo.sandbox.answers import HttpResponse
from relevo.sandbox.faults.expo import Exchange
from relevo.sandbox.services.exchange import Body, ConnectionOwner, Service, Speaker, headers_of

_NO_LIMIT = 2**31 - 1
_LINGER_S = 1.0
_MAX_OPEN = 10_000


@dataclass
class _Stream:
    headers: list[tuple[str, str]]
    body: Body = field(default_factory=Body)
    unsent: bytes = b""


class Http2(Speaker):
    """Many streams at once."""

    def __init__(self, service: Service, transport: asyncio.Transport, owner: ConnectionOwner) -> None:
        super().__init__(service, transport, owner)
        self._streams: dict[int, _Stream] = {}
        self._last: int | None = None  # the last stream that is still served once a GOAWAY was sent
        self._most = service.streams(self._peer)
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="latin-1"))
        self._open_with(self._most)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        try:
            events = self._h2.receive_data(data)
        except ProtocolError:
            self._flush()  # h2 has written the GOAWAY that says why
            self._transport.close()
            return
        for event in events:
            self._take(event)
        self._flush()

    def _open_with(self, most: int) -> None:
        """Announce how many streams may be open, and leave it to us to refuse more: h2 would end the connection."""
        settings = self._h2.local_settings
        for value in (most, _NO_LIMIT):
            settings[SettingCodes.MAX_CONCURRENT_STREAMS] = value
            settings.acknowledge()
            if value == most:
                self._h2.initiate_connection()
        self._flush()

    def _announce(self, most: int) -> None:
        if most == self._most:
            return
        self._most = most
        self._flush()
        frame = SettingsFrame(0, settings={SettingsFrame.MAX_CONCURRENT_STREAMS: most})
        self._transport.write(frame.serialize())

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._transport.write(data)

    def _take(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._begin(event)
            case DataReceived():
                self._collect(event)
            case StreamEnded():
                self._end(event.stream_id)
            case StreamReset():
                self._streams.pop(event.stream_id, None)
            case WindowUpdated():
                for stream_id in [event.stream_id] if event.stream_id else list(self._streams):
                    self._send_rest(stream_id)
            case ConnectionTerminated():
                self._transport.close()

    def _begin(self, event: RequestReceived) -> None:
        stream_id = event.stream_id
        if self._is_past(stream_id):
            return
        if len(self._streams) >= min(self._most, _MAX_OPEN):
            self._h2.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        self._streams[stream_id] = _Stream([(str(name), str(value)) for name, value in event.headers])

    def _is_past(self, stream_id: int) -> bool:
        return self._last is not None and stream_id > self._last

    def _collect(self, event: DataReceived) -> None:
        if event.flow_controlled_length:
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        if (stream := self._streams.get(event.stream_id)) is not None:
            stream.body.add(event.data)

    def _end(self, stream_id: int) -> None:
        stream = self._streams.get(stream_id)
        if stream is None or self._is_past(stream_id):
            return
        told = dict(stream.headers)
        headers = [each for each in stream.headers if not each[0].startswith(":")]
        exchange = self._answered(told.get(":method", ""), told.get(":path", ""), headers, stream.body)
        self._announce(self._service.streams(self._peer))
        self._play(stream_id, exchange)

    def _play(self, stream_id: int, exchange: Exchange) -> None:
        fault, answer = exchange.fault, exchange.answer
        match fault.value.removesuffix("-delivered") if fault else "":
            case "hang":
                return
            case "slow" if fault is not None:
                self._loop.call_later(fault.seconds, self._late, stream_id, answer)
            case "reset":
                self._transport.abort()
            case "refused":
                self._reset(stream_id, ErrorCodes.REFUSED_STREAM)
            case "stream-error":
                self._reset(stream_id, ErrorCodes.INTERNAL_ERROR)
            case "goaway" if fault is not None:
                is_taken = fault.value.endswith("-delivered")
                self._go_away(stream_id if is_taken else stream_id - 2)
            case "truncated":
                self._cut_short(stream_id, answer)
            case "streams" if fault is not None:
                self._announce(int(fault.seconds))
                self._write(stream_id, answer)
            case _:
                self._write(stream_id, answer)

    def _late(self, stream_id: int, answer: HttpResponse) -> None:
        if stream_id in self._streams and not self._transport.is_closing():
            self._write(stream_id, answer)
            self._flush()

    def _reset(self, stream_id: int, code: ErrorCodes) -> None:
        del self._streams[stream_id]
        self._h2.reset_stream(stream_id, code)

    def _write(self, stream_id: int, answer: HttpResponse) -> None:
        self._h2.send_headers(stream_id, _headers(answer), end_stream=not answer.body)
        if answer.body:
            self._streams[stream_id].unsent = answer.body
            self._send_rest(stream_id)
        else:
            del self._streams[stream_id]

    def _send_rest(self, stream_id: int) -> None:
        """Send as much of an answer as the client's windows let through."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        while stream.unsent:
            size = min(self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size)
            if size <= 0:
                return
            piece, stream.unsent = stream.unsent[:size], stream.unsent[size:]
            self._h2.send_data(stream_id, piece, end_stream=not stream.unsent)
            if not stream.unsent:
                del self._streams[stream_id]

    def _cut_short(self, stream_id: int, answer: HttpResponse) -> None:
        """Begin an answer, and end its stream in the midst."""
        self._h2.send_headers(stream_id, _headers(answer))
        if half := answer.body[: len(answer.body) // 2]:
            self._h2.send_data(stream_id, half)
        self._reset(stream_id, ErrorCodes.INTERNAL_ERROR)

    def _go_away(self, last: int) -> None:
        """Serve no stream above this one, and leave soon; h2 itself could answer nothing after a GOAWAY."""
        self._last = max(0, last)
        for stream_id in [each for each in self._streams if each > self._last]:
            del self._streams[stream_id]
        self._flush()
        frame = GoAwayFrame(0, last_stream_id=self._last, additional_data=self._service.goodbye())
        self._transport.write(frame.serialize())
        # Closing at once would let the kernel throw away what the client has not read yet.
        self._loop.call_later(_LINGER_S, self._transport.close)


def _headers(answer: HttpResponse) -> list[tuple[str, str]]:
    return [(":status", str(answer.status)), *headers_of(answer)]
