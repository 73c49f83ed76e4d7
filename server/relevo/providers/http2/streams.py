"""The requests of one call as streams of an HTTP/2 connection, and what became of each.

A request that was begun and has no whole answer when its connection or its time ends is unknown. A request that was
never begun, that a GOAWAY leaves out or that never left this machine was certainly not sent: it goes on over the next
connection of the same call, or is told as not sent.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from relevo.providers.http2.connection import Event, Goaway, HeaderTuple, Http2Connection, events
from relevo.providers.http_connection import BrokenAnswerError, ProxyRefusedError, is_success, left

MAX_ANSWER_BYTES = 65_536
_SERVER_ERROR = 500
_NO_VALID_TOKEN = (401, 403)
_REFUSED_STREAM = 7
_MOST_BLOCKED = 10
"""So many bodies may wait for the windows of their streams before no further request is begun."""
_LEAST_WINDOW = 16_384
"""A body that is longer may be begun while no more of it fits into the connection's window."""
_MOST_LATE_READS = 16
"""So many pieces that have arrived when the time is over are still read: answers may be among them."""


class Request(NamedTuple):
    """The request: `headers` begin with :method and :path; :scheme and :authority are the client's."""

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


CallOutcome = Answered | NotSent | Unknown
Heard = Callable[[int, Answered], None]
"""Takes the answer to a request, given by its place in the call, as soon as it is whole."""


class CallTime:
    """The time of one call: when it ends, and how long requests may still be begun.

    A request is begun only while half of the time is left, and twice as much as the slowest answer so far took. One
    that is begun later would be cut off by a service that is slow and well, and would be pushed again.
    """

    def __init__(self, total_s: float) -> None:
        self.until = time.monotonic() + total_s
        self._least_s = total_s / 2

    def apart(self) -> CallTime:
        """Return the same time for another push service, whose answers are timed by themselves."""
        copy = CallTime(0)
        copy.until, copy._least_s = self.until, self._least_s
        return copy

    @property
    def begin_by(self) -> float:
        """Until when a request may be begun."""
        return self.until - self._least_s

    def may_begin(self) -> bool:
        """Return whether a request that is begun now can end in time."""
        return time.monotonic() <= self.begin_by

    def answered(self, begun_at: float) -> None:
        """Note how long an answer took."""
        self._least_s = max(self._least_s, 2 * (time.monotonic() - begun_at))


NOT_BEGUN = NotSent("NotBegun", "too little of the call's time was left")


class Pending:
    """The requests of one call: which of them wait to be begun, and what became of the others."""

    def __init__(self, requests: int, call: CallTime, heard: Heard | None = None) -> None:
        self.call = call
        self.waiting = deque(range(requests))
        self._outcomes: list[CallOutcome | None] = [None] * requests
        self._reasons: dict[int, NotSent] = {}
        self._heard = heard

    def settle(self, index: int, outcome: CallOutcome) -> None:
        """Note what became of a request."""
        self._outcomes[index] = outcome
        if self._heard is not None and isinstance(outcome, Answered):
            self._heard(index, outcome)

    def put_back(self, unsent: Iterable[int], reason: NotSent) -> None:
        """Put requests that were certainly not sent back into the queue, ahead of the others."""
        found = sorted(unsent)
        self._reasons.update(dict.fromkeys(found, reason))
        self.waiting.extendleft(reversed(found))

    def give_up(self, reason: NotSent = NOT_BEGUN) -> None:
        """Begin none of those that wait; each is told why it was not sent when it was tried, or the given reason."""
        for index in self.waiting:
            self._outcomes[index] = self._reasons.get(index, reason)
        self.waiting.clear()

    @property
    def outcomes(self) -> list[CallOutcome]:
        """The outcome of each, in order, once nothing waits."""
        return [each or NOT_BEGUN for each in self._outcomes]


class _Stream:
    """One request under way."""

    __slots__ = ("before", "begun_at", "body", "headers", "index", "rest", "size", "status")

    def __init__(self, index: int, before: int, body: bytes) -> None:
        self.index = index
        self.before = before
        """How many bytes were to be written before its own."""
        self.begun_at = time.monotonic()
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

    def whole(self) -> CallOutcome:
        """Return what a whole answer means."""
        if not self.status:
            return Unknown("BrokenAnswer", "an answer without a status")
        return Answered(self.status, self.headers, b"".join(self.body))

    def broken(self, code: str, message: str) -> CallOutcome:
        """Return what an answer means that is not whole: of a refusal the status is enough."""
        return self.whole() if self.status and not is_success(self.status) else Unknown(code, message)


Encoded = tuple[list[HeaderTuple], bytes]


