"""Restore: what was exported comes back row for row, all or nothing, from the store alone."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relevo import app, config
from relevo.app import App
from relevo.archive import restore
from relevo.core.errors import ArchiveError, UsageError
from relevo.database.pool import Database
from support.old_months import (
    add_old_deliveries,
    add_old_event,
    add_old_items,
    add_old_requests,
    clean_up,
    export,
    export_later,
    exports,
    month_ago,
    open_store,
)

OLD, OLDER = month_ago(5), month_ago(14)
ENTITIES = {
    "licitaciones": OLDER,
    "notification_events": OLD,
    "notification_deliveries": OLD,
    "push_requests": OLD,
}
EXTREMES = """
insert into relevo.licitaciones (namespace, external_id, nombre, descripcion, fingerprint, monto, moneda, rubros, sources, created_at, updated_at,
                                 publicada_at, cierra_at, url, organismo)
values ('ns', 'largest', repeat('📋', 2000), repeat('ñ', 20000), E'a\\r\\nb', 999999999999999999.99, 'CLP', array[null, '', ' ', '"', '\\', ',', '{}', 'NULL', 'null', E'\\n'],
        '{x}', %(month)s, '2299-12-31 23:59:59.999999Z', '1900-01-01Z', '2200-01-01Z', E'\\t"quoted", \\\\.', '\\.'),
       ('ns', 'smallest', ' ', null, '""', 0, null, '{}', '{""}', %(month)s, '1900-01-01Z', null, null, null, '\\N'),
       ('ns', 'cents', ',', '"', ' leading', 0.01, 'USD', array['a'], '{x,y}', %(month)s, %(month)s, '2200-01-01Z', '1900-01-01 00:00:00.000001Z', 'null', 'null')
"""
DELIVERIES = """
insert into relevo.notification_deliveries (event_day, id, notification_event_id, installation_id, event_type, status, attempt_count, lapse_count,
  deadline_at, last_attempt_at, completed_at, created_at, updated_at, provider_ticket_id, at_most_once, lane, last_error_message)
values (%(month)s, 9223372036854775807, 9223372036854775807, 'ffffffff-ffff-ffff-ffff-ffffffffffff', repeat('é', 100), 'ok', 100, 100,
        '2300-01-01Z', '1900-01-01Z', '2299-12-31 23:59:59.999999Z', '1900-01-01 00:00:00.000001Z', '2300-01-01Z', '"', true, 'urgent', E'\\n'),
       (%(month)s, -9223372036854775808, -9223372036854775808, '00000000-0000-0000-0000-000000000000', ' ', 'expired', 0, 0,
        null, null, '1900-01-01Z', '1900-01-01Z', '1900-01-01Z', null, false, 'bulk', repeat('📋', 500))
"""


def sql_hash(conn: psycopg.Connection[Any], relation: str, columns: str = "*") -> Any:
    """Hash a table's rows in SQL, whatever their order."""
    return conn.execute(
        f"""
        select count(*), md5(string_agg(h, '' order by h))
          from (select md5(record_send(row(t.*))) as h from (select {columns} from {relation}) t) x
        """
    ).fetchone()


def archive_all(worker: App, conn: psycopg.Connection[Any]) -> dict[str, Any]:
    """Make one old month of everything, with the largest and the smallest of all that the schema admits; retire, export
    and drop it. Return the hashes of the rows as they were when they were retired."""
    add_old_deliveries(conn, OLD, 700)
    conn.execute(DELIVERIES, {"month": OLD})
    add_old_requests(conn, OLD, 30)
    add_old_event(
        conn, OLD, "k", body="", data='{"ñ": [1, 2.50, null, "📋"]}', match_rubros=["72", ""], match_monto="0.10"
    )
    add_old_event(conn, OLD, "k2", match_monto="999999999999999999.99", deadline_at="2299-12-31Z", category="\\")
    add_old_items(conn, OLDER, 40)
    conn.execute(EXTREMES, {"month": OLDER})
    assert clean_up(worker).outcome == "ok"
    hashes = {
        entity: sql_hash(conn, f"relevo_archive.{entity}_{month:%Y_%m}", columns_of(conn, entity, month))
        for entity, month in ENTITIES.items()
    }
    assert export(worker).outcome == "ok"
    export_later(worker, 8)
    assert set(exports(conn).values()) == {"dropped"}
    return hashes


