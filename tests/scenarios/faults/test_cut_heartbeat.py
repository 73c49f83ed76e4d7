"""The heartbeat's connection is cut during a request: nothing more is sent or settled, and what is known is kept.

A worker whose heart does not beat must stop, must not complete what it holds, and leaves it to a reaper.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from relevo.app import App
from relevo.core.model import Report
from relevo.database.pool import Database
from relevo.delivery import worker_services
from relevo.sandbox.server import Sandbox
from support.dying_processes import Fate, enqueue, fates, install, needless_resends, run
from support.phones import fan_out
from support.postgres_proxy import Proxy
from support.processes import PATIENCE_S, eventually

# Three requests of two, one after the other.
SETTINGS = {
    "outbox_lease_duration_ms": 30_000,
    "outbox_lease_heartbeat_ms": 200,
    "push_request_timeout_ms": 8_000,
    "database_connect_timeout_ms": 2_000,
    "push_chunk_size": 2,
    "outbox_concurrency": 1,
    "push_rate_per_second": 0,
    "receipt_first_poll_ms": 1,
}


@dataclass
class Scene:
    """A worker in a thread, its way to the database, and one that comes later."""

    conn: psycopg.Connection[Any]
    sandbox: Sandbox
    proxy: Proxy
    worker: App
    successor: App
    clock: Any
    reports: list[Report] = field(default_factory=list)
    again_and_again: bool = False
    cycle: str = "dispatch"

    def __post_init__(self) -> None:
        phones = [list(install(self.conn, [""], "default")) for _ in range(2)]
        self.once = enqueue(self.conn, phones[0], at_most_once=True)
        self.again = enqueue(self.conn, phones[1])
        fan_out(self.successor)
        self.answering = threading.Event()
        for name in ("send", "fetch_receipts"):
            self._hold_answers_of(name)
        self.worker.heartbeat.start()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _hold_answers_of(self, name: str) -> None:
        """Let requests arrive, and their answers stay on the way until `answer`."""
        provider = self.worker.services.providers["expo"]
        ask = getattr(provider, name)

        def held(*asked: Any) -> Any:
            reply = ask(*asked)
            assert self.answering.wait(PATIENCE_S)
            return reply

        setattr(provider, name, held)

    def _run(self) -> None:
        while True:
            self.reports.append(self.worker.runner.run(self.worker.registry[self.cycle], "manual"))
            if not self.again_and_again or self.worker.runner.stopping.wait(0.1):
                return

    def begin(self) -> None:
        """Begin to send, or to ask, up to the middle of the first request, with a heart that beats.

        What is sent besides comes when that request is under way, and waits behind it: else it might pass it.
        """
        beats = "select count(*) from relevo.workers where worker_id = %s and last_seen_at > started_at"
        eventually(lambda: self.conn.execute(beats, [self.worker.worker.worker_id]).fetchall() == [(1,)], "a beat")
        self.thread.start()
        eventually(lambda: self.posts() == 1, "the first request arrives")
        if self.cycle == "dispatch":
            self.add_rest()
            claimed = "select from relevo.deliveries where notification_event_id = %s and claim_token is not null"
            eventually(lambda: self.conn.execute(claimed, [self.rest]).fetchall() != [], "more is claimed behind it")

    def add_rest(self) -> None:
        """Enqueue what makes two more requests."""
        self.rest = enqueue(self.conn, list(install(self.conn, [""] * 4, "default")))
        fan_out(self.successor)

    def posts(self) -> int:
        """Count the requests of the worker's cycle that arrived."""
        return int(self.sandbox.totals()["sendRequests" if self.cycle == "dispatch" else "receiptRequests"])

    def unsettled(self) -> bool:
        """Tell whether what is in the first request is as it was when that began: claimed, open, no attempt spent."""
        settled = "claim_token is null or status <> 'pending' or attempt_count > 0 or provider_ticket_id is not null"
        query = f"select from relevo.deliveries where notification_event_id = any (%s) and ({settled})"
        return not self.conn.execute(query, [[self.once, self.again]]).fetchall()

    def stop(self) -> None:
        """Ask the worker to stop, and wait for it."""
        self.answering.set()
        self.worker.runner.stopping.set()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()

    def succeed(self) -> None:
        """Let the successor take over, after every lease."""
        for _ in range(3):
            self.clock.ahead += timedelta(minutes=2)
            run(self.successor, "reaper")
            run(self.successor, "dispatch")

    def of(self, event: int) -> list[Fate]:
        """Tell what became of an event's deliveries."""
        return fates(self.conn, self.sandbox, event)

    def check_ends(self) -> None:
        """Look at the ends: each phone got one, what the cut request had sent was not sent again.

        Batches go their way side by side: a journalled request that never left may stand before the one that did.
        """
        for event in (self.once, self.again, self.rest):
            assert {(fate.status, fate.received) for fate in self.of(event)} == {("sent", 1)}
        assert needless_resends(self.conn) == []
        assert self.conn.execute("select from relevo.claims").fetchall() == []
        assert self.conn.execute("select from relevo.late_tickets").fetchall() == []


@pytest.fixture(autouse=True)
def _patience(monkeypatch) -> None:
    """However busy the machine is, requests wait for the one whose answer is held until the cut was noticed."""
    monkeypatch.setattr(worker_services, "_PATIENCE_S", PATIENCE_S)


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    """A way to the test's database that can be cut."""
    with Proxy(dsn) as opened:
        yield opened


