"""`make migration` writes what changed in `sql/functions` into the next migration, and that is enough for a released database."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import make_migration
import released
from relevo.core import queries
from relevo.database import migrate


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `sql/` to be changed."""
    copy = tmp_path / "sql"
    shutil.copytree(queries.sql_root(), copy)
    monkeypatch.setattr(queries, "sql_root", lambda: copy)
    return copy


@pytest.fixture
def new_database(server, admin) -> str:
    """The DSN of one more empty database."""
    admin.execute("drop database if exists made_now with (force)")
    admin.execute("create database made_now")
    return f"{server.dsn.rsplit('/', 1)[0]}/made_now"


def change(tree: Path, name: str, before: str, after: str) -> None:
    """Change a function's text."""
    [path] = tree.glob(f"functions/*/{name}.sql")
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))


def test_changed_functions_are_written(tree, empty_database, new_database) -> None:
    """What changed, what is new with what it needs first, and what went: with that file both databases are the same."""
    change(tree, "is_blank", "return ", "return false or ")
    change(tree, "refuse", "begin", "begin\n  -- changed")
    (tree / "functions" / "checks" / "b_first.sql").write_text(
        "-- One.\ncreate or replace function relevo.b_first() returns int language sql return relevo.z_then();\n"
        "revoke all on function relevo.b_first from public;\n"
    )
    (tree / "functions" / "checks" / "z_then.sql").write_text(
        "-- Two.\ncreate or replace function relevo.z_then() returns int language sql return 2;\n"
        "revoke all on function relevo.z_then from public;\n"
    )
    (tree / "functions" / "archive" / "count_rows.sql").unlink()
    differing, fresh = make_migration.compare(empty_database, new_database, "blanks")
    assert [thing.name.partition("(")[0] for thing in differing if thing.kind == "function"] == [
        f"relevo.{name}" for name in ("b_first", "count_rows", "is_blank", "refuse", "z_then")
    ]
    written = make_migration.write(differing, fresh, "blanks", tree / "migrations")
    last = migrate.available()[-1]
    assert (written.name, last.name, last.needs) == (f"{last.version:04}_blanks.sql", "blanks", released.versions()[-1])
    released.bring_up_to_date(empty_database)
    assert released.differences(released.catalog(empty_database), fresh) == []


def test_a_changed_table_is_named(tree, empty_database, new_database) -> None:
    """Its statement is written by hand, above the line, and stays there when the functions are written once more."""
    path = tree / "tables" / "runtime.sql"
    path.write_text(
        path.read_text().replace("create table relevo.cycle_terms (", "create table relevo.cycle_terms (\n  more text,")
    )
    differing, fresh = make_migration.compare(empty_database, new_database, "more")
    written = make_migration.write(differing, fresh, "more", tree / "migrations")
    assert "-- Write what makes this so: column relevo.cycle_terms.more\n" in written.read_text()
    mine = written.read_text().replace(
        "-- Say here in a sentence what this migration is for.",
        "-- Mine.\nalter table relevo.cycle_terms add more text;",
    )
    written.write_text(mine)
    assert make_migration.write(differing, fresh, "more", tree / "migrations") == written
    assert written.read_text() == mine
    after = make_migration.write(differing, fresh, "another", tree / "migrations")
    assert int(after.name[:4]) == int(written.name[:4]) + 1


@pytest.mark.parametrize("arguments", [[], [""], ["Wider Titles"], ["a", "b"]])
def test_a_name_is_asked_for(arguments) -> None:
    """Without a name that fits a file, the command says how to give one."""
    with pytest.raises(SystemExit, match="make migration NAME=wider_titles"):
        make_migration.main(arguments)
