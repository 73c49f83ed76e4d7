"""The HTTP/2 client: what became of each request, whatever the other side does; with h2 and with jh2."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from support.http2_exchange import Client, exchange, kinds, post, wait_until_heard
from support.scripted_http2 import CANCEL, REFUSED_STREAM, Peer, Settings, answer_all

ENHANCE_YOUR_CALM = 11


def test_answers_come_back_in_the_order_of_the_requests(served: Any, client: Client) -> None:
    """Each request gets its own answer, however the server orders them, over one connection for many calls."""

    def backwards(peer: Peer) -> None:
        for asked in reversed(peer.wait_for(30)):
            peer.answer(asked, body=asked.path.encode(), apns_id="x")
        answer_all(peer)

    server = served(backwards)
    ours = client(server)
    outcomes = exchange(ours, 30)
    assert [each.body.decode() for each in outcomes] == [f"/{number}" for number in range(30)]
    assert outcomes[0].headers["apns-id"] == "x"
    assert kinds(exchange(ours, 30)) == ["200"] * 30
    assert len(server.peers) == 1
    assert server.peers[0].asked[1].headers[":authority"] == server.origin.removeprefix("https://")


def test_path_and_token_are_never_indexed(served: Any, client: Client, http2: ModuleType) -> None:
    """Unless the caller names others, :path and the authorization are literals that no table keeps."""
    server = served()
    headers = post(1, authorization="bearer x", **{"apns-id": "1", "apns-topic": "shop"})[0]
    for number, named in enumerate(((":path", "authorization"), (":path", "apns-id"), ())):
        ours = client(server, not_indexed=named) if number else client(server)
        assert kinds(ours.exchange([http2.Request(headers, b"")], http2.CallTime(20))) == ["200"]
        assert server.peers[number].asked[1].never_indexed == set(named)


@pytest.mark.parametrize("table_bytes", [0, 150, 4_096])
def test_headers_arrive_as_they_were_given(served: Any, client: Client, http2: ModuleType, table_bytes: int) -> None:
    """Shared ones, changing ones and ones that are back again, while the table moves, overflows, or may hold nothing."""
    server = served(settings={Settings.HEADER_TABLE_SIZE: table_bytes})
    ours = client(server, not_indexed=(":path", "authorization"))
    shared = {"authorization": "bearer x", "content-type": "application/json", "apns-topic": "shop"}
    own = [{"apns-expiration": str(number // 7), "apns-id": f"id-{number % 11}"} for number in range(120)]
    asked = [post(number, **shared | each) for number, each in enumerate(own)]
    for begin in range(0, len(asked), 40):
        some = [http2.Request(*each) for each in asked[begin : begin + 40]]
        assert kinds(ours.exchange(some, http2.CallTime(20))) == ["200"] * 40
    got = [each.headers for each in server.peers[0].asked.values()]
    given = [dict(headers) | {":scheme": "https", ":authority": ours._authority} for headers, _ in asked]
    assert got == given
    assert ours._kept._http.open_outbound_streams == 0


def test_streams_that_ended_are_let_go(served: Any, client: Client) -> None:
    """A connection that is kept for days does not gather the streams of all its calls."""
    ours = client(served(), most_streams=10)
    for _ in range(5):
        assert kinds(exchange(ours, 10)) == ["200"] * 10
    assert len(ours._kept._http.streams) <= 10


@pytest.mark.parametrize("value", ["a\r\nb", "ñ", "\x00"])
def test_a_header_that_cannot_be_written_is_refused(served: Any, client: Client, http2: ModuleType, value: str) -> None:
    """The caller's mistake is raised by the header's name before anything is sent."""
    server = served()
    with pytest.raises(ValueError, match="apns-id"):
        client(server).exchange([http2.Request(post(1, **{"apns-id": value})[0], b"")], http2.CallTime(20))
    assert server.peers == []


def test_goaway_above_its_last_stream_goes_on_elsewhere(served: Any, client: Client) -> None:
    """Streams above were not processed and go on over a new connection; those below are answered after the GOAWAY."""

    def leaving(peer: Peer) -> None:
        asked = peer.wait_for(10)
        peer.goaway(asked[4].stream_id, text=b'{"reason":"Shutdown"}')
        for each in asked[:5]:
            peer.answer(each)
        peer.wait_for_end()

    server = served(leaving, answer_all)
    ours = client(server, most_streams=10)
    assert kinds(exchange(ours, 15)) == ["200"] * 15
    assert sorted(each.path for each in server.peers[1].asked.values()) == sorted(f"/{n}" for n in range(5, 15))
    assert kinds(exchange(ours, 2)) == ["200"] * 2
    assert len(server.peers) == 2


def test_a_service_that_only_says_goaway_is_left_alone(served: Any, client: Client) -> None:
    """Two connections in a row that answer nothing end the call: nothing was sent, and the reason is kept."""

    def leaving(peer: Peer) -> None:
        peer.wait_for(10)
        peer.goaway(0, text=b'{"reason":"Shutdown"}')
        peer.wait_for_end()

    server = served(leaving)
    outcomes = exchange(client(server), 10)
    assert kinds(outcomes) == ["NotSent GoAway"] * 10
    assert "Shutdown" in outcomes[5].message
    assert len(server.peers) == 2


def test_goaway_without_an_answer_below_is_unknown(served: Any, client: Client) -> None:
    """A stream at or below the last one of a GOAWAY, unanswered when the connection ends, may have been processed."""

    def vanishing(peer: Peer) -> None:
        asked = peer.wait_for(4)
        peer.answer(asked[0])
        peer.goaway(asked[2].stream_id, ENHANCE_YOUR_CALM)

    outcomes = exchange(client(served(vanishing)), 4)
    assert kinds(outcomes) == ["200", "Unknown ConnectionBroken", "Unknown ConnectionBroken", "NotSent GoAway"]


def test_a_graceful_shutdown_says_goaway_twice(served: Any, client: Client) -> None:
    """The first GOAWAY of a graceful shutdown names no stream; the second one counts, and the others go on."""

    def graceful(peer: Peer) -> None:
        asked = peer.wait_for(3)
        peer.goaway(2**31 - 1)
        peer.answer(asked[0])
        peer.goaway(asked[0].stream_id)
        peer.wait_for_end()

    server = served(graceful, answer_all)
    assert kinds(exchange(client(server), 3)) == ["200"] * 3
    assert [len(peer.asked) for peer in server.peers] == [3, 2]


def test_a_goaway_in_pieces(served: Any, client: Client) -> None:
    """A GOAWAY that comes byte by byte, between two answers, is read like any other."""

    def piecemeal(peer: Peer) -> None:
        asked = peer.wait_for(2)
        for byte in bytes([0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, asked[0].stream_id, 0, 0, 0, 0]):
            peer.say(bytes([byte]))
        peer.answer(asked[0], body=b"late")
        peer.wait_for_end()

    outcomes = exchange(client(served(piecemeal, answer_all)), 2)
    assert [each.body for each in outcomes] == [b"late", b"/1"]


def test_a_goaway_while_idle_is_seen_before_anything_is_written(served: Any, client: Client) -> None:
    """A kept connection that was ended meanwhile is replaced: nothing is unknown, nothing is refused."""

    def ending(peer: Peer) -> None:
        peer.answer(peer.wait_for(1)[0])
        peer.goaway(1)
        peer.wait_for_end()

    server = served(ending, answer_all)
    ours = client(server)
    assert kinds(exchange(ours, 1)) == ["200"]
    wait_until_heard(ours)
    assert kinds(exchange(ours, 3)) == ["200"] * 3
    assert [len(peer.asked) for peer in server.peers] == [1, 3]


def test_a_connection_closed_while_idle_is_replaced(served: Any, client: Client) -> None:
    """A kept connection that was closed meanwhile, without a word, is replaced before anything is written."""
    server = served(lambda peer: (peer.answer(peer.wait_for(1)[0]), peer.hang_up()), answer_all)
    ours = client(server)
    assert kinds(exchange(ours, 1)) == ["200"]
    wait_until_heard(ours)
    assert kinds(exchange(ours, 1)) == ["200"]


def test_refused_streams_are_not_sent_and_others_go_on(served: Any, client: Client) -> None:
    """REFUSED_STREAM means not processed; any other reset may come after processing; the connection stays."""

    def picky(peer: Peer) -> None:
        asked = peer.wait_for(3)
        peer.reset(asked[0], REFUSED_STREAM)
        peer.reset(asked[1], CANCEL)
        peer.answer(asked[2])
        peer.wait_for_end()

    server = served(picky)
    assert kinds(exchange(client(server), 3)) == ["NotSent RefusedStream", "Unknown StreamReset", "200"]


def test_a_connection_that_breaks_leaves_what_was_written_unknown(served: Any, client: Client) -> None:
    """What was written may have been processed; what waited for its turn was not."""
    server = served(lambda peer: (peer.answer(peer.wait_for(4)[0]), peer.hang_up()))
    outcomes = exchange(client(server, most_streams=4), 10)
    assert outcomes[0].status == 200
    assert kinds(outcomes[1:4]) == ["Unknown ConnectionBroken"] * 3
    assert {type(each).__name__ for each in outcomes[5:]} == {"NotSent"}


def test_what_was_never_handed_over_is_not_sent(served: Any, client: Client) -> None:
    """Of requests that are more than a socket holds, to a server that stops reading, the last ones never left."""

    def deaf(peer: Peer) -> None:
        while not peer.asked:
            peer.read()

    server = served(deaf, settings={Settings.INITIAL_WINDOW_SIZE: 2**30})
    ours = client(server)
    outcomes = exchange(ours, 100, body=b"x" * 65_000)
    assert outcomes[0].__class__.__name__ == "Unknown"
    assert outcomes[-1].__class__.__name__ == "NotSent"


def test_no_more_streams_than_the_server_takes(served: Any, client: Client) -> None:
    """MAX_CONCURRENT_STREAMS holds from the first request, and changes while requests are under way."""

    def changing(peer: Peer) -> None:
        first = peer.wait_for(3)
        assert peer.most_open == 3
        peer.set(MAX_CONCURRENT_STREAMS=1)
        peer.read()  # the acknowledgement
        for asked in first:
            peer.answer(asked)
        peer.most_open = 0
        for number in range(4, 8):
            peer.answer(peer.wait_for(number)[-1])
        assert peer.most_open == 1
        peer.set(MAX_CONCURRENT_STREAMS=5)
        peer.wait_for(7 + 5)
        answer_all(peer)

    server = served(changing, settings={Settings.MAX_CONCURRENT_STREAMS: 3})
    assert kinds(exchange(client(server), 30)) == ["200"] * 30
    assert server.peers[0].most_open == 5


def test_no_stream_allowed_is_waited_for(served: Any, client: Client) -> None:
    """A server that takes no stream for now is waited for while a request could end in time; then nothing was sent."""

    def shut(peer: Peer) -> None:
        peer.wait_for_end()

    server = served(shut, settings={Settings.MAX_CONCURRENT_STREAMS: 0})
    assert kinds(exchange(client(server), 2, timeout_s=0.5)) == ["NotSent NotBegun"] * 2
    assert server.peers[0].asked == {}


def test_one_stream_until_an_answer_shows_that_the_token_is_valid(served: Any, client: Client) -> None:
    """The first request goes alone; so does the next if the first was refused for its token; then all go at once."""

    def wary(peer: Peer) -> None:
        peer.answer(peer.wait_for(1)[0], 403)
        peer.answer(peer.wait_for(2)[1])
        assert peer.most_open == 1
        for asked in peer.wait_for(10)[2:]:
            peer.answer(asked)
        assert peer.most_open == 8
        for asked in peer.wait_for(15)[10:]:
            peer.answer(asked)
        assert peer.most_open == 8
        peer.wait_for_end()

    server = served(wary)
    ours = client(server, one_stream_first=True)
    assert kinds(exchange(ours, 10)) == ["403"] + ["200"] * 9
    assert kinds(exchange(ours, 5)) == ["200"] * 5


def test_the_connection_window_is_waited_for(served: Any, client: Client) -> None:
    """Bodies beyond the connection's window wait for it to open; nothing is raised, and nothing new is begun."""

    def stingy(peer: Peer) -> None:
        peer.acknowledges = False
        whole = peer.wait_for(16)  # 16 of 4,000 bytes and not one more fit into 65,535
        assert len(peer.asked) <= 17
        peer.acknowledges = True
        peer.open_windows(200_000)
        peer.wait_for(40)
        for asked in peer.wait_for(40):
            peer.answer(asked, body=str(len(asked.body)).encode())
        assert whole
        peer.wait_for_end()

    outcomes = exchange(client(served(stingy)), 40, body=b"x" * 4_000)
    assert [each.body for each in outcomes] == [b"4000"] * 40


