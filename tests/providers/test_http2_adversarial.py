"""An HTTP/2 server that is slow, silent, lying, flooding or half closed: what becomes of each request, and by when.

Each scenario names what became of the requests, in how many seconds at most, and with how much CPU. In all of them
nothing reaches the server a second time, but for what a GOAWAY left out.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from relevo.providers.http2.client import Answered, CallTime, Http2Client, Request
from support.http2_exchange import kinds, loopback, post, trusting
from support.scripted_http2 import CANCEL, Asked, Peer, Script, ScriptedHttp2, Settings, answer_all

LIMIT_S = 1.2
LATE_S = 0.5
"""So much later than its limit a call may end on a busy machine."""
OK_HEAD, HINT_HEAD, NO_STATUS = b"\x88", b"\x08\x03103", b"\x00\x01a\x01b"
SILENCE, BROKEN, UNBEGUN = "Unknown ReadTimeout", "Unknown ConnectionBroken", "NotSent NotBegun"


@dataclass(frozen=True)
class Scenario:
    """What a server does, and what must become of the requests."""

    scripts: tuple[Script, ...]
    became: dict[str, int]
    """How many of which outcome; -1 for some."""
    requests: int = 20
    body: bytes = b"{}"
    settings: dict[Settings, int] = field(default_factory=dict)
    limit_s: float = LIMIT_S
    within_s: float = LIMIT_S + LATE_S
    connections: int = 1
    client: dict[str, Any] = field(default_factory=dict)


def waiting(act: Callable[[Peer, list[Asked]], None], count: int = 20) -> Script:
    """Wait for requests, do something, and read on until the client hangs up."""

    def script(peer: Peer) -> None:
        act(peer, peer.wait_for(count))
        peer.wait_for_end()

    return script


def raw(*frames: Frame) -> bytes:
    """Write frames, whether they may be written or not."""
    return b"".join(frame.serialize() for frame in frames)


def head(stream_id: int, block: bytes = OK_HEAD, *flags: str) -> Frame:
    """Return a frame of headers."""
    return HeadersFrame(stream_id, block, flags=["END_HEADERS", *flags])


def answering(each_s: float, *, but: int = -1) -> Script:
    """Answer what has come together after a pause, one request perhaps never."""

    def script(peer: Peer) -> None:
        while True:
            open_now = [each for each in peer.asked.values() if each.is_whole and not each.is_answered]
            if open_now:
                time.sleep(each_s)
            for asked in open_now:
                if asked.path != f"/{but}":
                    peer.answer(asked)
                asked.is_answered = True
            peer.read()

    return script


def flooding(frame: bytes, *, answered: int = 0, pause_s: float = 0.0) -> Script:
    """Answer some, then send a frame again and again until the client hangs up."""

    def act(peer: Peer, asked: list[Asked]) -> None:
        for each in asked[:answered]:
            peer.answer(each)
        while True:
            peer.say(frame if pause_s else frame * 200)
            time.sleep(pause_s)

    return waiting(act)


def saying(frames: Callable[[list[Asked]], bytes], *, answered: int = 0) -> Script:
    """Answer some, then send bytes."""

    def act(peer: Peer, asked: list[Asked]) -> None:
        for each in asked[:answered]:
            peer.answer(each)
        peer.say(frames(asked))

    return waiting(act)


def leaving_after(count: int) -> Script:
    """Answer so many, and say GOAWAY above the last of them."""

    def script(peer: Peer) -> None:
        asked = peer.wait_for(1)
        while len(asked) < count and len(peer.asked) >= len(asked):
            asked = peer.wait_for(min(count, len(peer.asked)))
            if len(asked) == len(peer.asked) and len(asked) < count:
                break
        peer.goaway(asked[-1].stream_id)
        for each in asked:
            peer.answer(each)
        peer.wait_for_end()

    return script


def dribbling(peer: Peer, asked: list[Asked]) -> None:
    """Answer one byte at a time, and never to the end."""
    for byte in raw(head(asked[0].stream_id), DataFrame(asked[0].stream_id, b"x" * 100)):
        peer.say(bytes([byte]))
        time.sleep(0.05)


def stingy(peer: Peer) -> None:
    """Give back nothing to the connection's window, and answer what came whole."""
    peer.acknowledges = False
    answering(0.0)(peer)


