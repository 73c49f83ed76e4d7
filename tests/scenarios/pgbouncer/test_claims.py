"""Claims and singletons through PgBouncer in transaction mode: nothing rests on which connection a statement meets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest

from relevo.client import verbs
from relevo.client.values import Event
from relevo.core.errors import DatabaseUnavailableError
from relevo.core.model import Answer, PushRequest, Step
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every
from support.deliveries import add_deliveries, states
from support.delivery_life import live_through
from support.kept_connections import end_kept
from support.phones import add_phones, fan_out_to_the_end, reached

pytestmark = pytest.mark.needs("pgbouncer")


def test_a_delivery_lives_its_whole_life(build, conn) -> None:
    """Claim, heartbeat, journal, settle, release and reap: each works, and the reaped claim's holder learns of it."""
    live_through(build(), conn)


def test_more_workers_than_connections_share_the_work(build, conn) -> None:
    """Six workers with heartbeats on two server connections send every delivery, each exactly once."""
    end_kept()
    ids = add_deliveries(conn, 120)
    workers = [build(worker_id=f"worker-{number}", outbox_batch_size=7) for number in range(6)]

    def work(worker) -> list[int]:
        worker.heartbeat.start()
        sent: list[int] = []
        while claim := worker.claims.claim("dispatch", "default", "bulk"):
            request = PushRequest(uuid4(), claim.deliveries)
            send = [v for v in worker.claims.journal(claim, [request]) if v.verdict == "send"]
            answers = [Answer(v.event_day, v.id, "sent", ticket_id=f"ticket-{v.id}") for v in send]
            assert worker.claims.settle(claim, answers, [request.id]).written == {"sent": len(answers)}
            worker.claims.release(claim)
            sent += [v.id for v in send]
        return sent

    with ThreadPoolExecutor(len(workers)) as threads:
        batches = list(threads.map(work, workers, timeout=180))
    assert sorted(delivery for batch in batches for delivery in batch) == sorted(ids)
    assert states(conn) == {"sent": 120}
    assert conn.execute("select count(*) from relevo.claims").fetchone() == (0,)
    clients = "select count(*) from pg_stat_activity where datname = %s and backend_type = 'client backend'"
    assert conn.execute(clients, [conn.info.dbname]).fetchone()[0] <= 3, "two of PgBouncer's and the one that asks"


def test_what_is_fanned_out_by_one_message_is_made_once(build, conn, pooled) -> None:
    """Six workers on two server connections fan out each event once, also those that a look undoes at first, and leave
    no bound behind."""
    phones = add_phones(conn, 12)
    made = [verbs.enqueue(conn, Event("t", str(n), "t", audience="everyone")).event_id for n in range(20)]
    rules = {"push_runaway_min_events": 3, "push_runaway_first_events": 100, "fanout_slice_size": 5}
    workers = [build(worker_id=f"worker-{number}", **rules) for number in range(6)]
    with ThreadPoolExecutor(len(workers)) as threads:
        list(threads.map(fan_out_to_the_end, workers, timeout=180))
    assert [reached(conn, event_id) for event_id in made] == [phones] * 20
    bounds = "select current_setting('statement_timeout'), current_setting('plan_cache_mode'), pg_backend_pid()"
    with psycopg.connect(pooled) as one, psycopg.connect(pooled) as other:
        found = [each.execute(bounds).fetchone() for each in (one, other)]
    assert len({pid for *_, pid in found}) == 2, "both server connections"
    assert {tuple(bound) for *bound, _ in found} == {("0", "auto")}


def test_the_limits_of_a_transaction_stay_in_it(build, pooled) -> None:
    """Timeouts bind our transaction and are gone for whoever gets its server connection next."""
    worker = build()
    ask = "select pg_backend_pid(), current_setting('statement_timeout'), current_setting('lock_timeout'), "
    ask += "current_setting('idle_in_transaction_session_timeout')"
    with worker.database.transaction() as connection:
        pid, *bound = connection.execute(ask).fetchone()
    assert bound == ["15s", "5s", "10s"]
    with psycopg.connect(pooled, autocommit=True) as stranger:
        assert stranger.execute(ask).fetchone() == (pid, "0", "0", "0")


def test_a_connection_cut_by_the_pooler_is_unavailability(build, conn, cut_connections) -> None:
    """What PgBouncer says of a lost server is understood as such: nothing was written, and the next try succeeds."""
    worker = build()
    [delivery] = add_deliveries(conn, 1)

    def lapse_nine_times() -> None:
        with worker.database.transaction() as connection:
            connection.execute("update relevo.notification_deliveries set lapse_count = 9")
            cut_connections()
            connection.execute("select 1")

    with pytest.raises(DatabaseUnavailableError):
        lapse_nine_times()
    claim = worker.claims.claim("dispatch", "default", "bulk")
    assert claim is not None
    assert [(d.id, d.lapse_count) for d in claim.deliveries] == [(delivery, 0)]


def test_a_singleton_is_held_by_one_and_fenced_against_the_former(build, conn) -> None:
    """While the lease lasts others are locked out; after a takeover the former holder's transaction is refused."""
    reports, written = [], []

    def holding(run: Run) -> Step:
        reports.append(second.runner.run(nightly(resting), "manual"))
        conn.execute("update relevo.cycle_leases set leased_until = now()")
        reports.append(second.runner.run(nightly(resting), "manual"))
        with run.transaction() as connection:
            written.append(connection.execute("update relevo.workers set hostname = 'former'"))
        return Step()

    def resting(run: Run) -> Step:
        with run.transaction() as connection:
            connection.execute("update relevo.workers set hostname = 'successor'")
        return Step({"notes": 1}, items=1)

    def nightly(step) -> Cycle:
        return Cycle("nightly", Every(60_000), step, singleton=True)

    first, second = build(worker_id="first"), build(worker_id="second")
    lost = first.runner.run(nightly(holding), "manual")
    assert [(each.outcome, each.reason) for each in reports] == [("skipped", "locked by worker first"), ("ok", "")]
    assert lost.outcome == "failed"
    assert "taken over by another process" in lost.error
    assert written == []
    assert conn.execute("select distinct hostname from relevo.workers").fetchall() == [("successor",)]
    reported = conn.execute("select worker_id, outcome from relevo.worker_runs where outcome <> 'skipped' order by id")
    assert reported.fetchall() == [("first", "abandoned"), ("second", "ok")]
