"""Which archive it is: another database's files, a disk that is not mounted, and another disk in its place."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from support.faulty_store import COLD, NAME, OLD, look_before_the_drop, row, truncate
from support.old_months import add_old_deliveries, clean_up, export, export_later, exports, month_ago, open_store


def test_another_databases_month_is_not_overwritten(retired, conn, build, folder_settings, tmp_path) -> None:
    """Two databases, one bucket, one prefix: the second is refused with its next step, and the first one's files stay.
    An empty month is its manifest alone: no part of ours is put next to it."""
    assert export(retired).outcome == "ok"
    before = {path: path.read_bytes() for path in (tmp_path / "cold").rglob("*") if path.is_file()}
    forget_exports(conn)
    add_old_deliveries(conn, OLD, 50)
    add_old_deliveries(conn, month_ago(6), 20)
    assert clean_up(retired).outcome == "ok"
    report = export(retired)
    assert report.outcome == "partial"
    assert "belongs to another database" in report.error
    assert "ARCHIVE_PREFIX" in row(conn, OLD)[2]
    assert exports(conn)["notification_deliveries", f"{month_ago(6):%Y-%m}"] == "verified"
    assert {path: path.read_bytes() for path in before} == before
    month = tmp_path / "cold" / "relevo" / "notification_deliveries" / f"year={OLD:%Y}" / f"month={OLD:%m}"
    for part in month.glob("part-*"):
        part.unlink()
    assert "belongs to another database" in export(retired).error
    assert [path.name for path in month.iterdir()] == ["_manifest.json"]


def forget_exports(conn: psycopg.Connection[Any]) -> None:
    """Make the database one that has exported nothing: what lies in the store is another's from now on."""
    conn.execute("truncate relevo.archive_exports cascade")
    conn.execute(f"drop table {COLD}, {COLD.replace('notification_deliveries', 'push_requests')}")


def test_another_databases_month_is_not_overwritten_after_a_mismatch(
    retired, conn, build, folder_settings, tmp_path
) -> None:
    """A month that was verified elsewhere is pointed at another database's prefix: what lies there, whole or damaged,
    stays byte for byte."""
    assert export(retired).outcome == "ok"
    forget_exports(conn)
    add_old_deliveries(conn, OLD, 50)
    elsewhere = build(archive_prefix="elsewhere", **folder_settings)
    assert clean_up(elsewhere).outcome == "ok"
    assert export(elsewhere).outcome == "ok"
    [part] = (tmp_path / "cold" / "relevo").rglob("notification_deliveries/*/*/part-00001.parquet")
    assert "is not what was written" in look_before_the_drop(retired)
    assert row(conn)[1] == 1
    for damage in (lambda *_: None, truncate):
        damage(part.name, part)
        before = {path: path.read_bytes() for path in (tmp_path / "cold" / "relevo").rglob("*") if path.is_file()}
        assert "belongs to another database" in export(retired).error
        assert {path: path.read_bytes() for path in before} == before
        assert row(conn)[0] == "retired"


def test_what_cannot_be_read_is_replaced_only_beside_our_own(retired, conn, folder_settings, file_of) -> None:
    """A damaged object alone may be anybody's: it stays, the month says so, and goes on once it was removed."""
    store = open_store(**folder_settings)
    key = f"notification_deliveries/year={OLD:%Y}/month={OLD:%m}/part-00001.parquet"
    store.put(key, file_of(b"half of somebody's only copy"))
    assert "cannot be read, and nothing beside it says" in export(retired).error
    assert (Path(store.name) / key).read_bytes() == b"half of somebody's only copy"
    (Path(store.name) / key).unlink()
    assert export(retired).outcome == "ok"
    assert row(conn) == ("verified", 0, None)


def test_a_damaged_manifest_is_replaced_beside_our_own_parts(retired, conn, folder_settings, file_of) -> None:
    """A manifest that says nothing of its author stops no upload: once the month's own parts lie beside it, it is replaced."""
    store = open_store(**folder_settings)
    key = f"notification_deliveries/year={OLD:%Y}/month={OLD:%m}/_manifest.json"
    store.put(key, file_of(b"half a man"))
    assert export(retired).outcome == "ok"
    assert row(conn) == ("verified", 0, None)
    assert json.loads((Path(store.name) / key).read_text())["entity"] == "notification_deliveries"


def test_a_disk_that_is_not_mounted_is_no_empty_archive(retired, conn, folder_settings) -> None:
    """Its mount point is an empty folder: nothing is written there, nothing is thought lost. Another disk, with another
    archive on it, is refused until it is named by another prefix, which is marked in turn. With the disk it goes on."""
    assert export(retired).outcome == "ok"
    disk, away = folder_settings["archive_folder"], folder_settings["archive_folder"].with_name("unmounted")
    disk.rename(away)
    disk.mkdir()
    assert (
        "is not the archive it was before: _archive.json is missing. Check that the right disk is mounted"
        in look_before_the_drop(retired)
    )
    assert list(disk.iterdir()) == []
    assert row(conn)[:2] == ("verified", 0)
    disk.rmdir()
    away.rename(disk)
    marker = disk / "relevo" / "_archive.json"
    whole = marker.read_text()
    marker.write_text(json.dumps({"archive_id": str(uuid4())}))
    assert "_archive.json is another." in look_before_the_drop(retired)
    marker.write_text("{}")
    assert "_archive.json is missing." in look_before_the_drop(retired)
    marker.write_text(whole)
    known = conn.execute("select archive_id::text from relevo.archive_stores").fetchall()
    assert known == [(json.loads(whole)["archive_id"],)]
    export_later(retired, 30)
    assert exports(conn)[NAME] == "dropped"


def test_two_databases_may_share_a_marker(retired, conn, build, folder_settings) -> None:
    """A store that bears a marker already, written by another database or before a crash, is known by that one."""
    store = Path(open_store(**folder_settings).name)
    store.mkdir()
    (store / "_archive.json").write_text("no marker at all")
    assert "_archive.json in" in export(retired).error
    assert row(conn)[0] == "retired"
    (store / "_archive.json").write_text(json.dumps({"archive_id": str(UUID(int=7))}))
    assert export(retired).outcome == "ok"
    assert conn.execute("select archive_id, name from relevo.archive_stores").fetchall() == [(UUID(int=7), str(store))]


@pytest.mark.needs("mount")
def test_a_disk_that_is_really_not_mounted(retired, conn, folder_settings) -> None:
    """A file system that is unmounted during the grace, and mounted again."""
    disk = folder_settings["archive_folder"]
    image = disk.with_name("image")
    image.write_bytes(bytes(8 << 20))
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", str(image), str(disk)], check=True)
    try:
        assert export(retired).outcome == "ok"
        subprocess.run(["umount", str(disk)], check=True)
        assert "Check that the right disk is mounted" in look_before_the_drop(retired)
        assert list(disk.iterdir()) == []
        subprocess.run(["mount", str(image), str(disk)], check=True)
        export_later(retired, 30)
        assert exports(conn)[NAME] == "dropped"
    finally:
        subprocess.run(["umount", str(disk)], check=False)
