"""An HTTP/2 client that knows of each request whether it was answered, definitely not sent, or nobody knows.

It never sends anything twice. Streams above a GOAWAY's last stream, and those refused with REFUSED_STREAM, were not
processed; a stream that was begun and has no whole answer is unknown. The connection is kept from call to call.
An endpoint that negotiates no HTTP/2 is spoken to by HTTP/1.1 where that is allowed, with the same meanings.
"""

from __future__ import annotations

import ssl
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

import certifi
import h11

from relevo.core.proxies import Proxies
from relevo.providers.http2_connection import (
    Event,
    Goaway,
    HeaderTuple,
    Http2Connection,
    NeverIndexedHeaderTuple,
    events,
)
from relevo.providers.http_connection import (
    BrokenAnswerError,
    HttpConnection,
    ProxyRefusedError,
    RefusedAddressError,
    Resolve,
    connect,
    is_success,
    left,
    look_up,
)

MAX_ANSWER_BYTES = 65_536
PROBE_AFTER_S = 10.0
PROBE_S = 5.0
_SERVER_ERROR = 500
_NO_VALID_TOKEN = (401, 403)
_REFUSED_STREAM = 7


class Request(NamedTuple):
    """What is posted: `headers` begin with :method and :path; :scheme and :authority are the client's."""

    headers: Sequence[tuple[str, str]]
    body: bytes


class Answered(NamedTuple):
    """The answer; names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NotSent(NamedTuple):
    """The request was definitely not processed."""

    code: str
    message: str


class Unknown(NamedTuple):
    """The request may have been processed, and nobody knows."""

    code: str
    message: str


Outcome = Answered | NotSent | Unknown


@lru_cache(maxsize=8)
def tls_context(ca_file: str | None = None, *, http1: bool = False) -> ssl.SSLContext:
    """Return what connections are encrypted with: TLS 1.2 or newer, HTTP/2 by ALPN, and HTTP/1.1 if allowed.

    The authorities of `ca_file` are trusted beside the known ones. To read those takes 50 ms, so it is done once.
    """
    context = ssl.create_default_context(cafile=certifi.where())
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2", "http/1.1"] if http1 else ["h2"])
    return context


class Http2Client:
    """One connection to one origin, opened when it is needed; owned by one thread."""

    def __init__(
        self,
        origin: str,
        *,
        tls: ssl.SSLContext,
        connect_s: float,
        proxies: Proxies | None = None,
        resolve: Resolve = look_up,
        one_stream_first: bool = False,
        most_streams: int = 100,
        http1: bool = False,
        not_indexed: Sequence[str] = (":path", "authorization"),
    ) -> None:
        parts = urlsplit(origin)
        if parts.scheme != "https" or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError(f"an origin looks like https://host:port, and this is {origin[:200]}")
        self._origin, self._authority = f"https://{parts.netloc}", parts.netloc
        self._place = HeaderTuple(b":scheme", b"https"), HeaderTuple(b":authority", parts.netloc.encode())
        self._tls = tls
        self._connect_s = connect_s
        self._proxies = proxies or Proxies()
        self._resolve = resolve
        self._one_stream_first = one_stream_first
        self._most_streams = most_streams
        self._http1 = http1
        self._not_indexed = frozenset(not_indexed)
        self._kept: Http2Connection | HttpConnection | None = None
        self._is_proven = not one_stream_first

    def close(self) -> None:
        """Close the connection; the next exchange opens another."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        self._is_proven = not self._one_stream_first

    def exchange(self, requests: Sequence[Request], *, timeout_s: float) -> list[Outcome]:
        """Post requests and return what became of each, in their order; what the network does is never raised.

        Raises ValueError, before anything is sent, for a header that cannot be written.
        """
        until = time.monotonic() + timeout_s
        fields = _Fields(self._not_indexed)
        encoded = [([*self._place, *map(fields.__getitem__, each.headers)], each.body) for each in requests]
        outcomes: list[Outcome] = []
        while len(outcomes) < len(requests):
            begun = len(outcomes)
            try:
                kept = self._ready(until)
            except (OSError, ValueError) as error:  # ValueError: a name that cannot be one
                return outcomes + [_unconnected(error)] * (len(requests) - begun)
            if isinstance(kept, Http2Connection):
                outcomes += self._multiplexed(kept, _Exchange(kept, encoded[begun:], until))
            else:
                outcomes.append(self._alone(kept, requests[begun], until))
        return outcomes

    def _ready(self, until: float) -> Http2Connection | HttpConnection:
        """Return the kept connection if it is alive, or a new one."""
        left(until)
        if self._kept is not None and not _is_alive(self._kept, min(until, time.monotonic() + PROBE_S)):
            self.close()
        if self._kept is None:
            self._kept = self._open(min(until, time.monotonic() + self._connect_s))
        return self._kept

    def _open(self, by: float) -> Http2Connection | HttpConnection:
        proxy = self._proxies.for_url(self._origin)
        opened = connect(self._origin, proxy, by, tls=self._tls, resolve=self._resolve)
        if opened.protocol != "h2":
            if self._http1:
                return opened
            opened.close()
            raise BrokenAnswerError("the other side speaks no HTTP/2")
        made = Http2Connection(opened.detach())
        try:
            made.start(by)
        except BaseException:
            made.close()
            raise
        return made

    def _multiplexed(self, kept: Http2Connection, exchange: _Exchange) -> list[Outcome]:
        try:
            while not exchange.is_over:
                exchange.begin(self._most_streams if self._is_proven else 1)
                exchange.take_turn()
                self._is_proven |= exchange.has_valid_answer
        except OSError as error:
            exchange.end(error)
            self.close()
        if kept.is_going_away:
            self.close()
        return exchange.outcomes

    def _alone(self, kept: HttpConnection, request: Request, by: float) -> Outcome:
        """Post one request by HTTP/1.1."""
        outcome = _post(kept, self._authority, request, by)
        if not kept.is_reusable:
            self.close()
        return outcome


