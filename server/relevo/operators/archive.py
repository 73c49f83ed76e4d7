"""The months of deliveries and journal: those in the hot tables, and those that left them."""

from __future__ import annotations

from datetime import date

from relevo.core import queries
from relevo.database.pool import Database
from relevo.operators.reading import Row, fetch

_SQL = queries.load("archive")

_MOST_MONTHS = 61


def months(database: Database) -> list[Row]:
    """Return the months that left the hot tables, oldest first."""
    return fetch(database, _SQL["list_archive"])


def page(database: Database, *, before: date | None = None) -> tuple[list[Row], date | None]:
    """Return the months that left the hot tables, newest first, each whole, and before which the next page begins."""
    rows = fetch(database, _SQL["page_archive"], before=before, limit=_MOST_MONTHS)
    if len(rows) < _MOST_MONTHS:
        return rows, None
    whole = [row for row in rows if row["month"] != rows[-1]["month"]]
    return whole, whole[-1]["month"]


def partitions(database: Database) -> list[Row]:
    """Return the months in the hot tables, newest first."""
    return fetch(database, _SQL["list_partitions"])
