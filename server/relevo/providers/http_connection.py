"""An HTTP connection to a push service: dialled here, HTTP/1.1 by h11, everything within the time of one request.

Until `is_sent` nothing of a request has left; from then on what became of it is unknown until its answer is read.
Nothing is sent twice. h11 leaves reading and writing to us: with requests and urllib3 these promises took overrides of
private methods. A request of 100 pushes costs 0.72 to 0.80 ms of CPU so, and 0.51 to 0.58 with a reader of our own:
2 to 5 % of what dispatch costs; urllib3 took 15 to 20 %.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

import certifi
import h11

from relevo.providers.lookups import Lookups

_PIECE = 65_536
_LONGEST_HEAD = 65_536
_MOST_HINTS = 100
"""So many answers of the kind 1xx may come before the real one."""
_PORTS = {"http": 80, "https": 443}
_OK, _REDIRECT = 200, 300

Resolve = Callable[[str, int, float], Sequence[str]]
"""Returns a host's addresses, found within so many seconds; raises RefusedAddressError if one may not be used."""
look_up: Resolve = Lookups(of_one_host=8).addresses
"""Of hosts that the settings name: an answer that is lost costs one connection, not all that begin with it."""


class BrokenAnswerError(OSError):
    """The answer broke off, or is no HTTP."""


class ProxyRefusedError(OSError):
    """A proxy did not let us through to the push service."""


class RefusedAddressError(OSError):
    """A name leads where nothing may be sent."""


class Received(NamedTuple):
    """An answer, its body unpacked; `headers` have their names in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None
    """None if it is too long."""


def left(until: float) -> float:
    """Return the seconds until a moment of the monotonic clock; raises TimeoutError if it is past."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the time is over")
    return seconds


def is_success(status: int) -> bool:
    """Return whether an HTTP status means yes."""
    return _OK <= status < _REDIRECT


class HttpConnection:
    """One open connection, for one request after the other."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._http = _http()
        self.is_sent = False
        """Whether any byte of the last request may have left."""
        self.is_reusable = True
        """Whether the last answer was read to its end, and another may follow."""
        self._has_ended = False
        """Whether the other side hung up, as it does to end an answer without a length."""

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def __del__(self) -> None:
        self.close()  # a thread may end and leave it behind

    def detach(self) -> socket.socket:
        """Return the socket, for another to speak over it; nothing may be sent from here any more."""
        kept, self._socket = self._socket, socket.socket()
        return kept

    def start_tls(self, context: ssl.SSLContext, host: str, until: float) -> None:
        """Encrypt what follows, once the other side has proved to be this host."""
        self._socket.settimeout(left(until))
        self._socket = context.wrap_socket(self._socket, server_hostname=host)
        self._http = _http()  # after a proxy's own answer

    @property
    def protocol(self) -> str | None:
        """The protocol that TLS agreed on by ALPN, if any."""
        return self._socket.selected_alpn_protocol() if isinstance(self._socket, ssl.SSLSocket) else None

    def is_quiet(self) -> bool:
        """Return whether nothing came that belongs to no answer; the other side's hanging up would be seen, too."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return False
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        return not readable.poll(0)

    def send(
        self, target: str, headers: Mapping[str, str], body: bytes, *, end_by: float, method: str = "POST"
    ) -> None:
        """Send a request, head and body in one piece."""
        self.is_sent = self.is_reusable = False
        request = h11.Request(method=method, target=target, headers=list(headers.items()))
        events = (request, h11.Data(data=body), h11.EndOfMessage()) if body else (request, h11.EndOfMessage())
        rest = memoryview(b"".join([self._http.send(event) or b"" for event in events]))
        while rest:
            # Not sendall: over TLS its time would begin anew with every piece.
            self._socket.settimeout(left(end_by))
            self.is_sent = True
            rest = rest[self._socket.send(rest) :]

    def read_head(self, end_by: float) -> tuple[int, dict[str, str]]:
        """Return the status and the headers of the answer."""
        for hints, event in enumerate(self._events(end_by)):
            if isinstance(event, h11.Response):
                return event.status_code, _joined(event)
            if hints >= _MOST_HINTS:
                raise BrokenAnswerError("the other side answers nothing but 1xx")
        raise BrokenAnswerError("no answer")

    def read(self, end_by: float, most: int) -> Received:
        """Return the answer, of whose body no more than so many bytes are read.

        The body of an answer that is no success is lost if it breaks off: the status is enough.
        """
        status, headers = self.read_head(end_by)
        try:
            body = self._body(end_by, most)
            body = None if body is None else _unpacked(body, headers, most)
        except OSError:
            if is_success(status):
                raise
            return Received(status, headers, b"")
        is_over = self._http.our_state is self._http.their_state is h11.DONE
        if is_over and body is not None and not self._has_ended and not self._http.trailing_data[0]:
            self._http.start_next_cycle()
            self.is_reusable = True
        return Received(status, headers, body)

    def _body(self, end_by: float, most: int) -> bytes | None:
        pieces, size = [], 0
        for event in self._events(end_by):
            if isinstance(event, h11.EndOfMessage):
                break
            if isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
                size += len(event.data)
                if size > most:
                    return None
        return b"".join(pieces)

    def _events(self, end_by: float) -> Iterator[h11.Event]:
        try:
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._socket.settimeout(left(end_by))
                    piece = self._socket.recv(_PIECE)
                    self._has_ended = not piece
                    self._http.receive_data(piece)
                elif isinstance(event, h11.Event):
                    yield event
                else:
                    return
        except h11.RemoteProtocolError as error:
            raise BrokenAnswerError("the answer broke off") from error


