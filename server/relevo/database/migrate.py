"""Makes the schema, or brings it up to date: one transaction each, one process at a time, written to a ledger.

A new database runs the baseline: `sql/tables` and `sql/functions` as they are now. One that an earlier version made
runs the migrations it lacks, plain SQL files with checksums, and then the files of functions that changed. Upgrades
roll: a migration only expands what the previous version's processes use, and says in its first line which is the
oldest version that works on the schema after it.
"""

from __future__ import annotations

import relevo.core.needs_server  # isort: skip # noqa: F401 ahead of all it needs

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psycopg
from psycopg import errors as pg

from relevo.core import queries
from relevo.core.errors import MigrationBusyError, MigrationError
from relevo.core.logs import get_logger, normalise_error
from relevo.core.version import __version__
from relevo.database import functions
from relevo.database.baseline import baseline
from relevo.database.functions import Changes, Function, ordered
from relevo.database.outages import is_unavailable
from relevo.database.pool import Connection, Database

_SQL = queries.load("migrate")
_log = get_logger("relevo.database.migrate")
_FILE = re.compile(r"^(?P<version>\d{4})_(?P<name>[a-z0-9_]+)\.sql$")
_NEEDS = re.compile(rb"\A-- needs relevo (?P<version>\d+\.\d+\.\d+)\n")
_TURN_MS = 30_000  # for another process that migrates: nobody else wants the ledger
_LOCK_MS = 1_000  # for a table: everybody who wants it waits behind us meanwhile
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_PATIENCE_S = 600.0
_NAP_S = 0.25
_VALIDATION = re.compile(rb"^alter table [\w.]+ validate constraint \w+;$", re.MULTILINE)


@dataclass(frozen=True)
class Migration:
    """One file of `sql/migrations/`; `needs` is the oldest relevo that works on the schema after it.

    The baseline is one, too: `covers` names the files whose work it has done already.
    """

    version: int
    name: str
    needs: str
    body: bytes
    covers: tuple[Migration, ...] = ()

    @property
    def checksum(self) -> str:
        """Return the hash that the ledger remembers."""
        return hashlib.sha256(self.body).hexdigest()

    def __str__(self) -> str:
        return self.name if self.covers else f"{self.version:04}_{self.name}"


class _LockedError(MigrationBusyError):
    """A migration waited too long for a lock, and was undone."""


class _NotAllowedError(MigrationError):
    """This role may not migrate."""


class Applied(NamedTuple):
    """One line of the ledger."""

    version: int
    name: str
    checksum: str
    needs: str
    applied_by: str

    def __str__(self) -> str:
        return f"{self.version:04}_{self.name}"


OLDEST = Applied(
    85, "unwritten_previews", "1fb64ca45588d6d9fad4397b8d8e501073da305ec860282027d9acc38189f029", "0.2.0", "0.3.0"
)
"""The last migration of the oldest version from which this one upgrades; the files go on from there."""

Step = Migration | Changes
"""The work of one transaction: a migration, or all changes of functions."""

Tell = Callable[[Step], None]
"""Is called with each step when it was run."""


def available(folder: Path | None = None) -> list[Migration]:
    """Read the migration files in order; their numbers must go on from the oldest's, without a gap."""
    folder = folder or queries.sql_root() / "migrations"
    found = [_read(path) for path in sorted(folder.glob("*.sql"))]
    for expected, migration in enumerate(found, start=OLDEST.version + 1):
        if migration.version != expected:
            raise MigrationError(
                f"Migration {migration} stands where {expected:04} is expected.",
                hint="Number the files without gaps or doubles.",
            )
    return found


def _read(path: Path) -> Migration:
    # The same bytes, and so the same checksum and schema, from Unix and Windows checkouts.
    named, body = _FILE.match(path.name), path.read_bytes().replace(b"\r\n", b"\n")
    if not named:
        raise MigrationError(f"{path.name} is not named like 0001_what_it_does.sql.", hint="Rename it.")
    needs = _NEEDS.match(body)
    if not needs:
        raise MigrationError(
            f"{path.name} does not say which relevo works on the schema after it.",
            hint="Its first line must read like: -- needs relevo 0.1.0",
        )
    return Migration(int(named["version"]), named["name"], needs["version"].decode(), body)