class Streams:
    """The streams of one call on one connection."""

    def __init__(self, kept: Http2Connection, requests: Sequence[Encoded], pending: Pending) -> None:
        self._kept = kept
        self._requests = requests
        self._pending = pending
        self._open: dict[int, _Stream] = {}
        self._late_reads = 0
        self.answers = 0
        self.has_unknown = False
        """Whether a request was begun here of which nobody knows what became of it."""
        self.trouble: NotSent | None = None
        """The error that broke the connection, in words for requests that waited for it."""
        self.has_valid_answer = False
        """Whether an answer shows that the other side accepts the sender's token."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is under way, and nothing can be begun here any more."""
        return not self._open and not (self._pending.waiting and self._may_begin())

    def _may_begin(self) -> bool:
        return not self._kept.is_going_away and self._pending.call.may_begin()

    def begin(self, most: int) -> None:
        """Begin as many as are allowed now, as far as their bodies fit into the connection's window."""
        if not self._may_begin():
            return
        most = min(most, self._kept.most_streams)
        blocked = sum(bool(stream.rest) for stream in self._open.values())
        waiting = self._pending.waiting
        while waiting and len(self._open) < most and blocked < _MOST_BLOCKED:
            headers, body = self._requests[waiting[0]]
            if self._kept.window < min(len(body), _LEAST_WINDOW):
                return
            stream_id, before = self._kept.begin(headers, end_stream=not body)
            stream = self._open[stream_id] = _Stream(waiting.popleft(), before, body)
            stream.rest = self._kept.send(stream_id, stream.rest)
            blocked += bool(stream.rest)

    def take_turn(self) -> None:
        """Write, wait and read once; raises OSError if the time is over, or the connection broke."""
        if self.is_over:
            return
        call = self._pending.call
        try:
            met = self._kept.transfer(call.until if self._open else call.begin_by)
        except TimeoutError:
            if self._open:
                raise
            return  # nothing was begun, and nothing may be any more
        for event in met:
            self._take(event)
        for stream_id, stream in self._open.items():
            if stream.rest:
                stream.rest = self._kept.send(stream_id, stream.rest)
        if time.monotonic() > call.until:
            self._late_reads += 1
            if self._late_reads > _MOST_LATE_READS:
                left(call.until)

    def end(self, error: OSError) -> None:
        """Note what became of all that is under way when the connection or the time ended."""
        is_late = isinstance(error, TimeoutError)
        code, words = "ReadTimeout" if is_late else "ConnectionBroken", in_words(error)
        self.trouble = NOT_BEGUN if is_late else NotSent(code, words)
        unsent: list[int] = []
        for stream in self._open.values():
            if stream.before < self._kept.offered:
                self._settle(stream, stream.broken(code, words))
            else:
                unsent.append(stream.index)
        self._open.clear()
        self._pending.put_back(unsent, NotSent(code, words))

    def _settle(self, stream: _Stream, outcome: CallOutcome) -> None:
        self.has_unknown |= isinstance(outcome, Unknown)
        self._pending.settle(stream.index, outcome)

    def _take(self, event: Event) -> None:
        if isinstance(event, Goaway):
            words = f"the other side ends the connection {event.text}".strip()
            above = [each for each in self._open if each > event.last_stream_id]
            self._pending.put_back([self._open.pop(each).index for each in above], NotSent("GoAway", words))
            return
        if isinstance(event, events.DataReceived):
            self._kept.acknowledge(event)
        stream_id = getattr(event, "stream_id", None) or 0
        if (stream := self._open.get(stream_id)) is not None and (outcome := self._outcome(stream, event)) is not None:
            del self._open[stream_id]
            self._settle(stream, outcome)

    def _outcome(self, stream: _Stream, event: Event) -> CallOutcome | None:
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
                return self._whole(stream, event.stream_id)
            case events.StreamReset() if event.error_code == _REFUSED_STREAM:
                return NotSent("RefusedStream", "the other side refused the stream")
            case events.StreamReset():
                return stream.broken("StreamReset", f"HTTP/2 error {event.error_code}")
        return None

    def _whole(self, stream: _Stream, stream_id: int) -> CallOutcome:
        """Return what an answer means that has ended, and note how long it took."""
        if stream.rest:
            self._kept.reset(stream_id)  # it was answered before all of it was sent
        self.answers += 1
        self._pending.call.answered(stream.begun_at)
        self.has_valid_answer |= 0 < stream.status < _SERVER_ERROR and stream.status not in _NO_VALID_TOKEN
        return stream.whole()


def in_words(error: Exception) -> str:
    """Return an error for people: the text only of our own, for a system's may hold addresses or secrets."""
    return str(error) if isinstance(error, (BrokenAnswerError, ProxyRefusedError)) else type(error).__name__
