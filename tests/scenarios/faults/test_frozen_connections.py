"""Connections that fall silent while TCP still acknowledges, as of a hung pooler or a frozen server: nobody waits for ever.

The proxy reads what it is sent and answers nothing, so neither keepalives nor the server's own timeouts can help.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from relevo.app import App
from relevo.core.errors import DatabaseUnavailableError
from relevo.core.model import Report
from relevo.operators import fleet
from relevo.sandbox.server import Sandbox
from support.dying_processes import enqueue, fates, install, needless_resends
from support.phones import fan_out
from support.postgres_proxy import Proxy
from support.processes import PATIENCE_S, Process, eventually

HASTY: dict[str, Any] = {
    "database_statement_timeout_ms": 1_000,
    "database_answer_margin_ms": 500,
    "database_connect_timeout_ms": 2_000,
    "database_idle_transaction_timeout_ms": 500,  # so that the server gives up, too, what a silent connection holds
    "push_rate_per_second": 0,
}
HOUR_MS = 3_600_000
CLAIM, JOURNAL, SETTLE = (
    b"relevo.claim_due",
    b"relevo.journal_plain_wave",
    b"relevo.settle_sent",
)


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    """A way to the test's database that can fall silent."""
    with Proxy(dsn) as opened:
        yield opened


@pytest.fixture
def worker(build: Callable[..., App], sandbox: Sandbox, proxy: Proxy) -> App:
    """A worker that goes through the proxy with all it does."""
    return build(database_url=proxy.dsn, expo_base_url=sandbox.url, **HASTY)


def in_time(work: Callable[[], Any]) -> Any:
    """Do something in a thread of its own, which must come back though nothing thaws; return or raise what it did."""
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append(work())
        except Exception as error:  # noqa: BLE001 raised again by whoever waits
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "it waits for a connection that will never answer"
    if isinstance(ended[0], Exception):
        raise ended[0]
    return ended[0]


def dispatch(worker: App) -> Report:
    """Run dispatch once."""
    report = worker.runner.run(worker.registry["dispatch"], "manual")
    assert isinstance(report, Report)
    return report


def read(worker: App) -> None:
    """Read something in autocommit."""
    with worker.database.connection() as connection:
        connection.execute("select pg_current_snapshot()")


@pytest.mark.parametrize(
    "moment",
    ["a claim", "a journal", "a settle", "COMMIT of a claim", "COMMIT of a journal", "COMMIT of a settle", "a read"],
)
def test_a_connection_that_falls_silent_holds_nothing_up(worker, proxy, conn, sandbox, moment) -> None:
    """Wherever the one connection falls silent that a step goes by, and stays so: the run comes back, later ones go on
    by other connections, and every phone gets its push once."""
    event = enqueue(conn, list(install(conn, [""] * 3, "default")))
    in_time(lambda: fan_out(worker))
    words = {"claim": CLAIM, "journal": JOURNAL, "settle": SETTLE, "read": b"pg_current_snapshot"}[moment.split()[-1]]
    if moment == "a read":
        proxy.silence_at(words)
        with pytest.raises(DatabaseUnavailableError, match="no answer"):
            in_time(lambda: read(worker))
    elif moment.startswith("COMMIT"):
        proxy.silence_commit(after=words)
    else:
        proxy.silence_at(words)
    in_time(lambda: dispatch(worker))
    proxy.wait_until_hit()

    def all_sent() -> bool:
        in_time(lambda: dispatch(worker))
        return {fate.status for fate in fates(conn, sandbox, event)} == {"sent"}

    eventually(all_sent, "the pushes are sent", every=0.2)
    assert {fate.received for fate in fates(conn, sandbox, event)} == {1}
    assert needless_resends(conn) == []


def test_what_waits_for_a_frozen_database_comes_back(worker, proxy) -> None:
    """Nothing at all answers: a statement, a COMMIT, the pool's check of an idle connection and a new connection all
    end as a database that is not there; afterwards all works again, on new connections."""

    def statement() -> None:
        with worker.database.connection() as connection:
            proxy.freeze()
            connection.execute("select 1")

    def commit() -> None:
        with worker.database.transaction() as connection:
            connection.execute("select 1")
            proxy.freeze()

    def check_idle() -> None:
        with worker.database.connection() as connection:
            worker.database._used.pop(connection, None)
        worker.database._used.clear()  # so that it has to prove that it is alive
        proxy.freeze()
        worker.database.ping()

    def connect() -> None:
        proxy.freeze()
        worker.database.single()

    for wait in (statement, commit, check_idle, connect):
        with worker.database.connection() as connection:
            before = connection.info.backend_pid
        with pytest.raises(DatabaseUnavailableError):
            in_time(wait)
        proxy.thaw()
        eventually(lambda: answers(worker), "the database answers")
        with worker.database.connection() as connection:
            assert connection.info.backend_pid != before or wait is connect


