"""An HTTP/2 client that knows of each request whether it was answered, definitely not sent, or nobody knows.

It never sends a request again that may have been processed. Streams above a GOAWAY's last stream were not processed:
they go on over a new connection in the same call. The connection is kept from call to call. An endpoint that
negotiates no HTTP/2 is spoken to by HTTP/1.1 where that is allowed, with the same meanings.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit

import certifi
import h11

from relevo.core.proxies import Proxies
from relevo.providers.http2.connection import HeaderTuple, Http2Connection, NeverIndexedHeaderTuple
from relevo.providers.http2.streams import (
    MAX_ANSWER_BYTES,
    Answered,
    CallOutcome,
    CallTime,
    Encoded,
    Heard,
    NotSent,
    Pending,
    Request,
    Streams,
    Unknown,
    in_words,
)
from relevo.providers.http_connection import (
    BrokenAnswerError,
    HttpConnection,
    RefusedAddressError,
    Resolve,
    connect,
    is_success,
    left,
    look_up,
)

__all__ = [
    "Answered",
    "CallOutcome",
    "CallTime",
    "Heard",
    "Http2Client",
    "NotSent",
    "Request",
    "Unknown",
    "tls_context",
]

PROBE_AFTER_S = 10.0
PROBE_S = 5.0
_MOST_FRUITLESS = 2
"""So many connections of a call in a row may bring no answer: one that was kept may have ended meanwhile."""


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

    @property
    def is_connected(self) -> bool:
        """Whether a connection is kept."""
        return self._kept is not None

    def exchange(self, requests: Sequence[Request], call: CallTime, heard: Heard | None = None) -> list[CallOutcome]:
        """Post requests and return what became of each, in their order; what the network does is never raised.

        `heard` is called with each answer when it comes. Raises ValueError, before anything is sent, for a header that
        cannot be written.
        """
        fields = _Fields(self._not_indexed)
        encoded = [([*self._place, *map(fields.__getitem__, each.headers)], each.body) for each in requests]
        pending = Pending(len(requests), call, heard)
        fruitless = 0
        while pending.waiting and call.may_begin() and fruitless < _MOST_FRUITLESS:
            try:
                kept = self._ready(call.until)
            except (OSError, ValueError) as error:  # ValueError: a name that cannot be one
                pending.give_up(_unconnected(error))
                break
            if isinstance(kept, HttpConnection):
                self._alone(kept, requests[pending.waiting[0]], pending)
                continue
            streams = self._multiplexed(kept, encoded, pending)
            if streams.has_unknown and streams.trouble:
                pending.give_up(streams.trouble)  # the other side is ill: more requests might be unknown, too
            fruitless = 0 if streams.answers else fruitless + 1
        pending.give_up()
        return pending.outcomes

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

    def _multiplexed(self, kept: Http2Connection, requests: Sequence[Encoded], pending: Pending) -> Streams:
        """Post what waits over one connection, until nothing waits or the connection takes no more."""
        streams = Streams(kept, requests, pending)
        try:
            while not streams.is_over:
                streams.begin(self._most_streams if self._is_proven else 1)
                streams.take_turn()
                self._is_proven |= streams.has_valid_answer
        except OSError as error:
            streams.end(error)
            self.close()
        if kept.is_going_away:
            self.close()
        return streams

    def _alone(self, kept: HttpConnection, request: Request, pending: Pending) -> None:
        """Post one request by HTTP/1.1."""
        begun_at = time.monotonic()
        outcome = _post(kept, self._authority, request, pending.call.until)
        pending.settle(pending.waiting.popleft(), outcome)
        if isinstance(outcome, Answered):
            pending.call.answered(begun_at)
        if not kept.is_reusable:
            self.close()


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


def _is_alive(kept: Http2Connection | HttpConnection, by: float) -> bool:
    """Return whether a kept connection may be used again; one that was idle for long has to prove it."""
    if isinstance(kept, HttpConnection):
        return kept.is_quiet()
    return kept.is_alive(by, probe=time.monotonic() - kept.used_at > PROBE_AFTER_S)


def _unconnected(error: Exception) -> NotSent:
    if isinstance(error, RefusedAddressError):
        return NotSent("RefusedAddress", str(error))
    return NotSent("ConnectTimeout" if isinstance(error, TimeoutError) else "NoConnection", in_words(error))


def _post(kept: HttpConnection, authority: str, request: Request, by: float) -> CallOutcome:
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
        return kind("ReadTimeout" if late else "ConnectionBroken", in_words(error))
    if body is None and is_success(status):
        return Unknown("AnswerTooLong", f"more than {MAX_ANSWER_BYTES} bytes")
    return Answered(status, answer_headers, body or b"")
