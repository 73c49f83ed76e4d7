"""Requests that hang, in a middleware or in the push service: given up after three leases and told of, nobody else notices."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from relevo.core.model import Reply
from relevo.delivery.projects.request_pool import RequestPool
from relevo.providers.expo.provider import Expo
from support.hanging_worker import Trap, dispatching, is_told, others_flow, problems, tell
from support.processes import eventually
from support.sending_worker import beside, token


@pytest.mark.parametrize("at_most_once", [False, True])
def test_a_middleware_that_hangs_before_the_request(hanging, trap: Trap, at_most_once: bool) -> None:
    """Nothing was sent, so nothing is spent, at most once or not; what wakes up later sends nothing."""

    def middleware(context: Any, send: Callable[[], Reply]) -> Reply:
        if context.lane == "urgent":
            trap()
        return send()

    worker = hanging(push_middlewares=[middleware], push_chunk_size=1)
    tell(worker, "one", "bad", lane="urgent", at_most_once=at_most_once)
    with dispatching(worker) as counts:
        others_flow(worker, trap, *(f"p{n}" for n in range(10)))
    assert counts["partial"] == 1
    assert any("a push middleware (project one) has not come back" in each for each in counts)
    found = worker.delivery("bad")
    assert (found["status"], found["attempt_count"], found["last_error_code"]) == ("pending", 0, "middleware_hung")
    assert (worker.claims(), worker.received("bad")) == (0, 0)
    is_told(worker, "a push middleware (project one)")
    pool = worker.app.services.pools["one"]
    assert (pool.under_way(), pool.in_flight()) == (0, 0)
    trap.open()
    eventually(lambda: trap.free and problems(worker) == "", "it came back")
    assert (worker.received("bad"), worker.delivery("bad")) == (0, found)
    worker.travel(minutes=12)
    worker.dispatch()
    worker.everyone_received(1)


def test_a_middleware_that_hangs_after_the_request(hanging, trap: Trap) -> None:
    """The answer is there, so nobody waits for it: the push is sent, the run ends, the thread is told of in time."""

    def middleware(context: Any, send: Callable[[], Reply]) -> Reply:
        reply = send()
        if context.lane == "urgent":
            trap()
        return reply

    worker = hanging(push_middlewares=[middleware])
    tell(worker, "one", "ana", lane="urgent")
    report = worker.dispatch()
    assert (report.outcome, worker.delivery("ana")["status"], trap.free) == ("ok", "sent", 0)
    assert worker.app.services.pools["one"].in_flight() == 0
    is_told(worker, "a push middleware (project one)")
    report = worker.dispatch()
    assert (report.outcome, report.counts) == ("partial", {"calls_given_up": 1})
    assert "a push middleware (project one)" in report.error
    trap.open()
    eventually(lambda: problems(worker) == "", "it came back")
    assert (worker.posts(), worker.delivery("ana")["status"]) == (1, "sent")


def test_a_provider_call_that_hangs(hanging, trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows whether it was sent; its connection counts for a while, and its late tickets are evidence."""
    send = Expo.send

    def hang(self: Expo, messages: Any, *more: Any) -> Reply:
        if messages[0]["to"] == token("bad"):
            trap()
        return send(self, messages, *more)

    monkeypatch.setattr(Expo, "send", hang)
    worker = hanging(push_chunk_size=1)
    tell(worker, "one", "bad")
    with dispatching(worker) as counts:
        others_flow(worker, trap, *(f"p{n}" for n in range(10)))
    assert (counts["partial"], counts["calls_given_up"]) == (1, 1)
    assert any("the push service (project one) has not come back" in each for each in counts)
    found = worker.delivery("bad")
    assert (found["status"], found["attempt_count"], found["last_error_code"]) == ("retryable", 1, "request_hung")
    pool = worker.app.services.pools["one"]
    assert (pool.under_way(), pool.in_flight()) == (0, 1), "its thread is not counted on, its connection may be open"
    trap.open()
    eventually(lambda: worker.rows("select from relevo.late_tickets"), "its late ticket was kept")
    eventually(lambda: pool.in_flight() == 0, "its connection is free")
    worker.travel(minutes=12)
    worker.dispatch()
    worker.everyone_received(1)
    assert worker.delivery("bad")["status"] == "sent"


@pytest.mark.parametrize(("at_most_once", "expected"), [(False, "retryable"), (True, "unknown")])
def test_a_process_that_stops_leaves_a_hung_request_unanswered(
    hanging, trap: Trap, monkeypatch: pytest.MonkeyPatch, at_most_once: bool, expected: str
) -> None:
    """Nobody waits for the request any more, and nobody knows whether it was sent: whoever takes the claim back must not
    take it for one that was certainly not sent."""
    monkeypatch.setattr(Expo, "send", lambda *_: trap())
    worker = hanging()
    tell(worker, "one", "ana", at_most_once=at_most_once)
    with beside(worker.dispatch):
        eventually(lambda: trap.caught, "it hangs")
        worker.app.runner.stopping.set()
    assert worker.rows("select outcome from relevo.push_requests where outcome is not null") == []
    worker.travel(minutes=1)
    worker.app.runner.stopping.clear()
    worker.reap()
    assert (worker.claims(), worker.delivery("ana")["status"]) == (0, expected)


class TestThePool:
    """Threads of a request pool."""

    def test_one_that_cannot_be_started_is_not_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever asked is told; the next request finds the pool as it was, not full of threads that never were."""
        pool = RequestPool("test")
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name.startswith("relevo-requests"):
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start"):
                pool.submit("bulk", lambda: 1)
        assert (pool.under_way(), pool.in_flight()) == (0, 0)
        assert pool.submit("bulk", lambda: 2).result(60) == 2
        pool.resize(2)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            first, second = pool.submit("bulk", lambda: 3), pool.submit("bulk", lambda: 4)
            assert (first.result(60), second.result(60)) == (3, 4), "the one thread there is serves both"
        pool.close()

    def test_a_connection_that_may_be_open_counts_for_a_while(self, trap: Trap) -> None:
        """A request left behind with its connection takes one of the pool's places until its time is over."""
        pool = RequestPool("test")
        hung = pool.submit("bulk", trap)
        eventually(lambda: trap.caught, "it hangs")
        waiting = pool.submit("bulk", lambda: "sent")
        pool.leave(hung, connected_s=0.5)
        until = time.monotonic() + 0.5
        assert (pool.is_full_of_hung(), pool.in_flight(), pool.under_way()) == (True, 1, 1)
        eventually(lambda: pool.staff() or waiting.done(), "its time is over, and the next has its place")
        assert time.monotonic() >= until
        assert pool.in_flight() == 0
        pool.close()
