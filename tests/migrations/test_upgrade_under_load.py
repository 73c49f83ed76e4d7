"""A database of the release before is migrated while a writer enqueues; a worker of today sends all of it, once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg

import released
from deliveries import add_deliveries
from phones import add_phones, fan_out_to_the_end
from relevo import app, config
from relevo.client import verbs
from relevo.client.values import Event
from relevo.database import migrate
from relevo.sandbox import Sandbox


def note(conn: psycopg.Connection[Any], key: str, phones: Sequence[UUID]) -> None:
    """Enqueue an event for some phones."""
    verbs.enqueue(conn, Event("note", key, "Hello", "World", audience=list(phones)))


def test_nothing_is_lost_or_doubled(empty_database: str) -> None:
    """What was queued before, and enqueued before, during and after the migration, reaches every phone exactly once."""
    released.make(empty_database, released.versions()[-1])
    migrated = threading.Event()
    written: list[str] = []

    def write(phones: Sequence[UUID]) -> None:
        with psycopg.connect(empty_database, autocommit=True) as writer:
            while len(written) < 20 or not migrated.is_set():
                note(writer, f"written-{len(written)}", phones)
                written.append("")

    with Sandbox(rate_per_s=0, receipt_delay_s=0) as sandbox, psycopg.connect(empty_database, autocommit=True) as conn:
        phones = add_phones(conn, 5)
        add_deliveries(conn, 4)
        for number in range(10):
            note(conn, f"before-{number}", phones)
        given = {"DATABASE_URL": empty_database, "EXPO_BASE_URL": sandbox.url, "PUSH_RATE_PER_SECOND": "0"}
        with app.build(config.load(given, None)) as worker:
            writing = threading.Thread(target=write, args=[phones])
            writing.start()
            try:
                assert migrate.prepare(worker.database) == migrate.available()
            finally:
                migrated.set()
                writing.join(60)
            worker.worker.record_start("run", [cycle.key for cycle in worker.cycles()])
            events = 10 + len(written)
            fan_out_to_the_end(worker)
            assert worker.runner.run(worker.registry["dispatch"], "manual").outcome == "ok"
        assert sorted(phone["received"] for phone in sandbox.phones().values()) == [1] * 4 + [events] * 5
        assert conn.execute("select status, count(*) from relevo.deliveries group by 1").fetchall() == [
            ("sent", 4 + 5 * events)
        ]
