"""Restore: months come back from the store, checked against their manifest, into a schema that can be queried."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from relevo.archive import copying, manifest
from relevo.archive.arrow import Arrow, connect
from relevo.archive.copying import Relation, Span
from relevo.archive.manifest import Manifest, Month, Part
from relevo.core import queries
from relevo.core.errors import ArchiveError, ArchiveMissingError, UsageError
from relevo.core.logs import normalise_error
from relevo.core.ports import ArchiveStore
from relevo.database.pool import Connection, Database

_SQL = queries.load("restore")
ENTITIES = ("licitaciones", "notification_events", "notification_deliveries", "push_requests")
_SHORT = {"events": "notification_events", "deliveries": "notification_deliveries", "journal": "push_requests"}
SCHEMA = "relevo_restored"
_NOT_ALLOWED = "42501"

Progress = Callable[[str, int], None]
"""Told what goes on (fetching, loading, checking) and how many rows more are through with it."""


def _no_progress(_what: str, _rows: int) -> None:
    pass


def entity_named(name: str) -> str:
    """Return an entity by its name or its short one; another is refused."""
    chosen = _SHORT.get(name, name)
    if chosen not in ENTITIES:
        raise UsageError(f"There is no entity {name}.", hint=f"Known: {', '.join((*ENTITIES, *_SHORT))}.")
    return chosen


def month_named(text: str) -> date:
    """Return the first day of a month written like 2026-08."""
    found = re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])", text)
    if not found:
        raise UsageError(f"{text or 'Nothing'} is no month.", hint="Write it like 2026-08.")
    return date(int(found[1]), int(found[2]), 1)


def months(store: ArchiveStore, complain: Callable[[ArchiveError], None]) -> list[Manifest]:
    """Return the manifests of every month in a store; of what cannot be read, or is not listed, complain and go on."""
    keys = [each.key for each in store.listing("")]
    found: list[Manifest] = []
    named = [month for key in keys if (month := manifest.month_of(key))]
    for month in sorted(named, key=lambda each: (each.entity, each.month)):
        try:
            found.append(read_manifest(store, month.entity, month.month))
            _refuse_unlisted(store, found[-1], [key for key in keys if key.startswith(month.folder)])
        except ArchiveError as error:
            complain(error)
    return found


def read_manifest(store: ArchiveStore, entity: str, month: date) -> Manifest:
    """Read the manifest of a month; without one there is no such month."""
    key = Month(entity, month).manifest_key
    with tempfile.TemporaryDirectory(prefix="relevo-manifest-") as folder:
        path = Path(folder) / "manifest"
        try:
            store.fetch(key, path)
        except ArchiveMissingError as error:
            raise UsageError(
                f"There is no {month:%Y-%m} of {entity} in {store.name}.",
                hint="`relevo archive list` shows what there is.",
            ) from error
        record = manifest.parse(path.read_text(encoding="utf-8", errors="replace"), key)
    if (record.entity, record.month) != (entity, month):
        raise ArchiveError(
            f"{key} is the manifest of another month.", hint="Somebody moved the manifest: move it back."
        )
    return record


def _refuse_unlisted(store: ArchiveStore, record: Manifest, keys: Sequence[str] | None = None) -> None:
    """Raise if something lies beside a month's files that its manifest does not list: one of the two is wrong."""
    found = [each.key for each in store.listing(record.folder)] if keys is None else keys
    listed = {record.manifest_key, *map(record.key_of, record.parts)}
    unlisted = sorted(key.removeprefix(record.folder) for key in found if key not in listed)
    if unlisted:
        raise ArchiveError(
            f"{record.folder} in {store.name} holds what its manifest does not list: {', '.join(unlisted)[:200]}.",
            hint="If the manifest is incomplete, restore it from a copy of the store; else move these files elsewhere.",
        )


def fetch(store: ArchiveStore, record: Manifest, folder: Path, progress: Progress = _no_progress) -> list[Path]:
    """Download a month's files, each under its key once it was compared with its hash, and return their paths."""
    _refuse_unlisted(store, record)
    paths = []
    try:
        for part in record.parts:
            path = folder / record.key_of(part)
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".fetching-", dir=path.parent) as unfinished:
                _fetch_part(store, record, part, Path(unfinished)).replace(path)
            paths.append(path)
            progress("fetching", part.rows)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot take the files: {error.strerror}.", hint="Name another with --into."
        ) from error
    return paths


