"""Verified months are named in the Iceberg catalog; what fails is written down, and tried by the next run.

Nothing waits for it: a month is verified and dropped whether its catalog knows it or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

import structlog

from relevo.archive import copying, marker, restore
from relevo.archive.manifest import Manifest
from relevo.core import queries
from relevo.core.errors import ArchiveError, MissingPartError, UsageError
from relevo.core.logs import normalise_error
from relevo.core.model import Step
from relevo.core.ports import ArchiveStore
from relevo.database.pool import Database
from relevo.runtime.runs import Run

_SQL = queries.load("iceberg_months")
_log = structlog.get_logger("relevo.iceberg_months")
_MOST_FAILED = 3  # months that a run tries in vain; the others would fare no better
_CATALOG_TIMEOUTS = 10  # it looks at each file of a month; well before a run counts as hung


def step(run: Run, store: ArchiveStore) -> Step:
    """Register one month that is verified and not in the catalog yet, if there is a catalog and such a month."""
    if run.settings.archive_iceberg_uri is None:
        return Step()
    failed = run.given_up.unregistered
    with run.transaction() as connection:
        found = connection.execute(_SQL["find_unregistered"], {"given_up": list(failed)}).fetchone()
    if found is None:
        return Step()
    entity, month, relation = found
    try:
        _register(run, store, entity, month)
    except (ArchiveError, MissingPartError, TimeoutError) as error:
        is_silent = isinstance(error, TimeoutError)
        why = (
            ArchiveError("The Iceberg catalog does not answer.", hint="The next run tries again.")
            if is_silent
            else error
        )
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
    with database.transaction() as connection:
        connection.execute(_SQL["record_all_registered"], asked)


def _register(run: Run, store: ArchiveStore, entity: str, month: date) -> None:
    from relevo.archive.iceberg import IcebergTables  # noqa: PLC0415 a second that only those with a catalog spend

    marker.check(run, store)
    try:
        stored = restore.read_manifest(store, entity, month)
    except UsageError:  # somebody removed it from the archive: there is nothing to be named
        return
    within_s = _CATALOG_TIMEOUTS * run.settings.archive_timeout_ms / 1000
    copying.in_background(lambda: IcebergTables(run.settings, store).register(stored), within_s)


def _write(run: Run, statement: str, entity: str, month: date, **more: object) -> None:
    with run.transaction() as connection:
        connection.execute(_SQL[statement], {"entity": entity, "month": month} | more)