_Encoded = tuple[list[HeaderTuple], bytes]


class _Fields(dict[tuple[str, str], HeaderTuple]):
    """Headers as h2 takes them: those that several requests share are made once: 3 % of APNs' CPU."""

    def __init__(self, not_indexed: frozenset[str]) -> None:
        super().__init__()
        self._not_indexed = not_indexed

    def __missing__(self, header: tuple[str, str]) -> HeaderTuple:
        """Make one; raises ValueError if it cannot be written."""
        name, value = header
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"the header {name} must be printable ASCII, and is {value[:50]!a}")
        kind = NeverIndexedHeaderTuple if name in self._not_indexed else HeaderTuple
        made = self[header] = kind(name.encode(), value.encode())
        return made


class _Stream:
    """One request under way."""

    __slots__ = ("before", "body", "headers", "index", "rest", "size", "status")

    def __init__(self, index: int, before: int, body: bytes) -> None:
        self.index = index
        self.before = before
        """How many bytes were to be written before its own."""
        self.rest = memoryview(body)
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []
        self.size = 0

    def take_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Take the head of the answer."""
        for raw_name, raw_value in headers:
            name, value = bytes(raw_name).decode("latin-1"), bytes(raw_value).decode("latin-1")
            if name == ":status":
                self.status = int(value) if value.isdecimal() else 0
            else:
                self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value

    def whole(self) -> Outcome:
        """Return what a whole answer means."""
        if not self.status:
            return Unknown("BrokenAnswer", "an answer without a status")
        return Answered(self.status, self.headers, b"".join(self.body))

    def broken(self, code: str, message: str) -> Outcome:
        """Return what an answer means that is not whole: of a refusal the status is enough."""
        return self.whole() if self.status and not is_success(self.status) else Unknown(code, message)


class _Exchange:
    """One call's requests on a connection."""

    def __init__(self, kept: Http2Connection, requests: Sequence[_Encoded], until: float) -> None:
        self._kept = kept
        self._waiting = deque(enumerate(requests))
        self._until = until
        self._open: dict[int, _Stream] = {}
        self._by_index: list[Outcome | None] = [None] * len(requests)
        self.has_valid_answer = False

    @property
    def is_over(self) -> bool:
        """Whether every request has its outcome."""
        return not self._open and not self._waiting

    @property
    def outcomes(self) -> list[Outcome]:
        """What became of each, in order."""
        return [each or NotSent("NotBegun", "its turn did not come") for each in self._by_index]

    def begin(self, most: int) -> None:
        """Begin as many as are allowed now; none while a body waits for the other side's window."""
        if self._kept.is_going_away:
            self._refuse_waiting("GoAway", "the other side ends the connection")
        most = min(most, self._kept.most_streams)
        is_blocked = any(stream.rest for stream in self._open.values())
        while self._waiting and len(self._open) < most and not is_blocked:
            index, (headers, body) = self._waiting.popleft()
            stream_id, before = self._kept.begin(headers, end_stream=not body)
            stream = self._open[stream_id] = _Stream(index, before, body)
            stream.rest = self._kept.send(stream_id, stream.rest)
            is_blocked = bool(stream.rest)

    def take_turn(self) -> None:
        """Write, wait and read once; raises OSError if the time is over, or the connection broke."""
        if self.is_over:
            return
        for event in self._kept.transfer(self._until):
            self._take(event)
        for stream_id, stream in self._open.items():
            if stream.rest:
                stream.rest = self._kept.send(stream_id, stream.rest)

    def end(self, error: OSError) -> None:
        """Say what became of all that is left when the connection or the time ended."""
        code = "ReadTimeout" if isinstance(error, TimeoutError) else "ConnectionBroken"
        for stream in self._open.values():
            is_written = stream.before < self._kept.offered
            outcome = stream.broken(code, _words(error)) if is_written else NotSent(code, _words(error))
            self._by_index[stream.index] = outcome
        self._open.clear()
        self._refuse_waiting(code, _words(error))

    def _refuse_waiting(self, code: str, message: str) -> None:
        for index, _ in self._waiting:
            self._by_index[index] = NotSent(code, message)
        self._waiting.clear()

    def _take(self, event: Event) -> None:
        if isinstance(event, Goaway):
            words = f"the other side ends the connection {event.text}".strip()
            for stream_id in [each for each in self._open if each > event.last_stream_id]:
                self._by_index[self._open.pop(stream_id).index] = NotSent("GoAway", words)
            return
        if isinstance(event, events.DataReceived):
            self._kept.acknowledge(event)
        stream_id = getattr(event, "stream_id", None) or 0
        if (stream := self._open.get(stream_id)) is not None and (outcome := self._outcome(stream, event)) is not None:
            del self._open[stream_id]
            self._by_index[stream.index] = outcome

    def _outcome(self, stream: _Stream, event: Event) -> Outcome | None:
        """Return what became of a request by what came on its stream; None if more is to come."""
        match event:
            case events.ResponseReceived():
                stream.take_headers(event.headers or ())
            case events.DataReceived():
                stream.body.append(event.data or b"")
                stream.size += len(event.data or b"")
                if stream.size > MAX_ANSWER_BYTES:
                    self._kept.reset(event.stream_id)
                    return stream.broken("AnswerTooLong", f"more than {MAX_ANSWER_BYTES} bytes")
            case events.StreamEnded():
                if stream.rest:
                    self._kept.reset(event.stream_id)  # it was answered before all of it was sent
                self.has_valid_answer |= 0 < stream.status < _SERVER_ERROR and stream.status not in _NO_VALID_TOKEN
                return stream.whole()
            case events.StreamReset() if event.error_code == _REFUSED_STREAM:
                return NotSent("RefusedStream", "the other side refused the stream")
            case events.StreamReset():
                return stream.broken("StreamReset", f"HTTP/2 error {event.error_code}")
        return None


