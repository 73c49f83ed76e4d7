"""What goes wrong with a store, or with who exports: nothing is dropped that was not verified, and each says why."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from months import a_run, add_old_deliveries, clean_up, export, export_later, exports, month_ago, open_store

from processes import PATIENCE_S
from proxy import Proxy
from relevo.app import archive_store
from relevo.archive import parquet, restore
from relevo.core.errors import ArchiveError, LostLeaseError
from relevo.core.ports import ArchiveStore
from relevo.cycles.export import Export
from relevo.runtime import threads
from relevo.runtime.singleton import Held
from relevo.stores.folder import FolderStore

OLD = month_ago(5)
NAME = ("notification_deliveries", f"{OLD:%Y-%m}")
COLD = f"relevo_archive.notification_deliveries_{OLD:%Y_%m}"


class Faulty:
    """A store that does what it is told, until a fault is switched on."""

    def __init__(self, inner: ArchiveStore) -> None:
        self.inner = inner
        self.faults: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """The store behind it."""
        return self.inner.name

    def put(self, key: str, path: Path, *, replace: bool = False) -> bool:
        """Store, maybe something else."""
        if damage := self.faults.get("put"):
            damage(key, path)
        return self.inner.put(key, path, replace=replace)

    def fetch(self, key: str, path: Path) -> None:
        """Fetch, maybe something else."""
        self.inner.fetch(key, path)
        if damage := self.faults.get("fetch"):
            damage(key, path)

    def listing(self, prefix: str) -> Any:
        """List."""
        return self.inner.listing(prefix)

    def tidy(self, prefix: str) -> None:
        """Tidy, or refuse."""
        if refuse := self.faults.get("tidy"):
            refuse(prefix, None)
        self.inner.tidy(prefix)


def flip(key: str, path: Path) -> None:
    """Change one byte of a part."""
    if key.endswith(".parquet"):
        whole = bytearray(path.read_bytes())
        whole[len(whole) // 2] ^= 1
        path.write_bytes(whole)


def truncate(key: str, path: Path) -> None:
    """Cut a part in half."""
    if key.endswith(".parquet"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def refuse(key: str, _path: object) -> None:
    """Refuse everything."""
    raise ArchiveError(f"The store is in trouble with {key}.", hint="Try again later.")


@pytest.fixture
def retired(build, conn, folder_settings) -> Any:
    """A month of 300 deliveries, retired (the database is cloned from `retired_template`), and an app that exports it."""
    return build(archive_part_rows=100, **folder_settings)


def steps(app: Any, store: Any, most: int = 100) -> list[Any]:
    """Take export's steps in one run until there is nothing more to do."""
    exporting, taken = Export(a_run(app, "archive-export"), store), []
    for _ in range(most):
        taken.append(exporting.step())
        if not taken[-1].more:
            return taken
    raise AssertionError("it did not come to an end")


def row(conn: psycopg.Connection[Any], month: date = OLD) -> Any:
    """Return state, mismatches and trouble of the month."""
    return conn.execute(
        "select state, mismatches, last_error from relevo.archive_exports"
        " where entity = 'notification_deliveries' and month = %s",
        [month],
    ).fetchone()


def still_there(conn: psycopg.Connection[Any]) -> bool:
    """Tell whether all rows are still in the database."""
    return conn.execute(f"select count(*) from {COLD}").fetchone() == (300,)


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


def test_what_changes_after_the_export_is_found_before_the_drop(retired, conn, folder_settings, tmp_path) -> None:
    """A part that vanished, a manifest or a byte that changed, or all parts gone during the grace stop the drop, alarm,
    and are mended by one run; what was verified can be dropped."""
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
    export_later(retired, 30)
    assert exports(conn)[NAME] == "dropped"
    store = open_store(**folder_settings)
    assert restore.read_manifest(store, "notification_deliveries", OLD).rows == 300


