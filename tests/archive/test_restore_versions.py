"""Files of earlier versions stay readable: what version 1 wrote is kept here, and restored by every later one."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from relevo import config
from relevo.archive import restore
from relevo.database.pool import Database
from support.old_months import add_old_deliveries, clean_up, export, month_ago, open_store

KEPT = Path(__file__).parent / "kept"
VERSIONS = sorted(path.name for path in KEPT.iterdir())
MONTH = date(2025, 3, 1)
ROWS = {"licitaciones": 10, "notification_deliveries": 60, "notification_events": 1, "push_requests": 5}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_of_an_earlier_version_restores(version, conn, dsn) -> None:
    """However many columns were added since, a month comes back with those it had, compared with its manifest."""
    conn.execute("alter table relevo.notification_deliveries add column added_later text")
    store, database = (
        open_store(archive_folder=KEPT / version),
        Database(dsn, dsn, config.load({"DATABASE_URL": dsn}, None)),
    )
    try:
        for entity, rows in ROWS.items():
            reported = restore.read_manifest(store, entity, MONTH)
            restore.verify(store, reported)
            assert restore.restore(database, store, reported).rows == rows
            assert str(reported.schema_version) == version.removeprefix("v")
    finally:
        database.close()
    found = conn.execute(
        "select data, match_monto::text, match_rubros from relevo_restored.notification_events_2025_03"
    )
    assert found.fetchall() == [({"ñ": [1, 2.50, None]}, "0.10", ["72", ""])]


def test_months_of_both_versions_are_one_view(build, conn, folder_settings, tmp_path) -> None:
    """A column that was added since is null in the months written before it, and one that was taken away in those since."""
    for path in (KEPT / VERSIONS[0]).rglob("*"):
        if path.is_file():
            target = tmp_path / "cold" / path.relative_to(KEPT / VERSIONS[0])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    conn.execute("alter table relevo.notification_deliveries add column added_later text")
    add_old_deliveries(conn, month_ago(5), 7)
    conn.execute("update relevo.notification_deliveries set added_later = 'new'")
    app = build(**folder_settings)
    assert clean_up(app).outcome == "ok"
    assert export(app).outcome == "ok"
    counted = "select added_later, count(*) as n from notification_deliveries group by 1 order by 2"
    found = restore.query(open_store(**folder_settings), counted, pytest.fail).to_pylist()
    assert [(row["added_later"], row["n"]) for row in found] == [("new", 7), (None, 60)]
    taken_away = {"claim_token", "next_attempt_at"}  # since version 1
    before, now = (
        {
            column.name
            for column in restore.read_manifest(open_store(**folder_settings), "notification_deliveries", month).columns
        }
        for month in (MONTH, month_ago(5))
    )
    assert (taken_away <= before, taken_away & now) == (True, set())
    asked = "select count(*) as n, count(next_attempt_at) as due, count(status) as known from notification_deliveries"
    found = restore.query(open_store(**folder_settings), asked, pytest.fail).to_pylist()
    assert found == [{"n": 67, "due": 0, "known": 67}]