def _fetch_part(store: ArchiveStore, record: Manifest, part: Part, folder: Path) -> Path:
    path = folder / part.file
    store.fetch(record.key_of(part), path)
    if manifest.file_sha256(path) != part.file_sha256:
        raise ArchiveError(
            f"{record.key_of(part)} in {store.name} is not the file its manifest lists.",
            hint="The file was changed or damaged: restore it from a copy of the store.",
        )
    return path


def verify(store: ArchiveStore, record: Manifest, progress: Progress = _no_progress) -> None:
    """Read a month back and check it as a restore would: no file missing or too many, each as listed, row by row."""
    _refuse_unknown_types(record)
    _refuse_unlisted(store, record)
    before: Any = None
    for part in record.parts:
        with _fetched(store, record, part) as path:
            before = _check_rows(path, record, part, before)
        progress("verifying", part.rows)


@contextmanager
def _fetched(store: ArchiveStore, record: Manifest, part: Part) -> Iterator[Path]:
    """Fetch a part to be read in the block; it has the columns, rows and groups that its manifest lists."""
    import pyarrow as pa  # noqa: PLC0415 Arrow takes a tenth of a second, and most commands need none

    from relevo.archive import parquet  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="relevo-restore-") as folder:
        path = _fetch_part(store, record, part, Path(folder))
        try:
            wrong = parquet.misfit(path, record.columns, part.rows, record.group_rows)
            if wrong or path.stat().st_size != part.bytes:
                raise _differs(record, part, wrong or "bytes")
            yield path
        except (pa.ArrowException, OSError) as error:
            raise ArchiveError(f"{record.key_of(part)} is no readable Parquet file.", hint="It is damaged.") from error


def _check_rows(path: Path, record: Manifest, part: Part, before: Any) -> Any:
    """Raise unless a file's rows hash as listed and follow each other by key; return the last of them."""
    from relevo.archive import parquet  # noqa: PLC0415

    rows = parquet.read_file(path, record.columns, record.group_rows)
    for table in rows:
        if not parquet.follow(before, table, record.keys):
            raise _differs(record, part, "keys")
        before = rows.last
    if rows.last_key(record.keys) != list(part.last_key):
        raise _differs(record, part, "keys")
    if rows.sha256 != part.content_sha256:
        raise _differs(record, part, "content")
    return before


def _differs(record: Manifest, part: Part, what: str) -> ArchiveError:
    return ArchiveError(
        f"{record.key_of(part)} has other {what} than its manifest lists.",
        hint="One of them was changed: restore it from a copy of the store.",
    )


@dataclass(frozen=True)
class Restored:
    """Where a month came back to."""

    schema: str
    relation: str
    rows: int


def restore(
    database: Database,
    store: ArchiveStore,
    record: Manifest,
    *,
    schema: str = SCHEMA,
    replace: bool = False,
    progress: Progress = _no_progress,
) -> Restored:
    """Bring a month back as a table of its own: all or nothing, and compared with its manifest before it counts."""
    if (
        not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema)
        or schema.startswith(("relevo_archive", "pg_"))
        or schema == "relevo"
    ):
        raise UsageError(f"{schema} cannot take restored months.", hint="Choose a schema of its own, in small letters.")
    relation = Relation(schema, record.relation, record.columns, record.keys, record.group_rows)
    _refuse_unknown_types(record)
    _refuse_unlisted(store, record)
    with database.watch(), database.direct(long=True) as words, connect(database) as arrow, _refusals(relation):
        _make_table(words, arrow, relation, replace=replace)
        for part in record.parts:
            with _fetched(store, record, part) as path:
                _load(arrow, path, relation, progress)
        arrow.execute(relation.ask(words, _SQL["compose_key"]))
        for part in record.parts:
            statement = copying.compose_rows(words, relation, Span(part.first_key, part.last_key))
            _check(arrow, statement, relation, part, progress)
        arrow.commit()
        words.execute(relation.ask(words, _SQL["compose_analyze"]).encode())
    return Restored(schema, relation.name, record.rows)


