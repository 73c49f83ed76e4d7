"""Plain forward-only files with recorded checksums: what is applied, what is refused, and in which words."""

from __future__ import annotations

import pytest

from relevo import __version__
from relevo.core import queries
from relevo.core.errors import DatabaseUnavailableError, MigrationError
from relevo.database import migrate
from support.relevo_command import Command, make_command

FIRST = "-- needs relevo 0.1.0\ncreate table relevo.first (id int);\n"

HERE = migrate.available()[-1].version
FIRST_MORE, SECOND_MORE = (f"{HERE + n:04}_more_{HERE + n}" for n in (1, 2))


def applied(look) -> list[tuple[int, str]]:
    """Return the ledger's versions and names."""
    return look.execute("select version, name from relevo.schema_migrations order by version").fetchall()


def has(look, relation: str) -> bool:
    """Tell whether a table is there."""
    return look.execute("select to_regclass(%s) is not null", [relation]).fetchone()[0]


def test_every_file_is_applied_once_and_written_down(database, look) -> None:
    """The ledger of a new database holds each file as if it had been run: number, name, checksum, need, and by whom."""
    files = migrate.available()
    assert files
    assert [(str(done), done.covers) for done in migrate.migrate(database)] == [("baseline", tuple(files))]
    rows = look.execute(
        "select version, name, checksum, needs, applied_by from relevo.schema_migrations order by version"
    )
    assert rows.fetchall() == [(m.version, m.name, m.checksum, m.needs, __version__) for m in files]
    assert migrate.migrate(database) == []
    assert migrate.prepare(database) == []


def test_only_what_is_new_is_run(migrated, database, look, beyond) -> None:
    """After an upgrade the files that were applied before are left alone."""
    known = beyond("create table relevo.one (id int);", "create table relevo.two (id int);")
    assert migrate.prepare(database, known) == known[-2:]
    assert has(look, "relevo.two")


@pytest.fixture
def here(monkeypatch, capsys, empty_database) -> Command:
    """`relevo` on the database without a schema, in this process: `here("migrate", "--plan")`."""
    return make_command(monkeypatch, capsys, empty_database)


def test_the_plan_shows_what_would_run_and_changes_nothing(here, look) -> None:
    """`relevo migrate --plan` names every pending file, leaves no trace, and after migrating says that all is done."""
    planned = here("migrate", "--plan")
    assert planned.code == 0, planned.err
    assert planned.out.split() == ["would", "run", "baseline"]
    assert look.execute("select to_regnamespace('relevo')").fetchone() == (None,)

    ran = here("migrate")
    assert ran.code == 0, ran.err
    assert ran.out == planned.out.replace("would run", "ran")
    nothing = here("migrate", "--plan")
    assert nothing.code == 0
    assert "up to date" in nothing.out


def test_an_edited_file_is_refused_in_words(migrated, database, look, beyond) -> None:
    """A changed file is named, with who applied it and what to do; neither migrate, plan nor prepare goes on."""
    migrate.migrate(database, beyond("create table relevo.one (id int);"))
    edited = beyond("create table relevo.one (id bigint);", "create table relevo.two (id int);")
    for attempt in (migrate.migrate, migrate.plan, migrate.prepare):
        with pytest.raises(MigrationError, match=rf"{FIRST_MORE} was edited .* by relevo {__version__}.*new migration"):
            attempt(database, edited)
    assert not has(look, "relevo.two")


def test_an_edited_file_is_refused_below_a_newer_schema_too(migrated, database, beyond) -> None:
    """A newer schema that would serve does not hide that one of our own files was changed."""
    migrate.migrate(database, beyond("select 1;", "select 2;"))
    with pytest.raises(MigrationError, match=f"{FIRST_MORE} was edited"):
        migrate.prepare(database, beyond("select 3;"))


def test_migrate_refuses_a_schema_it_does_not_know(migrated, here, database, beyond) -> None:
    """An older version's `relevo migrate` fails with the unknown migration's name and what to do instead."""
    migrate.migrate(database, beyond("select 1;"))
    refused = here("migrate")
    assert refused.code == 1
    said = " ".join(refused.err.split())
    assert FIRST_MORE in said
    assert f"relevo {__version__} does not know" in said
    assert "at least as new as the database" in said


def test_an_older_version_works_on_a_newer_schema_that_serves_it(migrated, command, database, beyond) -> None:
    """What `relevo run` asks for accepts a newer schema whose need is at most our version, and changes nothing."""
    migrate.migrate(database, beyond("select 1;", needs=__version__))
    assert migrate.prepare(database) == []
    ran = command("run-cycle", "reaper")
    assert ran.ends() == 0, ran.stderr


def test_an_older_version_refuses_a_newer_schema_that_left_it_behind(migrated, command, database, beyond) -> None:
    """If any newer migration needs more than our version, the replica is told to upgrade and does not start."""
    migrate.migrate(database, beyond("select 1;", "select 2;", needs="0.10.0"))
    with pytest.raises(MigrationError, match=rf"{FIRST_MORE}.* needs relevo 0\.10\.0 or newer; this is {__version__}"):
        migrate.prepare(database)
    refused = command("run")
    assert refused.ends() == 1
    assert "Upgrade this replica" in refused.stderr


