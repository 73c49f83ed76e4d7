"""Rows as files: what PostgreSQL holds becomes Arrow and zstd Parquet with a written schema, and goes back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq

from relevo.core.errors import ArchiveMonthError
from relevo.core.model import Column

SCHEMA_VERSION = 1
_SAMPLE = 2_000
_UUID = pa.binary(16)
_DECIMAL = re.compile(r"numeric\((\d+),(\d+)\)")
_PLAIN = {
    "bigint": pa.int64(),
    "integer": pa.int32(),
    "smallint": pa.int16(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp with time zone": pa.timestamp("us", tz="UTC"),
    "text": pa.string(),
    "uuid": pa.string(),  # as every engine reads it
    "jsonb": pa.string(),
    "text[]": pa.list_(pa.string()),
    "bigint[]": pa.list_(pa.int64()),
    "date[]": pa.list_(pa.date32()),
}


def arrow_type(column: Column) -> pa.DataType:
    """Return the Arrow type that holds every value of a column; a type without one is refused by name."""
    if column.type in _PLAIN:
        return _PLAIN[column.type]
    if (decimal := _DECIMAL.fullmatch(column.type)) and int(decimal[1]) <= 38:  # noqa: PLR2004 decimal128's digits
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    raise ArchiveMonthError(
        f"The archive cannot store column {column.name} of type {column.type}.",
        hint="Add the type to relevo/archive/parquet.py before such a month is exported.",
    )


def arrow_schema(columns: Sequence[Column], about: Mapping[str, str]) -> pa.Schema:
    """Return the schema of a file: each field knows its column's type, the whole knows what it is about."""
    fields = [
        pa.field(each.name, arrow_type(each), metadata={"relevo.type": each.type})  # what is JSON says so here
        for each in columns
    ]
    return pa.schema(fields, metadata={f"relevo.{name}": value for name, value in about.items()})


@dataclass
class Rows:
    """Rows on their way out of the database, in groups of one size; their hash is known once all were read."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]
    group_rows: int
    """Part of the format: files are cut, and rows are hashed, in groups of this many."""
    _sha256: Any = field(default_factory=hashlib.sha256)
    last: pa.Table | None = None
    """The last row that was read."""

    @property
    def sha256(self) -> str:
        """The hash of the values, whatever file they are in."""
        return str(self._sha256.hexdigest())

    def __iter__(self) -> Iterator[pa.Table]:
        for table in regrouped((self._typed(batch) for batch in self.batches), self.group_rows):
            for column in table.columns:
                _hash_values(self._sha256, column.combine_chunks())
            self.last = table.slice(table.num_rows - 1)
            yield table

    def last_key(self, keys: Sequence[str]) -> list[str]:
        """Return the key of the last row that was read, as text that PostgreSQL takes."""
        assert self.last is not None
        return [str(self.last.column(name)[0].as_py()) for name in keys]

    def _typed(self, batch: pa.RecordBatch) -> pa.Table:
        """Give amounts their type, which the driver hands over as text, and drop what else it says of the columns."""
        columns = [batch.column(n).cast(each.type) for n, each in enumerate(self.schema)]
        return pa.Table.from_arrays(columns, schema=self.schema)


def regrouped(tables: Iterable[pa.Table], group_rows: int) -> Iterator[pa.Table]:
    """Cut a stream of tables into tables of one size, so that the same rows always make the same groups."""
    waiting: list[pa.Table] = []
    count = 0
    for table in tables:
        waiting.append(table)
        count += table.num_rows
        while count >= group_rows:
            whole = pa.concat_tables(waiting)
            yield whole.slice(0, group_rows)
            waiting, count = [whole.slice(group_rows)], count - group_rows
    if count:
        yield pa.concat_tables(waiting)


def _hash_values(sha256: Any, values: pa.Array) -> None:
    """Hash a group of a column: which values there are, then the values as Arrow lays them out, nulls as zeroes."""
    valid = pc.is_valid(values).cast(pa.uint8())
    sha256.update(_bytes(valid, 1, 1))
    kind = values.type
    if pa.types.is_list(kind):
        sha256.update(_bytes(pc.fill_null(pc.list_value_length(values), 0), 1, 4))
        _hash_values(sha256, pc.list_flatten(values))
    elif pa.types.is_string(kind):
        filled = pc.fill_null(values, "")
        sha256.update(_bytes(pc.binary_length(filled), 1, 4))
        offsets = _bytes(filled, 1, 4, more=1)
        start, end = (int.from_bytes(each, "little") for each in (offsets[:4], offsets[-4:]))
        sha256.update(filled.buffers()[2][start:end] if end > start else b"")
    elif pa.types.is_decimal(kind):
        sha256.update(_bytes(pc.fill_null(values, pa.scalar(Decimal(0), kind)), 1, 16))
    else:
        plain = values.cast(pa.uint8()) if pa.types.is_boolean(kind) else values
        width = plain.type.bit_width // 8
        whole = plain.cast({1: pa.uint8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}[width])
        sha256.update(_bytes(pc.fill_null(whole, 0), 1, width))


def _bytes(values: pa.Array, buffer: int, width: int, more: int = 0) -> memoryview:
    """Return the part of an array's buffer that holds its values."""
    start = values.offset * width
    return memoryview(values.buffers()[buffer])[start : start + (len(values) + more) * width]


