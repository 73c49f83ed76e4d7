"""What goes wrong with a store, or with who exports: nothing is dropped that was not verified, and each says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from relevo.app import archive_store
from relevo.archive import parquet, restore
from relevo.core.errors import LostLeaseError
from relevo.cycles.export import Export
from relevo.runtime import threads
from relevo.runtime.singleton import Held
from relevo.stores.folder import FolderStore
from support.faulty_store import (
    COLD,
    NAME,
    OLD,
    Faulty,
    flip,
    look_before_the_drop,
    refuse,
    row,
    steps,
    still_there,
    truncate,
)
from support.old_months import a_run, add_old_deliveries, clean_up, export, export_later, exports, open_store
from support.postgres_proxy import Proxy
from support.processes import PATIENCE_S


def test_a_store_that_damages_what_it_stores(retired, conn, folder_settings) -> None:
    """Reading back finds it, alarms, uploads again; still wrong, it is left to the next run, and nothing is dropped."""
    store = Faulty(open_store(**folder_settings))
    original = FolderStore.put
    for times, damage in enumerate((flip, truncate), 1):

        def damaging(self: FolderStore, key: str, path: Path, *, replace: bool = False) -> bool:
            done = original(self, key, path, replace=replace)
            if done:
                damage(key, self._root / key)
            return done

        store.inner.put = damaging.__get__(store.inner)  # type: ignore[attr-defined, method-assign]
        problems = [problem for step in steps(retired, store) for problem in step.problems]
        assert len([p for p in problems if "is not the file that was uploaded" in p]) == 2, damage
        state, mismatches, trouble = row(conn)
        assert (state, mismatches) == ("retired", 2 * times)
        assert "Nothing is dropped; it is exported again." in trouble
        assert still_there(conn)
    assert export(retired).outcome == "ok"  # with a store that works again
    assert row(conn) == ("verified", 4, None)


def test_what_changes_after_the_export_is_found_before_the_drop(
    retired, conn, folder_settings, tmp_path, monkeypatch
) -> None:
    """A part that vanished, a manifest or a byte that changed, or all parts gone during the grace stop the drop, alarm,
    and are mended by one run; after a mismatch nothing is taken on trust, every part is read again; what was verified can
    be dropped, by another version too, which finds the manifest as it was written."""
    assert export(retired).outcome == "ok"
    [*_, month] = sorted((tmp_path / "cold").rglob("notification_deliveries/*/*"))
    part, listed = month / "part-00002.parquet", month / "_manifest.json"
    changes: list[tuple[Callable[[], object], str]] = [
        (part.unlink, "is not in the store as it was uploaded"),
        (lambda: listed.write_text("{}"), "is not what was written"),
        (lambda: flip(part.name, part), "part-00002.parquet is not the file that was uploaded"),  # of the same size
        (lambda: [each.unlink() for each in month.glob("part-*")], "is not in the store as it was uploaded"),
    ]
    for times, (change, said) in enumerate(changes, 1):
        change()
        assert said in look_before_the_drop(retired)
        assert still_there(conn)
        assert row(conn)[:2] == ("retired", times)
        assert export(retired).outcome == "ok"
        assert row(conn) == ("verified", times, None)
    whole = part.read_bytes()
    flip(part.name, part)
    listed.write_text("{}")
    assert "is not what was written" in look_before_the_drop(retired)
    assert "is not the file that was uploaded" in export(retired).error
    assert part.read_bytes() == whole
    assert row(conn)[0] == "verified"
    monkeypatch.setattr("relevo.cycles.export.__version__", "9.9.9")
    export_later(retired, 30)
    assert exports(conn)[NAME] == "dropped"
    assert row(conn)[2] is None
    store = open_store(**folder_settings)
    assert restore.read_manifest(store, "notification_deliveries", OLD).rows == 300


def test_rows_that_no_part_holds_keep_a_month(retired, conn, monkeypatch) -> None:
    """Whatever made a read end early: the parts must add up to the rows that were counted, before and after verifying."""
    written = parquet.write_file

    def early(path: Path, rows: Any) -> int:
        return 0 if path.name == "part-00002.parquet" else written(path, rows)

    monkeypatch.setattr(parquet, "write_file", early)
    report = export(retired)
    assert "has 300 rows, and its parts 100" in report.error
    assert still_there(conn)
    monkeypatch.undo()
    assert export(retired).outcome == "ok"
    conn.execute("set session_replication_role = replica")
    conn.execute(
        f"insert into {COLD} select (d).* from (select d from {COLD} d order by id desc limit 1) x on conflict do nothing"
    )
    conn.execute(f"update {COLD} set event_day = event_day + 1000 where id = (select max(id) from {COLD})")
    conn.execute("reset session_replication_role")
    assert "has rows that are in no part" in look_before_the_drop(retired)
    assert still_there(conn)


def test_a_lost_connection_is_no_mismatch(retired, conn, monkeypatch) -> None:
    """The database went away while a part was compared: the run fails, and the store is not accused."""
    steps_of_upload = Export(a_run(retired, "archive-export"), archive_store(retired.settings))
    while row(conn)[0] == "retired":
        steps_of_upload.step()

    def cut(self: Any) -> Any:
        raise OSError("the server closed the connection")
        yield

    monkeypatch.setattr(parquet.Rows, "__iter__", cut)
    report = export(retired)
    assert report.outcome == "failed"
    assert row(conn)[:2] == ("exported", 0)
    monkeypatch.undo()
    assert export(retired).outcome == "ok"
    assert row(conn) == ("verified", 0, None)


@pytest.mark.needs("linux")
def test_a_connection_that_falls_silent_fails_the_run(build, conn, folder_settings, dsn) -> None:
    """Rows are copied by a driver that would wait for ever, once it opens its connection or once it reads: a server that
    says nothing any more ends the run as one that is gone, and the next run goes on."""
    add_old_deliveries(conn, OLD, 300)
    with Proxy(dsn) as proxy:
        app = build(database_url=proxy.dsn, database_long_statement_timeout_ms=1_000, **folder_settings)
        assert clean_up(app).outcome == "ok"
        for words in (b"typreceive", b"COPY ("):
            proxy.silence_at(words)
            silent = threads.start("export", lambda: export(app)).result(PATIENCE_S)
            proxy.wait_until_hit()
            assert silent.outcome == "failed", words
            assert "PostgreSQL did not answer" in silent.error
            assert still_there(conn)
        assert export(app).outcome == "ok"
        assert row(conn)[0] == "verified"


def test_what_an_upload_left_half_way_through_a_month_is_tidied(retired, conn, folder_settings, tmp_path) -> None:
    """An exporter that died in its second part leaves a piece of it; its successor goes on there, and takes it away."""
    store = open_store(**folder_settings)
    assert Export(a_run(retired, "archive-export"), store).step().counts["parts_uploaded"] == 1
    [first] = (tmp_path / "cold").rglob("part-00001.parquet")
    (first.parent / ".unfinished-by-somebody").write_text("half")
    assert export(retired).outcome == "ok"
    assert row(conn)[0] == "verified"
    assert list((tmp_path / "cold").rglob(".unfinished*")) == []


def test_a_store_in_trouble_fails_the_run_in_words(retired, conn, folder_settings) -> None:
    """Down, full or refusing: the run fails with the store's words, the month keeps them, and goes on once it works."""
    store = Faulty(open_store(**folder_settings))
    for call, parts in (("put", 0), ("tidy", 3), ("fetch", 0)):
        store.faults = {call: refuse}
        taken = steps(retired, store)
        assert sum(step.counts.get("parts_uploaded", 0) for step in taken) == parts
        assert "The store is in trouble" in "".join(problem for step in taken for problem in step.problems)
        assert "The store is in trouble" in row(conn)[2]
    assert still_there(conn)
    store.faults = {}
    assert not any(step.problems for step in steps(retired, store))
    assert row(conn) == ("verified", 0, None)