@pytest.fixture
def only_heartbeat(conn, sandbox, proxy, build, travelling, clock, make_settings, monkeypatch) -> Iterator[Scene]:
    """A worker of which only the heartbeat goes through the proxy."""
    worker = build(expo_base_url=sandbox.url, **SETTINGS)
    detour = Database(proxy.dsn, proxy.dsn, make_settings(**SETTINGS), "relevo detour")
    monkeypatch.setattr(worker.database, "single", detour.single)
    scene = Scene(conn, sandbox, proxy, worker, travelling(**SETTINGS), clock)
    yield scene
    scene.stop()
    detour.close()


@pytest.fixture
def everything(conn, sandbox, proxy, build, travelling, clock) -> Iterator[Scene]:
    """A worker that goes through the proxy with all it does."""
    worker = build(database_url=proxy.dsn, expo_base_url=sandbox.url, **SETTINGS)
    scene = Scene(conn, sandbox, proxy, worker, travelling(**SETTINGS), clock)
    yield scene
    scene.stop()


def learns_of_the_cut(scene: Scene) -> None:
    """Wait until the worker knows that it holds nothing any more; then let the request under way be answered."""
    eventually(lambda: not scene.worker.heartbeat._held, "the worker learns that its heart does not beat")
    assert scene.posts() == 1
    scene.answering.set()


def test_only_the_heartbeat_is_cut(only_heartbeat) -> None:
    """No further request leaves, the answer of the one under way settles nothing, its tickets are kept as evidence, and
    a reaper closes the deliveries with them."""
    scene = only_heartbeat
    scene.begin()
    scene.proxy.shut()
    learns_of_the_cut(scene)
    eventually(lambda: len(_evidence(scene)) == 2, "the tickets are kept")
    scene.stop()
    assert scene.posts() == 1
    assert scene.unsettled()
    scene.succeed()
    scene.check_ends()


def test_without_a_heartbeat_nothing_is_claimed_anew(only_heartbeat) -> None:
    """As long as its heart does not beat, a worker takes nothing new either: it could not keep it. Once it beats again,
    the worker goes on by itself."""
    scene = only_heartbeat
    scene.again_and_again = True
    scene.begin()
    scene.proxy.shut()
    learns_of_the_cut(scene)
    eventually(lambda: len(_evidence(scene)) == 2, "the request under way was answered")
    posts = scene.posts()
    later = enqueue(scene.conn, list(install(scene.conn, [""], "default")))
    fan_out(scene.successor)
    so_far = len(scene.reports)
    eventually(lambda: len(scene.reports) >= so_far + 5, "the worker looks again and again")
    assert (scene.posts(), scene.of(later)[0].received) == (posts, 0)
    scene.proxy.open()
    eventually(lambda: scene.of(later)[0].received == 1, "the worker goes on")
    scene.stop()
    scene.succeed()
    scene.check_ends()


def test_the_database_is_gone_for_everything(everything) -> None:
    """No further request leaves; the answers wait until the database is back, and then are evidence: taken back by a
    reaper in the meantime, at least once is not sent again, and at most once turns from unknown into sent."""
    scene = everything
    scene.begin()
    scene.proxy.shut()
    learns_of_the_cut(scene)
    scene.clock.ahead += timedelta(minutes=1)
    assert run(scene.successor, "reaper")["claims_reaped"] >= 1
    assert [fate.status for fate in (*scene.of(scene.once), *scene.of(scene.again))] == ["unknown", "retryable"]
    scene.worker.runner.stopping.set()
    scene.proxy.open()
    eventually(lambda: scene.of(scene.once)[0].status == "sent", "the late ticket closes the delivery")
    scene.stop()
    assert scene.posts() == 1
    assert {fate.received for fate in scene.of(scene.rest)} == {0}
    scene.succeed()
    scene.check_ends()


def test_the_resend_was_claimed_before_the_evidence_came(everything, travelling) -> None:
    """A late ticket for a delivery that another worker holds waits, and that worker's journal does not send it again."""
    scene = everything
    scene.begin()
    scene.proxy.shut()
    learns_of_the_cut(scene)
    scene.clock.ahead += timedelta(minutes=1)
    run(scene.successor, "reaper")
    scene.clock.ahead += timedelta(minutes=1)
    claim = scene.successor.claims.claim("dispatch", "default", "bulk", now=scene.clock())
    assert claim is not None
    scene.worker.runner.stopping.set()
    scene.proxy.open()
    eventually(lambda: len(_evidence(scene)) == 1, "the ticket waits beside the other's claim")
    scene.stop()
    scene.successor.claims.release(claim, scene.clock())
    assert scene.of(scene.again)[0].status == "sent"
    scene.succeed()
    scene.check_ends()


def test_receipts_settle_nothing_without_a_heartbeat(only_heartbeat, conn) -> None:
    """The answer of a getReceipts that was under way is not used; a reaper takes the claim back and it is asked again."""
    scene = only_heartbeat
    scene.add_rest()
    run(scene.successor, "dispatch")
    scene.cycle = "receipt"
    scene.begin()
    scene.proxy.shut()
    learns_of_the_cut(scene)
    scene.stop()
    held = "select status, attempt_count, claim_token is not null from relevo.deliveries"
    assert conn.execute(held).fetchall() == [("sent", 1, True)] * 6
    scene.clock.ahead += timedelta(minutes=2)
    run(scene.successor, "reaper")
    run(scene.successor, "receipt")
    assert conn.execute(held).fetchall() == [("ok", 1, False)] * 6
    assert scene.sandbox.totals()["duplicates"] == 0


def _evidence(scene: Scene) -> list[Any]:
    return scene.conn.execute("select delivery_id, ticket_id from relevo.late_tickets").fetchall()
