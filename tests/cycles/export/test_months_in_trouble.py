"""Trouble with one month, its table or its objects holds up no other, and each says why."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relevo.archive import restore
from relevo.cycles.export import Export
from support.faulty_store import COLD, NAME, OLD, Faulty, refuse, row, steps
from support.old_months import a_run, add_old_deliveries, clean_up, export, export_later, exports, month_ago, open_store


def test_a_drop_that_is_refused_holds_up_no_other_month(retired, conn) -> None:
    """Somebody built a view on a cold table: that month stays, and says why; the others are dropped."""
    add_old_deliveries(conn, month_ago(6), 20)
    assert clean_up(retired).outcome == "ok"
    assert export(retired).outcome == "ok"
    conn.execute(
        f"create view public.precious as select * from relevo_archive.notification_deliveries_{month_ago(6):%Y_%m}"
    )
    export_later(retired, 30)
    assert exports(conn)[NAME] == "dropped"
    assert exports(conn)["notification_deliveries", f"{month_ago(6):%Y-%m}"] == "verified"
    assert "depend" in row(conn, month_ago(6))[2]


def test_trouble_with_one_months_objects_holds_up_no_other(retired, conn, folder_settings) -> None:
    """The store fails whenever one month is touched: the others are exported in the same run, and that one says why."""
    for ago in (4, 6):
        add_old_deliveries(conn, month_ago(ago), 20)
    assert clean_up(retired).outcome == "ok"
    store = Faulty(open_store(**folder_settings))

    def refuse_one(key: str, path: object) -> None:
        if f"notification_deliveries/year={month_ago(6):%Y}/month={month_ago(6):%m}/" in key:
            refuse(key, path)

    store.faults = {"put": refuse_one}
    [problem] = [problem for step in steps(retired, store) for problem in step.problems]
    assert f"notification_deliveries_{month_ago(6):%Y_%m}: The store is in trouble" in problem
    assert (row(conn)[0], row(conn, month_ago(4))[0], row(conn, month_ago(6))[0]) == ("verified", "verified", "retired")


def test_months_in_trouble_wait_behind_the_others(retired, conn, folder_settings) -> None:
    """A few months in trouble end a run, for the store may be down; the next run begins with those that had none."""
    for ago in (6, 7, 8):
        add_old_deliveries(conn, month_ago(ago), 20)
    assert clean_up(retired).outcome == "ok"
    conn.execute(
        "update relevo.archive_exports set state = 'moving', sealed_at = null, retired_at = null where entity = 'push_requests'"
    )
    store = Faulty(open_store(**folder_settings))

    def refuse_older(key: str, path: object) -> None:
        if key.endswith(".parquet") and not key.startswith(f"notification_deliveries/year={OLD:%Y}/month={OLD:%m}/"):
            refuse(key, path)

    store.faults = {"put": refuse_older}
    assert sum(len(step.problems) for step in steps(retired, store)) == 3
    assert row(conn)[0] == "retired"
    first_in_trouble = [month_ago(ago) for ago in (8, 7, 6)]
    assert sum(len(step.problems) for step in steps(retired, store)) == 3
    assert row(conn)[0] == "verified"
    store.faults = {"put": refuse_older}
    exporting = Export(a_run(retired, "archive-export"), store)
    assert [exporting.step().problems[0].split(":")[0] for _ in first_in_trouble] == [
        f"notification_deliveries_{month:%Y_%m}" for month in first_in_trouble
    ]


def test_a_relation_that_is_gone_holds_up_no_other_month(retired, conn) -> None:
    """Somebody dropped one cold table and took the key of another: each is told in words, the rest is exported."""
    for ago in (4, 6):
        add_old_deliveries(conn, month_ago(ago), 20)
    assert clean_up(retired).outcome == "ok"
    conn.execute(f"drop table relevo_archive.notification_deliveries_{month_ago(6):%Y_%m}")
    key = "select conname from pg_constraint where conrelid = %s::regclass and contype = 'p'"
    [(name,)] = conn.execute(key, [COLD]).fetchall()
    conn.execute(f"alter table {COLD} drop constraint {name}")
    report = export(retired)
    assert report.outcome == "partial"
    assert f"relevo_archive.notification_deliveries_{month_ago(6):%Y_%m} is not there." in row(conn, month_ago(6))[2]
    assert "has no primary key." in row(conn)[2]
    assert row(conn, month_ago(4))[0] == "verified"


def test_a_relation_that_is_locked_holds_up_no_other_month(retired, conn, dsn, build, folder_settings) -> None:
    """Somebody holds a cold table for good: reading it ends after a while, and the others are exported."""
    add_old_deliveries(conn, month_ago(4), 20)
    assert clean_up(retired).outcome == "ok"
    with psycopg.connect(dsn) as mine:
        mine.execute(f"lock table {COLD} in access exclusive mode")
        report = export(build(database_lock_timeout_ms=300, **folder_settings))
    assert report.outcome == "partial", report
    assert "cannot be read" in row(conn)[2]
    assert row(conn, month_ago(4))[0] == "verified"


def test_an_object_that_nobody_listed_keeps_a_month_from_being_verified(
    retired, conn, folder_settings, file_of
) -> None:
    """Engines would read it as data: it is named, the other months go on, and once it is gone this one is verified."""
    add_old_deliveries(conn, month_ago(4), 20)
    assert clean_up(retired).outcome == "ok"
    store = open_store(**folder_settings)
    key = f"notification_deliveries/year={OLD:%Y}/month={OLD:%m}/part-00099.parquet"
    assert store.put(key, file_of(b"?"))
    problems = [problem for step in steps(retired, store) for problem in step.problems]
    assert len(problems) == 1
    assert "holds what no manifest lists: part-00099.parquet" in problems[0]
    assert (row(conn)[0], row(conn, month_ago(4))[0]) == ("exported", "verified")
    (Path(store.name) / key).unlink()
    assert not steps(retired, store)[-1].problems
    assert row(conn)[0] == "verified"


def test_two_replicas_at_once_export_each_month_once(build, conn, folder_settings) -> None:
    """One holds the lease, the other is told so; together they leave one whole month."""
    for ago in (5, 6, 7):
        add_old_deliveries(conn, month_ago(ago), 120)
    first, second = (build(archive_part_rows=50, worker_id=name, **folder_settings) for name in ("a", "b"))
    assert clean_up(first).outcome == "ok"
    reports: list[Any] = []

    def work(app: Any) -> None:
        reports.extend(export(app) for _ in range(10))

    threads = [threading.Thread(target=work, args=(app,)) for app in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {report.outcome for report in reports} <= {"ok", "idle", "skipped"}, reports
    assert sum(report.counts.get("rows_exported", 0) for report in reports) == 360
    assert set(exports(conn).values()) == {"verified"}
    store = open_store(**folder_settings)
    assert [
        reported.rows for reported in restore.months(store, pytest.fail) if reported.entity == "notification_deliveries"
    ] == [120] * 3


def test_only_the_relation_that_was_exported_is_dropped(retired, conn) -> None:
    """A table that took the relation's name since is left alone, loudly."""
    assert export(retired).outcome == "ok"
    conn.execute(f"alter table {COLD} rename to kept_elsewhere")
    conn.execute(f"create table {COLD} (precious int)")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="is not the relation that was exported"):
        conn.execute("select relevo.drop_retired('notification_deliveries', %s, now() + interval '30 days')", [OLD])
    assert conn.execute("select relevo.drop_retired('push_requests', %s, now())", [OLD]).fetchone() == (False,)
