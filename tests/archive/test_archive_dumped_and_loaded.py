"""A database that was dumped and loaded goes on where it was: its months are recognised, and dropped in good order."""

from __future__ import annotations

import subprocess
from typing import Any

import psycopg
import pytest

from relevo import embedded
from support.old_months import (
    add_old_deliveries,
    add_old_event,
    add_old_items,
    clean_up,
    clean_up_step,
    export,
    export_later,
    exports,
    month_ago,
)

OLD, OLDER = month_ago(5), month_ago(14)


@pytest.fixture
def reload(server: embedded.Embedded, dsn: str, empty_database: str) -> Any:
    """Dump the test's database with pg_dump, load it into another with psql, and return that one's DSN."""

    def copy() -> str:
        dumped = subprocess.run([server.bin / "pg_dump", dsn], capture_output=True, check=True)
        load = [
            server.bin / "psql",
            "--quiet",
            "--no-psqlrc",
            "--set=ON_ERROR_STOP=1",
            "--single-transaction",
            empty_database,
        ]
        subprocess.run(load, input=dumped.stdout, capture_output=True, check=True)
        return empty_database

    return copy


def test_months_of_every_state_go_on_after_a_dump_and_load(build, conn, folder_settings, reload) -> None:
    """Verified, uploaded in part, retired, sealed and moving: after the load each is exported once and dropped."""
    add_old_deliveries(conn, OLD, 250)
    add_old_event(conn, OLD, "k")
    app = build(archive_part_rows=100, **folder_settings)
    assert clean_up(app).outcome == "ok"
    assert export(app).outcome == "ok"
    assert set(exports(conn).values()) == {"verified"}
    add_old_deliveries(conn, month_ago(6), 20)
    assert clean_up(app).outcome == "ok"
    add_old_deliveries(conn, month_ago(7), 20)
    assert clean_up_step(app).more  # seals it
    add_old_items(conn, OLDER, 10)
    conn.execute("select relevo.retire_items(%s, 100, 4)", [OLDER])
    assert set(exports(conn).values()) == {"verified", "retired", "sealed", "moving"}
    loaded = reload()
    build_there = build(archive_part_rows=100, database_url=loaded, **folder_settings)
    assert clean_up(build_there).outcome == "ok"
    assert export(build_there).outcome == "ok"
    export_later(build_there, 30)
    with psycopg.connect(loaded) as there:
        assert set(exports(there).values()) == {"dropped"}
        reported = "select sum(rows), sum(mismatches), count(last_error) from relevo.archive_exports"
        assert there.execute(reported).fetchone() == (250 + 1 + 20 + 20 + 10, 0, 0)
        left = "select count(*) from pg_class where relnamespace = 'relevo_archive'::regnamespace and relkind = 'r'"
        assert there.execute(left).fetchone() == (0,)


def test_a_relation_without_its_own_seal_is_kept_and_holds_up_no_other(build, conn, folder_settings) -> None:
    """A table that was put in the place of the exported one, or can be written to, stays, says why; the rest is dropped."""
    for ago in (5, 6, 7, 8):
        add_old_deliveries(conn, month_ago(ago), 20)
    app = build(**folder_settings)
    assert clean_up(app).outcome == "ok"
    assert export(app).outcome == "ok"
    good, anothers, none, broken = (
        f"relevo_archive.notification_deliveries_{month_ago(ago):%Y_%m}" for ago in (5, 6, 7, 8)
    )
    conn.execute(f"alter table {broken} disable trigger sealed")
    for name in (anothers, none):
        conn.execute(f"alter table {name} rename to kept_elsewhere")
        conn.execute(f"create table {name} (like relevo_archive.kept_elsewhere including all)")
        conn.execute(f"insert into {name} select * from relevo_archive.kept_elsewhere")
        conn.execute("drop table relevo_archive.kept_elsewhere")
    definition = "select pg_get_triggerdef(oid) from pg_trigger where tgrelid = %s::regclass"
    for (text,) in conn.execute(definition, [good]).fetchall():
        conn.execute(text.replace(good, anothers))
    export_later(app, 30)
    reported = "select state, last_error from relevo.archive_exports where relation = %s"
    for name in (anothers, none, broken):
        state, error = conn.execute(reported, [name.removeprefix("relevo_archive.")]).fetchone()
        assert state == "verified", name
        assert "is not the relation that was exported: it does not bear the seal of export" in error, name
        assert conn.execute(f"select count(*) from {name}").fetchone() == (20,)
    assert exports(conn)["notification_deliveries", f"{month_ago(5):%Y-%m}"] == "dropped"
