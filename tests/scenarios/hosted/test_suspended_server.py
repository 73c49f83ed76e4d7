"""A server that a service suspends: the listener's connection is cut, and what is enqueued afterwards is picked up all the same."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest

from relevo.client import verbs
from relevo.client.values import Event, Installation, Owners
from relevo.sandbox import Sandbox
from support import soak
from support.fixtures.hosted_database import HostedDatabase
from support.postgres_proxy import Proxy
from support.processes import Processes, eventually

pytestmark = pytest.mark.needs("pgbouncer")

TOKEN = "ExponentPushToken[ana]"
LONGEST_MS = 20_000
"""Far more than was measured, so that a busy machine fails no test; a worker that had to wait for its next look takes a minute."""
AWAY_S = soak.cases([1.0], whole=[1.0, 10.0, 30.0])


def pick_up_ms(app: psycopg.Connection[Any], sandbox: Sandbox, key: str) -> float:
    """Commit an event, and return after how many milliseconds the push service has its push."""
    before = received(sandbox)
    verbs.enqueue(app, Event("order.shipped", key, "On its way", audience=Owners("ana")))
    app.commit()
    began = time.monotonic()
    eventually(lambda: received(sandbox) > before, "the push arrives", every=0.005)
    return (time.monotonic() - began) * 1000


def received(sandbox: Sandbox) -> int:
    """Return how many pushes the phone got."""
    return int(sandbox.phones().get(TOKEN, {}).get("received", 0))


def tell(fault: str, took: list[float]) -> None:
    """Print what was measured, for the page that names it."""
    print(f"{fault}: picked up after {', '.join(f'{each:.0f}' for each in took)} ms")


def test_connections_that_are_ended(
    processes: Processes,
    hosted: HostedDatabase,
    role: psycopg.Connection[Any],
    conn: psycopg.Connection[Any],
    sandbox: Sandbox,
) -> None:
    """All connections of a listening worker are terminated at once: an event committed right then is sent soon, not after a minute's pause."""
    worker = processes.relevo("run", database_url=hosted.direct, expo_base_url=sandbox.url, worker_id="w")
    worker.hears("wakeups_listening")
    verbs.register(role, Installation(TOKEN, owner="ana"))
    role.commit()
    tell("nothing ended", [pick_up_ms(role, sandbox, f"calm {n}") for n in range(3)])
    took = list[float]()
    for n in range(3):
        conn.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'relevo w'")
        took.append(pick_up_ms(role, sandbox, f"ended {n}"))
        heard = len(worker.lines("wakeups_listening"))
        eventually(lambda heard=heard: len(worker.lines("wakeups_listening")) >= heard, "it listens again")
    tell("connections ended", took)
    assert max(took) < LONGEST_MS
    assert worker.stops() == 0


@pytest.mark.parametrize("away_s", AWAY_S)
def test_a_server_that_is_gone_for_a_while(
    away_s: float, processes: Processes, hosted: HostedDatabase, role: psycopg.Connection[Any], sandbox: Sandbox
) -> None:
    """The server cuts everybody off and lets nobody in for a while: an event committed as it is back is sent soon."""
    with Proxy(hosted.direct) as proxy:
        worker = processes.relevo("run", database_url=proxy.dsn, expo_base_url=sandbox.url)
        worker.hears("wakeups_listening")
        verbs.register(role, Installation(TOKEN, owner="ana"))
        role.commit()
        proxy.shut()
        time.sleep(away_s)
        proxy.open()
        took = pick_up_ms(role, sandbox, "back")
        tell(f"gone for {away_s:g} s", [took])
        assert took < LONGEST_MS
        assert worker.stops() == 0
