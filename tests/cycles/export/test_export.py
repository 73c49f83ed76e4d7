"""Export: a retired month lies in the store as Parquet, compared row by row, and only then leaves the database."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from relevo.archive import restore
from relevo.core.traceparents import EXAMPLE
from relevo.cycles.export import OFF, Export
from support.old_months import (
    a_run,
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


@pytest.fixture
def past(conn) -> None:
    """One old month of everything."""
    add_old_deliveries(conn, OLD, 700)
    add_old_requests(conn, OLD, 30)
    add_old_event(conn, OLD, "k")
    add_old_items(conn, OLDER, 40)


def test_a_month_goes_all_the_way(build, conn, past, store_settings, tmp_path) -> None:
    """Retired, uploaded in parts, verified, listed in a manifest, and dropped after its grace, not before."""
    app = build(archive_part_rows=300, **store_settings)
    clean_up(app)
    report = export(app)
    assert report.outcome == "ok", report
    assert set(exports(conn).values()) == {"verified"}
    store = open_store(**store_settings)
    folder = f"notification_deliveries/year={OLD:%Y}/month={OLD:%m}/"
    names = [each.key.removeprefix(folder) for each in store.listing(folder)]
    assert names == ["_manifest.json", "part-00001.parquet", "part-00002.parquet", "part-00003.parquet"]
    store.fetch(folder + "_manifest.json", tmp_path / "m")
    reported = json.loads((tmp_path / "m").read_text())
    assert (reported["rows"], [part["rows"] for part in reported["parts"]]) == (700, [300, 300, 100])
    store.fetch(folder + "part-00001.parquet", tmp_path / "p")
    file = pq.ParquetFile(tmp_path / "p")
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert file.schema_arrow.metadata[b"relevo.schema_version"] == b"1"
    assert str(file.schema_arrow.field("created_at").type) == "timestamp[us, tz=UTC]"
    assert export(app).outcome == "idle"
    export_later(app, 6)
    assert set(exports(conn).values()) == {"verified"}
    export_later(app, 8)
    assert set(exports(conn).values()) == {"dropped"}
    left = "select count(*) from pg_class where relnamespace = 'relevo_archive'::regnamespace and relkind = 'r'"
    assert conn.execute(left).fetchone() == (0,)


def test_taps_go_along(build, conn, folder_settings, tmp_path) -> None:
    """A delivery leaves with when and how it was opened, its event with how often, also what was not added up yet."""
    event = add_old_event(conn, OLD, "k")
    add_old_deliveries(conn, OLD, 20, event=event)
    conn.execute(
        "update relevo.notification_deliveries set opened_at = created_at, opened_action = 'reply' where id % 2 = 0"
    )
    conn.execute(
        "insert into relevo.event_reactions (event_id, kind, count) values (%s, 'opened', 10), (%s, 'read', 3)",
        [event] * 2,
    )
    app = build(**folder_settings)
    clean_up(app)
    assert export(app).outcome == "ok"
    store, found = open_store(**folder_settings), {}
    for entity in ("notification_deliveries", "notification_events"):
        store.fetch(f"{entity}/year={OLD:%Y}/month={OLD:%m}/part-00001.parquet", tmp_path / entity)
        found[entity] = pq.read_table(tmp_path / entity).to_pylist()
    opened = [row for row in found["notification_deliveries"] if row["opened_at"] is not None]
    assert ({row["opened_action"] for row in opened}, len(opened)) == ({"reply"}, 10)
    [row] = found["notification_events"]
    assert (row["opened_count"], row["read_count"]) == (10, 3)
    assert conn.execute("select count(*) from relevo.event_reactions").fetchone() == (0,)


def test_the_trace_goes_along(build, conn, folder_settings, tmp_path) -> None:
    """The archive keeps which trace an event was enqueued in, also of a personal one."""
    add_old_event(conn, OLD, "1", traceparent=EXAMPLE)
    add_old_event(conn, OLD, "2", traceparent=EXAMPLE, audience="installations")
    add_old_event(conn, OLD, "3")
    app = build(**folder_settings)
    clean_up(app)
    assert export(app).outcome == "ok"
    file = tmp_path / "events.parquet"
    open_store(**folder_settings).fetch(f"notification_events/year={OLD:%Y}/month={OLD:%m}/part-00001.parquet", file)
    assert [row["traceparent"] for row in pq.read_table(file).to_pylist()] == [EXAMPLE, EXAMPLE, None]


def test_a_month_is_verified_with_its_last_part(build, conn, past, folder_settings, monkeypatch) -> None:
    """A part that is taken back while the month is looked at as a whole is verified again before the month counts."""
    app = build(archive_part_rows=300, **folder_settings)
    clean_up(app)
    conn.execute("delete from relevo.archive_exports where entity <> 'notification_deliveries'")
    check_whole, looks = Export._check_whole, []

    def take_back(self, *given) -> None:
        check_whole(self, *given)
        looks.append(exports(conn))
        if len(looks) == 1:
            conn.execute("update relevo.archive_parts set verified_at = null where part = 2")

    monkeypatch.setattr(Export, "_check_whole", take_back)
    steps = Export(a_run(app, "archive-export"), open_store(**folder_settings))
    done = [steps.step() for _ in range(8)]  # three parts and a manifest, three parts and the whole
    assert (done[-1].counts, set(exports(conn).values())) == ({"months_verified": 0}, {"exported"})
    assert [steps.step().counts for _ in range(2)] == [{"rows_verified": 300}, {"months_verified": 1}]
    assert (len(looks), set(exports(conn).values())) == (2, {"verified"})


def test_long_rows_are_copied_a_few_at_a_time(build, conn, folder_settings, dsn, tmp_path) -> None:
    """Tenders may be as long as a page: their groups are small, the manifest says how small, and they come back by it."""
    add_old_items(conn, OLDER, 5_200)
    app = build(**folder_settings)
    clean_up(app)
    assert export(app).outcome == "ok"
    [part] = (tmp_path / "cold").rglob("licitaciones/*/*/part-00001.parquet")
    assert [pq.ParquetFile(part).metadata.row_group(n).num_rows for n in (0, 1)] == [5_000, 200]
    store = open_store(**folder_settings)
    reported = restore.read_manifest(store, "licitaciones", OLDER)
    assert reported.group_rows == 5_000
    assert restore.restore(app.database, store, reported).rows == 5_200


def test_without_a_store_export_says_that_it_is_off(build, conn, past) -> None:
    """Cleanup still retires, and a run of export is skipped with the reason."""
    app = build()
    assert clean_up(app).outcome == "ok"
    report = export(app)
    assert (report.outcome, report.reason) == ("skipped", OFF)
    assert set(exports(conn).values()) == {"retired"}
