"""An answer is read to its end, or refused: nonsense is never taken for a length, nor a stray byte for an answer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from relevo.providers.http_connection import BrokenAnswerError, HttpConnection, Received, look_up
from support.processes import PATIENCE_S

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextmanager
def asking(answer: bytes) -> Iterator[HttpConnection]:
    """Send a request to which this answer comes, after which the other side writes no more."""
    ours, theirs = socket.socketpair()
    with theirs:
        connection = HttpConnection(ours)
        connection.send("/", {"Host": "x", "Content-Length": "2"}, b"{}", end_by=time.monotonic() + PATIENCE_S)
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        yield connection
        connection.close()


def read(connection: HttpConnection, most: int = 1_000) -> Received:
    """Read the answer."""
    return connection.read(time.monotonic() + PATIENCE_S, most)


def test_a_body_in_chunks() -> None:
    """Its chunks are put together, whatever is said beside their lengths, and another answer may follow."""
    with asking(CHUNKED + b"5;name=x\r\nhello\r\nA\r\n and more.\r\n0\r\n\r\n") as connection:
        found = read(connection)
        assert (found.status, found.body, connection.is_reusable) == (200, b"hello and more.", True)
        assert not connection.is_quiet(), "the other side hung up"


@pytest.mark.parametrize("length", [b"-5", b"+5", b"0x5", b"1_0", b"", b"five", b"F" * 21])
def test_a_length_that_is_none(length: bytes) -> None:
    """A chunk of no known length breaks the answer off: what was sent is ambiguous, and nothing is read for ever."""
    broken = CHUNKED + b"5\r\nhello\r\n" + length + b"\r\nworld\r\n0\r\n\r\n"
    with asking(broken) as connection, pytest.raises(BrokenAnswerError):
        read(connection)
    assert connection.is_sent


def test_more_than_may_come() -> None:
    """A body that is too long is told as such, however its length is said, and the connection is not used again."""
    for answer in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world",
        CHUNKED + b"6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n",
    ):
        with asking(answer) as connection:
            assert (read(connection, most=10).body, connection.is_reusable) == (None, False)


def test_what_follows_an_answer_is_no_answer() -> None:
    """Bytes behind an answer are not taken for the next one's: the connection is not used again."""
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    with asking(whole + whole) as connection:
        assert (read(connection).body, connection.is_reusable) == (b"{}", False)


def test_an_answer_that_ends_with_its_connection() -> None:
    """It has no length: what was said to its end is read, and the connection is not used again, also where nothing else shows it."""
    with asking(b"HTTP/1.1 200 OK\r\n\r\n{}") as connection:
        assert (read(connection).body, connection.is_reusable) == (b"{}", False)


def test_a_continue_is_no_answer() -> None:
    """What is said ahead of the answer is passed over."""
    with asking(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n") as connection:
        assert read(connection).status == 204


@pytest.mark.parametrize(
    "head", [b"", b"HTTP/1.1 20", b"ICY 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000]
)
def test_a_head_that_is_none(head: bytes) -> None:
    """A head that breaks off, is no HTTP or has no end is no answer."""
    with asking(head) as connection, pytest.raises(BrokenAnswerError):
        read(connection)


def test_a_lost_answer_of_the_resolver_costs_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who connects beside or after the one whose look-up hangs asks anew: a push service is not given up for it."""
    over, asked = threading.Event(), []

    def lookup(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        if len(asked) == 1:
            over.wait()
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr("relevo.providers.lookups.socket.getaddrinfo", lookup)
    with pytest.raises(TimeoutError):
        look_up("push.example", 443, 0.01)
    try:
        assert look_up("push.example", 443, 20) == ["127.0.0.1"]
    finally:
        over.set()