@pytest.fixture(scope="module")
def made_once(module_settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A folder with all of it, and the hashes; tests take copies."""
    folder = tmp_path_factory.mktemp("cold")
    settings = module_settings(archive_part_rows=300, archive_folder=folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relevo.archive.copying._MANY_ROWS", 50)  # so that a part has several groups
        with app.build(settings) as built, psycopg.connect(settings.database_url, autocommit=True) as conn:
            built.worker.record_start("run", [cycle.key for cycle in built.cycles()])
            yield folder, archive_all(built, conn)


@pytest.fixture
def archived_here(made_once: tuple[Path, dict[str, Any]], folder_settings: dict[str, Any]) -> dict[str, Any]:
    """All of it in a folder; the hashes of the rows as they were when they were retired."""
    folder, hashes = made_once
    shutil.copytree(folder, folder_settings["archive_folder"], dirs_exist_ok=True)
    return hashes


@pytest.fixture
def archived_on_s3(made_once: tuple[Path, dict[str, Any]], s3_settings: dict[str, Any]) -> dict[str, Any]:
    """The same in a bucket; how a month gets there by itself is told in test_export."""
    (folder, hashes), store = made_once, open_store(**s3_settings)
    root = folder / "relevo"
    for path in (each for each in root.rglob("*") if each.is_file()):
        assert store.put(path.relative_to(root).as_posix(), path)
    return hashes


@pytest.fixture
def archived(request: pytest.FixtureRequest, store_settings: dict[str, Any]) -> dict[str, Any]:
    """The same in either store."""
    where = "archived_here" if "archive_folder" in store_settings else "archived_on_s3"
    hashes: dict[str, Any] = request.getfixturevalue(where)
    return hashes


def columns_of(conn: psycopg.Connection[Any], entity: str, month: Any) -> str:
    """Return a cold table's columns, JSON as text."""
    rows = conn.execute(
        "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped order by attnum",
        [f"relevo_archive.{entity}_{month:%Y_%m}"],
    ).fetchall()
    return ", ".join(row[0] for row in rows)


def opened(dsn: str) -> Database:
    """Open a database."""
    return Database(dsn, dsn, config.load({"DATABASE_URL": dsn}, None))


def bring_back(dsn: str, settings: dict[str, Any], entity: str, **more: Any) -> restore.Restored:
    """Restore a month from the store that the settings lead to."""
    store, database = open_store(**settings), opened(dsn)
    try:
        return restore.restore(database, store, restore.read_manifest(store, entity, ENTITIES[entity]), **more)
    finally:
        database.close()


def test_every_row_comes_back_as_it_was(archived, store_settings, empty_database) -> None:
    """From the store alone, into an empty database: the same rows, by a hash computed in SQL on both sides."""
    with psycopg.connect(empty_database, autocommit=True) as conn:
        for entity, before in archived.items():
            done = bring_back(empty_database, store_settings, entity)
            assert (done.schema, done.rows) == ("relevo_restored", before[0])
            assert sql_hash(conn, f"{done.schema}.{done.relation}") == before, entity


def test_what_was_restored_is_not_replaced_by_chance(archived_here, folder_settings, dsn, conn) -> None:
    """A second restore is refused with its next step, unless it is asked to replace; another schema is another place."""
    bring_back(dsn, folder_settings, "licitaciones")
    with pytest.raises(UsageError, match=r"relevo_restored\.licitaciones_\d+_\d+ is there already\. Add --replace"):
        bring_back(dsn, folder_settings, "licitaciones")
    conn.execute(f"delete from relevo_restored.licitaciones_{OLDER:%Y_%m}")
    bring_back(dsn, folder_settings, "licitaciones", replace=True)
    assert sql_hash(conn, f"relevo_restored.licitaciones_{OLDER:%Y_%m}") == archived_here["licitaciones"]
    bring_back(dsn, folder_settings, "licitaciones", schema="elsewhere")
    assert sql_hash(conn, f"elsewhere.licitaciones_{OLDER:%Y_%m}") == archived_here["licitaciones"]
    for bad in ("relevo", "relevo_archive", 'x"; drop table y; --', "X"):
        with pytest.raises(UsageError, match="cannot take restored months"):
            bring_back(dsn, folder_settings, "licitaciones", schema=bad)


def test_a_damaged_file_restores_nothing(archived_here, folder_settings, dsn, conn, tmp_path) -> None:
    """A byte changed in the store is found by the file's hash, a month whose rows differ by the rows' own; nothing is kept."""
    [part] = (tmp_path / "cold").rglob("notification_deliveries/*/*/part-00002.parquet")
    whole = part.read_bytes()
    part.write_bytes(whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:])
    with pytest.raises(ArchiveError, match="is not the file its manifest lists"):
        bring_back(dsn, folder_settings, "notification_deliveries")
    store = open_store(**folder_settings)
    reported = restore.read_manifest(store, "notification_deliveries", OLD)
    with pytest.raises(ArchiveError, match="is not the file its manifest lists"):
        restore.verify(store, reported)
    part.write_bytes(whole)
    [listed] = (tmp_path / "cold").rglob("notification_deliveries/*/*/_manifest.json")
    text = listed.read_text()
    listed.write_text(text.replace(reported.parts[1].content_sha256, "0" * 64))
    with pytest.raises(ArchiveError, match="came back as others than were exported"):
        bring_back(dsn, folder_settings, "notification_deliveries")
    assert conn.execute("select to_regnamespace('relevo_restored')").fetchone() == (None,)
    for broken in (
        "",
        "{}",
        "[]",
        '{"format": 99}',
        text.replace("part-00001.parquet", "../../x"),
        text.replace('"bigint"', '"bigint; drop table x"'),
    ):
        listed.write_text(broken)
        with pytest.raises(ArchiveError):
            bring_back(dsn, folder_settings, "notification_deliveries")
    listed.write_text(text)
    bring_back(dsn, folder_settings, "notification_deliveries")