def one_stuck(peer: Peer) -> None:
    """Open the window of every stream but the first, and answer what came whole."""
    peer.acknowledges = False
    opened = {1}
    while True:
        for asked in list(peer.asked.values()):
            if asked.stream_id not in opened:
                opened.add(asked.stream_id)
                peer.open_windows(1_000, asked.stream_id)
            if asked.is_whole and not asked.is_answered:
                peer.answer(asked)
        peer.read()


def deaf(peer: Peer) -> None:
    """Read one request and nothing else."""
    while not peer.asked:
        peer.read()
    time.sleep(LIMIT_S + LATE_S)


def reset_by_peer(peer: Peer, asked: list[Asked]) -> None:
    """Answer five and cut the connection hard."""
    for each in asked[:5]:
        peer.answer(each)
    time.sleep(0.1)  # what is unread when a connection is reset is thrown away
    peer._link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.hang_up()


def early(peer: Peer) -> None:
    """Refuse each request before its body has come."""
    peer.acknowledges = False
    while True:
        for asked in list(peer.asked.values()):
            if not asked.is_answered:
                peer.answer(asked, 413)
        peer.read()


def hints_first(peer: Peer, asked: list[Asked]) -> None:
    """Send a few early hints, then the answer, with trailers."""
    for each in asked:
        number = each.stream_id
        peer.say(raw(head(number, HINT_HEAD), head(number, HINT_HEAD), head(number), DataFrame(number, b"x")))
        peer.say(raw(head(number, NO_STATUS, "END_STREAM")))


def shrinking(peer: Peer) -> None:
    """Shrink all windows below zero amid the bodies, and open them again."""
    peer.acknowledges = False
    while not peer.asked:
        peer.read()
    peer.set(INITIAL_WINDOW_SIZE=0)
    peer.set(INITIAL_WINDOW_SIZE=65_535)
    peer.acknowledges = True
    peer.open_windows(1_000_000)
    answering(0.0)(peer)


def late_settings(peer: Peer) -> None:
    """Allow no stream for a moment."""
    time.sleep(0.1)
    peer.set(MAX_CONCURRENT_STREAMS=5)
    answering(0.0)(peer)


PING, HINT = PingFrame(0, b"12345678").serialize(), head(1, HINT_HEAD).serialize()
EMPTY_DATA, UNKNOWN_KIND = DataFrame(1, b"").serialize(), b"\x00\x00\x01\xfa\x00\x00\x00\x00\x01x"
FLOODS = {
    "pings": PING,
    "settings": SettingsFrame(0, settings={SettingsFrame.MAX_CONCURRENT_STREAMS: 100}).serialize(),
    "early hints": HINT,
    "windows": WindowUpdateFrame(1, window_increment=1).serialize(),
    "empty data": raw(head(1)) + EMPTY_DATA * 50,
    "priorities": PriorityFrame(1, depends_on=3).serialize(),
    "frames of no known kind": UNKNOWN_KIND,
    "resets of what has ended": RstStreamFrame(1, error_code=CANCEL).serialize(),
    "endless headers": HeadersFrame(1, OK_HEAD).serialize() + ContinuationFrame(1, NO_STATUS * 20).serialize() * 50,
}
LIES: dict[str, Callable[[list[Asked]], bytes]] = {
    "an answer to nothing": lambda _: raw(head(2_001)),
    "data ahead of headers": lambda asked: raw(DataFrame(asked[12].stream_id, b"x")),
    "a frame longer than allowed": lambda _: b"\x00\x80\x00\x00\x00\x00\x00\x00\x01" + b"x" * 32_768,
    "headers that cannot be decoded": lambda asked: raw(head(asked[12].stream_id, b"\xff\xff\xff\xff\xff\xff")),
    "a window opened by nothing": lambda _: bytes([0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    "a window beyond all bounds": lambda _: raw(WindowUpdateFrame(0, window_increment=2**31 - 1)),
    "a promise of a push": lambda asked: raw(
        PushPromiseFrame(asked[12].stream_id, promised_stream_id=2, data=OK_HEAD, flags=["END_HEADERS"])
    ),
    "HTTP/1.1": lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100,
    "a setting that is none": lambda _: raw(SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 2**31})),
}

