"""Copying: a relation's rows as Arrow, sorted by its key, in ranges."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg.rows import class_row

from relevo.archive import arrow
from relevo.archive.arrow import Arrow
from relevo.core import queries
from relevo.core.errors import ArchiveMonthError
from relevo.core.logs import normalise_error
from relevo.core.model import Column
from relevo.database.pool import Connection, Database
from relevo.runtime import threads

if TYPE_CHECKING:
    from relevo.archive.parquet import Rows

_SQL = queries.load("copying")
T = TypeVar("T")
# Errors about its values, its name and rights, its locks, or a statement that took too long.
_OF_THE_RELATION = ("22", "42", "55", "57014")
_LONG_ROWS = ("licitaciones", "notification_events")  # a row may be as long as a page, where others are a line
_FEW_ROWS, _MANY_ROWS = 5_000, 50_000


@dataclass(frozen=True)
class Span:
    """A range of sorted rows: those after one key, up to and with another, or so many; without a key from the start."""

    after: Sequence[str] = ()
    last: Sequence[str] = ()
    most: int | None = None


@dataclass(frozen=True)
class Relation:
    """A table with its columns, and the key by which its rows are sorted and cut."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    group_rows: int
    """In groups of how many its rows are copied."""

    def ask(self, connection: Connection, statement: bytes, **more: object) -> Any:
        """Return PostgreSQL's answer about it: most write a statement, in which names are names and values values."""
        asked = {
            "schema": self.schema,
            "relation": self.name,
            "names": [each.name for each in self.columns],
            "types": [each.type for each in self.columns],
            "keys": list(self.keys),
        }
        row = connection.execute(statement, asked | more).fetchone()
        assert row is not None
        return row[0]


def read_relation(connection: Connection, schema: str, name: str) -> Relation:
    """Look up a table's columns and primary key."""
    place = {"schema": schema, "relation": name}
    with connection.cursor(row_factory=class_row(Column)) as cursor:
        columns = cursor.execute(_SQL["list_columns"], place).fetchall()
    keys = [row[0] for row in connection.execute(_SQL["list_keys"], place)]
    if not columns or not keys:
        raise ArchiveMonthError(
            f"{schema}.{name} {'has no primary key' if columns else 'is not there'}.",
            hint="Somebody changed the table by hand: undo the change.",
        )
    group_rows = _FEW_ROWS if name.startswith(_LONG_ROWS) else _MANY_ROWS
    return Relation(schema, name, tuple(columns), tuple(keys), group_rows)


def compose_rows(connection: Connection, relation: Relation, span: Span) -> str:
    """Return the statement that reads a range of rows."""
    bounds = {"after": list(span.after), "last": list(span.last), "most": span.most}
    return str(relation.ask(connection, _SQL["compose_rows"], **bounds))


@contextmanager
def copied(database: Database, relation: Relation, span: Span, about: Mapping[str, str]) -> Iterator[Rows]:
    """Copy out a range of rows, on a connection of its own."""
    with database.connection() as connection:
        statement = compose_rows(connection, relation, span)
    with (
        arrow.connect(database) as opened,
        _refusals(relation),
        read_rows(opened, statement, relation, about) as rows,
    ):
        yield rows


@contextmanager
def read_rows(connection: Arrow, statement: str, relation: Relation, about: Mapping[str, str]) -> Iterator[Rows]:
    """Read rows as Arrow, batch by batch."""
    from relevo.archive import parquet  # noqa: PLC0415 Arrow takes a tenth of a second, and most commands never copy

    with connection.read(statement) as batches:
        yield parquet.Rows(parquet.arrow_schema(relation.columns, about), batches, relation.group_rows)


@contextmanager
def _refusals(relation: Relation) -> Iterator[None]:
    """Return whether PostgreSQL's error is about this relation alone, not about the server or the connection."""
    from adbc_driver_manager import Error  # noqa: PLC0415 loaded with the connection

    try:
        yield
    except Error as error:
        if not (error.sqlstate or "").startswith(_OF_THE_RELATION):
            raise
        raise ArchiveMonthError(
            f"{relation.schema}.{relation.name} cannot be read: {normalise_error(error, 200)}",
            hint="The next run tries again.",
        ) from error


def in_background(work: Callable[[], T], within_s: float | None = None) -> T:
    """Do something in a thread of its own that lets everybody else go first: the past is in no hurry.

    What takes longer than `within_s` is left to itself: TimeoutError.
    """

    def unhurried() -> T:
        _lower_priority()
        return work()

    return threads.start("relevo-copying", unhurried).result(within_s)


def _lower_priority() -> None:
    with suppress(OSError, AttributeError):  # where a thread has a priority of its own, as on Linux
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