def test_what_is_not_there_is_told(folder_settings, dsn) -> None:
    """An unknown entity, a bad month and a month that was never exported each have their sentence."""
    store = open_store(**folder_settings)
    with pytest.raises(UsageError, match="There is no entity tenders"):
        restore.entity_named("tenders")
    with pytest.raises(UsageError, match="2026-13 is no month"):
        restore.month_named("2026-13")
    with pytest.raises(UsageError, match=r"There is no 2026-02 of licitaciones in .*archive list"):
        restore.read_manifest(store, "licitaciones", restore.month_named("2026-02"))


def test_sql_runs_over_the_archive_in_place(archived, store_settings) -> None:
    """DuckDB reads all months of an entity as one view, with year and month from the keys, JSON as text, lists as lists."""
    store = open_store(**store_settings)
    found = restore.query(
        store,
        "select year, month, count(*) as n, count(distinct installation_id) as phones, min(event_day) as first"
        " from deliveries group by all",
        pytest.fail,
    ).to_pylist()
    assert [(row["year"], row["month"], row["n"]) for row in found] == [(OLD.year, OLD.month, 702)]
    found = restore.query(
        store, "select max(monto) as most, max(len(rubros)) as codes from licitaciones", pytest.fail
    ).to_pylist()
    assert [(str(row["most"]), row["codes"]) for row in found] == [("999999999999999999.99", 10)]
    with pytest.raises(UsageError, match=r"DuckDB refused: .*Views: licitaciones, notification_deliveries"):
        restore.query(store, "select * from nothing_here", pytest.fail)
    with pytest.raises(UsageError, match="DuckDB refused"):
        restore.query(store, f"select * from read_csv('{Path(__file__)}')", pytest.fail)