SOON: Any = {"limit_s": 10, "within_s": 5}
"""Of scenarios that end by themselves, long before the limit of the call."""
SCENARIOS: dict[str, Scenario] = {
    "slow, and a few streams at once": Scenario(
        (answering(0.3),),
        {"200": -1, UNBEGUN: -1},
        60,
        settings={Settings.MAX_CONCURRENT_STREAMS: 5},
        limit_s=3,
        within_s=3 + LATE_S,
    ),
    "so slow that each stream takes half of the time": Scenario(
        (answering(1.35),),
        {"200": 5, UNBEGUN: 15},
        settings={Settings.MAX_CONCURRENT_STREAMS: 5},
        limit_s=3,
        within_s=3 + LATE_S,
    ),
    "slow, and all streams at once": Scenario((answering(0.7),), {"200": 100}, 100, **SOON),
    "one silent stream of a hundred": Scenario((answering(0.0, but=37),), {"200": 99, SILENCE: 1}, 100),
    "silent": Scenario((waiting(lambda _peer, _asked: None),), {SILENCE: 20}),
    "silent to the first, which goes alone": Scenario(
        (waiting(lambda _peer, _asked: None, 1),), {SILENCE: 1, UNBEGUN: 19}, client={"one_stream_first": True}
    ),
    "one byte at a time": Scenario((waiting(dribbling),), {SILENCE: 20}),
    "no stream allowed": Scenario(
        (waiting(lambda _peer, _asked: None, 1),),
        {UNBEGUN: 20},
        settings={Settings.MAX_CONCURRENT_STREAMS: 0},
        within_s=LIMIT_S / 2 + LATE_S,
    ),
    "no stream allowed at first": Scenario(
        (late_settings,), {"200": 20}, settings={Settings.MAX_CONCURRENT_STREAMS: 0}, **SOON
    ),
    **{
        f"a flood of {name}": Scenario((flooding(frame),), {BROKEN: 20}, **SOON)
        for name, frame in FLOODS.items()
        if name != "resets of what has ended"
    },
    "a flood of resets of what has ended": Scenario(
        (flooding(FLOODS["resets of what has ended"], answered=10),), {"200": 10, BROKEN: 10}, **SOON
    ),
    "a flood behind half of the answers": Scenario((flooding(PING, answered=10),), {"200": 10, BROKEN: 10}, **SOON),
    "pings that do not stop": Scenario((flooding(PING, pause_s=0.02),), {SILENCE: 20}),
    "early hints that do not stop": Scenario((flooding(HINT, pause_s=0.02),), {SILENCE: 20}),
    **{
        f"answers, then {name}": Scenario((saying(lie, answered=12),), {"200": 12, BROKEN: 8}, **SOON)
        for name, lie in LIES.items()
    },
    "a status that is none": Scenario(
        (
            waiting(
                lambda peer, asked: [peer.say(raw(head(each.stream_id, NO_STATUS, "END_STREAM"))) for each in asked]
            ),
        ),  # type: ignore[arg-type, func-returns-value]
        {"Unknown BrokenAnswer": 20},
        **SOON,
    ),
    "hints and trailers": Scenario((waiting(hints_first),), {"200": 20}, **SOON),
    "GOAWAY every 20 requests": Scenario(
        (leaving_after(20),) * 5,
        {"200": 100},
        100,
        settings={Settings.MAX_CONCURRENT_STREAMS: 20},
        connections=5,
        **SOON,
    ),
    "GOAWAY to everything": Scenario(
        (waiting(lambda peer, _: peer.goaway(0)),), {"NotSent GoAway": 20}, connections=2, **SOON
    ),
    "GOAWAY, and silence on what it let through": Scenario(
        (waiting(lambda peer, asked: peer.goaway(asked[4].stream_id)), answer_all), {SILENCE: 5, "NotSent GoAway": 15}
    ),
    "GOAWAY, and the connection cut": Scenario(
        (lambda peer: peer.goaway(peer.wait_for(20)[4].stream_id), answer_all),
        {BROKEN: 5, "NotSent GoAway": 15},
        **SOON,
    ),
    "the connection cut behind five answers": Scenario((waiting(reset_by_peer),), {"200": 5, BROKEN: 15}, **SOON),
    "refused streams": Scenario(
        (waiting(lambda peer, asked: [peer.reset(each, 7) for each in asked]),),  # type: ignore[arg-type, func-returns-value]
        {"NotSent RefusedStream": 20},
        **SOON,
    ),
    "cancelled streams": Scenario(
        (waiting(lambda peer, asked: [peer.reset(each, CANCEL) for each in asked]),),  # type: ignore[arg-type, func-returns-value]
        {"Unknown StreamReset": 20},
        **SOON,
    ),
    "refusals ahead of the bodies": Scenario(
        (early,), {"413": 20}, body=b"x" * 1_000, settings={Settings.INITIAL_WINDOW_SIZE: 10}, **SOON
    ),
    "windows that shrink below nothing": Scenario((shrinking,), {"200": 20}, body=b"x" * 5_000, **SOON),
    "a connection's window that never opens": Scenario((stingy,), {"200": 16, UNBEGUN: 4}, body=b"x" * 4_000),
    "one stream's window that never opens": Scenario(
        (one_stuck,), {"200": 19, SILENCE: 1}, 20, body=b"x" * 100, settings={Settings.INITIAL_WINDOW_SIZE: 10}
    ),
    "a server that stops reading": Scenario(
        (deaf,), {}, 100, body=b"x" * 65_000, settings={Settings.INITIAL_WINDOW_SIZE: 2**30}
    ),
}


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[ScriptedHttp2]:
    """The server of a scenario."""
    scenario: Scenario = request.param
    with ScriptedHttp2(*scenario.scripts, settings=scenario.settings) as started:
        yield started


