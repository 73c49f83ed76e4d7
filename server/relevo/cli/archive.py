"""Commands about the past: what was archived, how to bring it back, and how to forget a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any, NoReturn
from uuid import UUID

import typer
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from relevo.archive import iceberg, restore
from relevo.archive.manifest import Manifest
from relevo.cli.common import (
    AsJson,
    archive_store,
    coloured,
    err,
    load_settings,
    make_table,
    open_database,
    out,
    prepared_database,
    print_json,
    print_rows,
    read_installation,
    say,
    several,
    warn_of_leaving,
)
from relevo.config import Settings
from relevo.core.errors import (
    ArchiveError,
    ConfigError,
    DatabaseUnavailableError,
    MigrationError,
    NotFoundError,
    UsageError,
)
from relevo.core.ports import ArchiveStore
from relevo.operators import archive
from relevo.operators.reading import Row, of_this_version
from relevo.verbs import owners, phones
from relevo.verbs.callers import operator

cli = typer.Typer()
group = typer.Typer(help="Months in the archive: list, verify, restore, fetch, query, register.", no_args_is_help=True)
cli.add_typer(group, name="archive")

Entity = Annotated[str, typer.Option(help="licitaciones, events, deliveries or journal.")]
Month = Annotated[str, typer.Option(help="The month, like 2026-08.")]


def _store(settings: Settings) -> ArchiveStore:
    store = archive_store(settings)
    if store is None:
        raise UsageError("No archive store is set.", hint="Set ARCHIVE_BUCKET, or ARCHIVE_FOLDER.")
    return store


def _read_manifest(settings: Settings, entity: str, month: str) -> tuple[ArchiveStore, Manifest]:
    store = _store(settings)
    return store, restore.read_manifest(store, restore.entity_named(entity), restore.month_named(month))


_LEAST_WIDTH = 14  # of a column in which something can be read


def _print_records(rows: Sequence[Row]) -> None:
    """Show rows with too many columns for the window one field a line; what is null is left out."""
    for number, row in enumerate(rows, start=1):
        out.print(f"[bold]row {number}[/]")
        table = make_table("", "", wide=("",))
        table.show_header = False
        for name, value in row.items():
            if value is not None:
                table.add_row(f"  {escape(name)}", escape(str(value)))
        out.print(table)


class _Rate(ProgressColumn):
    """Rows a second."""

    def render(self, task: Task) -> Text:
        """Show the rate once it is known."""
        return Text(f"{task.speed:,.0f} rows/s" if task.speed else "")


@contextmanager
def _progress(record: Manifest) -> Iterator[restore.Progress]:
    """Show a bar per kind of work, with rate and time left."""
    columns = (TextColumn("{task.description:>9}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    with Progress(*columns, console=err) as bars:
        tasks: dict[str, Any] = {}

        def tell(what: str, rows: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=record.rows)
            bars.advance(tasks[what], rows)

        yield tell


@group.command(name="list", epilog="Example: relevo archive list --json")
def list_months(as_json: AsJson = False) -> None:
    """Show the months that left the hot tables, the state of each, and its files in the store."""
    settings = load_settings()
    store = archive_store(settings)
    rows: dict[tuple[str, Any], Row] = {}
    with open_database(settings) as database:
        try:
            rows = {(row["entity"], row["month"]): row for row in archive.months(database)}
        except MigrationError:
            if store is None:  # from a store alone a database that knows nothing can still be told
                raise
    complaints: list[ArchiveError] = []
    for record in _stored(store, complaints):
        found = rows.setdefault(
            (record.entity, record.month), {"entity": record.entity, "month": record.month, "state": ""}
        )
        found |= {"stored_rows": record.rows, "stored_bytes": record.bytes, "stored_parts": len(record.parts)}
    listed = [rows[key] for key in sorted(rows, key=lambda key: (key[1], key[0]))]
    if as_json:
        print_json(listed)
        return
    has_catalog = settings.archive_iceberg_uri is not None
    columns = _COLUMNS | ({"catalog": _registered} if has_catalog else {})
    print_rows(columns, listed, "No month has been archived yet.")
    for row in listed:
        if row.get("last_error"):
            out.print(f"[bold red]{row['entity']} {row['month']:%Y-%m}:[/] {escape(row['last_error'])}")
        if has_catalog and row.get("register_error"):
            told = f"{row['entity']} {row['month']:%Y-%m} is not in the Iceberg catalog:"
            out.print(f"[bold yellow]{told}[/] {escape(row['register_error'])}", soft_wrap=True)
    _tell(complaints)
    if store is None:
        out.print("No archive store is set: months stay in the database. Set ARCHIVE_BUCKET, or ARCHIVE_FOLDER.")


def _stored(store: ArchiveStore | None, complaints: list[ArchiveError]) -> list[Manifest]:
    """Return what the store holds; one that cannot be asked is complained of, for the database knows something too."""
    if store is None:
        return []
    try:
        return restore.months(store, complaints.append)
    except ArchiveError as error:
        complaints.append(error)
        return []


def _tell(complaints: Sequence[ArchiveError]) -> None:
    for error in complaints:
        err.print(f"[yellow]{escape(str(error))}[/]", soft_wrap=True)


def _rows(month: Row) -> str:
    count = month.get("rows") if month.get("rows") is not None else month.get("stored_rows")
    return "" if count is None else f"{count:,}"


def _stored_size(month: Row) -> str:
    if (size := month.get("stored_bytes")) is None:
        return ""
    amount = f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"  # noqa: PLR2004 a tenth of a MB
    return f"{amount}, {several(month['stored_parts'], 'file')}" if month["stored_parts"] else "no rows"


def _to_be_dropped(month: Row) -> str:
    drop = month.get("dropped_at") or month.get("drop_eligible_at")
    when = "" if drop is None else f"{drop.astimezone(UTC):%Y-%m-%d}"
    return f"done {when}" if month.get("dropped_at") else when


def _registered(row: Row) -> str:
    """Return whether the Iceberg catalog has a month, as far as this database knows."""
    if row.get("registered_at") is not None:
        return "yes"
    return "failed" if row.get("register_error") else "waits" if row.get("verified_at") else ""


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "entity": lambda row: row["entity"],
    "month": lambda row: f"{row['month']:%Y-%m}",
    "state": lambda row: coloured(row["state"]),
    "rows": _rows,
    "in the store": _stored_size,
    "to be dropped": _to_be_dropped,
}


@group.command(epilog="Example: relevo archive verify --entity deliveries --month 2026-05")
def verify(entity: Entity, month: Month, as_json: AsJson = False) -> None:
    """Read a month back from the store and check it against its manifest."""
    store, record = _read_manifest(load_settings(), entity, month)
    with _progress(record) as progress:
        restore.verify(store, record, progress)
    words = f"{record.relation} is whole: {several(record.rows, 'row')} in {several(len(record.parts), 'file')}."
    say(words, {"relation": record.relation, "rows": record.rows, "files": len(record.parts)}, as_json=as_json)


@group.command(name="restore", epilog="Example: relevo archive restore --entity deliveries --month 2026-05")
def restore_month(
    entity: Entity,
    month: Month,
    into: Annotated[str, typer.Option(help="The schema for the restored table.")] = restore.SCHEMA,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a table that was restored before.")] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a month as a table, all or nothing, checked against its manifest."""
    settings = load_settings()
    store, record = _read_manifest(settings, entity, month)
    with open_database(settings) as database, _progress(record) as progress:
        done = restore.restore(database, store, record, schema=into, replace=replace, progress=progress)
    words = f"Restored {several(done.rows, 'row')} into {done.schema}.{done.relation}."
    say(words, {"schema": done.schema, "relation": done.relation, "rows": done.rows}, as_json=as_json)