def plan(
    database: Database, known: Sequence[Migration] | None = None, files: Sequence[Function] | None = None
) -> list[Step]:
    """Return what `migrate` would run, in order; changes nothing."""
    with database.watch(), database.direct() as connection:
        return _Version.of(known, files).pending(connection)


def missing(database: Database) -> list[Step]:
    """Return what is left to run, as `plan` does, but over the pool: for those who ask often."""
    with database.connection() as connection:
        return _Version.of(newer_may_serve=True).pending(connection)


def migrate(
    database: Database,
    known: Sequence[Migration] | None = None,
    files: Sequence[Function] | None = None,
    *,
    lock_wait_ms: int = _TURN_MS,
    patience_s: float = _PATIENCE_S,
    newer_may_serve: bool = False,
    tell: Tell = lambda _: None,
) -> list[Step]:
    """Bring the schema up to date, each step in its own transaction; tell of each, and return what was run.

    A step that waits for a lock holds up everybody who comes after it, so it waits a second, gives way, and tries
    again after a pause that grows.
    """
    version = _Version.of(known, files, newer_may_serve=newer_may_serve)
    bounds = {"lock_ms": lock_wait_ms, "statement_ms": database.long_statement_ms}
    done: list[Step] = []
    with database.watch(), database.direct(long=True) as connection:
        while version.pending(connection):
            try:
                ran = _give_way(connection, patience_s, partial(_run_next, connection, version, bounds))
            except _NotAllowedError as error:
                raise _name_owner(connection, error) from error
            for step in ran:
                tell(step)
                done.append(step)
        _validate(connection, bounds)
    return done


def _run_next(connection: Connection, version: _Version, bounds: Mapping[str, int]) -> list[Step]:
    """Run the next step in a transaction, unless another process has run it meanwhile."""
    with connection.transaction():
        _take_turn(connection, bounds)
        connection.execute(_SQL["bound_migration"], {**bounds, "lock_ms": min(bounds["lock_ms"], _LOCK_MS)})
        ahead = version.pending(connection)[:1]
        for step in ahead:
            if isinstance(step, Changes):
                functions.apply(connection, step, _undone)
            else:
                _apply(connection, step, version.files)
    return ahead


