"""Rows as files: what PostgreSQL writes as CSV becomes Arrow and zstd Parquet with a written schema, and back."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq

from relevo.errors import ArchiveError
from relevo.model import Column

SCHEMA_VERSION = 1
GROUP_ROWS = 50_000
_BLOCK = 1 << 20
_DECIMAL = re.compile(r"numeric\((\d+),(\d+)\)")
_PLAIN = {
    "bigint": pa.int64(),
    "integer": pa.int32(),
    "smallint": pa.int16(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp with time zone": pa.timestamp("us", tz="UTC"),
    "text": pa.string(),
    "uuid": pa.string(),
    "jsonb": pa.string(),
    "text[]": pa.list_(pa.string()),
    "bigint[]": pa.list_(pa.int64()),
    "date[]": pa.list_(pa.date32()),
}
_CSV = pyarrow.csv.ConvertOptions(
    strings_can_be_null=True,
    quoted_strings_can_be_null=False,  # PostgreSQL quotes an empty text, and writes null as nothing
    null_values=[""],
    true_values=["t"],
    false_values=["f"],
)


def arrow_type(column: Column) -> pa.DataType:
    """Return the Arrow type that holds every value of a column; a type without one is refused by name."""
    if column.type in _PLAIN:
        return _PLAIN[column.type]
    if (decimal := _DECIMAL.fullmatch(column.type)) and int(decimal[1]) <= 38:  # noqa: PLR2004 decimal128's digits
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    raise ArchiveError(
        f"The archive has no place for column {column.name} of type {column.type}.",
        hint="Teach relevo/parquet.py the type before such a month is exported.",
    )


def arrow_schema(columns: Sequence[Column], about: Mapping[str, str]) -> pa.Schema:
    """Return the schema of a file: each field knows its column's type, the whole knows what it is about."""
    fields = [
        pa.field(each.name, arrow_type(each), metadata={"relevo.type": each.type})  # what is JSON says so here
        for each in columns
    ]
    return pa.schema(fields, metadata={f"relevo.{name}": value for name, value in about.items()})


class _Stream(io.RawIOBase):
    """What COPY sends, as a file for Arrow, hashed on its way."""

    def __init__(self, blocks: Callable[[], bytes | bytearray | memoryview]) -> None:
        self._blocks = blocks
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts: list[bytes | bytearray | memoryview] = []
        got = 0
        while got < size and (block := self._blocks()):
            parts.append(block)
            got += len(block)
        joined = b"".join(parts)
        self.sha256.update(joined)
        return joined


@dataclass
class Rows:
    """The rows of one COPY as record batches of one size; their hash is known once all were read."""

    schema: pa.Schema
    _stream: _Stream

    @property
    def sha256(self) -> str:
        """The hash of the rows as PostgreSQL wrote them."""
        return self._stream.sha256.hexdigest()

    def __iter__(self) -> Iterator[pa.Table]:
        yield from regrouped(self._batches())

    def _batches(self) -> Iterator[pa.Table]:
        first = self._stream.read(1)
        if not first:
            return
        names = self.schema.names
        reader = pyarrow.csv.open_csv(
            pa.PythonFile(_Prefixed(first, self._stream), mode="r"),
            read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=_BLOCK, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=_options(self.schema),
        )
        for batch in reader:
            yield pa.Table.from_arrays(
                [_typed(batch.column(n), field.type) for n, field in enumerate(self.schema)], schema=self.schema
            )


class _Prefixed(io.RawIOBase):
    """A stream of which something was read already."""

    def __init__(self, first: bytes, rest: _Stream) -> None:
        self._first, self._rest = first, rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        first, self._first = self._first, b""
        return first + self._rest.read(size) if first else self._rest.read(size)


def read_rows(schema: pa.Schema, blocks: Callable[[], bytes | bytearray | memoryview]) -> Rows:
    """Read what COPY sends, block by block, until there is none."""
    return Rows(schema, _Stream(blocks))


