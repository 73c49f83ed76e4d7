"""Sources: how far they were read, what they could not use, and the tenders they brought."""

from __future__ import annotations

from datetime import datetime

from relevo.config import REJECT_ATTEMPTS
from relevo.core import queries
from relevo.database.pool import Database
from relevo.operators.formats import MOST_COUNTED
from relevo.operators.reading import LOOKED_AT, MAX_LIMIT, Page, Row, fetch, fetch_page

_SQL = queries.load("sources", "tenders")

_TENDERS_AT_ONCE = 1_000
CURSORS = {
    "complete": "complete up to",
    "failed": "failed, to be asked again",
    "missing": "days missing",
    "given_up": "days given up",
    "files": "files read",
    "passed": "passed the file",
    "passed_count": "files passed",
    "next": "next page",
    "at": "place in it",
    "from": "begins again at",
}
"""How far a source was read, by the names of its cursor."""


def names(database: Database) -> list[str]:
    """Return the names of all sources that were asked, or of which something was rejected."""
    return [row["source"] for row in fetch(database, _SQL["list_source_names"])]


def listed(database: Database) -> list[Row]:
    """Return the sources with their last answer, and what stays wrong with them."""
    return fetch(database, _SQL["list_sources"], given_up_attempts=REJECT_ATTEMPTS, most=MOST_COUNTED)


def details(database: Database) -> list[Row]:
    """Return the sources with how far they were read, their last answer, and how much could not be used."""
    return fetch(database, _SQL["describe_sources"], given_up_attempts=REJECT_ATTEMPTS, most=MOST_COUNTED)


def rejects(database: Database, *, source: str | None = None, limit: int = 20) -> list[Row]:
    """Return what sources offered and could not be used."""
    return fetch(database, _SQL["list_rejects"], source=source, limit=min(limit, MAX_LIMIT))


def page_of_rejects(database: Database, *, source: str | None = None, before: str = "", limit: int = 50) -> Page:
    """Return what sources offered and could not be used, newest first."""
    return fetch_page(database, _SQL["page_rejects"], before, limit, look=LOOKED_AT, source=source)


def quotas(database: Database, timezone: str) -> list[Row]:
    """Return the quotas in which sources ask, with today's requests by the clock of a time zone."""
    return fetch(database, _SQL["list_quotas"], timezone=timezone)


def tenders(
    database: Database, /, *, before_at: datetime, before_id: int, limit: int = 50, **filters: object
) -> tuple[list[Row], tuple[datetime, int] | None]:
    """Return tenders that fit, newest first, and behind which the next page begins, if there is one.

    It looks at a bounded number of them, so a page may hold fewer than there are.
    """
    place = {"before_at": before_at, "before_id": before_id, "limit": limit, "look_at": max(limit, _TENDERS_AT_ONCE)}
    rows = fetch(database, _SQL["list_tenders"], **place, **filters)
    end = rows.pop() if rows and rows[-1]["next_id"] is not None else None
    items = [{name: value for name, value in row.items() if name not in ("next_at", "next_id")} for row in rows]
    return items, None if end is None else (end["next_at"], end["next_id"])


def tender(database: Database, licitacion_id: int) -> Row | None:
    """Return one tender."""
    return next(iter(fetch(database, _SQL["read_tender"], id=licitacion_id)), None)
