"""A database of the release before is migrated while a worker of that release sends, and one of today joins it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest

import released
from relevo import __version__
from relevo.client import verbs
from relevo.client.values import Event
from relevo.sandbox import Sandbox
from support import soak
from support.deliveries import add_deliveries
from support.phones import add_phones
from support.processes import Processes, eventually

_PACE_S = 0.1  # so that a slow machine, too, writes less in one upgrade than the runaway brake holds
_PHONES = 5


@pytest.fixture
def processes(empty_database: str, tmp_path: Path) -> Iterator[Processes]:
    """Start processes on the database; they end with the test."""
    started = Processes(empty_database, tmp_path)
    yield started
    started.close()


class Writer:
    """An app that enqueues an event for its phones every few milliseconds, over a connection of its own."""

    def __init__(self, dsn: str, phones: list[Any]) -> None:
        self._dsn, self._phones = dsn, phones
        self._done, self._thread = threading.Event(), threading.Thread(target=self._write)
        self.written = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(60)

    def _write(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            while not self._done.wait(_PACE_S):
                verbs.enqueue(conn, Event("note", f"{self.written}", "Hello", "World", audience=self._phones))
                self.written += 1


def requests_of(conn: psycopg.Connection[Any], since: object = None) -> dict[str, int]:
    """Count the answered push requests of each worker, since a moment if one is given."""
    counted = """
        select worker_id, count(*) from relevo.push_requests
         where answered_at is not null and journalled_at >= coalesce(%s::timestamptz, '-infinity') group by 1
    """
    return dict(conn.execute(counted, [since]).fetchall())


def settles(conn: psycopg.Connection[Any]) -> int:
    """Count the calls of the function by which today's release settles what was sent, as PostgreSQL does."""
    counted = "select coalesce(sum(calls), 0)::int from pg_stat_user_functions where funcname = 'settle_sent'"
    [(calls,)] = conn.execute(counted).fetchall()
    return int(calls)


@pytest.mark.parametrize("last", soak.cases(released.before(__version__)[-1:], whole=released.before(__version__)))
def test_nothing_is_lost_or_doubled(empty_database: str, processes: Processes, tmp_path: Path, last: str) -> None:
    """Both send under load on the migrated database; what was queued or enqueued whenever arrives exactly once.

    The old one settles as usual there, and not in the slower way that it has for when that fails.
    """
    released.make(empty_database, last)
    with Sandbox(rate_per_s=0, receipt_delay_s=0) as sandbox, psycopg.connect(empty_database, autocommit=True) as conn:
        conn.execute(f"alter database {conn.info.dbname} set track_functions = 'all'".encode())
        writer = Writer(empty_database, add_phones(conn, _PHONES))
        add_deliveries(conn, 4)
        given = {"expo_base_url": sandbox.url, "push_rate_per_second": 0, "worker_cycles": "fanout,dispatch,reaper"}
        package = released.unpack(last, tmp_path / last)
        old = processes.module("run", worker_id="old", pythonpath=package, **given)
        with writer:
            eventually(lambda: requests_of(conn), lambda: f"the old worker sends: {old.stderr}")
            assert processes.relevo("migrate").ends() == 0
            migrated = conn.execute("select clock_timestamp()").fetchone()
            eventually(lambda: settles(conn), "the old worker settles what it sent by what 0.3.0 calls settle_sent_2")
            new = processes.relevo("run", worker_id="new", **given)
            eventually(lambda: len(requests_of(conn, *migrated)) == 2, lambda: f"both send: {requests_of(conn)}")
        every = 4 + _PHONES * writer.written
        left = "select count(*) from relevo.deliveries where status <> 'sent'"
        count = "select count(*) from relevo.deliveries"
        eventually(lambda: conn.execute(count).fetchone() == (every,), "every event is fanned out")
        eventually(lambda: conn.execute(left).fetchone() == (0,), "every delivery is sent")
        assert [old.stops(), new.stops()] == [0, 0]
        received = sorted(phone["received"] for phone in sandbox.phones().values())
        assert received == [1] * 4 + [writer.written] * _PHONES
        assert conn.execute("select version from relevo.workers order by worker_id").fetchall()[1] == (last,)
        assert not old.lines(level="error"), old.stderr
