"""One exchange on a connection that is kept: written and read at once, without a library's ceremony around it.

Whatever has to be dialled, and whatever goes through a proxy, takes the way of expo_wire; what an answer means does not
depend on the way it took.
"""

from __future__ import annotations

import http.client
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from requests.structures import CaseInsensitiveDict
from urllib3.exceptions import ProtocolError

_PIECE = 65_536
_LONGEST_HEAD = 65_536
_MOST_HEADERS = 100
_HEX = re.compile(rb"[0-9A-Fa-f]{1,15}")
_NO_BODY = (http.client.NO_CONTENT, http.client.NOT_MODIFIED)


class Heard(NamedTuple):
    """An answer, its body unpacked; `whole` is None if it is too long, `reusable` says whether another may follow."""

    status: int
    headers: Mapping[str, str]
    body: bytes | None
    reusable: bool


class Incoming:
    """What comes in on a connection, piece by piece, each asked for within the request's time."""

    def __init__(self, receive: Callable[[int], bytes]) -> None:
        self._receive = receive
        self._came = b""

    @property
    def is_used_up(self) -> bool:
        """Whether nothing came that belongs to no answer."""
        return not self._came

    def _more(self) -> bool:
        piece = self._receive(_PIECE)
        self._came += piece
        return bool(piece)

    def until(self, mark: bytes, most: int) -> bytes:
        """Return what comes before a mark, which must not be far."""
        looked = 0
        while (place := self._came.find(mark, max(0, looked - len(mark)))) < 0:
            looked = len(self._came)
            if looked > most:
                raise ProtocolError("Connection broken", http.client.LineTooLong("header"))
            if not self._more():
                raise self._broken_off()
        found, self._came = self._came[:place], self._came[place + len(mark) :]
        return found

    def _broken_off(self) -> Exception:
        if not self._came:
            return http.client.RemoteDisconnected("Remote end closed connection without response")
        return ProtocolError("Connection broken", http.client.IncompleteRead(self._came))

    def exactly(self, count: int) -> bytes:
        """Return so many bytes."""
        pieces, size = [self._came], len(self._came)
        while size < count:
            piece = self._receive(_PIECE)
            if not piece:
                raise ProtocolError("Connection broken", http.client.IncompleteRead(b"", count - size))
            pieces.append(piece)
            size += len(piece)
        came = b"".join(pieces)
        self._came = came[count:]
        return came[:count]

    def rest(self, most: int) -> bytes:
        """Return what comes until the connection is closed, or a byte more than may come."""
        while len(self._came) <= most and self._more():
            pass
        rest, self._came = self._came, b""
        return rest


def hear(incoming: Incoming, most: int) -> Heard:
    """Read one answer, of which no more than so many bytes are read; raises as the libraries do if it breaks off.

    What an answer that is no success says in its body is lost if that breaks off: its status says enough.
    """
    version, status, headers = _head(incoming)
    while status == http.client.CONTINUE:
        version, status, headers = _head(incoming)
    closes = version != b"HTTP/1.1" or "close" in headers.get("connection", "").lower()
    if status in _NO_BODY:
        return Heard(status, headers, b"", not closes and incoming.is_used_up)
    try:
        body, bounded = _body(incoming, headers, most)
        body = _unpacked(body, headers, most) if body is not None else None
    except (ProtocolError, OSError):
        if http.client.OK <= status < http.client.MULTIPLE_CHOICES:
            raise
        return Heard(status, headers, b"", reusable=False)
    return Heard(status, headers, body, bounded and not closes and body is not None and incoming.is_used_up)


def _head(incoming: Incoming) -> tuple[bytes, int, Mapping[str, str]]:
    first, *lines = incoming.until(b"\r\n\r\n", _LONGEST_HEAD).split(b"\r\n")
    version, _, said = first.partition(b" ")
    code = said[:3]
    if not version.startswith(b"HTTP/1.") or not code.isdigit() or said[3:4].strip() or len(lines) > _MOST_HEADERS:
        raise ProtocolError("Connection aborted.", http.client.BadStatusLine(repr(first[:100])))
    headers: CaseInsensitiveDict[str] = CaseInsensitiveDict()
    for line in lines:
        name, _, value = line.decode("latin-1").partition(":")
        known = headers.get(name)
        headers[name] = value.strip() if known is None else f"{known}, {value.strip()}"
    return version, int(code), headers


def _body(incoming: Incoming, headers: Mapping[str, str], most: int) -> tuple[bytes | None, bool]:
    """Return the body as it came, None if it is too long, and whether its end is known."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _chunked(incoming, most), True
    length = headers.get("content-length", "")
    if not length.isascii() or not length.isdigit():
        rest = incoming.rest(most)
        return rest if len(rest) <= most else None, False
    if int(length) > most:
        return None, False
    return incoming.exactly(int(length)), True


def _chunked(incoming: Incoming, most: int) -> bytes | None:
    pieces: list[bytes] = []
    size = 0
    while count := _count(incoming.until(b"\r\n", _PIECE)):
        size += count
        if size > most:
            return None
        pieces.append(incoming.exactly(count))
        incoming.until(b"\r\n", 2)
    while incoming.until(b"\r\n", _LONGEST_HEAD):
        pass  # trailers
    return b"".join(pieces)


def _count(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not _HEX.fullmatch(digits):  # int() would take signs as well, and a length below nothing has no end
        raise ProtocolError("Connection broken", http.client.IncompleteRead(line[:100]))
    return int(digits, 16)


def _unpacked(body: bytes, headers: Mapping[str, str], most: int) -> bytes | None:
    """Unpack a body, None if that is too long."""
    packing = headers.get("content-encoding", "").lower()
    if packing in {"gzip", "x-gzip"}:
        return _inflated(body, zlib.MAX_WBITS | 16, most)
    if packing == "deflate":
        try:
            return _inflated(body, zlib.MAX_WBITS, most)
        except ProtocolError:
            return _inflated(body, -zlib.MAX_WBITS, most)
    return body


def _inflated(body: bytes, bits: int, most: int) -> bytes | None:
    if not body:
        return body
    unpacking: Any = zlib.decompressobj(bits)
    try:
        plain: bytes = unpacking.decompress(body, most + 1)
    except zlib.error as error:
        raise ProtocolError("Connection broken", error) from None
    return plain if len(plain) <= most else None