def _options(schema: pa.Schema) -> pyarrow.csv.ConvertOptions:
    options = pyarrow.csv.ConvertOptions(
        **{name: getattr(_CSV, name) for name in ("strings_can_be_null", "quoted_strings_can_be_null")},
        null_values=_CSV.null_values,
        true_values=_CSV.true_values,
        false_values=_CSV.false_values,
    )
    options.column_types = {
        field.name: pa.string() if pa.types.is_list(field.type) or pa.types.is_decimal(field.type) else field.type
        for field in schema
    }
    return options


def _typed(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Give text its type where Arrow's CSV knows none: amounts, and lists, which come as JSON."""
    if pa.types.is_decimal(wanted):
        return pa.array([None if text is None else Decimal(text) for text in values.to_pylist()], wanted)
    if pa.types.is_list(wanted):
        lists = [None if text is None else json.loads(text) for text in values.to_pylist()]
        if pa.types.is_date(wanted.value_type):
            return pa.array(lists, pa.list_(pa.string())).cast(wanted)
        return pa.array(lists, wanted)
    return values


def regrouped(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Cut a stream of tables into tables of one size, so that the same rows always make the same groups."""
    waiting: list[pa.Table] = []
    count = 0
    for table in tables:
        waiting.append(table)
        count += table.num_rows
        while count >= GROUP_ROWS:
            whole = pa.concat_tables(waiting)
            yield whole.slice(0, GROUP_ROWS)
            waiting, count = [whole.slice(GROUP_ROWS)], count - GROUP_ROWS
    if count:
        yield pa.concat_tables(waiting)


def write_file(path: Path, rows: Rows) -> int:
    """Write rows to a Parquet file, group by group, and return how many there were."""
    count = 0
    with pq.ParquetWriter(path, rows.schema, compression="zstd", compression_level=3) as writer:
        for table in rows:
            writer.write_table(table, row_group_size=GROUP_ROWS)
            count += table.num_rows
    return count


def same_rows(path: Path, rows: Rows) -> bool:
    """Tell whether a file holds exactly these rows under this schema, value by value."""
    try:
        file = pq.ParquetFile(path)
        if not file.schema_arrow.equals(rows.schema, check_metadata=False):
            return False
        stored = regrouped(pa.Table.from_batches([batch]) for batch in file.iter_batches(GROUP_ROWS))
        for table in rows:
            found = next(stored, None)
            if found is None or not found.equals(table):
                return False
        return next(stored, None) is None
    except (pa.ArrowException, OSError):  # what cannot be read is not the same
        return False


def file_columns(path: Path) -> list[Column]:
    """Return the columns that a file says it holds."""
    try:
        schema = pq.ParquetFile(path).schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise ArchiveError(f"{path.name} is no readable Parquet file.", hint="Fetch it again.") from error
    return [Column(field.name, (field.metadata or {}).get(b"relevo.type", b"text").decode()) for field in schema]


def file_rows(path: Path) -> int:
    """Return how many rows a file says it holds."""
    return int(pq.ParquetFile(path).metadata.num_rows)


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


def csv_blocks(path: Path, columns: Sequence[Column]) -> Iterator[tuple[int, bytes]]:
    """Yield a file's rows as CSV that COPY takes, some thousand at a time, each with their number."""
    file = pq.ParquetFile(path)
    options = pyarrow.csv.WriteOptions(include_header=False, batch_size=4_096)
    for batch in file.iter_batches(16_384, columns=[each.name for each in columns]):
        texts = [_as_text(batch.column(each.name)) for each in columns]
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(pa.RecordBatch.from_arrays(texts, names=[each.name for each in columns]), sink, options)
        yield batch.num_rows, sink.getvalue().to_pybytes()


def _as_text(values: pa.Array) -> pa.Array:
    if pa.types.is_decimal(values.type):
        return values.cast(pa.string())
    if not pa.types.is_list(values.type):
        return values
    flat = pc.list_flatten(values).cast(pa.string())
    quoted = pc.replace_substring(pc.replace_substring(flat, "\\", "\\\\"), '"', '\\"')
    quoted = pc.fill_null(pc.binary_join_element_wise('"', quoted, '"', ""), "NULL")
    lists = pa.ListArray.from_arrays(_offsets(values), quoted)
    texts = pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "")
    return pc.if_else(pc.is_valid(values), texts, None)


def _offsets(values: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    sums = pc.cumulative_sum(lengths).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), sums])
