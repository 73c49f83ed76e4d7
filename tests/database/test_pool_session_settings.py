"""Cycles and commands work on a database, and for a role, whose sessions begin with settings of somebody else's taste."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import sql

from relevo.client import quiet, verbs
from relevo.client.values import Event, Installation, Owners
from support.sending_worker import Relay

STRANGE = {
    "IntervalStyle": "sql_standard",
    "DateStyle": "German, DMY",
    "client_encoding": "LATIN1",
    "standard_conforming_strings": "off",
    "bytea_output": "escape",
    "search_path": "pg_temp",
    "timezone": "Pacific/Chatham",
    "extra_float_digits": "-15",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "xmloption": "document",
    "default_transaction_isolation": "serializable",
    "statement_timeout": "20s",
    "lock_timeout": "1ms",
    "idle_session_timeout": "2s",
    "idle_in_transaction_session_timeout": "1s",
}
CYCLES = ("reaper", "fanout", "digest", "dispatch", "receipt", "cleanup")
COMMANDS = ("status", "events", "deliveries", "installations", "runs", "sources", "audit", "doctor", "event note 1")


@pytest.fixture
def strange(conn: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """A database whose new sessions begin strangely; returns such a session, as an app has it."""
    name = sql.Identifier(conn.info.dbname)
    for setting, value in STRANGE.items():
        conn.execute(sql.SQL("alter database {} set {} = {}").format(name, sql.Identifier(setting), value))
    try:
        with psycopg.connect(conn.info.dsn, password=conn.info.password or None, autocommit=True) as app:
            assert app.execute("select current_setting('IntervalStyle') = 'sql_standard'").fetchone() == (True,)
            yield app
    finally:
        conn.execute(sql.SQL("alter database {} reset all").format(name))


def test_cycles_run(strange: psycopg.Connection[Any], relay: Any) -> None:
    """Each cycle ends well: fan-out, a claim taken back, pushes sent, receipts asked for, digests and cleanup."""
    worker: Relay = relay()
    worker.tell("ana", "bea")
    assert worker.app.claims.claim("dispatch", "default", "bulk") is not None
    worker.travel(minutes=5)
    for cycle in (*CYCLES, *CYCLES):
        report = worker.run(cycle)
        assert (report.outcome in ("ok", "idle"), report.error) == (True, ""), cycle
    worker.travel(minutes=30)
    worker.run("receipt")
    assert worker.states() == {"ok": 2}


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_run(strange: psycopg.Connection[Any], relay: Any, command: Any, words: str) -> None:
    """Commands that list, count and examine read what is there."""
    worker: Relay = relay()
    worker.tell("ana")
    worker.dispatch()
    assert "Traceback" not in str(command(*words.split()))


def test_apps_call(strange: psycopg.Connection[Any], conn: psycopg.Connection[Any]) -> None:
    """The same phone and the same event from a strange and from a usual session are the same, in two projects."""
    later, end = datetime(2031, 3, 2, 4, 5, tzinfo=UTC), datetime(2031, 4, 3, 4, 5, tzinfo=UTC)
    for project in ("shop", "bank"):
        phone = verbs.register(strange, Installation(f"ExponentPushToken[{project}]", project=project, owner="ana"))
        assert verbs.register(conn, Installation(f"ExponentPushToken[{project}]", phone, project, owner="ana")) == phone
        event = Event("told", "1", "Hola", audience=Owners("ana"), scheduled_at=later, deadline_at=end, project=project)
        assert verbs.enqueue(conn, event).event_id == verbs.enqueue(strange, event).event_id
        quiet.set_quiet(strange, ["mon,tue 22:00-07:00"], owner="ana", zone="America/Santiago", project=project)
    with pytest.raises(psycopg.Error, match="token"):
        strange.execute("select relevo.register_installation(%s)", ['{"token": "nonsense"}'])
    rows = conn.execute("select distinct scheduled_at, deadline_at from relevo.notification_events").fetchall()
    assert rows == [(later, end)]


def test_an_idle_session_is_not_cut(strange: psycopg.Connection[Any], relay: Any) -> None:
    """A connection of the heartbeat or the listener outlasts the database's idle_session_timeout."""
    worker: Relay = relay()
    with worker.app.database.direct() as direct, worker.app.database.single() as single:
        for each in (direct, single):
            assert each.execute("show idle_session_timeout").fetchone() == ("0",)
            assert each.execute("show client_encoding").fetchone() == ("UTF8",)
