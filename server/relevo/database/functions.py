"""Brings the functions of a database to the files of `sql/functions`, by the checksum of what was applied last.

A file that changed is run again, with the files after it that name its function where that had to be dropped. A
function without a file any more is dropped. A database to which a newer version applied its files is left alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from psycopg import errors as pg

from relevo.core import queries
from relevo.core.version import __version__
from relevo.database import baseline
from relevo.database.pool import Connection

_SQL = queries.load("functions")
_FEW = 8  # so many changed functions are named

LEFT_OF_0_3_0 = (
    *("claim_due_2", "door_functions", "draft_targets", "fan_out_slice_1", "fan_out_small_1", "pick_small_events_1"),
    *("slice_end_1", "slice_targets"),
)
"""Functions of 0.3.0 that have no file: a database of that version does not know yet what was applied to it."""

Guard = Callable[[str], AbstractContextManager[None]]
"""Turns what PostgreSQL raises into an error about the subject that is given."""


@dataclass(frozen=True)
class Function:
    """One file of `sql/functions`; it makes the function of its name."""

    name: str
    text: str

    @cached_property
    def checksum(self) -> str:
        """Return the hash by which a change of the file is noticed."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class Changes:
    """The difference between the files and the database: the files to apply, and the functions to drop."""

    files: Sequence[Function]
    changed: frozenset[str]
    gone: tuple[str, ...]

    def __str__(self) -> str:
        told = [f"{len(self.changed)} changed" + (f" ({', '.join(sorted(self.changed))})" if self._few else "")]
        told += [f"{len(self.gone)} dropped ({', '.join(self.gone)})"] if self.gone else []
        return f"functions: {', '.join(told)}"

    @property
    def _few(self) -> bool:
        return 0 < len(self.changed) <= _FEW


def available() -> Sequence[Function]:
    """Return the files of `sql/functions`, as they were when this process read them first."""
    return _read(queries.sql_root())


@cache
def _read(_root: Path) -> Sequence[Function]:
    return [Function(path.stem, baseline.read_text(path)) for path in baseline.function_files()]


def compare(connection: Connection, files: Sequence[Function]) -> Changes | None:
    """Return what differs, or None; also if a newer version applied its files: these are left alone."""
    rows = connection.execute(_SQL["list_applied_functions"]).fetchall() if _is_known(connection) else []
    if any(ordered(applied_by) > ordered(__version__) for _, _, applied_by in rows):
        return None
    applied = {name: checksum for name, checksum, _ in rows if checksum} if rows else dict.fromkeys(LEFT_OF_0_3_0, "")
    changed = frozenset(each.name for each in files if applied.get(each.name) != each.checksum)
    gone = tuple(sorted(applied.keys() - {each.name for each in files}))
    return Changes(files, changed, gone) if changed or gone else None


def apply(connection: Connection, changes: Changes, guard: Guard) -> None:
    """Run the changed files, each after those it names, and drop what has no file; rights are kept."""
    connection.execute(_SQL["skip_body_checks"])
    rights = connection.execute(_SQL["list_rights"], {}).fetchall()
    there = {name for (name,) in connection.execute(_SQL["list_function_names"])}
    ours = [*(each.name for each in changes.files), *changes.gone]
    dropped: set[str] = set()
    for n in baseline.in_order([each.text for each in changes.files]):
        each = changes.files[n]
        if each.name in changes.changed or each.name in dropped:
            with guard(f"The function {each.name}"):
                dropped |= _replace(connection, each, ours)
    if changes.gone:
        with guard("The removal of functions"):
            _drop(connection, changes.gone, changes.gone)
    with guard("The rights on functions"):
        again = [statement for name, statement in rights if name in dropped and name not in changes.gone]
        new = connection.execute(_SQL["list_new_grants"], {"there": sorted(there)}).fetchall()
        for statement in [*again, *(statement for (statement,) in new)]:
            connection.execute(statement.encode())
    record(connection, [each for each in changes.files if each.name in changes.changed], changes.gone)


def record(connection: Connection, files: Iterable[Function], gone: Iterable[str] = ()) -> None:
    """Write down which files were applied, and which functions dropped, by this version."""
    rows = [*((each.name, each.checksum) for each in files), *((name, None) for name in gone)]
    given = {"names": [name for name, _ in rows], "checksums": [checksum for _, checksum in rows], "by": __version__}
    connection.execute(_SQL["record_functions"], given)


def ordered(version: str) -> tuple[int, ...]:
    """Return a version as numbers; one in work counts as its release."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _is_known(connection: Connection) -> bool:
    return connection.execute(_SQL["find_applied_functions"]).fetchone() == (True,)


def _replace(connection: Connection, function: Function, ours: list[str]) -> set[str]:
    """Run the file of a function that is there; return the functions that had to be dropped for that.

    PostgreSQL does not replace one that has another result. Of other arguments it makes a second one, and then refuses
    the file's `revoke`, which names no arguments.
    """
    try:
        with connection.transaction():
            connection.execute(function.text.encode())
    except (pg.InvalidFunctionDefinition, pg.AmbiguousFunction):
        dropped = _drop(connection, [function.name], ours)
        connection.execute(function.text.encode())
        return dropped
    return set()


def _drop(connection: Connection, names: Sequence[str], ours: Sequence[str]) -> set[str]:
    """Drop functions with those of ours that PostgreSQL has bound to them, and return the names of all."""
    given = {"names": list(names), "ours": list(ours)}
    found = connection.execute(_SQL["list_bound_functions"], given).fetchall()
    if found:
        signatures = ", ".join(signature for _, signature in found)
        connection.execute(f"drop function {signatures}".encode())
    return {name for name, _ in found}