def test_files_can_be_fetched(archived, store_settings, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Parquet files of a month land in a folder under their keys, so that several months have room beside each other.

    They are written there from the start: the folder for temporary files may be a small disk.
    """
    store = open_store(**store_settings)
    reported = restore.read_manifest(store, "notification_deliveries", OLD)
    with monkeypatch.context() as small:
        small.setattr(tempfile, "tempdir", str(tmp_path / "no room"))
        paths = restore.fetch(store, reported, tmp_path / "here")
    assert [str(path.relative_to(tmp_path / "here")) for path in paths] == [
        reported.key_of(part) for part in reported.parts
    ]
    assert sum(path.stat().st_size for path in paths) == reported.bytes
    assert sorted(path for path in (tmp_path / "here").rglob("*") if path.is_file()) == sorted(paths)
    (tmp_path / "in the way").write_text("x")
    with pytest.raises(UsageError, match="cannot take the files: Not a directory"):
        restore.fetch(store, reported, tmp_path / "in the way")


def give_another_hash(reported: dict[str, Any]) -> str:
    """Let the second part's rows have another hash."""
    reported["parts"][1]["content_sha256"] = "0" * 64
    return "content"


def swap_keys(reported: dict[str, Any]) -> str:
    """Let the rows be sorted by the key's columns the other way round."""
    reported["keys"] = reported["keys"][::-1]
    return "keys"


def cut_elsewhere(reported: dict[str, Any]) -> str:
    """Let the first part end one row earlier, and the second begin there."""
    day, number = reported["parts"][0]["last_key"]
    reported["parts"][0]["last_key"] = reported["parts"][1]["first_key"] = [day, str(int(number) - 1)]
    return "keys"


def group_otherwise(reported: dict[str, Any]) -> str:
    """Let the rows have been hashed in other groups."""
    reported["group_rows"] += 10
    return "groups"


def count_one_more(reported: dict[str, Any]) -> str:
    """Let the last part have one row more than it has, and the month, too."""
    reported["parts"][-1]["rows"] += 1
    reported["rows"] += 1
    return "rows"


def weigh_one_more(reported: dict[str, Any]) -> str:
    """Let the last file be a byte larger."""
    reported["parts"][-1]["bytes"] += 1
    reported["bytes"] += 1
    return "bytes"


def forget_a_column(reported: dict[str, Any]) -> str:
    """Leave out a column that the files have."""
    reported["columns"] = [each for each in reported["columns"] if each["name"] != "last_error_message"]
    return "columns"


def leave_out_the_last_part(reported: dict[str, Any]) -> str:
    """Leave out the last part and mend the sums."""
    gone = reported["parts"].pop()
    reported["rows"] -= gone["rows"]
    reported["bytes"] -= gone["bytes"]
    return f"holds what its manifest does not list: {gone['file']}"


EDITS = (
    give_another_hash,
    swap_keys,
    cut_elsewhere,
    group_otherwise,
    count_one_more,
    weigh_one_more,
    forget_a_column,
    leave_out_the_last_part,
)


def test_an_edited_manifest_is_found_by_verify_and_by_restore(
    archived_here, conn, folder_settings, dsn, tmp_path
) -> None:
    """What a manifest says is believed by neither: each compares it with the files, their rows, and what lies there."""
    store = open_store(**folder_settings)
    restore.verify(store, restore.read_manifest(store, "notification_deliveries", OLD))
    [path] = (tmp_path / "cold").rglob("notification_deliveries/*/*/_manifest.json")
    whole = path.read_text()
    for edit in EDITS:
        reported = json.loads(whole)
        wrong = edit(reported)
        path.write_text(json.dumps(reported))
        record = restore.read_manifest(store, "notification_deliveries", OLD)
        with pytest.raises(ArchiveError, match=wrong if " " in wrong else f"has other {wrong} than its manifest lists"):
            restore.verify(store, record)
        with pytest.raises(ArchiveError):
            bring_back(dsn, folder_settings, "notification_deliveries")
        assert conn.execute("select to_regnamespace('relevo_restored')").fetchone() == (None,), edit


def test_a_part_that_is_not_listed_is_complained_of(archived_here, folder_settings, tmp_path) -> None:
    """Listing, querying and fetching a month say that something lies there which its manifest leaves out."""
    [path] = (tmp_path / "cold").rglob("notification_deliveries/*/*/_manifest.json")
    reported = json.loads(path.read_text())
    leave_out_the_last_part(reported)
    path.write_text(json.dumps(reported))
    store, complaints = open_store(**folder_settings), list[ArchiveError]()
    assert len(restore.months(store, complaints.append)) == len(ENTITIES)
    [complaint] = complaints
    assert "does not list: part-00003.parquet" in str(complaint)
    with pytest.raises(ArchiveError, match=r"does not list: part-00003\.parquet"):
        restore.fetch(store, restore.read_manifest(store, "notification_deliveries", OLD), tmp_path / "here")


def test_a_manifest_that_does_not_add_up_is_refused(archived_here, folder_settings, tmp_path) -> None:
    """A month with a hole in it is not whole, whatever each of its files says."""
    [path] = (tmp_path / "cold").rglob("notification_deliveries/*/*/_manifest.json")
    whole = path.read_text()
    for harm in ("a part is missing", "the sum is another", "a part has another number"):
        reported = json.loads(whole)
        if harm == "a part is missing":
            gone = reported["parts"].pop(1)
            reported["rows"] -= gone["rows"]
            reported["bytes"] -= gone["bytes"]
        elif harm == "the sum is another":
            reported["rows"] += 1
        else:
            reported["parts"][1]["file"] = "part-00009.parquet"
        path.write_text(json.dumps(reported))
        with pytest.raises(ArchiveError, match="is no manifest of a month"):
            restore.read_manifest(open_store(**folder_settings), "notification_deliveries", OLD)
    path.write_text(json.dumps(json.loads(whole) | {"software_version": 7}))
    with pytest.raises(ArchiveError, match=r"a month: software_version: Input should be a valid string\. "):
        restore.read_manifest(open_store(**folder_settings), "notification_deliveries", OLD)
