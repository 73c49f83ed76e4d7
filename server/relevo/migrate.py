"""Forward-only migrations: plain SQL files, checksums in a ledger, one transaction each, one process at a time.

Upgrades roll: a migration only expands what the previous version's processes use, and says in its first line which
is the oldest version that works on the schema after it; what that version no longer needs is taken away later.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import errors as pg

from relevo import __version__, queries
from relevo.db import Connection, Database
from relevo.errors import MigrationError
from relevo.logs import normalise_error

_SQL = queries.load("migrate")
_FILE = re.compile(r"^(?P<version>\d{4})_(?P<name>[a-z0-9_]+)\.sql$")
_NEEDS = re.compile(rb"\A-- needs relevo (?P<version>\d+\.\d+\.\d+)\r?\n")
_LOCK_WAIT_MS = 30_000


@dataclass(frozen=True)
class Migration:
    """One file of `sql/migrations/`; `needs` is the oldest relevo that works on the schema after it."""

    version: int
    name: str
    needs: str
    body: bytes

    @property
    def checksum(self) -> str:
        """Return the hash that the ledger remembers, the same for Unix and Windows line ends."""
        return hashlib.sha256(self.body.replace(b"\r\n", b"\n")).hexdigest()

    def __str__(self) -> str:
        return f"{self.version:04}_{self.name}"


def available(folder: Path | None = None) -> list[Migration]:
    """Read the migration files in order; their numbers must be 1, 2, 3 … without a gap."""
    folder = folder or queries.sql_root() / "migrations"
    found = [_read(path) for path in sorted(folder.glob("*.sql"))]
    for expected, migration in enumerate(found, start=1):
        if migration.version != expected:
            raise MigrationError(
                f"Migration {migration} stands where {expected:04} is expected.",
                hint="Number the files without gaps or doubles.",
            )
    return found


def _read(path: Path) -> Migration:
    named, body = _FILE.match(path.name), path.read_bytes()
    if not named:
        raise MigrationError(f"{path.name} is not named like 0001_what_it_does.sql.", hint="Rename it.")
    needs = _NEEDS.match(body)
    if not needs:
        raise MigrationError(
            f"{path.name} does not say which relevo works on the schema after it.",
            hint="Its first line must read like: -- needs relevo 0.1.0",
        )
    return Migration(int(named["version"]), named["name"], needs["version"].decode(), body)


def plan(database: Database, known: Sequence[Migration] | None = None) -> list[Migration]:
    """Return what `migrate` would run, in order; changes nothing."""
    with database.direct() as connection:
        return _pending(connection, available() if known is None else known)


def migrate(database: Database, known: Sequence[Migration] | None = None) -> list[Migration]:
    """Bring the schema up to date, each migration in its own transaction, and return what was run."""
    known = available() if known is None else known
    done: list[Migration] = []
    with database.direct() as connection:
        pending = _pending(connection, known)
        while pending:
            with connection.transaction():
                _take_turn(connection)
                pending = _pending(connection, known)
                if pending:
                    _apply(connection, pending[0])
            done += pending[:1]
            pending = pending[1:]
    return done


def prepare(database: Database, known: Sequence[Migration] | None = None) -> list[Migration]:
    """Migrate before work begins; a newer schema is fine as long as it still serves this version."""
    known = available() if known is None else known
    with database.direct() as connection:
        newer = [row for row in _applied(connection) if row[0] > len(known)]
    for version, name, _, needs, applied_by in newer:
        if _ordered(needs) > _ordered(__version__):
            raise MigrationError(
                f"The database has migration {version:04}_{name}, applied by relevo {applied_by}, "
                f"which needs relevo {needs} or newer; this is {__version__}.",
                hint="Upgrade this replica.",
            )
    return [] if newer else migrate(database, known)


def _take_turn(connection: Connection) -> None:
    try:
        connection.execute(_SQL["bound_migration"], {"lock_ms": _LOCK_WAIT_MS})
        connection.execute(_SQL["lock_migrations"])
    except pg.LockNotAvailable as error:
        raise MigrationError(
            f"Another process has been migrating for more than {_LOCK_WAIT_MS // 1000} s.", hint="Try again later."
        ) from error
    connection.execute(_SQL["create_schema"])
    connection.execute(_SQL["create_ledger"])


def _applied(connection: Connection) -> list[tuple[int, str, str, str, str]]:
    found = connection.execute(_SQL["find_ledger"]).fetchone()
    return connection.execute(_SQL["list_applied"]).fetchall() if found and found[0] else []


def _pending(connection: Connection, known: Sequence[Migration]) -> list[Migration]:
    """Compare the ledger with the files; refuse what was edited and what this version does not know."""
    by_version = {migration.version: migration for migration in known}
    applied = _applied(connection)
    for version, name, checksum, _, applied_by in applied:
        if version not in by_version:
            raise MigrationError(
                f"The database has migration {version:04}_{name}, applied by relevo {applied_by}, "
                f"which relevo {__version__} does not know.",
                hint="Migrate with a version at least as new as the database.",
            )
        if by_version[version].checksum != checksum:
            raise MigrationError(
                f"Migration {version:04}_{name} was edited after it was applied by relevo {applied_by}.",
                hint="Restore the file; put the change into a new migration.",
            )
    newest = max((row[0] for row in applied), default=0)
    return [migration for migration in known if migration.version > newest]


def _apply(connection: Connection, migration: Migration) -> None:
    try:
        connection.execute(migration.body)
    except psycopg.Error as error:
        raise MigrationError(
            f"Migration {migration} failed and was undone: {normalise_error(error)}",
            hint="Nothing of it was kept; mend the cause and run `relevo migrate` again.",
        ) from error
    connection.execute(
        _SQL["record_applied"],
        {
            "version": migration.version,
            "name": migration.name,
            "checksum": migration.checksum,
            "needs": migration.needs,
            "applied_by": __version__,
        },
    )


def _ordered(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
