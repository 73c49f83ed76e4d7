"""How many connections are held, from whom, and for how long: strangers take neither a caller's nor sending's place.

While a connection waits for its caller (who has sent nothing yet, or half a request) it may be closed to make room, the
oldest first; one whose request is being answered may not. Who finds no room is told 503.

uvicorn's own options bound neither the time that a head or a body takes nor the connections of one address; so its
protocol is extended, in the calls that asyncio and httptools make.
"""

from __future__ import annotations

import asyncio
import math
import resource
from collections import Counter

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from relevo.config import Settings
from relevo.core.addresses import subscriber_of
from relevo.http.admission import Admission, Line
from relevo.http.strangers import RefusedStrangers

ACCEPTED_AT_ONCE = 32
"""How many connections the loop accepts before any of them is counted."""
_FOR_HTTP, _OF = 5, 8
"""The share of a process's open files that HTTP may use; the rest is for sending, PostgreSQL and read files."""
_HEADER_BYTES = 32_768  # of a request, its first line included
_MOST_HEADERS = 100
_MOST_PIPELINED = 16
_MOST_KEPT = 65_536  # of the body of a request that waits
_FRAMING = 8
"""How many bytes may stand around each byte of a body: the smallest piece of a chunked one has five, or some more."""
_WRITE_S = 30.0
_LOOK_S = 1.0