def _is_alive(kept: Http2Connection | HttpConnection, by: float) -> bool:
    """Return whether a kept connection may be used again; one that was idle for long has to prove it."""
    if isinstance(kept, HttpConnection):
        return kept.is_quiet()
    return kept.is_alive(by, probe=time.monotonic() - kept.used_at > PROBE_AFTER_S)


def _unconnected(error: Exception) -> NotSent:
    if isinstance(error, RefusedAddressError):
        return NotSent("RefusedAddress", str(error))
    return NotSent("ConnectTimeout" if isinstance(error, TimeoutError) else "NoConnection", _words(error))


def _post(kept: HttpConnection, authority: str, request: Request, by: float) -> Outcome:
    """Post one request by HTTP/1.1."""
    given = dict(request.headers)
    target, method = given.pop(":path"), given.pop(":method", "POST")
    headers = {"Host": authority, **given, "Content-Length": str(len(request.body))}
    try:
        kept.send(target, headers, request.body, end_by=by, method=method)
        status, answer_headers, body = kept.read(by, MAX_ANSWER_BYTES)
    except (OSError, h11.LocalProtocolError) as error:
        late = isinstance(error, TimeoutError)
        kind = Unknown if kept.is_sent else NotSent
        return kind("ReadTimeout" if late else "ConnectionBroken", _words(error))
    if body is None and is_success(status):
        return Unknown("AnswerTooLong", f"more than {MAX_ANSWER_BYTES} bytes")
    return Answered(status, answer_headers, body or b"")


def _words(error: Exception) -> str:
    """Return an error for people: the text only of our own, for a system's may hold addresses or secrets."""
    return str(error) if isinstance(error, (BrokenAnswerError, ProxyRefusedError)) else type(error).__name__