@group.command(epilog="Example: relevo archive fetch --entity deliveries --month 2026-05 --into /tmp/past")
def fetch(
    entity: Entity,
    month: Month,
    into: Annotated[Path, typer.Option(help="The folder for the files, named by their keys.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Download a month's Parquet files, each checked against the manifest."""
    store, record = _read_manifest(load_settings(), entity, month)
    with _progress(record) as progress:
        paths = restore.fetch(store, record, into, progress)
    for path in paths:
        say(escape(str(path)), {"file": path}, as_json=as_json)


@group.command(epilog='Example: relevo archive query "select status, count(*) from deliveries group by 1"')
def query(
    sql: Annotated[
        str, typer.Argument(help='The query, such as "select count(*) from licitaciones where year = 2025".')
    ],
    limit: Annotated[int, typer.Option(min=1, help="How many rows to show.")] = 1_000,
    as_json: AsJson = False,
) -> None:
    """Run SQL over the archive in place, with DuckDB; each entity is a view."""
    settings = load_settings()
    complaints: list[ArchiveError] = []
    found = restore.query(_store(settings), sql, complaints.append)
    _tell(complaints)
    rows = found.slice(0, limit).to_pylist()
    if as_json:
        print_json(rows)
        return
    if len(found.column_names) * _LEAST_WIDTH > out.width:
        _print_records(rows)
    else:
        table = make_table(*found.column_names, wide=found.column_names)
        for row in rows:
            table.add_row(*(escape("" if value is None else str(value)) for value in row.values()))
        out.print(table)
    if found.num_rows > limit:
        out.print(f"{several(found.num_rows - limit, 'more row')}; --limit shows more.")


def _raise(error: ArchiveError) -> NoReturn:
    raise error


@group.command(epilog="Example: relevo archive register")
def register(as_json: AsJson = False) -> None:
    """Register every month's files in the Iceberg catalog, and remove files from it that the archive no longer has."""
    settings = load_settings()
    store = _store(settings)
    if settings.archive_iceberg_uri is None:
        raise UsageError("No Iceberg catalog is set.", hint="Set ARCHIVE_ICEBERG_URI.")
    complaints: list[ArchiveError] = []
    records = restore.months(store, complaints.append)
    tables = iceberg.IcebergTables(settings, store)
    for entity in restore.ENTITIES:
        added = sum(tables.register(record).added for record in records if record.entity == entity)
        # An unreadable manifest may mean a store in trouble: no file is removed because of it.
        removed = 0 if complaints else tables.remove_others(entity, lambda: restore.months(store, _raise)).removed
        words = f"{entity}: {several(added, 'file')} added, {removed:,} removed."
        say(words, {"entity": entity, "added": added, "removed": removed}, as_json=as_json)
    _record(settings, records)
    _tell(complaints)


def _record(settings: Settings, records: Sequence[Manifest]) -> None:
    """Write down for export and doctor that the catalog names these months, where a database knows of them.

    Without a database nothing is lost: export registers them once more, which changes nothing.
    """
    absent = suppress(ConfigError, DatabaseUnavailableError, MigrationError)
    with absent, open_database(settings) as database, of_this_version():
        iceberg.record(database, records)


@cli.command(hidden=True, epilog="Example: relevo forget 0d9e5b0a-6c1f-4b8e-9d53-1f2a3b4c5d6e")
def forget(
    installation: Annotated[
        UUID | None, typer.Argument(parser=read_installation, metavar="INSTALLATION", help="The installation.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Forget this owner with all installations.")] = None,
    as_json: AsJson = False,
) -> None:
    """Forget a person: delete an installation, or an owner, and all that leads to the person. Archived rows hold a
    random key."""
    warn_of_leaving("relevo forget", "use `relevo owner forget OWNER`, or `relevo owner forget --phone INSTALLATION`")
    if (installation is None) == (owner is None):
        raise UsageError(
            "No installation or owner is named.", hint="`relevo forget INSTALLATION` or `relevo forget --owner OWNER`."
        )
    with prepared_database() as database:
        if owner is not None:
            count = owners.forget(operator(database), owner)
            words = f"Owner {escape(owner)} is forgotten, with {several(count, 'installation')}."
            say(words, {"owner": owner, "installations": count}, as_json=as_json)
            return
        assert installation is not None  # one of the two is given
        try:
            phones.forget(operator(database), installation)
        except NotFoundError as error:
            raise UsageError(error.message, hint="`relevo installations` lists them.") from None
    told = {"installation_id": installation, "installations": 1}
    say(f"Installation {installation} is forgotten.", told, as_json=as_json)