def test_a_stream_window_smaller_than_the_body(served: Any, client: Client) -> None:
    """A body goes in the pieces that its stream's window allows."""
    server = served(answer_all, settings={Settings.INITIAL_WINDOW_SIZE: 100})
    assert kinds(exchange(client(server), 5, body=b"x" * 1_000)) == ["200"] * 5
    assert [len(asked.body) for asked in server.peers[0].asked.values()] == [1_000] * 5


def test_a_window_that_never_opens_ends_with_the_time(served: Any, client: Client) -> None:
    """Of what waited for a window in vain, the few streams that were begun are unknown and the rest not sent."""

    def closed(peer: Peer) -> None:
        peer.acknowledges = False
        peer.wait_for_end()

    server = served(closed, settings={Settings.INITIAL_WINDOW_SIZE: 10})
    assert kinds(exchange(client(server), 12, body=b"x" * 100, timeout_s=0.5)) == [
        *["Unknown ReadTimeout"] * 10,
        *["NotSent NotBegun"] * 2,
    ]


def test_the_call_ends_in_its_time(served: Any, client: Client) -> None:
    """Unanswered streams are unknown at the deadline; the next call has a connection of its own, free of late answers."""

    def late(peer: Peer) -> None:
        peer.answer(peer.wait_for(2)[0])
        peer.wait_for_end()

    server = served(late, answer_all)
    ours = client(server)
    assert kinds(exchange(ours, 2, timeout_s=0.5)) == ["200", "Unknown ReadTimeout"]
    assert kinds(exchange(ours, 2)) == ["200", "200"]
    assert len(server.peers) == 2