def test_a_failing_migration_leaves_nothing_behind(migrated, database, look, beyond) -> None:
    """What a file did before it failed is undone, the ones before it stand, and a mended file goes on from there."""
    broken = beyond("create table relevo.one (id int);", "create table relevo.two (id int); select 1 / 0;")
    with pytest.raises(
        MigrationError, match=rf"{SECOND_MORE} failed and was undone: .*division by zero.*run `relevo migrate`"
    ):
        migrate.migrate(database, broken)
    assert has(look, "relevo.one")
    assert not has(look, "relevo.two")
    assert applied(look)[-1] == (HERE + 1, f"more_{HERE + 1}")
    mended = beyond("create table relevo.one (id int);", "create table relevo.two (id int);")
    assert migrate.migrate(database, mended) == mended[-1:]


def test_a_failing_baseline_leaves_not_even_the_schema(database, look, monkeypatch) -> None:
    """On an empty database the failure of the baseline leaves an empty database."""
    monkeypatch.setattr(migrate, "baseline", lambda: "create table relevo.half (id int); select 1 / 0;")
    with pytest.raises(MigrationError, match="baseline failed and was undone"):
        migrate.migrate(database)
    assert look.execute("select to_regnamespace('relevo')").fetchone() == (None,)


def test_a_server_that_goes_away_is_told_apart_from_a_broken_file(migrated, database, look, beyond) -> None:
    """A connection lost in the middle is DatabaseUnavailableError, so that a replica tries again; nothing was kept."""
    cut = "create table relevo.cut (id int); select pg_terminate_backend(pg_backend_pid());"
    with pytest.raises(DatabaseUnavailableError):
        migrate.prepare(database, beyond(cut))
    assert not has(look, "relevo.cut")
    whole = beyond("create table relevo.cut (id int);")
    assert migrate.prepare(database, whole) == whole[-1:]


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"0086_a.sql": FIRST, "0088_c.sql": FIRST}, r"0088_c stands where 0087 is expected.*without gaps or doubles"),
        ({"0086_a.sql": FIRST, "0086_b.sql": FIRST}, "0086_b stands where 0087 is expected"),
        ({"0087_b.sql": FIRST}, "0087_b stands where 0086 is expected"),
        ({"0086_a.sql": FIRST, "2_b.sql": FIRST}, r"2_b\.sql is not named like 0001_what_it_does\.sql.*Rename"),
        ({"0086-a.sql": FIRST}, r"0086-a\.sql is not named like"),
        ({"0086_A.sql": FIRST}, r"0086_A\.sql is not named like"),
        ({"0086_a.sql": "create table x ();\n"}, r"0086_a\.sql does not say which relevo.*-- needs relevo 0\.1\.0"),
        ({"0086_a.sql": "-- needs relevo 1.0\nselect 1;\n"}, "does not say which relevo"),
        ({"0086_a.sql": "\n-- needs relevo 0.1.0\nselect 1;\n"}, "does not say which relevo"),
    ],
    ids=["gap", "double", "no first", "short number", "dash", "capital", "no need", "short need", "need too low"],
)
def test_a_folder_in_disorder_is_refused_in_words(files, complaint, tmp_path) -> None:
    """A gap, a double, a bad name or a missing first line is named before any database is touched."""
    for name, body in files.items():
        (tmp_path / name).write_text(body)
    with pytest.raises(MigrationError, match=complaint):
        migrate.available(tmp_path)


def test_line_ends_do_not_matter(database, look, tmp_path, monkeypatch) -> None:
    """A checkout with Windows line ends has the same checksums and makes the same schema."""
    here, unix = queries.sql_root(), [m.checksum for m in migrate.available()]
    for path in here.rglob("*.sql"):
        copy = tmp_path / path.relative_to(here)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    monkeypatch.setattr(queries, "sql_root", lambda: tmp_path)
    assert [m.checksum for m in migrate.available()] == unix
    assert [str(done) for done in migrate.migrate(database)] == ["baseline"]
    assert migrate.migrate(database) == []
    assert look.execute("select count(*) from pg_proc where prosrc like %s", ["%\r%"]).fetchone() == (0,)


def stands_at(look, version: int, name: str, checksum: str = "") -> None:
    """Leave a database as an older version did: a schema with a ledger whose last row is this."""
    look.execute("create schema relevo")
    look.execute(queries.load("migrate")["create_ledger"])
    row = {"version": version, "name": name, "checksum": checksum, "needs": "0.1.0", "applied_by": "0.2.0"}
    look.execute(queries.load("migrate")["record_applied"], row)


def test_an_older_database_is_sent_through_the_release_between(database, look, here) -> None:
    """Below 0.3.0 every way in says in a sentence which version to run first, and writes nothing."""
    stands_at(look, 42, "keys_first")
    for attempt in (migrate.migrate, migrate.plan, migrate.prepare, migrate.missing):
        with pytest.raises(
            MigrationError,
            match=r"at migration 0042_keys_first, .* relevo 0\.2\.0; .* upgrades from relevo 0\.3\.0 on\.",
        ):
            attempt(database)
    refused = here("migrate")
    assert refused.code == 1
    assert "Run `relevo migrate` of relevo 0.3.0 first" in " ".join(refused.err.split())
    assert applied(look) == [(42, "keys_first")]
    assert not has(look, "relevo.claims")


def test_a_database_of_another_0085_is_refused(database, look) -> None:
    """What calls itself 0.3.0 and was made by an edited file is not taken for it."""
    stands_at(look, migrate.OLDEST.version, migrate.OLDEST.name, "edited")
    with pytest.raises(MigrationError, match="0085_unwritten_previews was edited after it was applied"):
        migrate.migrate(database)
