"""The request pool lets in what it can send soon: what is journalled should not wait while its phone may change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

import pytest

from relevo.delivery.projects.request_pool import RequestPool
from support.processes import eventually

SLOW_MS, QUICK_MS = 5_000.0, 1.0


class Pool(RequestPool):
    """A pool of four threads whose requests end when the test says so."""

    def __init__(self) -> None:
        super().__init__("test")
        self.resize(4)
        self.gates: list[threading.Event] = []

    def send(self, lane: str, count: int) -> None:
        """Enter, submit and leave, as a batch does, with requests that are all under way afterwards."""
        assert self.enter(lane, count, lambda: True) == count
        for _ in range(count):
            self.gates.append(threading.Event())
            self.submit(lane, self.gates[-1].wait)
        self.exit(lane, count)


@pytest.fixture
def pool() -> Iterator[Pool]:
    """A pool whose requests have taken long so far."""
    made = Pool()
    made.latency_ms = SLOW_MS
    yield made
    for gate in made.gates:
        gate.set()
    made.close()


@pytest.fixture
def door(pool: Pool) -> Iterator[ThreadPoolExecutor]:
    """Threads that wait to be let in; whoever still waits at the end gives up."""
    with ThreadPoolExecutor(4) as threads:
        yield threads
        for gate in pool.gates:
            gate.set()


def waits(pool: Pool, entering: Future[int], expected: int) -> None:
    """Check that somebody stands at the door, so that so many requests are told of, and is not let in."""
    eventually(lambda: pool.under_way() == expected, "it waits at the door")
    assert not entering.done()


def test_no_more_than_there_are_threads_where_requests_take_long(pool, door) -> None:
    """A fifth request waits outside until one of four ends; it counts as under way, so that nobody claims more for it."""
    pool.send("bulk", 4)
    entering = door.submit(pool.enter, "bulk", 3, lambda: False)
    waits(pool, entering, 7)
    pool.gates[0].set()
    assert entering.result(10) == 1
    assert pool.under_way() == 3 + 1
    pool.exit("bulk", 1)
    assert pool.under_way() == 3


def test_some_wait_inside_where_requests_are_quick(pool) -> None:
    """Then the next wave is journalled while the last one is sent: a few per thread, and no more."""
    pool.latency_ms = QUICK_MS
    assert pool.enter("bulk", 100, lambda: True) == 4 + 4 * 4
    assert pool.enter("bulk", 1, lambda: True) == 0
    pool.exit("bulk", 20)
    pool.latency_ms = 250
    assert pool.enter("bulk", 100, lambda: True) == 4 + 4


def test_nobody_is_let_in_behind_a_request_that_hangs(pool, door) -> None:
    """However quick they were: while one takes long, only so many are let in as threads are free."""
    pool.latency_ms = QUICK_MS
    pool.send("bulk", 1)
    eventually(lambda: pool._places("bulk") == 3, "the request has taken long")
    assert pool.enter("bulk", 100, lambda: True) == 3
    entering = door.submit(pool.enter, "bulk", 1, lambda: False)
    waits(pool, entering, 5)
    pool.gates[0].set()
    assert entering.result(10) == 1


def test_lanes_share_the_threads(pool) -> None:
    """Who comes second finds half of them, however many the first has; a lane alone has all."""
    assert pool.enter("bulk", 100, lambda: True) == 4
    assert pool.enter("urgent", 100, lambda: True) == 2
    pool.exit("bulk", 4)
    assert pool.enter("bulk", 100, lambda: True) == 2
    pool.exit("urgent", 2)
    assert pool.enter("bulk", 100, lambda: True) == 2


def test_waiting_is_given_up(pool, door) -> None:
    """Whoever must stop is not kept at the door, and leaves nothing behind."""
    pool.send("bulk", 4)
    stop = threading.Event()
    entering = door.submit(pool.enter, "bulk", 2, stop.is_set)
    waits(pool, entering, 6)
    stop.set()
    assert entering.result(10) == 0
    assert pool.under_way() == 4


def test_a_larger_pool_lets_more_in(pool, door) -> None:
    """Connections that another worker gave back are used at once."""
    pool.send("bulk", 4)
    entering = door.submit(pool.enter, "bulk", 6, lambda: False)
    waits(pool, entering, 10)
    pool.resize(6)
    assert entering.result(10) == 2


def test_after_each_urgent_request_a_bulk_one_has_its_turn() -> None:
    """On one connection both lanes go on while both wait, the urgent one first."""
    pool, gate, order = RequestPool("test"), threading.Event(), list[str]()
    first = pool.submit("bulk", gate.wait)
    eventually(lambda: first.taken_at is not None, "the only thread is busy")
    calls = [pool.submit(lane, partial(order.append, lane)) for lane in ("urgent",) * 3 + ("bulk",) * 3]
    gate.set()
    wait(calls)
    pool.close()
    assert order == ["urgent", "bulk"] * 3