@pytest.mark.parametrize(("status", "became"), [(200, "Unknown ConnectionBroken"), (410, "410")])
def test_half_an_answer(served: Any, client: Client, status: int, became: str) -> None:
    """A success that broke off is unknown; of a refusal the status is enough."""
    server = served(lambda peer: peer.answer(peer.wait_for(1)[0], status, b"hal", end=False))
    assert kinds(exchange(client(server), 1)) == [became]


@pytest.mark.parametrize(("status", "became"), [(200, "Unknown AnswerTooLong"), (500, "500")])
def test_answers_are_bounded(served: Any, client: Client, status: int, became: str) -> None:
    """No more than 64 KiB of a body are read; the connection serves others on."""

    def endless(peer: Peer) -> None:
        first, second = peer.wait_for(2)
        peer.answer(second)
        peer.answer(first, status, b"x" * 100_000)
        answer_all(peer)

    ours = client(served(endless))
    assert kinds(exchange(ours, 2)) == [became, "200"]


def test_headers_are_bounded(served: Any, client: Client) -> None:
    """An answer with endless headers ends the connection, and is unknown."""
    endless = {f"x{number}": "y" * 1_000 for number in range(100)}
    server = served(lambda peer: (peer.answer(peer.wait_for(1)[0], **endless), peer.wait_for_end()))
    assert kinds(exchange(client(server), 1)) == ["Unknown ConnectionBroken"]


def test_no_http2_at_all(served: Any, client: Client) -> None:
    """Bytes that are no HTTP/2 end the connection; what was written is unknown."""
    server = served(lambda peer: (peer.wait_for(1), peer.say(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 1_000)))
    assert kinds(exchange(client(server), 1)) == ["Unknown ConnectionBroken"]
