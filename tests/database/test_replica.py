"""Lists and histories come from a replica; what was just written, and all while it is gone or behind, from the primary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relevo import app, config, embedded
from relevo.cli.common import open_lists
from relevo.config import Settings
from relevo.core.errors import DatabaseUnavailableError
from relevo.database.pool import Database
from relevo.database.replica import Reader, ReadResult, ask, open_reader
from relevo.operators import doctor
from support import postgres_folder
from support.http_server import EVENT, Served, free_port
from support.processes import eventually
from support.standby import stream

FAST = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "16MB", "max_connections": "40"}
SAYS_SO = "Read from a replica, as of"


@dataclass(frozen=True)
class Pair:
    """A primary and what is streamed to its standby."""

    primary: embedded.Embedded
    standby: embedded.Embedded

    def settings(self, **more: str) -> Settings:
        """Settings of a process that writes to one and reads from the other."""
        return config.load(
            {"DATABASE_URL": self.primary.dsn, "DATABASE_READ_URL": self.standby.dsn, "HTTP_PORT": str(free_port())}
            | more,
            None,
        )


@pytest.fixture(scope="module")
def pair(prototype: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A primary and its standby, both with the schema; the last test of this file ends the primary."""
    home, standby = (tmp_path_factory.mktemp(name) / "postgres" for name in ("home", "standby"))
    postgres_folder.copy(prototype, home)
    with embedded.acquire(home, settings=FAST) as primary:
        stream(primary.dsn, home, standby)
        with embedded.acquire(standby, settings=FAST) as second:
            yield Pair(primary, second)


def test_pages_read_the_replica_but_not_after_an_action_of_ones_own(pair: Pair) -> None:
    """Who acts sees it at once, who looks sees the replica and how old it is, and what it lacks is not called missing."""
    with (
        app.build(pair.settings()) as built,
        psycopg.connect(pair.standby.dsn, autocommit=True) as standby,
    ):
        served = Served(built)
        served.start()
        try:
            operator, viewer, caller = (served.client(role) for role in ("operator", "viewer", "app"))
            eventually(lambda: SAYS_SO in viewer.get("/dashboard/audit").text, "a list says that it is a replica's")
            standby.execute("select pg_wal_replay_pause()")
            eventually(
                lambda: standby.execute("select pg_get_wal_replay_pause_state()").fetchone() == ("paused",), "it pauses"
            )
            assert operator.post("/dashboard/actions/pause", data={"cycle": "reaper", "reason": "a try"}).ok
            acted, looked = (each.get("/dashboard/audit").text for each in (operator, viewer))
            assert ("a try" in acted, SAYS_SO in acted) == (True, False)
            assert ("a try" in looked, SAYS_SO in looked) == (False, True)
            event = caller.post("/v1/events", EVENT).json()["event_id"]
            assert viewer.get(f"/dashboard/events/{event}").status_code == 200
            assert not viewer.post("/dashboard/actions/pause", data={"cycle": "reaper"}).ok
            assert SAYS_SO not in viewer.get("/dashboard/audit").text, "who was refused looks at what came of it"
            assert SAYS_SO not in viewer.get("/dashboard").text, "health is judged by the primary"
        finally:
            standby.execute("select pg_wal_replay_resume()")
            served.close()


def test_what_is_too_far_behind_or_gone_is_not_read(pair: Pair) -> None:
    """A replica that lags by more than is allowed, or does not answer, costs no answer: the primary gives it."""
    behind = pair.settings(DATABASE_READ_MAX_LAG_MS="100")
    gone = pair.settings(
        DATABASE_READ_URL=make_conninfo(pair.standby.dsn, port=free_port()), DATABASE_CONNECT_TIMEOUT_MS="200"
    )
    for settings in (behind, gone):
        database = Database(pair.primary.dsn, pair.primary.dsn, settings)
        reader = open_reader(database, settings, "test", 1)
        try:
            eventually(lambda: _write(database), "a replica is as old as the last write")
            eventually(lambda: _has_replayed(pair.standby.dsn), "the replica knows how old it is")
            eventually(lambda: reader.read(_fetch, "select 1").age_s is None, "the primary is read", within=30)
        finally:
            reader.close()
            database.close()


