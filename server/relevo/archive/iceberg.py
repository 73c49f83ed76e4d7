"""The archive as tables of Apache Iceberg: the files of each month are named in a catalog, and never written anew.

The catalog is for those who analyse. Export and restore go by manifests alone, and what fails here holds up neither: it
is written down, and tried by the next run. A month is verified and dropped whether its catalog knows it or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import structlog

from relevo.archive import copying, marker, restore
from relevo.archive.manifest import Manifest
from relevo.config import Settings
from relevo.core import queries
from relevo.core.errors import ArchiveError, MissingPartError, RelevoError, UsageError
from relevo.core.logs import normalise_error
from relevo.core.model import Column, Step
from relevo.core.ports import ArchiveStore, Warehouse
from relevo.database.pool import Database
from relevo.runtime.runs import Run

if TYPE_CHECKING:  # a second that only those with a catalog spend
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_SQL = queries.load("iceberg_months")
_log = structlog.get_logger("relevo.iceberg_months")
FOLDER = "_iceberg"
"""Below the archive's prefix; the underscore keeps engines from reading it as data."""
_TRIES = 3
_MOST_FAILED = 3  # months that a run tries in vain; the others would fare no better
_CATALOG_TIMEOUTS = 10  # it looks at each file of a month; well before a run counts as hung
_COMPARABLE = ("bigint", "integer", "smallint", "date", "timestamp with time zone")
_PROPERTIES = {
    "write.metadata.metrics.default": "counts",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
"""Of texts the metadata hold no value, not even the least and the greatest: a name would outlive its file in them."""


@dataclass(frozen=True)
class Registered:
    """The change of an entity's table: the number of added files, and of removed ones."""

    entity: str
    added: int = 0
    removed: int = 0


class IcebergTables:
    """One table for each entity."""

    def __init__(self, settings: Settings, store: ArchiveStore) -> None:
        assert settings.archive_iceberg_uri is not None
        if not isinstance(store, Warehouse):
            raise ArchiveError(
                f"{store.name} keeps its files where Iceberg cannot read them.",
                hint="It has no `warehouse`; leave ARCHIVE_ICEBERG_URI unset.",
            )
        self._namespace = settings.archive_iceberg_namespace
        self._uri, self._warehouse = settings.archive_iceberg_uri, settings.archive_iceberg_warehouse
        self._is_rest = self._uri.startswith(("http://", "https://"))
        with self._complaining(store.name):
            self._location, self._access = store.warehouse()

    def register(self, record: Manifest) -> Registered:
        """Name a month's files in its table; those that are named already stay as they are."""
        with self._complaining(record.relation), self._catalog() as catalog:
            from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415

            for attempt in range(1, _TRIES + 1):
                try:
                    return Registered(record.entity, added=self._add(catalog, record))
                except CommitFailedException:  # somebody else wrote to the table meanwhile
                    if attempt == _TRIES:
                        raise
            raise AssertionError

    def remove_others(self, entity: str, list_months: Callable[[], Sequence[Manifest]]) -> Registered:
        """Remove files that no manifest lists from a table, also from its snapshots and the rest of them.

        The table is read ahead of the manifests: what a month adds meanwhile is listed by the time it is looked for.
        """
        with self._complaining(entity), self._catalog() as catalog:
            from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415

            try:
                table = catalog.load_table((self._namespace, entity))
            except NoSuchTableError:
                return Registered(entity)
            named = [task.file for task in table.scan().plan_files()]
            listed = {path for record in list_months() if record.entity == entity for path in self._paths(record)}
            gone = [file for file in named if file.file_path not in listed]
            if gone:
                with table.transaction() as change, change.update_snapshot().overwrite() as snapshot:
                    for file in gone:
                        snapshot.delete_data_file(file)
                _expire(table)
            return Registered(entity, removed=len(gone))

    def _catalog(self) -> Catalog:
        try:
            from pyiceberg.catalog import load_catalog  # noqa: PLC0415
        except ImportError as error:
            raise MissingPartError(
                "ARCHIVE_ICEBERG_URI is set, but pyiceberg is not installed.", hint="pip install 'relevo[iceberg]'"
            ) from error
        if self._is_rest:
            named = {"warehouse": self._warehouse} if self._warehouse else {}
            return load_catalog("relevo", type="rest", uri=self._uri, **named, **self._access)
        uri = self._uri.replace("postgresql://", "postgresql+psycopg://", 1)
        return load_catalog("relevo", type="sql", uri=uri, warehouse=f"{self._location}/{FOLDER}", **self._access)

    def _add(self, catalog: Catalog, record: Manifest) -> int:
        table = self._table(catalog, record)
        known = {task.file.file_path for task in table.scan().plan_files()}
        fresh = [path for path in self._paths(record) if path not in known]
        if fresh:
            table.add_files(fresh, snapshot_properties={"relevo.month": f"{record.month:%Y-%m}"})
        return len(fresh)

    def _paths(self, record: Manifest) -> list[str]:
        return [f"{self._location}/{record.key_of(part)}" for part in record.parts]

    def _table(self, catalog: Catalog, record: Manifest) -> Table:
        """Return the table, with every column of the month."""
        from relevo.archive import parquet  # noqa: PLC0415 Arrow takes a tenth of a second, and most commands need none

        catalog.create_namespace_if_not_exists(self._namespace)
        schema = parquet.arrow_schema(record.columns, {})
        # A REST catalog says itself where the metadata of its tables lie, and refuses any other place.
        location = None if self._is_rest else f"{self._location}/{FOLDER}/{record.entity}"
        table = catalog.create_table_if_not_exists(
            (self._namespace, record.entity),
            schema,
            location=location,
            properties=_PROPERTIES | _compared(record.columns),
        )
        if missing := set(schema.names) - set(table.schema().column_names):
            new = [column for column in record.columns if column.name in missing]
            with table.transaction() as change:
                change.set_properties(_compared(new))
                with change.update_schema() as update:
                    update.union_by_name(schema)
            table = catalog.load_table((self._namespace, record.entity))
        return table

    @contextmanager
    def _complaining(self, what: str) -> Iterator[None]:
        try:
            yield
        except RelevoError:
            raise
        except Exception as error:
            raise ArchiveError(
                f"The Iceberg catalog did not take {what}: {normalise_error(error, 300)}.",
                hint="The archive itself is complete. Run `relevo archive register` once the catalog answers.",
            ) from error


def _compared(columns: Sequence[Column]) -> dict[str, str]:
    """Return the properties that keep the least and the greatest of numbers and times, by which engines skip files."""
    return {f"write.metadata.metrics.column.{each.name}": "full" for each in columns if each.type in _COMPARABLE}


def _expire(table: Table) -> None:
    """Drop all snapshots but the newest, and the files of metadata that only they led to."""
    table.refresh()
    current = table.current_snapshot()
    assert current is not None
    before = {path for each in table.snapshots() for path in _metadata_files(table, each)}
    old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != current.snapshot_id]
    if old:
        table.maintenance.expire_snapshots().by_ids(old).commit()
        table.refresh()
    for path in before - set(_metadata_files(table, current)):
        table.io.delete(path)


