"""A role that owns nothing retires, exports and drops: it reads what was retired, and the rest is done for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from support.old_months import add_old_deliveries, add_old_event, add_old_items, add_old_requests, exports, month_ago
from support.processes import Processes

ROLE = "relevo_archivist"
OLD, OLDER = month_ago(5), month_ago(14)
PATIENT_S = 480


@pytest.fixture
def plain_dsn(admin: psycopg.Connection[Any], dsn: str, conn: psycopg.Connection[Any]) -> Iterator[str]:
    """The test's database, for a role that may read and write rows and call functions, and owns nothing."""
    admin.execute(sql.SQL("create role {} login password 'plain'").format(sql.Identifier(ROLE)))
    for right in (
        "usage on schema relevo",
        "select, insert, update, delete on all tables in schema relevo",
        "usage on all sequences in schema relevo",
        "execute on all functions in schema relevo",
    ):
        conn.execute(f"grant {right} to {ROLE}")
    yield make_conninfo(dsn, user=ROLE, password="plain")
    conn.execute(f"drop owned by {ROLE} cascade")
    admin.execute(f"drop role {ROLE}")


def test_a_role_that_owns_nothing_archives(plain_dsn, conn, tmp_path, folder_settings) -> None:
    """Whoever may read the hot tables may read what was retired of them; nobody but the owner may change it."""
    add_old_deliveries(conn, OLD, 30)
    add_old_requests(conn, OLD, 5)
    add_old_event(conn, OLD, "k")
    add_old_items(conn, OLDER, 5)
    running = Processes(plain_dsn, tmp_path)
    try:
        # export lets everybody else go first: on a busy machine neither a tick's budget nor our patience may cut it short
        chosen = {"archive_grace_days": 0, "worker_tick_runner_max_ms": PATIENT_S * 1000, **folder_settings}
        ran = running.relevo("tick", "--runners", "cleanup,archive-export", **chosen)
        assert ran.ends(PATIENT_S) == 0, ran.stderr + ran.stdout
    finally:
        running.close()
    assert set(exports(conn).values()) == {"dropped"}
    runs = "select cycle, outcome from relevo.worker_runs order by id"
    assert conn.execute(runs).fetchall() == [("cleanup", "ok"), ("archive-export", "ok")]


def test_a_worker_brings_a_month_back(admin, dsn, conn, tmp_path, folder_settings) -> None:
    """What `relevo grant ROLE --worker` gives is enough to export a month and to restore it into its schema."""
    add_old_deliveries(conn, OLD, 30)
    admin.execute(sql.SQL("create role {} login password 'plain'").format(sql.Identifier(ROLE)))
    running = Processes(make_conninfo(dsn, user=ROLE, password="plain"), tmp_path)
    try:
        conn.execute("select relevo.grant_worker(%s)", [ROLE])
        chosen = {"worker_tick_runner_max_ms": PATIENT_S * 1000, **folder_settings}
        ran = running.relevo("tick", "--runners", "cleanup,archive-export", **chosen)
        assert ran.ends(PATIENT_S) == 0, ran.stderr + ran.stdout
        words = ("archive", "restore", "--entity", "deliveries", "--month", f"{OLD:%Y-%m}")
        restored = running.relevo(*words, **folder_settings)
        assert restored.ends(PATIENT_S) == 0, restored.stderr + restored.stdout
    finally:
        running.close()
        count = conn.execute("select to_regclass(%s)", [f"relevo_restored.notification_deliveries_{OLD:%Y_%m}"])
        assert count.fetchone() != (None,)
        conn.execute(f"drop owned by {ROLE} cascade")
        admin.execute(f"drop role {ROLE}")