def _give_way(connection: Connection, patience_s: float, run: Callable[[], list[Step]]) -> list[Step]:
    """Try a migration again whenever it met a lock, after a pause that doubles; raise once patience is over."""
    began, pause_s = time.monotonic(), _FIRST_PAUSE_S
    while True:
        try:
            return run()
        except _LockedError as error:
            blocker = _blocker(connection)
            if time.monotonic() + pause_s > began + patience_s:
                raise MigrationBusyError(f"{error.message} {blocker}".strip(), hint="Try again later.") from error
            _log.warning("migration_lock_timeout", error=f"{error.message} {blocker}".strip(), again_in_s=pause_s)
        _rest(connection, pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _name_owner(connection: Connection, error: MigrationError) -> MigrationError:
    """Return the error of a role that may not migrate, with who may: the owner of the schema, if it is there."""
    row = connection.execute(_SQL["find_owner"]).fetchone()
    if row is None:
        return MigrationError(
            f"This role may not make the schema relevo: {error.message}",
            hint="Run `relevo migrate` as a role that may; others need no right to create once it has run.",
        )
    owner, role = row
    return MigrationError(
        f"The schema is older than relevo {__version__}, and the role {role} may not migrate it: {error.message}",
        hint=f"Run `relevo migrate` of this version as {owner}, the owner of the schema; then start this again.",
    )


def _rest(connection: Connection, pause_s: float) -> None:
    """Wait on the connection, so that a process that is told to stop does not wait to the end."""
    until = time.monotonic() + pause_s
    while time.monotonic() < until:
        connection.execute(_SQL["pause_migration"], {"seconds": _NAP_S})


def _blocker(connection: Connection) -> str:
    """Name the session that has held a lock on one of our tables for longest, if there is one."""
    row = connection.execute(_SQL["find_blocker"]).fetchone()
    if row is None:
        return ""
    pid, program, seconds = row
    return f"PostgreSQL pid {pid} ({program}) has had its transaction open for {seconds:.0f} s."


def _validate(connection: Connection, bounds: Mapping[str, int]) -> None:
    """Check the rows of constraints that were added without that, each apart: meanwhile everybody reads and writes."""
    for statement in [row[0] for row in connection.execute(_SQL["list_unvalidated"], {}).fetchall()]:
        try:
            with connection.transaction():
                connection.execute(_SQL["bound_migration"], {**bounds, "lock_ms": _LOCK_MS})
                connection.execute(statement.encode())
        except (pg.LockNotAvailable, pg.CheckViolation) as error:  # the next `relevo migrate` tries again
            _log.warning("constraint_not_validated", statement=statement, error=normalise_error(error, 200))


def prepare(
    database: Database, known: Sequence[Migration] | None = None, files: Sequence[Function] | None = None
) -> list[Step]:
    """Migrate before work begins, and log it in one line; a newer schema is fine while it serves this version."""
    done: list[Step] = []
    try:
        migrate(database, known, files, newer_may_serve=True, tell=done.append)
    finally:  # what was done is told, too, where the next one failed
        if done:
            _log.info("migrated", migrations=len(done), first=str(done[0]), last=str(done[-1]))
    return done


def _take_turn(connection: Connection, bounds: Mapping[str, int]) -> None:
    """Lock the ledger until the transaction ends: only a role that may write it can hold up who migrates."""
    connection.execute(_SQL["bound_migration"], bounds)
    try:
        while not _lock_ledger(connection):
            continue
    except pg.LockNotAvailable as error:
        raise MigrationBusyError(
            f"{_holder(connection)} has been migrating for more than {bounds['lock_ms'] / 1000:g} s.",
            hint="Try again later.",
        ) from error
    except pg.InsufficientPrivilege as error:
        raise _NotAllowedError(normalise_error(error)) from error


def _lock_ledger(connection: Connection) -> bool:
    """Lock the ledger, made first where it is missing; False if another process made it meanwhile."""
    with suppress(pg.UniqueViolation, pg.DuplicateSchema, pg.DuplicateTable), connection.transaction():
        # Asked first: "if not exists" wants the right to create even where there is nothing left to create.
        if not _is_there(connection, "find_schema"):
            connection.execute(_SQL["create_schema"])
        if not _is_there(connection, "find_ledger"):
            connection.execute(_SQL["create_ledger"])
        connection.execute(_SQL["lock_ledger"])
        return True
    return False


def _holder(connection: Connection) -> str:
    """Name the session that holds the ledger; one that is still making it cannot be seen."""
    row = connection.execute(_SQL["find_holder"]).fetchone() if _is_there(connection, "find_ledger") else None
    return f"Another process (PostgreSQL pid {row[0]})" if row else "Another process"


def _is_there(connection: Connection, find: str) -> bool:
    return connection.execute(_SQL[find]).fetchone() == (True,)


def _applied(connection: Connection) -> list[Applied]:
    if not _is_there(connection, "find_ledger"):
        return []
    return [Applied(*row) for row in connection.execute(_SQL["list_applied"])]


@dataclass(frozen=True)
class _Version:
    """The files that a version runs: its migrations, then its functions; none if it has no files."""

    known: Sequence[Migration]
    files: Sequence[Function]
    newer_may_serve: bool

    @classmethod
    def of(
        cls,
        known: Sequence[Migration] | None = None,
        files: Sequence[Function] | None = None,
        *,
        newer_may_serve: bool = False,
    ) -> _Version:
        """Return this version, or one with other files."""
        known = available() if known is None else known
        return cls(known, functions.available() if files is None else files, newer_may_serve)

    def pending(self, connection: Connection) -> list[Step]:
        """Compare the ledgers with the files; refuse what was edited, and what is too old or too new."""
        applied = _applied(connection)
        if not applied:
            return [*_from_nothing(self.known)]
        _refuse_too_old(applied[-1])
        files: dict[int, Migration | Applied] = {migration.version: migration for migration in self.known}
        files[OLDEST.version] = OLDEST
        ahead = [row for row in applied if row.version > OLDEST.version and row.version not in files]
        for row in applied:
            if row.version in files:
                _refuse_edited(row, files[row.version])
        for row in ahead:
            _refuse_unfit(row, newer_may_serve=self.newer_may_serve)
        left = [migration for migration in self.known if migration.version > applied[-1].version]
        changes = functions.compare(connection, self.files) if self.files and not ahead else None
        return [*left, changes] if changes else [*left]


def _from_nothing(known: Sequence[Migration]) -> list[Migration]:
    """Return the baseline, which does the work of all files, and whatever is known beyond them."""
    covers = tuple(available())
    last = covers[-1]
    whole = Migration(last.version, "baseline", last.needs, baseline().encode(), covers)
    return [whole, *(migration for migration in known if migration.version > last.version)]


def _refuse_too_old(newest: Applied) -> None:
    if newest.version < OLDEST.version:
        raise MigrationError(
            f"The database stands at migration {newest}, applied by relevo {newest.applied_by}; "
            f"relevo {__version__} upgrades from relevo {OLDEST.applied_by} on.",
            hint=f"Run `relevo migrate` of relevo {OLDEST.applied_by} first, then this one's.",
        )


def _refuse_edited(row: Applied, file: Migration | Applied) -> None:
    if row.checksum != file.checksum:
        raise MigrationError(
            f"Migration {row} was edited after it was applied by relevo {row.applied_by}.",
            hint="Restore the file; put the change into a new migration.",
        )


def _refuse_unfit(row: Applied, *, newer_may_serve: bool) -> None:
    if not newer_may_serve:
        raise MigrationError(
            f"The database has migration {row}, applied by relevo {row.applied_by}, "
            f"which relevo {__version__} does not know.",
            hint="Migrate with a version at least as new as the database.",
        )
    if ordered(row.needs) > ordered(__version__):
        raise MigrationError(
            f"The database has migration {row}, applied by relevo {row.applied_by}, "
            f"which needs relevo {row.needs} or newer; this is {__version__}.",
            hint="Upgrade this replica.",
        )


def _apply(connection: Connection, migration: Migration, files: Sequence[Function]) -> None:
    with _undone(f"Migration {migration}"):
        connection.execute(_VALIDATION.sub(b"", migration.body))  # see _validate: here stronger locks are held
    for done in migration.covers or (migration,):
        line = Applied(done.version, done.name, done.checksum, done.needs, applied_by=__version__)
        connection.execute(_SQL["record_applied"], line._asdict())
    if migration.covers:
        functions.record(connection, files)


@contextmanager
def _undone(subject: str) -> Iterator[None]:
    """Add to PostgreSQL's refusal that it was undone; a lock that was not free in time is another error."""
    try:
        yield
    except psycopg.Error as error:
        if is_unavailable(error):
            raise
        if isinstance(error, pg.LockNotAvailable | pg.DeadlockDetected):
            raise _LockedError(
                f"{subject} waited too long for a lock and was undone.", hint="Try again later."
            ) from error
        if isinstance(error, pg.ObjectInUse) and error.diag.message_hint:  # in the migration's own words
            raise MigrationError(
                f"{subject} was not run: {error.diag.message_primary}.", hint=error.diag.message_hint
            ) from error
        if isinstance(error, pg.InsufficientPrivilege):
            raise _NotAllowedError(normalise_error(error)) from error
        raise MigrationError(
            f"{subject} failed and was undone: {normalise_error(error)}",
            hint="Nothing of it was kept; mend the cause and run `relevo migrate` again.",
        ) from error