@contextmanager
def _refusals(relation: Relation) -> Iterator[None]:
    from adbc_driver_manager import Error  # noqa: PLC0415 loaded with the connection

    try:
        yield
    except Error as error:
        said = normalise_error(error, 200)
        if error.sqlstate == _NOT_ALLOWED:
            raise UsageError(
                f"This role may not make {relation.schema}.{relation.name}: {said}",
                hint="Have the schema made for it, or name one of its own with --into.",
            ) from error
        raise ArchiveError(f"{relation.name} could not be restored: {said}", hint="Nothing was kept.") from error


def _refuse_unknown_types(record: Manifest) -> None:
    """Refuse what is no type we know before it gets into a statement."""
    from relevo.archive import parquet  # noqa: PLC0415

    for column in record.columns:
        parquet.arrow_type(column)


def _make_table(words: Connection, arrow: Arrow, relation: Relation, *, replace: bool) -> None:
    """Make the table, in the transaction in which it is filled; statements are written on the other connection."""
    if not relation.ask(words, _SQL["find_schema"]):
        arrow.execute(relation.ask(words, _SQL["compose_schema"]))
    if relation.ask(words, _SQL["find_table"]):
        if not replace:
            raise UsageError(
                f"{relation.schema}.{relation.name} is there already.", hint="Add --replace to restore it again."
            )
        arrow.execute(relation.ask(words, _SQL["compose_drop"]))
    arrow.execute(relation.ask(words, _SQL["compose_table"]))


def _load(arrow: Arrow, path: Path, relation: Relation, progress: Progress) -> None:
    from relevo.archive import parquet  # noqa: PLC0415

    rows = parquet.binary_rows(path, relation.columns, lambda count: progress("loading", count))
    arrow.ingest(relation.schema, relation.name, rows)


def _check(arrow: Arrow, statement: str, relation: Relation, part: Part, progress: Progress) -> None:
    """Read a part's rows back out of the table, and compare their hash with the manifest's."""
    with copying.read_rows(arrow, statement, relation, {}) as rows:
        for table in rows:
            progress("checking", table.num_rows)
    if rows.sha256 != part.content_sha256:
        raise ArchiveError(
            f"The rows of {part.file} came back as others than were exported into {relation.name}.",
            hint="Nothing was kept.",
        )


def query(store: ArchiveStore, statement: str, complain: Callable[[ArchiveError], None]) -> Any:
    """Run SQL over the archive in place with DuckDB; each entity is a view, with year and month beside its columns."""
    try:
        import duckdb  # noqa: PLC0415 an extra
    except ImportError as error:
        raise UsageError(
            "DuckDB is not installed.",
            hint="Install the extra archive-query: in a checkout .venv/bin/pip install -e '.[archive-query]'",
        ) from error
    from relevo.archive import parquet  # noqa: PLC0415

    by_entity: dict[str, list[Manifest]] = {}
    for record in months(store, complain):
        by_entity.setdefault(record.entity, []).append(record)
    filesystem, root = store.arrow_filesystem()
    with duckdb.connect(config={"enable_external_access": "false"}) as duck:
        for entity, listed in by_entity.items():
            files = [f"{root}/{record.key_of(part)}" for record in listed for part in record.parts]
            columns = {each.name: each for record in listed for each in record.columns}
            rows = parquet.dataset(files, list(columns.values()), filesystem, f"{root}/{entity}")
            for name in (entity, *(short for short, long in _SHORT.items() if long == entity)):
                duck.register(name, rows)
        try:
            found = duck.sql(statement)
            if found is None:
                raise UsageError("That statement returns no rows.", hint="Use a SELECT.")
            return found.to_arrow_table()
        except duckdb.Error as error:
            known: Sequence[str] = sorted(by_entity) or ["nothing was exported yet"]
            raise UsageError(f"DuckDB refused: {normalise_error(error)}", hint=f"Views: {', '.join(known)}.") from error