TROUBLES: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({"archive_bucket": "not-there"}, {}, "There is no bucket not-there"),
    ({"archive_endpoint": "http://127.0.0.1:9", "archive_timeout_ms": 300}, {}, "did not answer"),
    ({}, {"AWS_SECRET_ACCESS_KEY": "wrong-and-hidden"}, "refused our credentials"),
]


def test_an_s3_service_in_trouble(build, conn, s3_settings, monkeypatch) -> None:
    """A missing bucket, a service that is down and wrong credentials fail the run in words, without the secret."""
    add_old_deliveries(conn, OLD, 30)
    assert clean_up(build()).outcome == "ok"
    for changes, environ, said in TROUBLES:
        with monkeypatch.context() as patched:
            for name, value in environ.items():
                patched.setenv(name, value)
            report = export(build(**s3_settings | changes))
        assert report.outcome == "failed", said
        assert said in report.error
        assert "wrong-and-hidden" not in report.error
        assert exports(conn)[NAME] == "retired"


def test_a_zombie_that_uploads_again_changes_nothing(retired, conn, folder_settings, tmp_path) -> None:
    """An exporter that wakes up after its successor is through finds its parts there, and its next write is refused."""
    store = open_store(**folder_settings)
    held = Held("archive-export", "", uuid4(), 1, 60_000)
    conn.execute("insert into relevo.cycle_terms values ('archive-export', '', 1)")
    run = a_run(retired, "archive-export")
    run.held = held
    zombie = Export(run, store)
    put = store.put
    woken: list[str] = []

    def sleepy(key: str, path: Path, *, replace: bool = False) -> bool:
        if not woken:
            woken.append(key)
            conn.execute("update relevo.cycle_terms set term = 2")
            store.put = put  # type: ignore[method-assign]
            assert not any(step.problems for step in steps(retired, store))  # the successor does it all
            assert row(conn)[0] == "verified"
        return put(key, path, replace=replace)

    store.put = sleepy  # type: ignore[method-assign]
    with pytest.raises(LostLeaseError):
        zombie.step()
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "cold").rglob("part-*")}
    assert len([path for path in files if "notification_deliveries" in str(path)]) == 3
    export_later(retired, 30)
    assert exports(conn)[NAME] == "dropped"
    reported = restore.read_manifest(store, "notification_deliveries", OLD)
    restore.verify(store, reported)
    assert reported.rows == 300
