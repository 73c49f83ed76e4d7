"""How operators' modules read: statements as rows, lists page by page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import errors as pg
from psycopg.rows import dict_row

from relevo.core.errors import MigrationError, UsageError
from relevo.core.hidden_texts import shown
from relevo.database.pool import Database

MAX_LIMIT = 1_000
MOST_IDS = 2**63
LOOKED_AT = 2_000
"""How many rows a page with filters looks at before it stops and says so."""
_PLACE = re.compile(r"(?:(\d{1,18})\.)?(\d{1,18})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


@dataclass(frozen=True)
class Page:
    """Some rows, and where the next page begins; nothing if there is none."""

    rows: list[Row]
    next: str = ""
    looked_at: int = 0
    """Among how many it looked for what fits, if that is to be told."""


def fetch(database: Database, statement: bytes, /, **parameters: object) -> list[Row]:
    """Return the rows of a statement; without texts if they are hidden from who calls."""
    with of_this_version(), database.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
        return shown(cursor.execute(statement, parameters).fetchall())


def fetch_by_key(database: Database, statement: bytes, /, **parameters: object) -> list[Row]:
    """Return the rows of a statement along its indexes: where the planner expects few, it would read and sort all."""
    with (
        of_this_version(),
        database.transaction("bound_by_key") as connection,
        connection.cursor(row_factory=dict_row) as cursor,
    ):
        return shown(cursor.execute(statement, parameters).fetchall())


@contextmanager
def of_this_version() -> Iterator[None]:
    """Raise an error that names the next step where the schema is of another version."""
    try:
        yield
    except (pg.UndefinedTable, pg.InvalidSchemaName, pg.UndefinedColumn, pg.UndefinedFunction) as error:
        raise MigrationError(
            "This database has no relevo schema of this version.", hint="Run `relevo migrate`."
        ) from error


def fetch_page(
    database: Database,
    statement: bytes,
    before: str,
    limit: int,
    *,
    look: int = 0,
    by_key: bool = False,
    **asked: object,
) -> Page:
    """Return a page of a list, from the `next` of the page before on; a narrowed one looks at so many rows.

    The next begins after its last row, or where the look ended.
    """
    at, number = _read_place(before)
    look = look or limit + 1
    place = {"before_at": at, "before": number, "look": look, "limit": limit + 1}
    rows = (fetch_by_key if by_key else fetch)(database, statement, **asked, **place)
    fitting, looked_at = [row for row in rows if row["id"] is not None], rows[0]["looked"]
    if len(fitting) > limit:
        last = fitting[limit - 1]
        return Page(fitting[:limit], _write_place(last["id"], last.get("started_at")), looked_at)
    is_all = looked_at < look
    return Page(fitting, "" if is_all else _write_place(rows[0]["last_id"], rows[0].get("last_at")), looked_at)


def _write_place(number: int, at: datetime | None) -> str:
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}.{number}" if at else str(number)


def _read_place(place: str) -> tuple[datetime | None, int | None]:
    """Read a place as the page before wrote it."""
    if not place:
        return None, None
    found = _PLACE.fullmatch(place)
    try:
        if found:
            return _EPOCH + timedelta(microseconds=int(found[1])) if found[1] else None, int(found[2])
    except OverflowError:
        pass
    raise UsageError(f"{place[:60]} is no place in this list.", hint="Begin with the first page.")


def is_id(text: str) -> bool:
    """Return whether a text is a number that a row could have."""
    return text.isascii() and text.isdecimal() and 0 < int(text[:30]) < MOST_IDS


def as_uuid(text: str) -> UUID | None:
    """Return the UUID that a text is, or None."""
    with suppress(ValueError):
        return UUID(text)
    return None


def storable(text: str) -> bool:
    """Return whether the database could hold a text at all."""
    return bool(text) and "\x00" not in text and text.encode("utf-8", "replace").decode() == text