def write_file(path: Path, rows: Rows) -> int:
    """Write rows to a Parquet file, group by group, and return how many there were."""
    count = 0
    writer = None
    try:
        for table in rows:
            writer = writer or pq.ParquetWriter(
                path, rows.schema, compression="zstd", compression_level=1, use_dictionary=_repeating(table)
            )
            writer.write_table(table, row_group_size=rows.group_rows)
            count += table.num_rows
    finally:
        if writer is not None:
            writer.close()
    return count


def _repeating(table: pa.Table) -> list[str]:
    """Name the columns whose values repeat: a dictionary helps them, and costs the others time and room."""
    sample = table.slice(0, _SAMPLE)
    names = []
    for name, values in zip(sample.column_names, sample.columns, strict=True):
        if pa.types.is_list(values.type):
            names.append(f"{name}.list.element")
        elif 2 * pc.count_distinct(values).as_py() <= max(2, sample.num_rows):
            names.append(name)
    return names


def same_rows(path: Path, rows: Rows) -> bool:
    """Return whether a file holds exactly these rows under this schema, value by value."""
    stored = _stored(path, rows.schema, rows.group_rows)
    for table in rows:
        found = next(stored, None)
        if found is None or not found.equals(table):
            return False
    return next(stored, None) is None


def _stored(path: Path, schema: pa.Schema, group_rows: int) -> Iterator[pa.Table]:
    """Read a file under a schema; what cannot be read, or is under another, ends there."""
    try:
        file = pq.ParquetFile(path)
        if file.schema_arrow.equals(schema, check_metadata=False):
            batches = file.iter_batches(group_rows, use_threads=False)
            yield from regrouped((pa.Table.from_batches([batch]) for batch in batches), group_rows)
    except (pa.ArrowException, OSError):
        return


def read_file(path: Path, columns: Sequence[Column], group_rows: int) -> Rows:
    """Return the rows of a file as they were when they came from the database, so that they hash alike."""
    batches = pq.ParquetFile(path).iter_batches(group_rows, use_threads=False)
    return Rows(arrow_schema(columns, {}), batches, group_rows)


def follow(before: pa.Table | None, table: pa.Table, keys: Sequence[str]) -> bool:
    """Return whether rows come in the order of their keys, none twice, after the row before them."""
    rows = (table if before is None else pa.concat_tables([before, table])).select(keys)
    lower, upper = rows.slice(0, rows.num_rows - 1), rows.slice(1)
    less, same = pa.scalar(False), pa.scalar(True)
    for name in keys:
        one, next_one = lower.column(name), upper.column(name)
        less = pc.or_(less, pc.and_(same, pc.less(one, next_one)))
        same = pc.and_(same, pc.equal(one, next_one))
    return bool(pc.all(less, skip_nulls=False, min_count=0).as_py())


def file_says(path: Path, name: str) -> str | None:
    """Return what a file says of itself under a name, or None if it cannot be read."""
    try:
        said: dict[bytes, bytes] = pq.ParquetFile(path).schema_arrow.metadata or {}
        return said.get(f"relevo.{name}".encode(), b"").decode()
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return None


def misfit(path: Path, columns: Sequence[Column], rows: int, group_rows: int) -> str:
    """Return the faults of a file: its columns, types, rows or groups; nothing if it has none."""
    file = pq.ParquetFile(path)
    fields = [(each.name, (each.metadata or {}).get(b"relevo.type", b"text").decode()) for each in file.schema_arrow]
    if fields != [(each.name, each.type) for each in columns]:
        return "columns"
    if not file.schema_arrow.equals(arrow_schema(columns, {}), check_metadata=False):
        return "types"
    if file.metadata.num_rows != rows:
        return "rows"
    groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    return "" if groups == [min(group_rows, rows - start) for start in range(0, rows, group_rows)] else "groups"


def dataset(files: Sequence[str], columns: Sequence[Column], filesystem: Any, base: str) -> pa.dataset.Dataset:
    """Return files as one dataset; a column that came after a file is null in it, year and month are in its key."""
    of_key = [pa.field("year", pa.int32()), pa.field("month", pa.int32())]
    return pa.dataset.dataset(
        list(files),
        schema=pa.schema([*arrow_schema(columns, {}), *of_key]),
        format="parquet",
        filesystem=filesystem,
        partitioning=pa.dataset.partitioning(pa.schema(of_key), flavor="hive"),
        partition_base_dir=base,
    )


def binary_rows(path: Path, columns: Sequence[Column], tell: Callable[[int], None]) -> pa.RecordBatchReader:
    """Read a file as PostgreSQL takes it in binary form, telling of each batch how many rows it has."""
    names = [each.name for each in columns]
    schema = pa.schema([(each.name, _UUID if each.type == "uuid" else arrow_type(each)) for each in columns])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in pq.ParquetFile(path).iter_batches(32_768, columns=names, use_threads=False):
            values = [_as_binary(batch.column(each.name), each) for each in columns]
            yield pa.RecordBatch.from_arrays(values, schema=schema)
            tell(batch.num_rows)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _as_binary(values: pa.Array, column: Column) -> pa.Array:
    if column.type == "uuid":
        digits = pc.replace_substring(pc.fill_null(values, "0" * 32), "-", "")
        raw = pa.py_buffer(bytes.fromhex("".join(digits.to_pylist())))
        valid = pc.is_valid(values)
        return pa.Array.from_buffers(_UUID, len(values), [valid.buffers()[1], raw], offset=0)
    if column.type == "jsonb":
        return pc.binary_join_element_wise("\x01", values, "")  # the version of jsonb's binary form
    return values
