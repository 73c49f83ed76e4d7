"""Upgrades roll: what a released version asks of the schema is still there after the migrations of the next.

`sql/README.md` tells the policy. A release is frozen by scripts/freeze_release.py: its statements as they were, the
checksums of its migrations, and its columns. From then on the tests below hold every later version to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
import pytest

import freeze_release
from released import RELEASED, columns
from relevo import __version__
from relevo.core import queries
from relevo.database import functions, migrate
from relevo.database.baseline import parts
from relevo.database.migrate import OLDEST, Migration

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = {"lease_ms": psycopg.postgres.types["int4"].oid}  # used as two types, and so sent with its own
BEFORE = "0.2.0"  # the release before the first that is kept here
SUPPORTED = 2  # releases whose processes may run on today's schema, as far as its migrations admit them


def ordered(version: str) -> tuple[int, ...]:
    """Return a version as numbers; one in work counts as its release."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


@dataclass(frozen=True)
class Release:
    """A frozen release: its version, its schema, its statements by file and name, its migrations, columns and functions."""

    version: str
    schema: str
    statements: dict[str, str]
    migrations: dict[str, str]
    columns: dict[str, dict[str, dict[str, Any]]]
    functions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Release:
        """Read what was frozen."""
        facts = json.loads((folder / "release.json").read_text(encoding="utf-8"))
        statements = {
            f"{path.stem}.{name}": body.decode()
            for path in sorted(folder.glob("*.sql"))
            for name, body in queries.Statements(path.read_text(encoding="utf-8")).items()
        }
        return cls(folder.name, (folder / "schema.sql").read_text(encoding="utf-8"), statements, **facts)

    def inserts_into(self, table: str) -> bool:
        """Tell whether one of its statements adds rows to a table."""
        return table in self._inserted

    def uses(self, table: str, column: str) -> bool:
        """Tell whether one of its statements names both the table and the column."""
        return any(table in words and column in words for words in self._words)

    @cached_property
    def _inserted(self) -> set[str]:
        return {
            table for text in self.statements.values() for table in re.findall(r"insert\s+into\s+relevo\.(\w+)", text)
        }

    @cached_property
    def _words(self) -> list[set[str]]:
        return [set(re.findall(r"\w+", text)) for text in self.statements.values()]


