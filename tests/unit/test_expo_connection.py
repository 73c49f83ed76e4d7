"""An answer on a kept connection is read to its end, or refused: nonsense is never taken for a length."""

from __future__ import annotations

import pytest
from urllib3.exceptions import ProtocolError

from relevo.providers.expo_connection import Heard, Incoming, hear

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def heard(answer: bytes, most: int = 1_000) -> Heard:
    """Read an answer that comes in pieces of seven bytes, after which the connection is closed."""
    pieces = [answer[place : place + 7] for place in range(0, len(answer), 7)]
    return hear(Incoming(lambda _: pieces.pop(0) if pieces else b""), most)


def test_a_body_in_chunks() -> None:
    """Its chunks are put together, whatever is said beside their lengths, and another answer may follow."""
    found = heard(CHUNKED + b"5;name=x\r\nhello\r\nA\r\n and more.\r\n0\r\n\r\n")
    assert (found.status, found.body, found.reusable) == (200, b"hello and more.", True)


@pytest.mark.parametrize("length", [b"-5", b"+5", b"0x5", b"1_0", b"", b"five", b"F" * 16])
def test_a_length_that_is_none(length: bytes) -> None:
    """A chunk of no known length breaks the answer off: what was sent is ambiguous, and nothing is read for ever."""
    with pytest.raises(ProtocolError):
        heard(CHUNKED + b"5\r\nhello\r\n" + length + b"\r\nworld\r\n0\r\n\r\n")


def test_more_than_may_come() -> None:
    """A body that is too long is told as such, however its length is said, and the connection is not used again."""
    plain = heard(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world", most=10)
    pieces = heard(CHUNKED + b"6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n", most=10)
    assert [(found.body, found.reusable) for found in (plain, pieces)] == [(None, False)] * 2