def test_after_a_mismatch_nothing_is_taken_on_trust(retired, conn, tmp_path) -> None:
    """A spoilt manifest and a byte changed beside it: the export that follows reads every part again, and mends both."""
    assert export(retired).outcome == "ok"
    [part] = (tmp_path / "cold").rglob("notification_deliveries/*/*/part-00002.parquet")
    [listed] = (tmp_path / "cold").rglob("notification_deliveries/*/*/_manifest.json")
    whole = part.read_bytes()
    flip(part.name, part)
    listed.write_text("{}")
    assert "is not what was written" in look_before_the_drop(retired)
    assert "is not the file that was uploaded" in export(retired).error
    assert part.read_bytes() == whole
    assert row(conn)[0] == "verified"


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
@pytest.mark.parametrize("words", [b"typreceive", b"COPY ("])
def test_a_connection_that_falls_silent_fails_the_run(build, conn, folder_settings, dsn, words) -> None:
    """Rows are copied by a driver that would wait for ever, once it opens its connection or once it reads: a server that
    says nothing any more ends the run as one that is gone, and the next run goes on."""
    add_old_deliveries(conn, OLD, 300)
    with Proxy(dsn) as proxy:
        app = build(database_url=proxy.dsn, database_long_statement_timeout_ms=1_000, **folder_settings)
        assert clean_up(app).outcome == "ok"
        proxy.silence_at(words)
        silent = threads.start("export", lambda: export(app)).result(PATIENCE_S)
        proxy.wait_until_hit()
        assert silent.outcome == "failed"
        assert "PostgreSQL did not answer" in silent.error
        assert still_there(conn)
        assert export(app).outcome == "ok"
        assert row(conn)[0] == "verified"


def test_an_upgrade_during_the_grace_changes_nothing(retired, conn, monkeypatch) -> None:
    """The manifest says which version wrote it; another version that looks before the drop finds it as it was written."""
    assert export(retired).outcome == "ok"
    monkeypatch.setattr("relevo.cycles.export.__version__", "9.9.9")
    export_later(retired, 30)
    assert exports(conn)[NAME] == "dropped"
    assert row(conn) == ("dropped", 0, None)


def test_what_an_upload_left_half_way_through_a_month_is_tidied(retired, conn, folder_settings, tmp_path) -> None:
    """An exporter that died in its second part leaves a piece of it; its successor goes on there, and takes it away."""
    store = open_store(**folder_settings)
    assert Export(a_run(retired, "archive-export"), store).step().counts["parts_uploaded"] == 1
    [first] = (tmp_path / "cold").rglob("part-00001.parquet")
    (first.parent / ".unfinished-by-somebody").write_text("half")
    assert export(retired).outcome == "ok"
    assert row(conn)[0] == "verified"
    assert list((tmp_path / "cold").rglob(".unfinished*")) == []


def look_before_the_drop(app: Any) -> str:
    """Take one step of export when the grace is over, and return its problem."""
    store = archive_store(app.settings)
    assert store is not None
    exporting = Export(a_run(app, "archive-export", datetime.now(UTC) + timedelta(days=30)), store)
    step = exporting.step()
    return "".join(step.problems)


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


def test_a_disk_that_is_not_mounted_is_no_empty_archive(retired, conn, folder_settings) -> None:
    """Its mount point is an empty folder: nothing is written there, nothing is thought lost, and with the disk it goes on."""
    assert export(retired).outcome == "ok"
    disk, away = folder_settings["archive_folder"], folder_settings["archive_folder"].with_name("unmounted")
    disk.rename(away)
    disk.mkdir()
    assert "is not the archive it was before: _archive.json is missing. Is its disk mounted" in look_before_the_drop(
        retired
    )
    assert list(disk.iterdir()) == []
    assert row(conn)[:2] == ("verified", 0)
    disk.rmdir()
    away.rename(disk)
    export_later(retired, 30)
    assert exports(conn)[NAME] == "dropped"


def test_another_archive_is_not_taken_for_the_one_before(retired, conn, folder_settings) -> None:
    """Another disk, with another archive on it: refused until it is named by another prefix, which is marked in turn."""
    assert export(retired).outcome == "ok"
    marker = folder_settings["archive_folder"] / "relevo" / "_archive.json"
    whole = marker.read_text()
    marker.write_text(json.dumps({"archive_id": str(uuid4())}))
    assert "_archive.json is another." in look_before_the_drop(retired)
    marker.write_text("{}")
    assert "_archive.json is missing." in look_before_the_drop(retired)
    marker.write_text(whole)
    assert look_before_the_drop(retired) == ""
    assert conn.execute("select archive_id::text from relevo.archive_stores").fetchall() == [
        (json.loads(whole)["archive_id"],)
    ]


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
        assert "Is its disk mounted" in look_before_the_drop(retired)
        assert list(disk.iterdir()) == []
        subprocess.run(["mount", str(image), str(disk)], check=True)
        export_later(retired, 30)
        assert exports(conn)[NAME] == "dropped"
    finally:
        subprocess.run(["umount", str(disk)], check=False)


def test_a_slow_service_only_takes_longer(retired, conn, folder_settings) -> None:
    """A pause in each call changes nothing but the time."""
    store = Faulty(open_store(**folder_settings))
    store.faults = {"put": lambda *_: threading.Event().wait(0.02), "fetch": lambda *_: threading.Event().wait(0.02)}
    assert not any(step.problems for step in steps(retired, store))
    assert row(conn)[0] == "verified"


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
