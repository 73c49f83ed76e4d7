"""Nobody outside Relevo can hold a lock that Relevo waits for: its locks are rows and tables of its own."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import relevo
from relevo import Installation
from relevo.core import queries
from support.old_months import add_old_deliveries, add_old_event, clean_up, export, month_ago
from support.processes import eventually

FIXED = ("ensure_partitions", "keep_inbox_items", "owners", "repair", "migrate")
NAMED = ("wordings:notice", "news:shop", "owner:ana", "owner:bea", "token:ExponentPushToken[ana]")
GUESSES = [*FIXED, *NAMED, *(f"month:{month_ago(back):%Y-%m}" for back in range(-2, 14))]
HOLD = "select count(pg_advisory_lock(hashtextextended(%s || u.name, 0))) from unnest(%s::text[]) as u(name)"


@pytest.fixture
def stranger(conn: psycopg.Connection[Any], dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A session of a role that may connect and nothing else, and holds every advisory lock whose name it can guess."""
    conn.execute("create role stranger login password 'stranger'")
    try:
        with psycopg.connect(dsn, user="stranger", password="stranger", autocommit=True) as session:
            session.execute(HOLD, ["relevo.", GUESSES])
            session.execute(HOLD, ["", GUESSES])
            yield session
    finally:
        conn.execute("drop role stranger")


def test_no_statement_takes_an_advisory_lock() -> None:
    """No function or statement of Relevo asks for an advisory lock: every role that may connect could hold it."""
    root = queries.sql_root()
    texts = [*root.glob("functions/**/*.sql"), *root.glob("queries/*.sql"), *root.glob("tables/*.sql")]
    assert len(texts) > 300
    asks = re.compile(r"\bpg_(try_)?advisory_\w*lock")
    assert [path.name for path in texts if asks.search(path.read_text(encoding="utf-8"))] == []


def test_a_stranger_reaches_no_lock(stranger: psycopg.Connection[Any]) -> None:
    """A role that may only connect can neither lock the tables and rows that Relevo locks, nor call what locks them."""
    month = f"{datetime.now(UTC):%Y_%m}"
    for attempt in (
        "insert into relevo.turns values (1)",
        "select from relevo.shared_locks for key share",
        "lock table relevo.schema_migrations in access share mode",
        f"lock table relevo.notification_deliveries_{month} in access share mode",
        "select relevo.take_turn('repair')",
        "select relevo.lock_shared('owners')",
        "select relevo.lock_alone('owners')",
        "select relevo.hold_open(array[current_date])",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), stranger.transaction():
            stranger.execute(sql.SQL(attempt))  # type: ignore[arg-type]


def test_everything_goes_on_beside_a_stranger(relay, conn, stranger, tmp_path: Path) -> None:
    """While a stranger holds the locks it can guess, people register and choose, pushes are sent and confirmed, months
    leave and are exported, and people are forgotten, in two projects."""
    (tmp_path / "cold").mkdir()
    worker = relay(archive_backend="folder", archive_folder=str(tmp_path / "cold"))
    conn.execute("set lock_timeout = '5s'")
    phones = {
        project: [
            relevo.register(conn, Installation(f"ExponentPushToken[{owner}-{project}]", project=project, owner=owner))
            for owner in ("ana", "bea")
        ]
        for project in ("shop", "bank")
    }
    relevo.set_category(conn, "offers")
    relevo.choose(conn, "offers", owner="ana", wanted=False)
    events = [worker.enqueue(audience=some) for some in phones.values()]
    worker.fan_out()
    worker.drain()
    worker.run("receipt")
    worker.run("reaper")
    assert [relevo.get(conn, event).deliveries for event in events] == [{"ok": 2}, {"ok": 2}]
    add_old_deliveries(conn, month_ago(5), 20)
    add_old_event(conn, month_ago(5), "old")
    assert clean_up(worker.app).outcome == "ok"
    assert export(worker.app).outcome == "ok"
    gone = conn.execute("select to_regclass(%s)", [f"relevo.notification_deliveries_{month_ago(5):%Y_%m}"]).fetchone()
    assert gone == (None,)
    assert relevo.forget(conn, owner="ana") == 2
    assert conn.execute("select relevo.ensure_partitions(%s, 1)", [month_ago(-20)]).fetchone() == (2,)


WAITS = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


def test_turns_exclude_one_another(conn: psycopg.Connection[Any], dsn: str) -> None:
    """A name that one transaction has waits for its end in another, whether it commits or not; other names do not."""
    for end in ("commit", "rollback"):
        with psycopg.connect(dsn) as first, psycopg.connect(dsn, autocommit=True) as second:
            first.execute("select relevo.take_turn('a'), relevo.take_turn('a')")
            second.execute("select relevo.take_turn('b')")
            waiting = threading.Thread(target=second.execute, args=["select relevo.take_turn('a')"])
            waiting.start()
            eventually(lambda: conn.execute(WAITS).fetchone() == (1,), "the second waits")
            getattr(first, end)()
            waiting.join(30)
            assert not waiting.is_alive()
    assert conn.execute("select from relevo.turns").fetchall() == []


def test_shared_locks_exclude_only_who_is_alone(conn: psycopg.Connection[Any], dsn: str) -> None:
    """Two transactions share a name, and one that wants it alone waits for both; forgetting leaves nothing of the name."""
    conn.execute("select relevo.lock_shared('owner:ana')")
    with psycopg.connect(dsn) as first, psycopg.connect(dsn) as second:
        first.execute("select relevo.lock_shared('owner:ana')")
        second.execute("select relevo.lock_shared('owner:ana')")
        with psycopg.connect(dsn, autocommit=True) as third:
            waiting = threading.Thread(target=third.execute, args=["select relevo.lock_alone('owner:ana')"])
            waiting.start()
            eventually(lambda: conn.execute(WAITS).fetchone() == (1,), "who wants it alone waits")
            first.commit()
            assert waiting.is_alive()
            second.commit()
            waiting.join(30)
            assert not waiting.is_alive()
    relevo.forget(conn, owner="ana")
    left = "select from relevo.shared_locks where key = hashtextextended('owner:ana', 0)"
    assert conn.execute(left).fetchall() == []


def test_a_seal_waits_for_who_holds_the_month(conn: psycopg.Connection[Any], dsn: str) -> None:
    """A month is sealed only after the transactions that hold it open have ended; whoever comes later finds it sealed."""
    month = month_ago(5)
    add_old_deliveries(conn, month, 3)
    with psycopg.connect(dsn) as fan_out, psycopg.connect(dsn, autocommit=True) as cleanup:
        assert fan_out.execute("select relevo.hold_open(array[%s])", [month]).fetchone() == ([month],)
        sealing = "select relevo.seal_month('notification_deliveries', %s, 1000)"
        waiting = threading.Thread(target=cleanup.execute, args=[sealing, [month]])
        waiting.start()
        eventually(lambda: conn.execute(WAITS).fetchone() == (1,), "the seal waits")
        fan_out.commit()
        waiting.join(30)
    assert conn.execute("select relevo.hold_open(array[%s])", [month]).fetchone() == ([],)
    other = month_ago(0)
    assert conn.execute("select relevo.hold_open(array[%s, %s])", [month, other]).fetchone() == ([other],)