def releases(folder: Path) -> list[Release]:
    """Read every frozen release, oldest first."""
    found = [Release.read(path) for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    return sorted(found, key=lambda release: ordered(release.version))


def supported(released: Sequence[Release], known: Sequence[Migration]) -> list[Release]:
    """Return the last releases, without those that a migration has left behind for good."""
    needed = max(ordered(migration.needs) for migration in known)
    return [release for release in released[-SUPPORTED:] if ordered(release.version) >= needed]


SETTINGS = re.compile(r"^set ", re.MULTILINE)  # they name nothing of the schema, and PostgreSQL prepares none


def breaks(release: Release, connection: psycopg.Connection[Any]) -> Iterator[str]:
    """Name everything a release asks for that the database no longer gives."""
    for name, text in release.statements.items():
        if SETTINGS.search(text):
            continue
        if refusal := refuses(connection, text):
            yield f"{name} does not PREPARE: {refusal}"
    now = columns(connection)
    for table, column, was, is_ in both(release.columns, now):
        if release.inserts_into(table) and required(is_) and not required(was):
            yield f"{table}.{column} must now be given, and an insert does not know of it"
        if was and is_ and release.uses(table, column):
            if was["type"] != is_["type"]:
                yield f"{table}.{column} was {was['type']} and is {is_['type']}"
            if was["nullable"] and not is_["nullable"]:
                yield f"{table}.{column} may no longer be null"


def refuses(connection: psycopg.Connection[Any], text: str, name: str = "") -> str:
    """PREPARE a statement as psycopg would send it; return the server's complaint, if it has one."""
    names: dict[str, str] = {}
    placed = re.sub(r"%\((\w+)\)s", lambda m: names.setdefault(m[1], f"${len(names) + 1}"), text).replace("%%", "%")
    with connection.transaction(force_rollback=True):
        result = connection.pgconn.prepare(name.encode(), placed.encode(), [NUMBERS.get(name, 0) for name in names])
    return result.error_message.decode().strip() if result.error_message else ""


def both(was: dict[str, Any], is_: dict[str, Any]) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield table, column, and the column then and now; None where it was or is not there."""
    for table in was.keys() & is_.keys():
        for column in was[table].keys() | is_[table].keys():
            yield table, column, was[table].get(column), is_[table].get(column)


def required(column: dict[str, Any] | None) -> bool:
    """Tell whether every insert must give this column."""
    return column is not None and not column["nullable"] and not column["default"]


def faults(known: Sequence[Migration], released: Sequence[Release], before: str = "") -> Iterator[str]:
    """Name what is wrong with the migrations: an edited old one, a new one that does not let an upgrade roll."""
    frozen = {name: checksum for release in released for name, checksum in release.migrations.items()}
    names = [str(migration) for migration in known]
    yield from (
        f"{name} was released and is gone" for name in frozen if int(name[:4]) > OLDEST.version and name not in names
    )
    # The newest release must be admitted, and nothing may be taken away from the oldest that is.
    admits = ordered(released[-1].version if released else __version__)
    served = [version for version in (before, *(release.version for release in released)) if version]
    oldest = ordered(served[-SUPPORTED:][0]) if released else ()
    for migration in known:
        if str(migration) in frozen:
            if frozen[str(migration)] != migration.checksum:
                yield f"{migration} was released and is edited"
            continue
        statements = plain(migration.body.decode())
        if ordered(migration.needs) > admits:
            yield f"{migration} shuts out the version before it, which needs nothing above {'.'.join(map(str, admits))}"
        if CONTROL.search(statements):
            yield f"{migration} begins or ends a transaction; each file runs in one already"
        if (word := TAKES_AWAY.search(statements)) and ordered(migration.needs) <= oldest:
            yield f"{migration} takes away ({word[0]}) from a version it admits: {migration.needs}"


TAKES_AWAY = re.compile(
    r"\bdrop\s+(?!index\b|constraint\b|not\s+null\b|trigger\b)\w+|\brename\b|\bset\s+not\s+null\b"
    r"|\balter\s+(?:column\s+)?\w+\s+(?:set\s+data\s+)?type\b"
)
CONTROL = re.compile(r"(?:\A|;)\s*(?:begin|start|commit|end|rollback|abort|savepoint)\b")


def plain(text: str) -> str:
    """Return SQL in small letters without comments, quoted text and the bodies of functions."""
    return re.sub(r"--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$|'(?:[^']|'')*'", " ", text, flags=re.DOTALL).lower()


def unfrozen(changelog: str, frozen: Sequence[str]) -> list[str]:
    """Return the versions that the changelog calls released and nobody froze, from the oldest that is upgraded on."""
    released = set(re.findall(r"^## \[(\d+\.\d+\.\d+)\]", changelog, re.MULTILINE)) - set(frozen)
    return sorted(version for version in released if ordered(version) >= ordered(OLDEST.applied_by))


@pytest.fixture
def today(conn, tmp_path) -> Release:
    """The current version, frozen as if it were released now."""
    return Release.read(freeze_release.freeze(tmp_path / "released", conn))


def test_released_versions_work_on_todays_schema(conn, today) -> None:
    """Every statement of the last two releases, and of this version, PREPAREs; no column they need has changed."""
    served = [*supported(releases(RELEASED), migrate.available()), today]
    found = [f"{release.version}: {line}" for release in served for line in breaks(release, conn)]
    assert not found, "\n".join(found)


def test_the_statements_of_the_benchmarks_prepare(conn) -> None:
    """What the scripts ask fits today's schema."""
    refused = {
        f"{path.name} {name}": refusal
        for path in sorted((ROOT / "scripts").rglob("*.sql"))
        for name, text in queries.Statements(path.read_text(encoding="utf-8")).items()
        if b"public." not in text  # they make and use tables of their own
        and (refusal := refuses(conn, text.decode()))
    }
    assert refused == {}


def test_migrations_let_an_upgrade_roll() -> None:
    """Released files are as they were; newer ones admit the version before and take nothing away from it."""
    found = list(faults(migrate.available(), releases(RELEASED), BEFORE))
    assert not found, "\n".join(found)


def uncalled(parts: Sequence[str], texts: Iterable[str]) -> list[str]:
    """Name the functions of a schema that nothing leads to: no statement, no page, no table, view or trigger."""
    bodies: dict[str, str] = {}
    others: list[str] = []
    for part in parts:
        code = re.sub(r"--[^\n]*", "", part)
        made = re.search(r"^create or replace function relevo\.(\w+)", code, re.MULTILINE)
        if made:
            bodies[made[1]] = code[made.end() :]
        else:
            others.append(code)
    waiting = [*texts, *others]
    called: set[str] = set()
    while waiting:
        found = set(re.findall(r"\brelevo\.(\w+)\s*\(", waiting.pop())) & bodies.keys() - called
        called |= found
        waiting += [bodies[name] for name in found]
    return sorted(bodies.keys() - called)


def test_every_function_is_called(today) -> None:
    """By a statement of this version or of a release that may run beside it, a page for those who write SQL, or the schema."""
    served = [*supported(releases(RELEASED), migrate.available()), today]
    page = (ROOT / "server" / "docs" / "sql-functions.md").read_text(encoding="utf-8")
    statements = [text for release in served for text in release.statements.values()]
    # A function of a release may be at work while a migration ends, and calls the next by its name.
    statements += [release.schema for release in served if release is not today]
    assert uncalled(parts(), [page, *statements]) == []
    more = ["create or replace function relevo.one()\nselect relevo.two();", "create or replace function relevo.two()"]
    assert uncalled([*parts(), *more], [page, *statements]) == ["one", "two"]


def left_over(folders: Iterable[str], served: Iterable[str]) -> list[str]:
    """Name the folders of functions for a version that runs beside this one no more."""
    return sorted(set(folders) - {f"for_{version.replace('.', '_')}" for version in served})


def test_what_old_replicas_call_goes_with_them() -> None:
    """`functions/for_0_3_0` is there while a replica of 0.3.0 may run on the schema; `relevo migrate` then drops what was in it."""
    folders = {path.name for path in (queries.sql_root() / "functions").glob("for_*")}
    served = [release.version for release in supported(releases(RELEASED), migrate.available())]
    assert left_over(folders, served) == [], "delete these folders"
    shut_out = [*migrate.available(), migration("9999_a", "0.4.0")]
    served = [release.version for release in supported(releases(RELEASED), shut_out)]
    assert left_over({"for_0_3_0"}, served) == ["for_0_3_0"]


def test_every_release_is_frozen() -> None:
    """A version with a heading of its own in the changelog has its folder here; scripts/freeze_release.py makes it."""
    frozen = [release.version for release in releases(RELEASED)]
    assert unfrozen((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), frozen) == []
    assert unfrozen("## [Unreleased]\n## [0.4.0] - 2027-01-01\n## [0.3.0]\n## [0.2.0]\n", ["0.3.0"]) == ["0.4.0"]


def test_a_frozen_release_holds_all_that_was_asked_for(today) -> None:
    """Every named statement, migration and column is in it, without those of partitions."""
    expected = {
        f"{path.stem}.{name}"
        for path in (queries.sql_root() / "queries").glob("*.sql")
        for name in queries.load(path.stem)
    }
    assert set(today.statements) == expected
    assert today.migrations == {str(migration): migration.checksum for migration in migrate.available()}
    assert today.functions == {each.name: each.checksum for each in functions.available()}
    assert today.columns["claims"]["token"] == {"type": "uuid", "nullable": False, "default": False}
    assert today.columns["claims"]["ids"]["type"] == "bigint[]"
    assert today.columns["workers"]["stopped_at"]["nullable"]
    assert today.columns["worker_runs"]["licitaciones_found"]["default"]
    assert not [table for table in today.columns if re.search(r"_\d{4}_\d\d$", table)]


def test_a_release_is_frozen_once(conn, tmp_path) -> None:
    """A folder that is there is never written over."""
    target = freeze_release.freeze(tmp_path, conn)
    (target / "release.json").write_text("mine")
    with pytest.raises(SystemExit, match=f"{__version__} is there already"):
        freeze_release.freeze(tmp_path, conn)
    assert (target / "release.json").read_text() == "mine"


BREAKING = [
    ("alter table relevo.claims drop column worker_id cascade", 'column "worker_id" of relation "claims" does not'),
    ("alter table relevo.workers rename column pid to process", 'column "pid" of relation "workers" does not'),
    ("drop table relevo.late_tickets", 'relation "relevo.late_tickets" does not exist'),
    ("alter table relevo.cycle_terms rename to terms", 'relation "relevo.cycle_terms" does not exist'),
    ("drop function relevo.ensure_partitions", "function relevo.ensure_partitions(date, "),
    ("alter table relevo.workers alter column pid type bigint", "workers.pid was integer and is bigint"),
    ("alter table relevo.cycle_state alter column paused_reason type varchar(9)", "and is character varying(9)"),
    ("alter table relevo.workers alter column lost_at set not null", "workers.lost_at may no longer be null"),
    ("alter table relevo.workers add column zone text not null", "workers.zone must now be given"),
    ("alter table relevo.claims add column n int, alter column n set not null", "claims.n must now be given"),
    ("alter table relevo.event_types alter column updated_at drop default", "updated_at must now be given"),
]
EXPANDING = [
    "alter table relevo.workers add column zone text",
    "alter table relevo.workers add column region text not null default 'south'",
    "alter table relevo.claims add column n int generated always as (cardinality(ids)) stored not null",
    "alter table relevo.claims add column m bigint generated always as identity",
    "create table relevo.more (id int not null)",
    "create index on relevo.claims (worker_id)",
    "alter table relevo.workers alter column hostname drop not null",
    "alter table relevo.notification_deliveries drop constraint delivery_is_possible",
    "alter table relevo.worker_runs drop column archived_deliveries",
]


def after(changes: Iterable[str], release: Release, connection: psycopg.Connection[Any]) -> list[str]:
    """Name what would break if the schema were changed so; afterwards it is as before."""
    with connection.transaction(force_rollback=True):
        for change in changes:
            connection.execute(change.encode())
        return list(breaks(release, connection))


def about(release: Release, change: str) -> Release:
    """Return a release with those of its statements alone that name what is changed."""
    [name] = re.findall(r"relevo\.(\w+)", change)
    return replace(release, statements={key: text for key, text in release.statements.items() if name in text})


def test_what_breaks_the_version_before_is_found(conn, today) -> None:
    """Dropping, renaming, retyping and demanding what a running version does not know of are each refused."""
    for change, complaint in BREAKING:
        found = after([change], about(today, change), conn)
        assert any(complaint in line for line in found), (change, found)


def test_what_only_expands_is_let_through(conn, today) -> None:
    """Adding what nobody must know of, loosening, and dropping what that version does not use break nothing."""
    assert after(EXPANDING, today, conn) == []


def release(version: str, *names: str) -> Release:
    """Make a release that brought the migrations of these names."""
    return Release(version, "", {}, {name: migration(name, "0.1.0").checksum for name in names}, {})


def migration(name: str, needs: str, body: str = "select 1;") -> Migration:
    """Make a migration."""
    number, _, rest = name.partition("_")
    return Migration(int(number), rest, needs, f"-- needs relevo {needs}\n{body}\n".encode())


def test_the_releases_that_count_are_the_last_two_that_are_admitted() -> None:
    """Two releases are held up, one less after a migration has left the older behind; older ones are history."""
    three = [release("0.9.0"), release("0.10.0"), release("0.11.0")]
    assert [r.version for r in supported(three, [migration("0001_a", "0.1.0")])] == ["0.10.0", "0.11.0"]
    assert [r.version for r in supported(three, [migration("0001_a", "0.11.0")])] == ["0.11.0"]
    assert supported([], [migration("0001_a", "0.1.0")]) == []


DROP = "alter table relevo.a drop column b;"


@pytest.mark.parametrize(
    ("newest", "complaint"),
    [
        (migration("0003_c", "0.2.0", DROP), ""),
        (migration("0003_c", "0.1.0", DROP), "takes away (drop column) from a version it admits: 0.1.0"),
        (migration("0003_c", "0.3.0", DROP), "shuts out the version before it"),
        (migration("0003_c", "0.1.0", "alter table relevo.a add column c int;"), ""),
        (migration("0003_c", "0.1.0", "DROP TABLE relevo.a;"), "takes away (drop table)"),
        (migration("0003_c", "0.1.0", "alter table relevo.a drop b;"), "takes away (drop b)"),
        (migration("0003_c", "0.1.0", "alter table relevo.a rename b to c;"), "takes away (rename)"),
        (migration("0003_c", "0.1.0", "alter table relevo.a alter b type text;"), "takes away (alter b type)"),
        (migration("0003_c", "0.1.0", "alter table relevo.a\n alter column b set data type text;"), "takes away"),
        (migration("0003_c", "0.1.0", "alter table relevo.a alter b set not null;"), "takes away (set not null)"),
        (migration("0003_c", "0.1.0", "drop view relevo.a; create view relevo.a as select 1;"), "takes away"),
        (migration("0003_c", "0.1.0", "drop index relevo.i; alter table relevo.a drop constraint c;"), ""),
        (migration("0003_c", "0.1.0", "alter table relevo.a alter b drop not null; -- drop table"), ""),
        (migration("0003_c", "0.1.0", "do $x$ begin execute 'drop table t'; end $x$; select 'drop table';"), ""),
        (migration("0003_c", "0.1.0", "select 1; commit; select 2;"), "begins or ends a transaction"),
        (migration("0003_c", "0.1.0", "begin; select 2;"), "begins or ends a transaction"),
    ],
)
def test_a_migration_after_two_releases_is_judged(newest, complaint) -> None:
    """With 0.1.0 and 0.2.0 out, a new file may expand for both, or contract by what 0.2.0 no longer uses."""
    known = [migration("0001_a", "0.1.0"), migration("0002_b", "0.1.0"), newest]
    found = list(faults(known, [release("0.1.0", "0001_a"), release("0.2.0", "0001_a", "0002_b")]))
    assert [complaint in line for line in found] == ([True] if complaint else []), found


def test_a_migration_around_the_first_release_is_judged() -> None:
    """Before any release nothing is owed to anyone; after the first one, the next may only expand."""
    first, drop = migration("0001_a", "0.1.0"), migration("0002_b", "0.1.0", DROP)
    assert list(faults([first, drop], [])) == []
    assert len(list(faults([first, drop], [release("0.1.0", "0001_a")]))) == 1
    assert len(list(faults([first, migration("0002_b", "0.2.0", DROP)], [release("0.1.0", "0001_a")]))) == 1
    assert len(list(faults([migration("0001_a", "99.0.0")], []))) == 1


def test_a_released_migration_stays_as_it_was() -> None:
    """Editing or removing a file that was released is found before any database says so."""
    out = [release("0.1.0", "0101_a", "0102_b")]
    edited = [migration("0101_a", "0.1.0"), migration("0102_b", "0.1.0", "select 2;")]
    assert list(faults(edited, out)) == ["0102_b was released and is edited"]
    assert list(faults(edited[:1], out)) == ["0102_b was released and is gone"]
