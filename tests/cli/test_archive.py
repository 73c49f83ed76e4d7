"""`relevo archive` and `relevo forget`: what they show, what they refuse, and how they leave."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from relevo import app, config
from relevo.archive import copying
from relevo.cli import archive
from relevo.client import verbs
from relevo.client.values import Installation
from relevo.config import Settings
from support.old_months import add_old_deliveries, add_old_items, clean_up, export, month_ago, token
from support.processes import Processes
from support.relevo_command import Said, make_command

OLD, OLDER = month_ago(5), month_ago(14)
MONTH = f"{OLD:%Y-%m}"
Ask = Callable[..., Said]


@pytest.fixture(scope="module")
def archived(module_settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A month of deliveries and one of items, verified and still in the database: settings that lead to both."""
    settings: Settings = module_settings(archive_part_rows=100, archive_folder=tmp_path_factory.mktemp("cold"))
    with (
        pytest.MonkeyPatch.context() as patch,
        app.build(settings) as built,
        psycopg.connect(settings.database_url, autocommit=True) as conn,
    ):
        patch.setattr(copying, "_lower_priority", lambda: None)
        add_old_deliveries(conn, OLD, 250)
        add_old_items(conn, OLDER, 20)
        built.worker.record_start("run", [])
        assert clean_up(built).outcome == "ok"
        assert export(built).outcome == "ok"
    return settings