def test_what_a_replica_cannot_say_the_primary_does(pair: Pair) -> None:
    """An error of any kind and an empty list are asked again, and what takes long there ends before requests suffer."""
    settings = pair.settings(DATABASE_READ_MAX_LAG_MS="3600000")
    database = Database(pair.primary.dsn, pair.primary.dsn, settings)
    reader = open_reader(database, settings, "test", 1)

    def ask(statement: LiteralString) -> ReadResult[list[object]]:
        return reader.read(lambda asked: [row[0] for row in _fetch(asked, statement) if row[0] is not None])

    try:
        eventually(lambda: _write(database), "a replica is as old as the last write")
        replica = eventually(lambda: _of_replica(ask("select current_setting('statement_timeout')")), "it is read")
        assert replica == ["5s"]
        for fails in ("select 1 / (not pg_is_in_recovery())::int", "select nullif(not pg_is_in_recovery(), false)"):
            answer = ask(fails)
            assert (answer.value, answer.age_s) == ([1], None)
    finally:
        reader.close()
        database.close()


def test_only_a_replica_of_the_same_database_is_read(pair: Pair, dsn: str) -> None:
    """Another server's database, one without tables and the primary itself are left alone, and doctor says why."""
    primary = pair.primary.dsn
    database = Database(primary, primary, pair.settings())
    try:
        eventually(lambda: _write(database), "a replica is as old as the last write")
        for url, kind, why in (
            (pair.standby.dsn, None, ""),
            (primary, "replica_foreign", "it takes writes"),
            (dsn, "replica_foreign", "of its server, and DATABASE_URL leads to"),
            (make_conninfo(pair.standby.dsn, dbname="template1"), "replica_unreachable", "it has no tables of Relevo"),
        ):
            settings = pair.settings(DATABASE_READ_URL=url, DATABASE_READ_MAX_LAG_MS="3600000")
            reader = open_reader(database, settings, "test", 1)
            eventually(lambda: _has_replayed(pair.standby.dsn), "the replica knows how old it is")
            is_read = reader.read(_fetch, "select 1").age_s is not None
            found = {each.kind: each.what for each in doctor.look_around(database, settings) if "READ" in each.what}
            reader.close()
            assert (is_read, list(found)) == (kind is None, [kind] if kind else [])
            assert kind is None or why in found[kind]
        here = ask(database)  # the servers of tests are copies, and have one name
        assert "it is server 7, and DATABASE_URL" in here._replace(system_identifier="7").differs_from(here)
    finally:
        database.close()


def test_a_primary_that_is_another_server_now_is_noticed(pair: Pair, dsn: str) -> None:
    """Where DATABASE_URL leads to another server after a restore, the standby of the former one is read for a minute at most."""
    settings, now = pair.settings(DATABASE_READ_MAX_LAG_MS="3600000"), [0.0]
    former, restored = (Database(each, each, settings) for each in (pair.primary.dsn, dsn))
    standby = Database(pair.standby.dsn, pair.standby.dsn, settings)
    reader = Reader(former, standby, clock=lambda: now[0])
    try:
        assert _write(former), "a replica is as old as the last write"
        eventually(lambda: _has_replayed(pair.standby.dsn), "the replica knows how old it is")
        assert reader.read(_fetch, "select 1").age_s is not None
        reader.primary, now[0] = restored, 61.0
        assert reader.read(_fetch, "select 1").age_s is None
    finally:
        for each in (former, restored, standby):
            each.close()


def test_a_command_shows_all_that_was_acknowledged_before_it(pair: Pair) -> None:
    """A list is read from the replica once it has what was written before, and from the primary while it lacks it."""
    settings = pair.settings(DATABASE_READ_MAX_LAG_MS="3600000")
    database = Database(pair.primary.dsn, pair.primary.dsn, settings)

    def list_written() -> tuple[list[tuple[object, ...]], bool]:
        with open_lists(settings) as lists:
            rows = lists.read(_fetch, "select source from relevo.cycle_state where cycle = 'listed' order by 1")
        return rows, lists.age_s is not None

    try:
        _fetch(database, "insert into relevo.cycle_state (cycle, source) values ('listed', 'a') returning 1")
        eventually(lambda: list_written() == ([("a",)], True), "the replica is read")
        with psycopg.connect(pair.standby.dsn, autocommit=True) as standby:
            standby.execute("select pg_wal_replay_pause()")
            _fetch(database, "insert into relevo.cycle_state (cycle, source) values ('listed', 'b') returning 1")
            assert list_written() == ([("a",), ("b",)], False)
            standby.execute("select pg_wal_replay_resume()")
    finally:
        database.close()


