"""Code of others that hangs: it is given up after three leases and told of, and nobody else notices."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
from relaying import Relay, beside, token

from processes import eventually
from relevo import insights
from relevo.delivery.posts import MIDDLEWARE, SERVICE
from relevo.delivery.sending import RequestPool
from relevo.model import Reply
from relevo.providers.expo import Expo
from relevo.runtime.hung import MOST_CALLS

SHORT = {"outbox_lease_duration_ms": 4_000, "push_request_timeout_ms": 1_900, "outbox_retry_base_ms": 600_000}
"""Three leases are twelve seconds; what is tried again is so later than any machine takes for a test."""


class Trap:
    """Something that hangs until it is opened, once for each call."""

    def __init__(self) -> None:
        self.caught = 0
        self.free = 0
        self._open = threading.Event()
        self._guard = threading.Lock()

    def __call__(self) -> None:
        """Hang."""
        with self._guard:
            self.caught += 1
        assert self._open.wait(120)
        with self._guard:
            self.free += 1

    def open(self) -> None:
        """Let everything go, now and later."""
        self._open.set()


@pytest.fixture
def trap() -> Iterator[Trap]:
    """A trap that holds nothing after the test."""
    made = Trap()
    yield made
    made.open()


@pytest.fixture
def hanging(relay: Any) -> Callable[..., Relay]:
    """Assemble a worker with short leases and a heart that beats: `hanging(composers=…)`."""

    def make(**more: Any) -> Relay:
        worker: Relay = relay(**SHORT | more)
        worker.app.heartbeat.start()
        return worker

    return make


def tell(worker: Relay, project: str, *names: str, **fields: Any) -> int:
    """Register phones of a project, and enqueue and fan out an event for them."""
    worker.register(*(name for name in names if name not in worker.phones), project=project)
    event_id = worker.enqueue(audience=[worker.phones[name] for name in names], **fields)
    worker.fan_out()
    return event_id


def statuses(worker: Relay, *names: str) -> list[str]:
    """Return the states of the last deliveries to some phones."""
    return [worker.delivery(name)["status"] for name in names]


def problems(worker: Relay) -> str:
    """Return what any other process is told of what hangs in this worker, as of its last heartbeat."""
    found = insights.health(worker.app.database, worker.app.settings).problems
    return "; ".join(problem for problem in found if "hung" in problem)


def is_told(worker: Relay, what: str) -> None:
    """Wait until health says that something hangs in this worker, and since when."""
    words = f"worker {worker.app.worker.worker_id}: {what} has hung since 20"
    eventually(lambda: words in problems(worker), f"health tells that {what} hangs")


@contextmanager
def dispatching(worker: Relay) -> Iterator[Counter[str]]:
    """Run dispatch again and again, as a scheduler does; yields what the runs counted, and ends once a call was given up."""
    counts: Counter[str] = Counter()

    def run() -> None:
        while not counts["calls_given_up"]:
            report = worker.dispatch()
            counts.update(report.counts)
            counts[report.outcome] += 1
            counts[report.error] += 1

    with beside(run):
        yield counts


def others_flow(worker: Relay, trap: Trap, *names: str, **fields: Any) -> None:
    """Check that new pushes of another project, and of the same one, arrive while something hangs."""
    eventually(lambda: trap.caught, "it hangs")
    tell(worker, "two", *(f"two-{name}" for name in names), **fields)
    tell(worker, "one", *(f"one-{name}" for name in names), **fields)
    waited = [f"{project}-{name}" for project in ("one", "two") for name in names]
    eventually(lambda: set(statuses(worker, *waited)) == {"sent"}, "the others are served")
    assert trap.free == 0


def test_a_composer_that_hangs(hanging, trap: Trap) -> None:
    """It costs its own delivery an attempt; others of its batch, lane and project, and other projects, flow meanwhile."""

    def compose(message: dict[str, Any], delivery: Any) -> dict[str, Any]:
        if delivery.token == token("bad"):
            trap()
        return message

    worker = hanging(composers={"slow": compose})
    tell(worker, "one", "bad", "good", type="slow")
    with dispatching(worker) as counts:
        others_flow(worker, trap, "a", "b")
        eventually(lambda: worker.delivery("good")["status"] == "sent", "the others of its batch are sent")
        assert trap.free == 0
    assert counts["partial"] == 1
    assert any("the composer of slow (project one) has not come back" in each for each in counts)
    assert (counts["calls_given_up"], counts["notifications_sent"]) == (1, 5)
    found = worker.delivery("bad")
    assert (found["status"], found["attempt_count"], found["last_error_code"]) == ("retryable", 1, "composer_hung")
    assert (found["lapse_count"], worker.claims()) == (0, 0)
    is_told(worker, "the composer of slow (project one)")
    tell(worker, "one", "later")
    assert worker.dispatch().outcome == "ok", "the next run begins, and is told of nothing twice"
    posts = worker.posts()
    trap.open()
    eventually(lambda: problems(worker) == "", "it came back, and is no trouble any more")
    assert (worker.posts(), worker.received("bad")) == (posts, 0), "what woke up sends nothing"
    assert worker.delivery("bad") == found, "and writes nothing"
    worker.travel(minutes=12)
    worker.dispatch()
    worker.everyone_received(1)


def test_a_run_whose_time_is_over_does_not_wait(hanging, trap: Trap) -> None:
    """It leaves what hangs to the next one, which counts it: what is due meanwhile is served by whatever run is on."""

    def compose(message: dict[str, Any], _delivery: Any) -> dict[str, Any]:
        trap()
        return message

    worker = hanging(composers={"slow": compose}, outbox_lease_duration_ms=30_000)
    tell(worker, "one", "bad", type="slow")
    assert "calls_given_up" not in worker.dispatch(at_most_s=2).counts
    assert (worker.delivery("bad")["status"], worker.claims()) == ("pending", 1)
    tell(worker, "two", "good")
    worker.dispatch(at_most_s=1)
    assert (worker.delivery("good")["status"], trap.free) == ("sent", 0)
    trap.open()
    eventually(lambda: worker.dispatch().counts.get("notifications_sent"), "it came back, and a later run counts it")
    worker.everyone_received(1)


def test_a_composer_that_hangs_for_everyone(hanging, trap: Trap) -> None:
    """A handful of threads is all it gets: the rest of its events waits unspent, everything else flows."""

    def compose(message: dict[str, Any], _delivery: Any) -> dict[str, Any]:
        trap()
        return message

    worker = hanging(composers={"slow": compose})
    worker.add_phones(120, project="one")
    worker.tell_everyone(type="slow")
    with dispatching(worker) as counts:
        others_flow(worker, trap, "a", "b")
        counted = "select count(*)::int as n from relevo.deliveries where last_error_code = 'composer_hung'"
        eventually(lambda: worker.rows(counted) == [{"n": 116}], "the others of the type are put off")
    assert trap.caught == counts["calls_given_up"] == 4
    rows = worker.rows("select * from relevo.deliveries where event_type = 'slow'")
    assert sorted(row["attempt_count"] for row in rows) == [0] * 116 + [1] * 4
    assert {row["claim_token"] for row in rows} == {None}
    trap.open()
    worker.travel(minutes=12)
    worker.dispatch()
    worker.everyone_received(1)


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
    pool = worker.app.services.pools.of("one")
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
    assert worker.app.services.pools.of("one").in_flight() == 0
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
    pool = worker.app.services.pools.of("one")
    assert (pool.under_way(), pool.in_flight()) == (0, 1), "its thread is not counted on, its connection may be open"
    trap.open()
    eventually(lambda: worker.delivery("bad")["status"] == "sent", "its late ticket was kept")
    eventually(lambda: pool.in_flight() == 0, "its connection is free")
    worker.travel(minutes=12)
    worker.dispatch()
    worker.everyone_received(1)


def test_stopping_does_not_wait_for_what_hangs(hanging, trap: Trap) -> None:
    """Told to stop, a run leaves what hangs behind: handed back, nothing spent, long before three leases."""

    def compose(message: dict[str, Any], _delivery: Any) -> dict[str, Any]:
        trap()
        return message

    worker = hanging(composers={"slow": compose}, outbox_lease_duration_ms=60_000)
    tell(worker, "one", "bad", type="slow")
    with beside(worker.dispatch) as reports:
        eventually(lambda: trap.caught, "it hangs")
        worker.app.runner.stopping.set()
    assert reports
    found = worker.delivery("bad")
    assert (found["status"], found["attempt_count"], found["lapse_count"], worker.claims()) == ("pending", 0, 0, 0)


def test_a_question_for_receipts_that_hangs(hanging, trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its project's receipts wait and are asked for again; those of the others are told in the same run."""
    fetch = Expo.fetch_receipts
    worker = hanging()
    tell(worker, "one", "bad")
    tell(worker, "two", "good")
    worker.dispatch()
    bad = worker.delivery("bad")["provider_ticket_id"]

    def hang(self: Expo, ticket_ids: Any, *more: Any) -> Any:
        if bad in ticket_ids and not trap.caught:
            trap()
        return fetch(self, ticket_ids, *more)

    monkeypatch.setattr(Expo, "fetch_receipts", hang)
    with beside(worker.ask) as reports:
        eventually(lambda: trap.caught, "it hangs")
        eventually(lambda: worker.delivery("good")["status"] == "ok", "the other project is served")
        tell(worker, "two", "later")
        worker.dispatch()
        eventually(lambda: worker.delivery("later")["status"] == "ok", "also what falls due meanwhile")
        assert trap.free == 0
    (report,) = reports
    assert (report.outcome, report.counts["calls_given_up"]) == ("partial", 1)
    assert "the push service (project one) has not come back" in report.error
    assert (worker.delivery("bad")["status"], worker.claims()) == ("sent", 0)
    is_told(worker, "the push service (project one)")
    worker.ask()
    assert worker.delivery("bad")["status"] == "ok"
    trap.open()
    eventually(lambda: problems(worker) == "", "it came back")


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


def test_what_hangs_in_one_project_stops_no_other(relay) -> None:
    """With as many requests hanging as may, their project sends nothing here; the others send as ever."""
    worker: Relay = relay()
    names = ["ana!project=@acme/hung", "bob!project=@acme/fine"]
    for name in names:
        worker.register(name, project=name.rpartition("=")[2])
    for what in (MIDDLEWARE, SERVICE) * (MOST_CALLS // 2):
        worker.app.services.hung.add(what, "@acme/hung", time.monotonic(), 600, Future())
    worker.tell(*names)
    report = worker.dispatch()
    assert [worker.delivery(name)["status"] for name in names] == ["pending", "sent"]
    assert "project @acme/hung sends nothing in this process: 16 of its requests have not come back" in report.error