def _http() -> h11.Connection:
    return h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_HEAD)


def _joined(answer: h11.Response) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in answer.headers:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _unpacked(body: bytes, headers: Mapping[str, str], most: int) -> bytes | None:
    """Return a body unpacked, None if that is too long."""
    if not body or headers.get("content-encoding", "").lower() not in {"gzip", "x-gzip"}:
        return body
    try:
        plain = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(body, most + 1)
    except zlib.error as error:
        raise BrokenAnswerError("the answer cannot be unpacked") from error
    return plain if len(plain) <= most else None


def connect(
    url: str,
    proxy: str | None,
    until: float,
    *,
    tls: ssl.SSLContext | None = None,
    tls_until: float | None = None,
    resolve: Resolve = look_up,
) -> HttpConnection:
    """Open a connection to where a URL leads, through a proxy if there is one, by a moment of the monotonic clock.

    TLS may be agreed on later than that, by `tls_until`. `resolve` looks the URL's host up; a proxy, whom the settings
    name, is looked up without its checks.
    """
    parts, through = urlsplit(url), urlsplit(proxy) if proxy else None
    host, port = place_of(through or parts)
    found = (look_up if through else resolve)(host, port, left(until))
    connection = HttpConnection(dial(found, port, until))
    try:
        if parts.scheme == "https":
            if through is not None:
                _tunnel(connection, parts, through, until)
            connection.start_tls(tls or tls_http1(), parts.hostname or "", tls_until or until)
    except BaseException:
        connection.close()
        raise
    return connection


def place_of(parts: SplitResult) -> tuple[str, int]:
    """Return the host and the port of a URL."""
    return parts.hostname or "", parts.port or _PORTS[parts.scheme]


def dial(addresses: Sequence[str], port: int, until: float) -> socket.socket:
    """Connect to the first of a host's addresses that answers."""
    trouble = OSError("its name leads nowhere")
    for tried, address in enumerate(addresses):
        try:
            # A share for each address: one that swallows everything must not hide the next.
            dialled = socket.create_connection((address, port), left(until) / (len(addresses) - tried))
        except OSError as error:
            trouble = error
        else:
            dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return dialled
    raise trouble


def _tunnel(connection: HttpConnection, parts: SplitResult, proxy: SplitResult, until: float) -> None:
    """Open a tunnel through a proxy to a host."""
    host, port = place_of(parts)
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    connection.send(place, {"Host": place, **proxy_headers(proxy)}, b"", end_by=until, method="CONNECT")
    status, _ = connection.read_head(until)
    if not is_success(status):
        raise ProxyRefusedError(f"the proxy said no ({status})")


def proxy_headers(proxy: SplitResult) -> dict[str, str]:
    """Return what a proxy is told of us, if its address has a user."""
    if proxy.username is None:
        return {}
    known = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(known.encode()).decode()}"}


def tls_http1(ca_file: str | None = None) -> ssl.SSLContext:
    """Return what connections of HTTP/1.1 are encrypted with; known authorities are trusted, and those of `ca_file`."""
    return _tls(certifi.where(), ca_file)


@lru_cache(maxsize=4)
def _tls(authorities: str, ca_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authorities)
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context