def test_a_replica_that_tells_neither_time_nor_place_goes_by_beats(pair: Pair) -> None:
    """Where the server refuses to say how far it is, as Aurora does, a worker's beat tells; commands read the primary."""
    url = make_conninfo(pair.standby.dsn, options="-c search_path=silent,pg_catalog")
    settings = pair.settings(DATABASE_READ_URL=url, DATABASE_READ_MAX_LAG_MS="3600000")
    database = Database(pair.primary.dsn, pair.primary.dsn, settings)
    reader = open_reader(database, settings, "test", 1)
    try:
        with psycopg.connect(pair.primary.dsn, autocommit=True) as primary:
            primary.execute("create schema silent")
            for name, returns in (
                ("pg_last_xact_replay_timestamp", "timestamptz"),
                ("pg_last_wal_replay_lsn", "pg_lsn"),
            ):
                primary.execute(
                    f"create function silent.{name}() returns {returns} language plpgsql as"
                    " $$begin raise feature_not_supported; end$$".encode()
                )
            primary.execute(
                "insert into relevo.workers (worker_id, hostname, pid, version, role, cycles, started_at, last_seen_at, lease_ms)"
                " values ('beats', 'h', 1, '1', 'run', '{}', now(), now(), 60000)"
            )
        eventually(
            lambda: reader.read(_fetch, "select 1 from relevo.workers").age_s is not None, "it is read", within=30
        )
        reader.catch_up()
        assert reader.read(_fetch, "select 1").age_s is None
    finally:
        reader.close()
        database.close()


def test_a_pool_of_both_hosts_follows_the_primary(pair: Pair) -> None:
    """With both hosts in DATABASE_URL and target_session_attrs=read-write, a process writes to whichever may be written."""
    first, second = (conninfo_to_dict(each.dsn) for each in (pair.primary, pair.standby))
    both = make_conninfo(
        pair.primary.dsn,
        host=f"{first['host']},{second['host']}",
        port=f"{second['port']},{first['port']}",  # the standby comes first, and is passed over
        target_session_attrs="read-write",
    )
    database = Database(both, both, config.load({"DATABASE_URL": both}, None))
    try:
        assert _write(database) == int(first["port"])
        pair.primary.release()
        eventually(lambda: not _answers(pair.primary.dsn), "the primary ends")
        with psycopg.connect(pair.standby.dsn, autocommit=True) as standby:
            standby.execute("select pg_promote()")
        assert eventually(lambda: _write(database), "it writes again") == int(second["port"])
        settings = pair.settings(DATABASE_URL=both)
        _fetch(database, "update relevo.workers set last_seen_at = now() - interval '1 hour' returning 1")
        reader = open_reader(database, settings, "test", 1)
        assert reader.read(_fetch, "select 1").age_s is None, "one that was promoted and left alone looks old"
        reader.close()
    finally:
        database.close()


def _fetch(database: Database, statement: LiteralString) -> list[tuple[object, ...]]:
    with database.connection() as connection:
        return connection.execute(statement).fetchall()


def _of_replica(answer: ReadResult[list[object]]) -> list[object] | None:
    return None if answer.age_s is None else answer.value


def _has_replayed(dsn: str) -> bool:
    with psycopg.connect(dsn) as standby:
        return standby.execute("select pg_last_xact_replay_timestamp() is not null").fetchone() == (True,)


def _answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True


def _write(database: Database) -> int:
    """Write something; return the port of the server that took it, or nothing if none did."""
    try:
        with database.transaction() as connection:
            connection.execute(
                "insert into relevo.cycle_state (cycle, source) values ('followed', '') on conflict do nothing"
            )
            return connection.info.port
    except DatabaseUnavailableError:
        return 0
