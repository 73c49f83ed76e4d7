"""A migration that meets a lock gives way: apps wait for it a second or two, however long the lock is held."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import psycopg
import pytest

import released
from relevo.core.errors import MigrationBusyError
from relevo.database import migrate
from support.processes import eventually

LONGEST_S = 2.0
TABLES = "select string_agg(oid::regclass::text, ', ') from pg_class where relnamespace = 'relevo'::regnamespace and relkind in ('r', 'p')"
ENQUEUE = """select relevo.enqueue(jsonb_build_object('type', 'note', 'key', %s::text, 'title', 'Hello', 'body', 'World',
                                                     'audience', 'everyone'))"""
WAITS = "select count(*) from pg_locks where locktype = 'relation' and not granted"


class App:
    """An app that enqueues an event every few milliseconds, and remembers how long each took."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._done, self._thread = threading.Event(), threading.Thread(target=self._enqueue)
        self.took: list[float] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(60)

    def _enqueue(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            while not self._done.wait(0.02):
                began = time.monotonic()
                conn.execute(ENQUEUE, [len(self.took)])
                self.took.append(time.monotonic() - began)


@pytest.fixture
def of_before(empty_database: str) -> str:
    """A database of the first release that is upgraded."""
    released.make(empty_database, released.versions()[0])
    return empty_database


def test_an_app_enqueues_beside_a_dump(database: Any, of_before: str, look: Any) -> None:
    """While pg_dump reads every table, no enqueue waits longer than 2 s; when it ends, the upgrade comes to its end."""
    [tables] = look.execute(TABLES).fetchone()
    with ThreadPoolExecutor(1) as threads, App(of_before) as app, psycopg.connect(of_before) as dump:
        dump.execute(f"lock table {tables} in access share mode")
        migrating = threads.submit(migrate.migrate, database)
        for times in range(3):
            eventually(lambda: migrating.done() or look.execute(WAITS).fetchone() != (0,), f"it waits, {times} before")
            enqueued = len(app.took)
            eventually(lambda known=enqueued: len(app.took) > known + 3, "it gives way, and the app goes on")
        assert not migrating.done()
        dump.rollback()
        assert migrating.result(120)[:-1] == migrate.available()
        enqueued = len(app.took)
        eventually(lambda: len(app.took) > enqueued, "the app goes on")
    assert max(app.took) < LONGEST_S, sorted(app.took)[-5:]


def test_it_names_the_session_it_waited_for(database: Any, of_before: str, look: Any) -> None:
    """When its patience is over, the error has the session whose lock was in the way, and how long that has been open."""
    with psycopg.connect(of_before, application_name="pg_dump") as dump:
        dump.execute("lock table relevo.device_installations, relevo.workers in access share mode")
        said = rf"waited too long for a lock and was undone\. PostgreSQL pid {dump.info.backend_pid} \(pg_dump\) has had its transaction open"
        with pytest.raises(MigrationBusyError, match=said):
            migrate.migrate(database, patience_s=0)


def test_every_constraint_is_validated_apart(database: Any, of_before: str, look: Any) -> None:
    """After the upgrade no constraint is left unchecked, and no file checked one while it held its locks."""
    migrate.migrate(database)
    asked = "select conname from pg_constraint where connamespace = 'relevo'::regnamespace and not convalidated"
    assert look.execute(asked).fetchall() == []


def test_a_row_that_breaks_a_constraint_stops_no_upgrade(migrated: Any, database: Any, look: Any) -> None:
    """Such a constraint stays as it is, and holds for what is written from then on."""
    look.execute("""create table relevo.odd (id int); insert into relevo.odd values (1);
                    alter table relevo.odd add constraint small check (id < 1) not valid,
                                           add constraint large check (id > 0) not valid""")
    migrate.migrate(database)
    asked = "select conname from pg_constraint where conrelid = 'relevo.odd'::regclass and not convalidated"
    assert look.execute(asked).fetchall() == [("small",)]
