"""How many requests are under way at once for a project: leased, shared by the fleet, given back."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import psycopg
import pytest

from relevo.core.errors import DatabaseUnavailableError
from relevo.core.model import Reply
from relevo.delivery.projects.connection_leases import PoolUse
from support.processes import PATIENCE_S, eventually
from support.sending_worker import Relay, at_once, beside, counted_looks

PROJECT = "@relevo/app"
"""The sandbox's name for the project of a token without a word."""


def peak(worker: Relay) -> int:
    """Return the most requests that were in flight at once."""
    return int(worker.sandbox.totals()["peakConnections"].get(PROJECT, 0))


class TestConnections:
    """OUTBOX_CONCURRENCY: so many requests at once for one project, in the whole fleet."""

    @pytest.mark.parametrize("most", [6, 2, 1])
    def test_two_workers_together(self, relay, sandbox, most: int) -> None:
        """Never more than the setting, whoever sends; everything arrives once."""
        sandbox.set(latency_ms=30)
        workers = [relay(outbox_concurrency=most, push_chunk_size=2) for _ in range(2)]
        first = workers[0]
        first.add_phones(50)
        first.tell_everyone()
        at_once(*(worker.dispatch for worker in workers))
        first.drain(1)
        first.everyone_received(1)
        assert 1 <= peak(first) <= most

    def test_one_worker_uses_all_of_them(self, relay, sandbox) -> None:
        """Alone it need not share: six requests at once."""
        six = threading.Barrier(6)

        def meet(_context: Any, send: Any) -> Reply:
            six.wait(PATIENCE_S)
            return send()

        worker = relay(push_chunk_size=1, push_middlewares=[meet])
        worker.add_phones(30)
        worker.tell_everyone()
        worker.dispatch()
        worker.everyone_received(1)
        assert peak(worker) <= 6

    def test_a_worker_that_comes_later(self, relay, sandbox) -> None:
        """While the first has six requests under way, a second one must wait for its share, not exceed the bound."""
        sandbox.set(latency_ms=450)  # about as long as whoever found none free waits before it looks again
        first = relay(push_chunk_size=1)
        first.add_phones(36)
        first.tell_everyone()
        with beside(first.dispatch):
            eventually(lambda: peak(first) >= 6, "six are under way")
            second = relay(push_chunk_size=1)
            second.dispatch()
        first.everyone_received(1)
        assert peak(first) <= 6

    def test_what_is_in_flight_is_not_shared_yet(self, relay) -> None:
        """A worker that holds six busy connections when a second one joins keeps all of them until some are free."""
        first = relay()
        now = first.clock.now()

        def leased(worker: Relay, in_flight: int) -> int:
            projects = worker.app.services.projects
            return projects.reserve("default", "bulk", 100, now, pool=PoolUse(in_flight)).connections

        assert leased(first, 0) == 6
        second = relay()
        assert (leased(first, 6), leased(second, 0)) == (3, 0), "from the next request on it uses three"
        assert (leased(first, 4), leased(second, 0)) == (3, 0)
        assert (leased(first, 3), leased(second, 0)) == (3, 3)
        ((held,),) = first.conn.execute("select sum(connections) from relevo.push_connections").fetchall()
        assert held == 6

    def test_what_may_still_begin_is_not_shared_yet(self, relay) -> None:
        """Requests that wait in a pool of six may begin until the pool is made smaller: others get its connections only then."""
        first = relay()
        now = first.clock.now()

        def leased(worker: Relay, capacity: int) -> int:
            projects = worker.app.services.projects
            return projects.reserve("default", "bulk", 100, now, pool=PoolUse(capacity=capacity)).connections

        assert leased(first, 1) == 6
        second = relay()
        assert (leased(first, 6), leased(second, 1)) == (3, 0), "its pool has six places while it learns of its three"
        assert (leased(first, 3), leased(second, 1)) == (3, 3)

    def test_a_large_pool_without_a_lease_takes_its_share(self, relay) -> None:
        """Nothing begins without a lease: after a rest a worker takes its share at once, however large its pool was left."""
        first, _ = relay(), relay()
        projects = first.app.services.projects
        assert projects.reserve("default", "bulk", 100, pool=PoolUse(capacity=6)).connections == 3
        assert projects.connections.may_connect("default")

    @pytest.mark.parametrize(
        "gone",
        ["stopped_at = now()", "lost_at = now()", "last_seen_at = now() - interval '1 day'", "cycles = '{receipt}'"],
    )
    def test_only_who_sends_has_a_share(self, relay, conn, gone: str) -> None:
        """A worker that stopped, was lost, fell silent, or does not send leaves all connections to the others."""
        first, second = relay(), relay()
        projects = first.app.services.projects
        assert projects.reserve("default", "bulk", 100, first.clock.now()).connections == 3
        conn.execute(f"update relevo.workers set {gone} where worker_id = %s", [second.app.worker.worker_id])
        assert projects.reserve("default", "bulk", 100, first.clock.now()).connections == 6

    def test_a_worker_that_only_asks_for_receipts_keeps_none(self, relay) -> None:
        """When it has asked, another worker's dispatch finds connections free."""
        asking, sending = relay(cycles=["receipt"]), relay()
        sending.tell("ana")
        sending.dispatch()
        asking.ask()
        assert sending.delivery("ana")["status"] == "ok"
        sending.tell("bob", lane="urgent")
        sending.dispatch()
        assert sending.delivery("bob")["status"] == "sent"

    def test_a_run_that_stays_keeps_none_that_others_lack(self, relay, monkeypatch) -> None:
        """Where there are more workers than connections, one that waits for more to do leaves its own to the others."""
        monkeypatch.setattr("relevo.runtime.idle_wait._LONGEST_S", PATIENCE_S)
        first, second = (relay(outbox_concurrency=1, worker_stay_ms=60_000) for _ in range(2))
        runner, cycle = first.app.runner, first.app.registry["dispatch"]
        first.tell("ana")
        with beside(lambda: runner.run(cycle, "schedule", idle_mode="asleep")) as reports:
            eventually(lambda: first.received("ana"), "it is sent")
            eventually(lambda: not first.rows("select from relevo.push_connections"), "its connection is free")
            assert first.rows("select from relevo.worker_runs where outcome = 'running'"), "though it stays"
            projects = second.app.services.projects
            assert projects.reserve("default", "bulk", 1).connections == 1
            projects.drop_connections("default", "dispatch")
            first.tell("ana")
            runner.call(cycle)
            eventually(lambda: first.received("ana") == 2, "it takes it again")
            runner.stopping.set()
            runner.call(cycle)
        assert [report.counts["notifications_sent"] for report in reports] == [2]

    def test_who_is_called_ahead_has_its_own_by_then(self, relay, conn, monkeypatch) -> None:
        """It leases those of the project it served last before there is anything to send, and gives them back."""
        worker = relay(worker_stay_ms=1_000)
        worker.tell("ana")
        worker.dispatch()
        monkeypatch.setattr("relevo.runtime.runner._AHEAD_S", PATIENCE_S)
        runner, cycle = worker.app.runner, worker.app.registry["dispatch"]
        looks = counted_looks(worker, monkeypatch)
        with beside(lambda: runner.run(cycle, "wake-up", idle_mode="ahead")) as reports:
            leased = "select connections from relevo.push_connections where project = 'default'"
            assert eventually(lambda: worker.rows(leased), "it has them") == [{"connections": 6}]
            assert not looks, "it does not look before it is called"
            conn.execute("update relevo.projects set breaker = 'closed' where project = 'default'")  # a new version
            worker.tell("ana")
            runner.call(cycle)
            eventually(lambda: worker.received("ana") == 2, "it is sent")
            runner.stopping.set()
            runner.call(cycle)
        assert [report.counts["notifications_sent"] for report in reports] == [1]
        assert not worker.rows("select from relevo.push_connections")

    def test_who_is_called_ahead_in_vain_has_looked_once(self, relay, monkeypatch) -> None:
        """No call comes: it looks all the same before it ends, idle, and keeps nothing."""
        worker = relay(worker_stay_ms=1_000)
        worker.tell("ana")
        worker.dispatch()
        looks = counted_looks(worker, monkeypatch)
        report = worker.app.runner.run(worker.app.registry["dispatch"], "wake-up", idle_mode="ahead")
        assert (report.outcome, len(looks)) == ("idle", 1)
        assert not worker.rows("select from relevo.push_connections")

    def test_what_could_not_be_got_ready_is_done_by_the_claim(self, relay, monkeypatch) -> None:
        """A connection that is lost meanwhile costs the run nothing."""
        worker = relay()
        worker.tell("ana")
        worker.dispatch()

        def lose(*_args: object, **_more: object) -> None:
            raise DatabaseUnavailableError("The connection to PostgreSQL was lost.")

        monkeypatch.setattr(worker.app.services.projects, "get_ready", lose)
        worker.tell("ana")
        report = worker.app.runner.run(worker.app.registry["dispatch"], "wake-up", idle_mode="ahead")
        assert (report.outcome, report.counts["notifications_sent"]) == ("ok", 1)

    @pytest.mark.parametrize("limited", [0, 600])
    def test_what_was_seen_ahead_is_good_for_one_claim(self, relay, conn, limited: int) -> None:
        """Tokens are taken of what was seen ahead, once, and only if nothing changed since."""
        worker = relay(push_rate_per_second=limited)
        projects = worker.app.services.projects
        assert projects.served is None
        assert projects.reserve("default", "bulk", 10).grant.count == 10
        assert projects.served == "default"
        projects.drop_connections("default", "dispatch")
        assert projects.get_ready("default") == []
        version = "select xmin::text from relevo.projects where project = 'default'"
        before = worker.rows(version)
        assert projects.reserve("default", "bulk", 10).connections == 6
        assert (worker.rows(version) != before) is bool(limited), "tokens are taken where there are any"
        assert projects.get_ready("default") == []
        conn.execute("update relevo.projects set rest_until = now() + interval '1 hour' where project = 'default'")
        after = projects.reserve("default", "bulk", 10).grant
        assert not limited or (after.count, after.why) == (0, "rest"), "that it rests is found out"

    def test_those_taken_ahead_are_a_fair_share(self, relay, conn) -> None:
        """As many as at the time of a claim: of all that others leave in this project, and none while one of ours is in
        flight."""
        first, second = relay(), relay()
        projects = first.app.services.projects
        assert projects.reserve("default", "bulk", 1).connections == 3
        conn.execute(
            "insert into relevo.push_connections values ('default', 'other', 4, now() + interval '60 seconds'),"
            " ('shop', 'other', 6, now() + interval '60 seconds')"
        )

        def held() -> list[int]:
            statement = "select connections from relevo.push_connections where worker_id = %s"
            return [row["connections"] for row in first.rows(statement, first.app.worker.worker_id)]

        projects.drop_connections("default", "dispatch")
        assert (projects.get_ready("default", in_flight=1), held()) == (None, [])
        assert (projects.get_ready("default"), held()) == ([], [2])
        projects.drop_connections("default", "dispatch")
        conn.execute("insert into relevo.push_connections values ('default', 'dead', 2, now() - interval '1 second')")
        assert (projects.get_ready("default"), held()) == ([], [2]), "a lease that ran out is nobody's share"
        conn.execute("delete from relevo.push_connections where worker_id = 'dead'")
        projects.drop_connections("default", "dispatch")
        conn.execute("update relevo.push_connections set connections = 6 where project = 'default'")
        assert (projects.get_ready("default"), held()) == (None, [])
        conn.execute("delete from relevo.push_connections")
        special = "update relevo.workers set composers = '{special}' where worker_id = %s"
        conn.execute(special, [second.app.worker.worker_id])
        assert (projects.get_ready("default"), held()) == (["special"], [3])

    def test_a_single_one_is_not_taken_ahead_again(self, relay) -> None:
        """Workers came meanwhile: who finds its share to be one leaves it to those who have something to send."""
        worker = relay(outbox_concurrency=2)
        projects = worker.app.services.projects
        assert (projects.reserve("default", "bulk", 1).connections, projects.served) == (2, "default")
        projects.drop_connections("default", "dispatch")
        relay(outbox_concurrency=2)
        assert projects.get_ready("default") == []
        assert projects.served is None

    def test_nobody_waits_for_them_ahead(self, relay, conn) -> None:
        """While somebody else decides about the project, nothing is taken."""
        worker = relay()
        projects = worker.app.services.projects
        assert projects.reserve("default", "bulk", 1).connections == 6
        projects.drop_connections("default", "dispatch")
        with conn.transaction():
            conn.execute("select from relevo.projects where project = 'default' for no key update")
            assert projects.get_ready("default") is None

    def test_no_request_begins_without_a_leased_connection(self, relay, conn) -> None:
        """A process that stood still while others took its connections, or whose lease has too little left for a
        request, sends nothing: what it had claimed waits, unspent, and goes out with the next lease."""

        def lose(_context: Any, send: Any) -> Reply:
            if not lost:
                lost.append(True)
                conn.execute("update relevo.push_connections set leased_until = now() - interval '1 second'")
                worker.app.heartbeat.beat()
            return send()

        lost: list[bool] = []
        worker: Relay = relay(push_middlewares=[lose])
        worker.tell("ana")
        worker.dispatch(at_most=1)
        found = worker.delivery("ana")
        assert (worker.received("ana"), found["status"], found["attempt_count"]) == (0, "pending", 0)
        worker.travel(minutes=2)
        worker.dispatch()
        assert (worker.received("ana"), worker.delivery("ana")["status"]) == (1, "sent")

    def test_connections_are_kept_while_they_are_used(self, relay, conn) -> None:
        """A batch that lasts longer than a lease keeps its connections: the heartbeat extends their lease, but not
        once it ran out, or once they were left to requests that hang."""
        worker: Relay = relay()
        projects, beat = worker.app.services.projects, worker.app.heartbeat.beat
        left = "select extract(epoch from leased_until - now())::float8 from relevo.push_connections"

        def renewed() -> bool:
            conn.execute("update relevo.push_connections set leased_until = now() + interval '5 seconds'")
            beat()
            ((seconds,),) = conn.execute(left).fetchall()
            return bool(seconds > 10)

        assert projects.reserve("default", "bulk", 1).connections == 6
        assert renewed()
        projects.drop_connections("default", "dispatch", in_flight=1)
        assert not renewed()
        assert projects.reserve("default", "bulk", 1).connections == 6
        assert renewed()
        assert projects.connections.may_connect("default")
        conn.execute("update relevo.push_connections set leased_until = now()")
        beat()
        assert not projects.connections.may_connect("default")
        assert not renewed()
        assert projects.reserve("default", "bulk", 1).connections == 6
        assert projects.connections.may_connect("default"), "what is lost is leased again, not remembered"

    @pytest.mark.parametrize(("left_ms", "may"), [(9_000, False), (11_000, True)])
    def test_a_lease_lasts_for_the_whole_request(self, relay, left_ms: int, may: bool) -> None:
        """A request begins only if its connection is leased for the 10 s that it may take."""
        worker: Relay = relay(push_request_timeout_ms=10_000)
        projects = worker.app.services.projects
        projects.reserve("default", "bulk", 1)
        lease = projects.connections._leased["default"]
        lease.since = time.monotonic() + (left_ms - lease.lease_ms) / 1000
        assert (projects.connections.may_connect("default"), lease.lasts(0)) == (may, True)

    def test_a_beat_that_missed_a_lease_takes_no_newer_one(self, relay, conn) -> None:
        """A process that stood still leases its connections anew while a beat finds the old lease gone: it has them, and
        journals nothing that it may not send."""
        worker: Relay = relay()
        projects, heartbeat = worker.app.services.projects, worker.app.heartbeat
        projects.reserve("default", "bulk", 1)
        lease = projects.connections._leased["default"]
        lease.taken_at = lease.since = -math.inf
        conn.execute("update relevo.push_connections set leased_until = now()")
        heartbeat.announce(lambda _: projects.reserve("default", "bulk", 1))  # it has looked, and has not said so yet
        heartbeat.beat()
        assert projects.connections.may_connect("default")

    def test_a_lease_that_was_not_committed_is_none(self, relay, conn, monkeypatch) -> None:
        """A transaction that fails after it took connections leaves nothing behind, in this process neither."""
        worker: Relay = relay(push_rate_per_second=100)
        projects = worker.app.services.projects
        monkeypatch.setattr("relevo.delivery.projects.projects._Locked.save", lambda *_: conn.execute("select 1 / 0"))
        for _ in range(2):
            with pytest.raises(psycopg.errors.DivisionByZero):
                projects.reserve("default", "bulk", 1)
        assert worker.rows("select from relevo.push_connections") == []
        assert (projects.connections.leased_lately("default"), projects.connections.may_connect("default")) == (
            0,
            False,
        )

    def test_a_dead_workers_connections_come_back(self, relay, conn) -> None:
        """Their lease expires like every other: another worker can send then."""
        worker = relay()
        worker.tell("ana")
        conn.execute("insert into relevo.push_connections values ('default', 'dead', 6, now() + interval '60 seconds')")
        worker.dispatch(at_most_s=0.5)
        assert worker.delivery("ana")["status"] == "pending"
        worker.travel(seconds=61)
        worker.dispatch()
        assert worker.received("ana") == 1

    def test_projects_do_not_share_them(self, relay, sandbox) -> None:
        """A slow project's requests leave the other's connections alone."""
        both = threading.Barrier(2)

        def meet(_context: Any, send: Any) -> Reply:
            both.wait(PATIENCE_S)
            return send()

        worker = relay(push_chunk_size=1, outbox_concurrency=1, push_middlewares=[meet])
        worker.add_phones(4, "a", "!project=@acme/a", project="@acme/a")
        worker.add_phones(4, "b", "!project=@acme/b", project="@acme/b")
        worker.tell_everyone()
        worker.dispatch()
        worker.everyone_received(1)
        assert sandbox.totals()["peakConnections"] | {"@acme/a": 1, "@acme/b": 1} == sandbox.totals()["peakConnections"]


def test_stopping_hands_back_the_rest(relay, sandbox) -> None:
    """What is under way comes to its end and is settled; the rest is due again at once, nothing spent, nothing claimed."""
    sent: list[int] = []

    def watch(_context: Any, send: Any) -> Reply:
        reply = send()
        sent.append(1)
        assert len(sent) < 3 or worker.app.runner.stopping.wait(PATIENCE_S)
        return reply

    worker = relay(push_chunk_size=1, outbox_concurrency=2, push_middlewares=[watch])
    worker.add_phones(60)
    worker.tell_everyone()
    with beside(worker.dispatch):
        eventually(lambda: len(sent) >= 3, "some are sent")
        worker.app.runner.stopping.set()
    states = worker.states()
    assert set(states) == {"sent", "pending"}
    assert states["pending"] >= 30
    assert worker.claims() == 0
    assert {row["attempt_count"] for row in worker.deliveries() if row["status"] == "pending"} == {0}
    assert sum(phone["received"] for phone in sandbox.phones().values()) == states["sent"]
