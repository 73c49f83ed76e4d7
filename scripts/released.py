"""Released versions: what was frozen of each, a database as one of them made it, and what a schema is made of."""

from __future__ import annotations

import json
import re
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import make_conninfo

from relevo import config, embedded
from relevo.core import queries
from relevo.database import functions, migrate
from relevo.database.pool import Database

ROOT = Path(__file__).resolve().parent.parent
RELEASED = ROOT / "tests" / "migrations" / "released"
CHECKS = queries.Statements((ROOT / "sql" / "checks.sql").read_text(encoding="utf-8"))


class Thing(NamedTuple):
    """A table, column, function or the like of a schema."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def versions() -> list[str]:
    """Return the frozen versions, oldest first: from the first on, databases are upgraded."""
    return sorted((path.name for path in RELEASED.iterdir() if path.is_dir()), key=_ordered)


def before(version: str) -> list[str]:
    """Return the frozen versions before a version, oldest first; one in work counts as its release."""
    return [each for each in versions() if _ordered(each) < _ordered(version)]


def _ordered(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def make(dsn: str, version: str) -> None:
    """Make the schema of a released version in an empty database, with the ledger it left."""
    folder, statements = RELEASED / version, queries.load("migrate", "functions")
    facts = json.loads((folder / "release.json").read_text(encoding="utf-8"))
    make_of(dsn, (folder / "schema.sql").read_text(encoding="utf-8"))
    with psycopg.connect(dsn) as connection:
        if applied := facts.get("functions"):  # 0.3.0 did not remember them
            given = {"names": list(applied), "checksums": list(applied.values()), "by": version}
            connection.execute(statements["record_functions"], given)
        for name, checksum in facts["migrations"].items():
            number, _, rest = name.partition("_")
            row = {"version": int(number), "name": rest, "checksum": checksum, "needs": "0.1.0", "applied_by": version}
            connection.execute(statements["record_applied"], row)


def unpack(version: str, folder: Path) -> Path:
    """Unpack a released version; return what PYTHONPATH names to run it with the libraries of today."""
    with tarfile.open(RELEASED / version / "package.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "server"


def make_of(dsn: str, schema: str) -> None:
    """Make a schema in an empty database, with an empty ledger."""
    statements = queries.load("migrate")
    with psycopg.connect(dsn) as connection:
        connection.execute(statements["create_schema"])
        connection.execute(statements["create_ledger"])
        connection.execute(schema.encode())


def bring_up_to_date(
    dsn: str, known: Sequence[migrate.Migration] | None = None, files: Sequence[functions.Function] | None = None
) -> list[migrate.Step]:
    """Run what a database lacks."""
    database = Database(dsn, dsn, config.load({}, None))
    try:
        return migrate.migrate(database, known, files)
    finally:
        database.close()


def catalog(dsn: str) -> dict[Thing, str]:
    """Return all that a schema is made of, by kind and name."""
    with psycopg.connect(dsn) as connection:
        return {Thing(kind, name): text for kind, name, text in connection.execute(CHECKS["list_catalog"])}


def differences(upgraded: dict[Thing, str], fresh: dict[Thing, str]) -> list[Thing]:
    """Return what is not the same in two schemas."""
    return sorted(thing for thing in upgraded.keys() | fresh.keys() if upgraded.get(thing) != fresh.get(thing))


@contextmanager
def empty_databases(*names: str) -> Iterator[list[str]]:
    """Run a server of our own with some empty databases in it, for as long as they are needed."""
    with (
        tempfile.TemporaryDirectory(prefix="relevo-", ignore_cleanup_errors=True) as folder,
        embedded.acquire(Path(folder) / "postgres", settings={"fsync": "off"}, linger_s=0) as server,
    ):
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            for name in names:
                connection.execute(f"create database {name}".encode())
        yield [make_conninfo(server.dsn, dbname=name) for name in names]


def columns(connection: psycopg.Connection[Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return table -> column -> its type, whether it may be null, and whether it has a default."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for table, column, type_, nullable, default in connection.execute(CHECKS["list_columns"]):
        found.setdefault(table, {})[column] = {"type": type_, "nullable": nullable, "default": default}
    return found