def answers(worker: App) -> bool:
    """Tell whether the database answers a worker."""
    try:
        return worker.database.ping() > 0
    except DatabaseUnavailableError:
        return False


def test_an_answer_in_time_leaves_no_deadline_behind(worker) -> None:
    """A connection whose statement was answered waits anew for the next one, and a deadline for a block ends with it."""
    with worker.database.connection() as connection:
        for _ in range(4):
            connection.execute("select pg_sleep(0.6)")  # together more than one of them may take
        with connection.within(0.3):
            connection.execute("select 1")
        connection.execute("select pg_sleep(0.5)")
        with pytest.raises(psycopg.OperationalError, match="no answer"), connection.within(0.3):
            connection.execute("select pg_sleep(1)")
        assert connection.closed


def test_rows_that_keep_coming_are_waited_for(worker) -> None:
    """What is bounded is silence: an answer that takes longer than that in all, but comes piece by piece, is read."""
    slowly = "select repeat('x', 20000), pg_sleep(0.02) from generate_series(1, 100)"
    with worker.database.connection() as connection:
        began = time.monotonic()
        assert len(connection.execute(slowly).fetchall()) == 100
        assert time.monotonic() - began > connection.patience_s


def start(processes: Any, proxy: Proxy, sandbox: Sandbox, **more: Any) -> Process:
    """Start a worker process behind the proxy and wait until it listens."""
    worker: Process = processes.relevo(
        "run", **HASTY | {"database_url": proxy.dsn, "expo_base_url": sandbox.url, "worker_id": "frozen"} | more
    )
    worker.hears("wakeups_listening")
    return worker


def arrives(conn: psycopg.Connection[Any], sandbox: Sandbox, phone: Any, within: float = PATIENCE_S) -> None:
    """Enqueue an event for a phone, and see it arrive once."""
    event = enqueue(conn, [phone])
    eventually(lambda: [fate.status for fate in fates(conn, sandbox, event)] == ["sent"], "it is sent", within=within)


@pytest.mark.parametrize("how", ["silence", "freeze"])
def test_a_process_goes_on_by_itself(processes, proxy, conn, sandbox, how) -> None:
    """All its connections fall silent, for ever while new ones work, or for a while in which nothing works: a process
    delivers again without a restart, and nothing twice."""
    [phone] = install(conn, [""], "default")
    worker = start(processes, proxy, sandbox)
    arrives(conn, sandbox, phone)
    getattr(proxy, how)()
    worker.hears("connection_lost")
    if how == "freeze":
        worker.hears("database_unreachable")
        proxy.thaw()
        worker.hears("database_reachable")
    arrives(conn, sandbox, phone)
    assert sandbox.totals()["duplicates"] == 0
    assert "Traceback" not in worker.stderr
    assert worker.stops() == 0


def test_a_silent_worker_is_a_problem_that_others_tell(processes, proxy, conn, sandbox, build) -> None:
    """While a worker does not reach the database, another replica's health names it, before a reaper noticed its silence
    and after; once it is back, no more."""
    observer = build(worker_id="observer", outbox_lease_duration_ms=HOUR_MS)

    def problems() -> str:
        return " ".join(fleet.status(observer.database, observer.settings).problems)

    worker = start(processes, proxy, sandbox, outbox_lease_duration_ms=4_000)
    assert "frozen" not in problems()
    proxy.freeze()
    eventually(lambda: "worker frozen has not been seen for" in problems(), "the silent worker is told of")
    observer.runner.run(observer.registry["reaper"], "manual")
    assert conn.execute("select lost_at is not null from relevo.workers where worker_id = 'frozen'").fetchall() == [
        (True,)
    ]
    assert "worker frozen has not been seen for" in problems()
    worker.hears("database_unreachable")
    proxy.thaw()
    eventually(lambda: "frozen" not in problems(), "it is seen again")