def _metadata_files(table: Table, snapshot: Any) -> Iterator[str]:
    yield snapshot.manifest_list
    yield from (each.manifest_path for each in snapshot.manifests(table.io))


def step(run: Run, store: ArchiveStore) -> Step:
    """Register one month that is verified and not in the catalog yet, if there is a catalog and such a month."""
    if run.settings.archive_iceberg_uri is None:
        return Step()
    failed = run.given_up.unregistered
    found = run.execute(_SQL["find_unregistered"], {"given_up": list(failed)}).fetchone()
    if found is None:
        return Step()
    entity, month, relation = found
    try:
        _register(run, store, entity, month)
    except (ArchiveError, MissingPartError, TimeoutError) as error:
        is_silent = isinstance(error, TimeoutError)
        silence = ArchiveError("The Iceberg catalog does not answer.", hint="The next run tries again.")
        why = silence if is_silent else error
        failed.add(relation)
        _write(run, "record_unregistered", entity, month, error=normalise_error(why))
        _log.warning("iceberg_not_registered", relation=relation, detail=str(why))
        more = not is_silent and len(failed) < _MOST_FAILED
        return Step(more=more, problems=(f"{relation}: {normalise_error(why, 300)}",))
    _write(run, "record_registered", entity, month)
    return Step({"months_registered": 1}, items=1, more=True)


def record(database: Database, months: Iterable[Manifest]) -> None:
    """Write down that months are in the catalog; a month that this database knows nothing of is left out."""
    keys = [(each.entity, each.month) for each in months]
    asked = {"entities": [entity for entity, _ in keys], "months": [month for _, month in keys]}
    database.execute(_SQL["record_all_registered"], asked, "bound_transaction")


def _register(run: Run, store: ArchiveStore, entity: str, month: date) -> None:
    marker.check(run, store)
    try:
        stored = restore.read_manifest(store, entity, month)
    except UsageError:  # somebody removed it from the archive: there is nothing to be named
        return
    within_s = _CATALOG_TIMEOUTS * run.settings.archive_timeout_ms / 1000
    copying.in_background(lambda: IcebergTables(run.settings, store).register(stored), within_s)


def _write(run: Run, statement: str, entity: str, month: date, **more: object) -> None:
    run.execute(_SQL[statement], {"entity": entity, "month": month} | more)
