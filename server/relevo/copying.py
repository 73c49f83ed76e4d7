"""Copying out: a relation's rows, sorted by its key, in ranges, written the same way in every session."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row

from relevo import queries
from relevo.db import Connection
from relevo.model import Column

if TYPE_CHECKING:
    from relevo.parquet import Rows

_SQL = queries.load("copying")


@dataclass(frozen=True)
class Span:
    """A range of sorted rows: those after one key, up to and with another. Without a first key, from the start."""

    after: Sequence[str]
    last: Sequence[str]


@dataclass(frozen=True)
class Relation:
    """A table with its columns, and the key by which its rows are sorted and cut."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]

    @property
    def place(self) -> dict[str, Any]:
        """What names it in a statement."""
        return {"schema": self.schema, "relation": self.name}


def read_relation(connection: Connection, schema: str, name: str) -> Relation:
    """Look up a table's columns and primary key."""
    place = {"schema": schema, "relation": name}
    with connection.cursor(row_factory=class_row(Column)) as cursor:
        columns = cursor.execute(_SQL["list_columns"], place).fetchall()
    keys = [row[0] for row in connection.execute(_SQL["list_keys"], place)]
    return Relation(schema, name, tuple(columns), tuple(keys))


def fix_formats(connection: Connection, patience_ms: int = 0) -> None:
    """Let this transaction write the same rows as the same bytes, whatever its session says."""
    connection.execute(_SQL["fix_formats"], {"patience_ms": patience_ms})


def find_end(
    connection: Connection, relation: Relation, after: Sequence[str], most: int
) -> tuple[int, list[str]] | None:
    """Find where a part ends that holds so many rows at most: its rows and its last key, or None if none are left."""
    asked = relation.place | {"keys": list(relation.keys), "after": list(after), "limit": most}
    row = connection.execute(_composed(connection, "compose_part_end", asked)).fetchone()
    return (row[0], row[1]) if row else None


@contextmanager
def copied(connection: Connection, relation: Relation, span: Span, about: Mapping[str, str]) -> Iterator[Rows]:
    """Copy out a range of rows, for Arrow."""
    from relevo import parquet  # noqa: PLC0415 Arrow takes a tenth of a second, and most commands never copy

    schema = parquet.arrow_schema(relation.columns, about)
    with connection.cursor() as cursor, cursor.copy(_copy_out(connection, relation, span)) as copy:
        yield parquet.read_rows(schema, copy.read)


def content_sha256(connection: Connection, relation: Relation, span: Span) -> str:
    """Return the hash of a range of rows as PostgreSQL writes them."""
    sha256 = hashlib.sha256()
    with connection.cursor() as cursor, cursor.copy(_copy_out(connection, relation, span)) as copy:
        for block in copy:
            sha256.update(block)
    return sha256.hexdigest()


def _copy_out(connection: Connection, relation: Relation, span: Span) -> bytes:
    asked = relation.place | {
        "names": [each.name for each in relation.columns],
        "types": [each.type for each in relation.columns],
        "keys": list(relation.keys),
        "after": list(span.after),
        "last": list(span.last),
    }
    return _composed(connection, "compose_rows", asked)


def _composed(connection: Connection, statement: str, asked: dict[str, Any]) -> bytes:
    """Let PostgreSQL write a statement in which names are names and values are values."""
    row = connection.execute(_SQL[statement], asked).fetchone()
    assert row is not None
    return str(row[0]).encode()