@pytest.fixture
def ask(archived: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run the command `relevo` on that database, with that folder as its store."""
    command = make_command(monkeypatch, capsys, archived.database_url)

    def run(*words: object, **settings: object) -> Said:
        with monkeypatch.context() as environ:
            for name, value in {"archive_folder": archived.archive_folder, **settings}.items():
                environ.setenv(name.upper(), str(value))
            return command(*words)

    return run


def test_list_shows_how_far_each_month_is(ask: Ask, empty_database) -> None:
    """State, rows, size in the store and the day of the drop; from the store alone without a database that knows."""
    listed = ask("archive", "list")
    assert listed.code == 0
    line = next(line for line in listed.out.splitlines() if line.startswith("notification_deliveries"))
    assert MONTH in line
    assert "verified" in line
    assert "250" in line
    assert "kB, 3 files" in line
    rows = [json.loads(line) for line in ask("archive", "list", "--json").out.splitlines()]
    assert {(row["entity"], row["state"]) for row in rows} == {
        ("licitaciones", "verified"),
        ("notification_deliveries", "verified"),
        ("push_requests", "verified"),
    }
    alone = ask("archive", "list", "--json", database_url=empty_database)
    rows = [json.loads(line) for line in alone.out.splitlines()]
    assert {(row["entity"], row["stored_rows"]) for row in rows} == {
        ("licitaciones", 20),
        ("notification_deliveries", 250),
        ("push_requests", 0),
    }


def test_a_database_without_a_schema_has_no_months_to_list(ask: Ask, empty_database) -> None:
    """Without a store there is nothing else to tell of: the command says what to do."""
    found = ask("archive", "list", database_url=empty_database, archive_folder="")
    assert (found.code, found.out) == (1, "")
    assert "relevo migrate" in found.err


def test_a_store_of_ones_own_is_the_commands_store_too(archived: Settings, tmp_path) -> None:
    """What RELEVO_APP exports to, the commands read, without a configured store."""
    root = str(archived.archive_folder)
    (tmp_path / "mine.py").write_text(
        "import pathlib, relevo\nfrom relevo.stores.folder import FolderStore\n"
        f"def parts(_): return relevo.Parts(store=FolderStore(pathlib.Path({root!r}), {config.load({}, None).archive_prefix!r}))\n"
    )
    running = Processes(archived.database_url, tmp_path)
    words = ("archive", "verify", "--entity", "deliveries", "--month", MONTH)
    verified = running.relevo(*words, relevo_app="mine:parts", pythonpath=tmp_path)
    assert verified.ends() == 0, verified.stderr
    running.close()


def test_restore_verify_fetch_and_query(ask: Ask, archived: Settings, tmp_path) -> None:
    """Each does its work, says so, and shows how far it is."""
    words = ("--entity", "deliveries", "--month", MONTH)
    verified = ask("archive", "verify", *words)
    assert f"notification_deliveries_{OLD:%Y_%m} is whole: 250 rows in 3 files." in verified.out
    restored = ask("archive", "restore", *words)
    assert restored.code == 0, restored.err
    assert f"Restored 250 rows into relevo_restored.notification_deliveries_{OLD:%Y_%m}." in restored.out
    assert "loading" in restored.err
    assert "250/250" in restored.err
    with psycopg.connect(archived.database_url) as conn:
        found = conn.execute(f"select count(*) from relevo_restored.notification_deliveries_{OLD:%Y_%m}").fetchone()
    assert found == (250,)
    refused = ask("archive", "restore", *words)
    assert refused.code == 2
    assert "Add --replace" in refused.err
    assert ask("archive", "restore", *words, "--replace").code == 0
    assert ask("archive", "restore", *words, "--into", "mine").code == 0
    fetched = ask("archive", "fetch", *words, "--into", tmp_path / "here")
    assert len(fetched.out.splitlines()) == 3
    assert len(list((tmp_path / "here").rglob("part-*.parquet"))) == 3
    asked = ask("archive", "query", "select status, count(*) as n from notification_deliveries group by 1", "--json")
    assert sum(json.loads(line)["n"] for line in asked.out.splitlines()) == 250
    by_month = "select year, month, count(*) as n from notification_deliveries group by 1, 2"
    assert ask("archive", "query", by_month, "--json").lines == [{"year": OLD.year, "month": OLD.month, "n": 250}]


def test_a_store_in_trouble_does_not_hide_what_the_database_knows(ask: Ask, archived: Settings, tmp_path) -> None:
    """A manifest that cannot be read, or a store that is gone, is complained of beside the months that are known."""
    assert archived.archive_folder is not None
    folder = shutil.copytree(archived.archive_folder, tmp_path / "cold")
    [listed] = folder.rglob("notification_deliveries/*/*/_manifest.json")
    listed.write_text("{")
    with psycopg.connect(archived.database_url) as conn:
        conn.execute("update relevo.archive_exports set last_error = 'it will not go' where entity = 'licitaciones'")
    seen = ask("archive", "list", archive_folder=folder)
    assert seen.code == 0
    assert "verified" in next(line for line in seen.out.splitlines() if line.startswith("notification_deliveries"))
    assert f"licitaciones {OLDER:%Y-%m}: it will not go" in seen.out
    assert "is no manifest of a month" in seen.err
    counted = ask("archive", "query", "select count(*) from licitaciones", archive_folder=folder)
    assert counted.out.split()[-1] == "20"
    gone = ask("archive", "list", archive_folder=tmp_path / "elsewhere")
    assert (gone.code, "verified" in gone.out) == (0, True)
    assert "is not there" in gone.err


def test_wide_rows_are_shown_field_by_field(ask: Ask) -> None:
    """More columns than the window can hold are told one a line, and nothing is squeezed."""
    wide = ask("archive", "query", "select * from deliveries order by id limit 1")
    assert wide.code == 0
    assert "row 1" in wide.out
    assert any(line.split() == ["status", "ok"] for line in wide.out.splitlines())


def test_what_cannot_be_is_refused_in_words(ask: Ask) -> None:
    """Wrong names, months that are not there and a missing store leave with 2 and a next step."""
    for words, said in (
        (("restore", "--entity", "tenders", "--month", MONTH), "There is no entity tenders"),
        (("restore", "--entity", "deliveries", "--month", "May"), "May is no month"),
        (("verify", "--entity", "events", "--month", "2001-01"), "There is no 2001-01 of notification_events"),
        (("query", "select * from nothing"), "DuckDB refused"),
    ):
        refused = ask("archive", *words)
        assert refused.code == 2, refused.err
        assert said in refused.err
    none = ask("archive", "verify", "--entity", "deliveries", "--month", MONTH, archive_folder="")
    assert none.code == 2
    assert "No archive store is set" in none.err
    off = ask("run-cycle", "archive-export", archive_folder="")
    assert off.code == 3
    assert "no archive store is set" in off.out


def test_forget_is_a_command(dsn, monkeypatch, capsys, conn) -> None:
    """It deletes the installation, and says if there is none."""
    ask = make_command(monkeypatch, capsys, dsn)
    phone = verbs.register(conn, Installation(token()))
    done = ask("forget", phone)
    assert done.code == 0, done.err
    assert f"Installation {phone} is forgotten." in done.out
    assert conn.execute("select count(*) from relevo.device_installations").fetchone() == (0,)
    for owner in ("someone@example.com", "two", "two", "two", "left"):
        verbs.register(conn, Installation(token(), owner=owner))
    done = ask("forget", "--owner", "someone@example.com")
    assert "is forgotten, with 1 installation." in done.out, done.err
    assert ask("forget", "--owner", "two", "--json").lines == [{"owner": "two", "installations": 3}]
    assert conn.execute("select owner from relevo.device_installations").fetchall() == [("left",)]
    kept = conn.execute(
        "select a.action, a::text like '%someone@%' from relevo.audit_log a where a.action = 'forget_owner'"
    )
    assert kept.fetchall() == [("forget_owner", False)] * 2, "the record does not tell the name"
    unknown = ask("forget", uuid4())
    assert unknown.code == 2
    assert "There is no installation" in unknown.err


def test_one_phone_is_forgotten_beside_owners(dsn, monkeypatch, capsys, conn) -> None:
    """`relevo owner forget --phone` deletes one installation, names one that is not there, and takes an owner or a phone."""
    ask = make_command(monkeypatch, capsys, dsn)
    phone, other = (verbs.register(conn, Installation(token(), owner="ana")) for _ in range(2))
    assert ask("owner", "forget", "--phone", phone, "--json").lines == [
        {"installation_id": str(phone), "installations": 1}
    ]
    assert conn.execute("select installation_id from relevo.device_installations").fetchall() == [(other,)]
    for words, said in (
        (("--phone", phone), "There is no installation"),
        (("--phone", "7"), "7 is not an installation id"),
        (("ana", "--phone", other), "Name an owner or an installation"),
        ((), "Name an owner or an installation"),
    ):
        refused = ask("owner", "forget", *words)
        assert (refused.code, said in refused.err) == (2, True), refused.err
    assert conn.execute("select installation_id from relevo.device_installations").fetchall() == [(other,)]


def test_make_restore_needs_a_month() -> None:
    """`make restore` without a name asks for one."""
    root = Path(__file__).parents[2]
    said = subprocess.run(["make", "-n", "restore"], cwd=root, capture_output=True, text=True, check=False)
    assert said.returncode != 0
    assert "make restore ENTITY=deliveries MONTH=2026-08" in said.stderr


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, ""),
        ({"verified_at": 1}, "waits"),
        ({"verified_at": 1, "register_error": "no"}, "failed"),
        ({"verified_at": 1, "register_error": "no", "registered_at": 2}, "yes"),
        ({"register_error": "no"}, "failed"),
    ],
)
def test_how_far_the_catalog_is_with_a_month(row: dict[str, object], said: str) -> None:
    """It names the month, could not be told of it, is still to be told of it, or need not yet."""
    assert archive._registered(row) == said