class Connections:
    """All connections of one HTTP server, what they may take, and which of them wait for their callers."""

    def __init__(self, most: int, header_s: float, body_s: float) -> None:
        self.most = most
        self.most_per_address = max(1, most * 3 // 4)
        self.header_s = header_s
        self.body_s = body_s
        self.strangers = RefusedStrangers()
        self.all: set[BoundedProtocol] = set()
        self._of_address: Counter[str] = Counter()
        self._waiting: dict[BoundedProtocol, None] = {}
        """In the order in which they began to wait."""
        self._waiting_of: dict[str, dict[BoundedProtocol, None]] = {}
        """The same by address: strangers open many connections, and none costs a walk over all others."""

    @classmethod
    def of(cls, settings: Settings, files: int | None = None) -> Connections:
        """Return room for what was set, within what so many files leave to HTTP: as many as this process may open."""
        files = files or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = settings.http_max_connections
        if files != resource.RLIM_INFINITY:
            most = max(1, min(most, files * _FOR_HTTP // _OF - 2 * ACCEPTED_AT_ONCE))
        return cls(most, settings.http_header_timeout_ms / 1000, settings.http_body_timeout_ms / 1000)

    def add(self, connection: BoundedProtocol) -> bool:
        """Count a connection, and close another one for it where there are too many; False if none can be closed."""
        self.all.add(connection)
        self._of_address[connection.address] += 1
        if self._of_address[connection.address] > self.most_per_address:
            return self._make_room(self._waiting_of.get(connection.address, {}))
        return len(self.all) <= self.most or self._make_room(self._waiting)

    def remove(self, connection: BoundedProtocol) -> None:
        """Count a connection no more."""
        self.note_busy(connection)
        self.all.discard(connection)
        self._of_address[connection.address] -= 1
        if self._of_address[connection.address] <= 0:
            del self._of_address[connection.address]

    def note_waiting(self, connection: BoundedProtocol) -> None:
        """Note that a connection waits for its caller."""
        self._waiting[connection] = None
        self._waiting_of.setdefault(connection.address, {})[connection] = None

    def note_busy(self, connection: BoundedProtocol) -> None:
        """Note that a connection does not wait for its caller any more."""
        self._waiting.pop(connection, None)
        here = self._waiting_of.get(connection.address, {})
        here.pop(connection, None)
        if not here:
            self._waiting_of.pop(connection.address, None)

    def _make_room(self, waiting: dict[BoundedProtocol, None]) -> bool:
        oldest = next(iter(waiting), None)
        if oldest is None:
            return False
        self.note_busy(oldest)
        oldest.give_up()
        return True

    async def close_overdue(self) -> None:
        """Close, as long as the server runs, every connection whose caller has taken too long; look each second."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(_LOOK_S, self.header_s / 2))
            for each in list(self.all):
                if min(each.due, each.read_by) <= loop.time():
                    each.give_up()


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, held within bounds by the calls that asyncio and httptools make of it."""

    held: Connections
    """The owners of connections; a class per server has it."""
    address = ""
    """The owner of a connection: an IPv4 address, or the IPv6 network of one subscriber."""
    due = math.inf
    """When the caller has taken too long for what is awaited of it."""
    read_by = math.inf
    """When it has taken too long to read what it was answered; no further request gains it time."""
    _read = 0
    """Bytes since the last request was whole."""
    _body = 0
    """Of these the body's own."""
    _in_headers = True
    _unanswered = 0
    admission: Admission | None = None
    """Decides which requests wait before they are worked; a class per server has it."""
    _line: Line | None = None
    """Where the request waits that came last, and its body with it."""
    _kept: list[bytes]
    _is_whole = _keeps_alive = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it; refuse it if there is no room."""
        peer = transport.get_extra_info("peername")
        self.address = subscriber_of(str(peer[0])) if peer else ""
        has_room = self.held.add(self)
        super().connection_made(transport)
        self.due = self.loop.time() + self.held.header_s
        if has_room:
            self.held.note_waiting(self)
        else:
            self._refuse(b"503 Service Unavailable", b"Retry-After: 1\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        self._leave_line()
        self.held.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request, and not too much before its headers are whole."""
        if self.transport.is_closing():
            return
        if self.due == math.inf and self._unanswered == 0:
            self.due = self.loop.time() + self.held.header_s
        self._read += len(data)
        super().data_received(data)
        if self._read - self._body > self._most_around():
            self._refuse(b"431 Request Header Fields Too Large")

    def _most_around(self) -> int:
        """Return how much may come that is no body: headers, then also what frames the body, and what trails it."""
        return _HEADER_BYTES if self._in_headers else 2 * _HEADER_BYTES + _FRAMING * self._body

    def on_message_begin(self) -> None:
        """Give the caller its time for the headers, also where they began behind the request before."""
        if self._line is not None:  # who is beyond its rate and does not even wait for an answer
            self._refuse(b"429 Too Many Requests")
            raise ValueError("a request behind one that waits")
        self.due = min(self.due, self.loop.time() + self.held.header_s)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; what trails a body is for nobody."""
        if not self._in_headers:
            return
        if len(self.headers) >= _MOST_HEADERS:
            self._refuse(b"431 Request Header Fields Too Large")
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._body += len(body)
        if self._line is None:
            super().on_body(body)
        elif not self.scope["state"]["refuse_for_s"]:  # else nobody is going to read it
            self._kept.append(body)
            if self._body > _MOST_KEPT:
                self.flow.pause_reading()

    def on_headers_complete(self) -> None:
        """Begin to answer, and give the caller its time for the body."""
        if self._read > _HEADER_BYTES and self._header_bytes() > _HEADER_BYTES:
            self._refuse(b"431 Request Header Fields Too Large")
            raise ValueError("too long headers")  # ends the parsing; the caller was told already
        if self._unanswered >= _MOST_PIPELINED:
            self._refuse(b"429 Too Many Requests")
            raise ValueError("too many requests that nobody waited for")
        self._in_headers = False
        self._unanswered += 1
        self.due = self.loop.time() + self.held.body_s
        if not self._must_wait():
            super().on_headers_complete()

    def _must_wait(self) -> bool:
        """Delay a request whose caller is beyond its rate; little of its body is read meanwhile.

        Reading goes on otherwise, so that a caller that hangs up is noticed and takes no turn.
        """
        if self.admission is None:
            return False
        verdict = self.admission.judge(self.address, self.parser.get_method(), self.url, self.headers)
        self.scope["state"]["refuse_for_s"] = verdict.refuse_for_s
        if verdict.line is None or verdict.line.has_room(self.loop.time()):
            return False
        self._line, self._kept, self._is_whole = verdict.line, [], False
        self._keeps_alive = self.parser.should_keep_alive()  # which is not known any more once the request is whole
        self.due = math.inf
        self.held.note_waiting(self)  # so that it makes room for others
        verdict.line.join(self, verdict.kind)
        return True

    def let_in(self) -> None:
        """Go on with the request that has waited."""
        self._line = None
        self.held.note_busy(self)
        if not self._is_whole:
            self.due = self.loop.time() + self.held.body_s
        super().on_headers_complete()
        self.cycle.keep_alive = self.cycle.keep_alive and self._keeps_alive
        for piece in self._kept:
            super().on_body(piece)
        if self._is_whole:
            super().on_message_complete()
        self._kept = []
        self.flow.resume_reading()

    def _leave_line(self) -> None:
        if self._line is not None:
            self._line.leave(self)
            self._line = None

    def on_message_complete(self) -> None:
        """Note that the request is complete: from now on the caller waits for us."""
        self._in_headers, self._read, self._body = True, 0, 0
        self.due = math.inf
        if self._line is not None:
            self._is_whole = True
            return
        if self._unanswered:
            self.held.note_busy(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, if there is none already."""
        self._unanswered -= 1
        if self._unanswered == 0 and not self.transport.is_closing():
            self.held.note_waiting(self)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Give a caller that does not read its answer a while."""
        self.read_by = self.loop.time() + _WRITE_S
        super().pause_writing()

    def resume_writing(self) -> None:
        """Go on: the caller reads."""
        self.read_by = math.inf
        super().resume_writing()

    def give_up(self) -> None:
        """Hang up on a caller that took too long, or in whose place somebody else comes."""
        self.due = self.read_by = math.inf
        self.transport.abort()

    def _header_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        if not self.transport.is_closing():  # else it was refused already
            self.held.strangers.note(400)
            super().send_400_response(msg)

    def _refuse(self, status: bytes, header: bytes = b"") -> None:
        self.held.strangers.note(int(status[:3]))
        self.transport.write(
            b"HTTP/1.1 " + status + b"\r\n" + header + b"Connection: close\r\nContent-Length: 0\r\n\r\n"
        )
        self.transport.close()


def protocol_for(connections: Connections, admits: Admission | None = None) -> type[asyncio.Protocol]:
    """Return the protocol whose connections are counted there, and whose requests wait where they must."""

    class Bounded(BoundedProtocol):
        held = connections
        admission = admits

    return Bounded
