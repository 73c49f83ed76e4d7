"""Whole processes that send: told to stop, killed, and slowed down."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg

from relevo.client import verbs
from relevo.client.values import Event
from relevo.sandbox.server import Sandbox
from support.dying_processes import needless_resends
from support.phones import add_phones
from support.processes import Process, Processes, eventually

PHONES = 1_000


def start(processes: Processes, sandbox: Sandbox, **settings: object) -> Process:
    """Start a worker that sends to the sandbox, in small requests and without a rate."""
    chosen = {
        "expo_base_url": sandbox.url,
        "push_rate_per_second": 0,
        "push_chunk_size": 20,
        "worker_cycles": "fanout,dispatch,reaper",
        "worker_idle_backoff_max_ms": 500,
        "worker_idle_backoff_min_ms": 100,
    }
    process = processes.relevo("run", http_enabled=True, **(chosen | settings))
    process.hears("worker_started")
    return process


def tell_everyone(conn: psycopg.Connection[Any], phones: int = PHONES, **how: Any) -> int:
    """Register phones and enqueue an event for all of them."""
    add_phones(conn, phones)
    return verbs.enqueue(conn, Event("chaos", "to everyone", "Title", "Body", audience="everyone", **how)).event_id


def states(conn: psycopg.Connection[Any]) -> dict[str, int]:
    """Count the deliveries per status."""
    return dict(conn.execute("select status, count(*)::int from relevo.notification_deliveries group by 1").fetchall())


def received(sandbox: Sandbox) -> Counter[int]:
    """Count the phones that got so and so many pushes."""
    return Counter(phone["received"] for phone in sandbox.phones().values())


def test_sigterm_hands_back_what_was_not_begun(processes, conn, sandbox) -> None:
    """Told to stop while it sends, a worker ends in time and with 0: what is under way is settled, the rest is handed
    back without an attempt or a lapse, no claim is left, and the next worker sends it; each phone gets exactly one."""
    sandbox.set(latency_ms=400)
    event = tell_everyone(conn)
    settings = {"outbox_lease_duration_ms": 20_000, "worker_shutdown_timeout_ms": 15_000}
    worker = start(processes, sandbox, **settings)
    eventually(lambda: sandbox.totals()["sendRequests"] >= 8, "it is in the middle of sending")
    assert worker.stops() == 0
    sandbox.set(latency_ms=0)
    counted = states(conn)
    assert counted.keys() == {"sent", "pending"}
    assert counted["sent"] + counted["pending"] == PHONES
    assert received(sandbox) == {1: counted["sent"]}
    spent = (
        "select from relevo.notification_deliveries where status = 'pending' and (attempt_count > 0 or lapse_count > 0)"
    )
    assert conn.execute(spent).fetchall() == []
    assert conn.execute("select from relevo.claims").fetchall() == []
    assert not worker.lines("claim_lost")
    assert not worker.lines("stop_timed_out")
    start(processes, sandbox, **settings)
    eventually(lambda: states(conn) == {"sent": PHONES}, "the next worker sends the rest")
    assert received(sandbox) == {1: PHONES}
    status = verbs.get(conn, event)
    assert status is not None
    assert status.deliveries == {"sent": PHONES}


UNANSWERED = """
select coalesce(sum(cardinality(ids)), 0) from relevo.push_requests where answered_at is null or outcome = 'unclear'
"""


def test_one_of_two_is_killed(processes, conn, sandbox) -> None:
    """Another worker finishes everything: each phone gets at least one, and a second one only from a request whose
    answer was not recorded, because its worker was dead or the machine too busy to bring it in time."""
    sandbox.set(latency_ms=300)
    settings = {"outbox_lease_duration_ms": 4_500, "push_request_timeout_ms": 2_100}
    workers = [start(processes, sandbox, **settings) for _ in range(2)]
    tell_everyone(conn)
    requests = "select count(distinct worker_id), count(*) from relevo.push_requests"
    eventually(lambda: min(conn.execute(requests).fetchall()[0]) > 1 and _requests(conn) >= 20, "both are sending")
    workers[0].kill()
    assert sandbox.totals()["delivered"] < PHONES
    eventually(lambda: states(conn) == {"sent": PHONES}, "the other one finishes")
    assert needless_resends(conn) == []
    phones = received(sandbox)
    assert phones.total() == PHONES
    [(ambiguous,)] = conn.execute(UNANSWERED).fetchall()
    twice = sum((times - 1) * count for times, count in phones.items())
    assert twice == sandbox.totals()["duplicates"] <= ambiguous
    [(attempts,)] = conn.execute("select sum(attempt_count) from relevo.notification_deliveries").fetchall()
    assert attempts == PHONES + ambiguous
    assert workers[1].stops() == 0


def test_slow_answers_let_no_lease_expire(processes, conn, sandbox) -> None:
    """With answers that take a twelfth of the lease, as 5 s are of 60, nothing is reclaimed in more than a lease of
    steady work: nobody claims more than can be sent in time."""
    phones, lease_ms, latency_ms = 840, 12_000, 1_000
    sandbox.set(latency_ms=latency_ms)
    settings = {"outbox_lease_duration_ms": lease_ms, "push_request_timeout_ms": 4_000, "push_chunk_size": 10}
    worker = start(processes, sandbox, **settings)
    tell_everyone(conn, phones)
    claimed = 0

    def done() -> bool:
        nonlocal claimed
        claimed = max(claimed, conn.execute("select sum(cardinality(ids)) from relevo.claims").fetchall()[0][0] or 0)
        return states(conn) == {"sent": phones}

    eventually(done, "everything is sent", every=0.2)
    assert claimed <= phones * 2 / 3, "what is sent in half a lease, and what is being written"
    assert received(sandbox) == {1: phones}
    touched = "select from relevo.notification_deliveries where attempt_count <> 1 or lapse_count > 0"
    assert conn.execute(touched).fetchall() == []
    assert worker.stops() == 0
    for event in ("claim_reaped", "claim_lost", "claim_given_up", "worker_lost"):
        assert worker.lines(event) == []
    assert sandbox.totals()["peakConnections"] == {"@relevo/app": 6}


def _requests(conn: psycopg.Connection[Any]) -> int:
    [(count,)] = conn.execute("select count(*) from relevo.push_requests").fetchall()
    return int(count)
