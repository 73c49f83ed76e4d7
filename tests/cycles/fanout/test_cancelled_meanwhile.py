"""A cancellation that was acknowledged holds, whatever fans the event out at that moment, and whatever breaks then."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from relevo import app, config, embedded
from relevo.app import App
from relevo.client import values, verbs
from relevo.core.errors import DatabaseUnavailableError
from support import postgres_folder
from support.phones import add_phones
from support.processes import eventually

PHONES, SMALL, LARGE = 90, 120, 24
WORKER = {"fanout_slice_size": 20, "push_rate_per_second": 0}
LEFT = "select count(*) from relevo.notification_events where state in ('waiting', 'fanning')"
STATES = "select id, state from relevo.notification_events where id = any (%s)"


def enqueue(conn: psycopg.Connection[Any]) -> list[int]:
    """Enqueue events for one phone each, which fan out together, and some for all, which take several slices."""
    phones = add_phones(conn, PHONES)
    small = [values.Event("small", str(n), "T", audience=[phones[n % PHONES]]) for n in range(SMALL)]
    large = [values.Event("large", str(n), "T", audience="everyone") for n in range(LARGE)]
    mixed = small + large
    random.Random(7).shuffle(mixed)
    return [verbs.enqueue(conn, event).event_id for event in mixed]


class Cancelling(threading.Thread):
    """Cancels every second event, on connections of its own, and notes what was acknowledged."""

    def __init__(self, dsn: str, events: list[int]) -> None:
        super().__init__()
        self.dsn, self.events = dsn, events
        self.acknowledged: list[int] = []

    def run(self) -> None:
        """Cancel them; after an error nobody knows, and a new connection is used for the next."""
        left = list(self.events)
        while left:
            with suppress(psycopg.OperationalError), psycopg.connect(self.dsn, autocommit=True) as conn:
                while left:
                    event = left.pop()
                    if verbs.cancel(conn, event):
                        self.acknowledged.append(event)


@contextmanager
def fanning_out(workers: list[App]) -> Iterator[None]:
    """Let workers fan out until the end, over and over."""
    done = threading.Event()

    def go_on(worker: App) -> None:
        while not done.wait(0.01):
            with suppress(DatabaseUnavailableError, psycopg.OperationalError):
                worker.runner.run(worker.registry["fanout"], "schedule")

    threads = [threading.Thread(target=go_on, args=[worker]) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def check(dsn: str, workers: list[App], disturb: Callable[[], None]) -> None:
    """Cancel while it is fanned out, disturb both, and compare what was acknowledged with what became of it."""

    def ask(query: str, *values: Any) -> Any:
        with suppress(psycopg.OperationalError), psycopg.connect(dsn, autocommit=True) as conn:
            return conn.execute(query.encode(), values).fetchall()
        return None

    with psycopg.connect(dsn, autocommit=True) as conn:
        events = enqueue(conn)
    chosen = random.Random(11).sample(events, len(events) // 2)
    cancelling = [Cancelling(dsn, chosen[n::2]) for n in range(2)]
    with fanning_out(workers):
        for each in cancelling:
            each.start()
        disturb()
        for each in cancelling:
            each.join()
        eventually(lambda: ask(LEFT) == [(0,)], "all is fanned out or ended")
    acknowledged = [event for each in cancelling for event in each.acknowledged]
    states = dict(ask(STATES, acknowledged))
    assert acknowledged, "nothing was cancelled"
    assert set(states.values()) == {"cancelled"}
    assert len(states) == len(acknowledged)
    others = dict(ask(STATES, [event for event in events if event not in chosen]))
    assert set(others.values()) == {"fanned"}


def test_what_was_cancelled_stays_cancelled(build, conn, dsn: str) -> None:
    """Two workers fan out, two threads cancel, and connections of all of them are terminated: every event whose
    cancellation was acknowledged is cancelled in the end, and no other is."""

    def terminate() -> None:
        for _ in range(20):
            conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
                " and pid <> pg_backend_pid() and backend_type = 'client backend' and application_name <> 'kept'"
                " order by random() limit 1"
            )

    check(dsn, [build(worker_id=name, **WORKER) for name in ("one", "two")], terminate)


def test_a_killed_server_keeps_what_was_cancelled(prototype: Path, tmp_path: Path) -> None:
    """PostgreSQL is killed in the midst of it and comes back: what was acknowledged is kept, though fan-out itself does
    not wait for the disk."""
    postgres_folder.copy(prototype, tmp_path / "postgres")
    with (
        embedded.acquire(
            tmp_path / "postgres", postgres_folder.programs(), settings={"shared_buffers": "16MB"}
        ) as server,
        ExitStack() as opened,
    ):
        environ = {"DATABASE_URL": server.dsn} | {name.upper(): str(value) for name, value in WORKER.items()}
        settings = config.load(environ, None)
        workers = [opened.enter_context(app.build(settings)) for _ in range(2)]
        for worker in workers:
            worker.worker.record_start("run", ["fanout"])

        def kill() -> None:
            with psycopg.connect(server.dsn, autocommit=True) as conn:
                ended = "select count(*) > 5 from relevo.notification_events where state in ('fanned', 'cancelled')"
                eventually(lambda: conn.execute(ended).fetchone() == (True,), "it goes on", every=0.001)
            postmaster = (tmp_path / "postgres" / "data" / "postmaster.pid").read_text().split()[0]
            os.kill(int(postmaster), signal.SIGKILL)

        check(server.dsn, workers, kill)
