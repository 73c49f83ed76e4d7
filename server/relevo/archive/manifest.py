"""The manifest: what a month in the archive consists of, beside its files, so that a restore needs no database."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from relevo.core.errors import ArchiveError
from relevo.core.logs import normalise_error
from relevo.core.model import Column

FORMAT = 1
_NAME = re.compile(r"[a-z][a-z0-9_]{0,60}")


@dataclass(frozen=True)
class Part:
    """One file: its rows, its size, the hash of its bytes and of its rows as PostgreSQL writes them."""

    file: str
    rows: Annotated[int, Field(ge=1)]
    bytes: int
    file_sha256: str
    content_sha256: str
    first_key: tuple[str, ...]
    last_key: tuple[str, ...]


@dataclass(frozen=True)
class Month:
    """A month of an entity, and how it is named: in statements, as a table, in the store."""

    entity: str
    month: date

    @property
    def key(self) -> dict[str, Any]:
        """The table's name in statements."""
        return {"entity": self.entity, "month": self.month}

    @property
    def relation(self) -> str:
        """The name of a table of it."""
        return f"{self.entity}_{self.month:%Y_%m}"

    @property
    def folder(self) -> str:
        """The beginning of its keys in the store; engines read year and month from it."""
        return f"{self.entity}/year={self.month:%Y}/month={self.month:%m}/"

    @property
    def manifest_key(self) -> str:
        """Where its manifest lies; the underscore keeps engines from reading it as data."""
        return f"{self.folder}_manifest.json"


@dataclass(frozen=True)
class Manifest(Month):
    """The contents of a month in the store."""

    schema_version: int
    software_version: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    parts: tuple[Part, ...]
    export_id: str = ""
    """A mark that tells this database's month from another one of the same name; the first manifests have none."""
    group_rows: Annotated[int, Field(ge=1, le=1_000_000)] = 50_000
    """In groups of how many rows the files were written, and the rows hashed."""

    @property
    def rows(self) -> int:
        """How many rows the month has."""
        return sum(part.rows for part in self.parts)

    @property
    def bytes(self) -> int:
        """How large its files are."""
        return sum(part.bytes for part in self.parts)

    def key_of(self, part: Part) -> str:
        """Return where a part lies in the store."""
        return self.folder + part.file

    def to_json(self) -> str:
        """Write it down, the same for the same month."""
        document = (
            {"format": FORMAT} | asdict(self) | {"month": f"{self.month:%Y-%m}", "rows": self.rows, "bytes": self.bytes}
        )
        return json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


_MANIFEST = TypeAdapter(Manifest)


def part_name(part: int) -> str:
    """Return the name of a part's file."""
    return f"part-{part:05}.parquet"


def file_sha256(path: Path) -> str:
    """Return the hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def month_of(key: str) -> Month | None:
    """Return whose manifest lies under a key, or None if it is something else."""
    found = re.fullmatch(r"([a-z_]+)/year=(\d{4})/month=(0[1-9]|1[0-2])/_manifest\.json", key)
    return Month(found[1], date(int(found[2]), int(found[3]), 1)) if found else None


def parse(text: str, key: str) -> Manifest:
    """Read a manifest; what is not one is refused, for its names become names of files and tables."""
    try:
        document = json.loads(text)
        if document["format"] > FORMAT:
            raise ArchiveError(
                f"{key} was written in format {document['format']}, and this version reads up to {FORMAT}.",
                hint="Use a newer relevo.",
            )
        return _parse(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        said = _first_fault(error) if isinstance(error, ValidationError) else normalise_error(error, 200)
        raise ArchiveError(
            f"{key} is no manifest of a month: {said}.", hint="Check that this is Relevo's archive."
        ) from error


def _first_fault(error: ValidationError) -> str:
    """Name the first thing that is wrong, and not what stands there instead."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def written_by(content: bytes) -> str | None:
    """Return the export that a manifest of any format says it is of, or None if it cannot be read."""
    try:
        document = json.loads(content)
        return str(document.get("export_id", "")) if document["format"] else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _parse(document: Mapping[str, Any]) -> Manifest:
    read = _MANIFEST.validate_python({**document, "month": f"{document['month']}-01"})
    columns = [each.name for each in read.columns]
    if strange := [name for name in (read.entity, *columns) if not _NAME.fullmatch(name)]:
        raise ValueError(f"{strange[0]!r} is no name of a column or table")
    if (read.rows, read.bytes) != (document["rows"], document["bytes"]):
        raise ValueError("its parts do not add up to what it says")
    if not read.keys or not set(read.keys) <= set(columns):
        raise ValueError("its keys are none of its columns")
    before: tuple[str, ...] = ()
    for number, part in enumerate(read.parts, start=1):
        if (part.file, part.first_key) != (part_name(number), before):
            raise ValueError(f"{part.file} does not follow the part before it")
        if len(part.last_key) != len(read.keys):
            raise ValueError(f"{part.file} has no key for its last row")
        before = part.last_key
    return read