@pytest.mark.parametrize(
    ("scenario", "server"), [pytest.param(each, each, id=name) for name, each in SCENARIOS.items()], indirect=["server"]
)
def test_a_hostile_server(scenario: Scenario, server: ScriptedHttp2) -> None:
    """Each request has the outcome that is true of it, in time, with little CPU, and none is sent a second time."""
    ours = Http2Client(server.origin, tls=trusting(), connect_s=5, resolve=loopback, **scenario.client)
    requests = [Request(*post(number, scenario.body)) for number in range(scenario.requests)]
    ours._ready(time.monotonic() + 5)
    heard: dict[int, Answered] = {}
    began, cpu = time.monotonic(), time.thread_time()
    outcomes = ours.exchange(requests, CallTime(scenario.limit_s), heard.__setitem__)
    took, cpu = time.monotonic() - began, time.thread_time() - cpu
    ours.close()
    became = Counter(kinds(outcomes))
    some = {kind: became[kind] for kind, count in scenario.became.items() if count < 0 < became[kind]}
    assert became == scenario.became | some or not scenario.became
    assert (took < scenario.within_s, cpu < 1.0) == (True, True), f"{took:.2f} s, {cpu:.2f} s of CPU"
    assert heard == {number: each for number, each in enumerate(outcomes) if isinstance(each, Answered)}
    assert len(server.peers) == scenario.connections
    processed = Counter(each.path for peer in server.peers for each in peer.asked.values() if each.is_answered)
    assert max(processed.values(), default=0) <= 1
    unsent = {f"/{number}" for number, each in enumerate(outcomes) if type(each).__name__ == "NotSent"}
    assert processed.keys().isdisjoint(unsent)


def test_forty_scenarios() -> None:
    """The table does not shrink."""
    assert len(SCENARIOS) >= 40
