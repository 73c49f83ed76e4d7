"""What operators look up page by page: runs, what was done, rejects, dead letters, months."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from relevo.core import queries
from relevo.core.errors import UsageError
from relevo.database.pool import Database

_SQL = queries.load("history")
_LOOKED_AT = 2_000
"""How many rows a page with filters looks at before it stops and says so."""
MOST_DEAD = 10_000
"""How many dead letters are grouped, the newest."""
_MOST_MONTHS = 61
_MOST_PAUSES = 50
_SAMPLE = 1_000
_TROUBLED = ("partial", "failed", "skipped", "abandoned")
_PLACE = re.compile(r"(?:(\d{1,18})\.)?(\d{1,18})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = dict[str, Any]


@dataclass(frozen=True)
class Page:
    """Some rows, and the place where the next page begins; nothing if there is none."""

    rows: list[Row]
    next: str = ""


def _rows(database: Database, statement: str, **parameters: object) -> list[Row]:
    with database.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_SQL[statement], parameters).fetchall()


def _rows_by_key(database: Database, statement: str, **parameters: object) -> list[Row]:
    """Ask along indexes, whatever the planner makes of it: where it takes the rows for few, it would read them all."""
    with database.transaction("bound_by_key") as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_SQL[statement], parameters).fetchall()


def _look(limit: int, *filters: object) -> int:
    return _LOOKED_AT if any(each is not None for each in filters) else limit + 1


def _page(rows: list[Row], limit: int, look: int) -> Page:
    """Cut a page out of what was found; the next begins after its last row, or where the look ended."""
    fitting = [row for row in rows if row["id"] is not None]
    if len(fitting) > limit:
        last = fitting[limit - 1]
        return Page(fitting[:limit], _write(last["id"], last.get("started_at")))
    if rows[0]["looked"] == look:
        return Page(fitting, _write(rows[0]["last_id"], rows[0].get("last_at")))
    return Page(fitting)


def _write(number: int, at: datetime | None) -> str:
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}.{number}" if at else str(number)


def _read(place: str) -> tuple[datetime | None, int | None]:
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


def runs(
    database: Database,
    *,
    cycle: str | None = None,
    source: str | None = None,
    outcome: str | None = None,
    worker: str | None = None,
    hours: int | None = None,
    before: str = "",
    limit: int = 50,
) -> Page:
    """Return runs that fit, newest first; `before` is the `next` of the page before."""
    at, number = _read(before)
    look = _look(limit, outcome, worker)
    asked = {"cycle": cycle, "source": source, "outcome": outcome, "worker": worker, "hours": hours}
    statement = "page_troubled_runs" if outcome in _TROUBLED else "page_runs"
    rows = _rows_by_key(database, statement, **asked, before_at=at, before=number, look=look, limit=limit + 1)
    return _page(rows, limit, look)


def run(database: Database, run_id: int) -> Row | None:
    """Return one run, with its neighbours of the same cycle."""
    return next(iter(_rows(database, "read_run", run_id=run_id)), None)


def audit(
    database: Database,
    *,
    action: str | None = None,
    outcome: str | None = None,
    actor: str | None = None,
    hours: int | None = None,
    before: str = "",
    limit: int = 50,
) -> Page:
    """Return what was done that fits, newest first; `actor` is a part of a name."""
    look = _look(limit, action, outcome, actor, hours)
    asked = {"action": action, "outcome": outcome, "actor": actor, "hours": hours}
    rows = _rows(database, "page_audit", **asked, before=_read(before)[1], look=look, limit=limit + 1)
    return _page(rows, limit, look)


def rejects(database: Database, *, source: str | None = None, before: str = "", limit: int = 50) -> Page:
    """Return what sources offered and could not be used, newest first."""
    look = _LOOKED_AT
    rows = _rows(database, "page_rejects", source=source, before=_read(before)[1], look=look, limit=limit + 1)
    return _page(rows, limit, look)


def quotas(database: Database, timezone: str) -> list[Row]:
    """Return the quotas in which sources ask, with today's requests by the clock of a time zone."""
    return _rows(database, "list_quotas", timezone=timezone)


def used(database: Database) -> Row:
    """Tell whether a source was ever asked, and whether anything was ever archived."""
    return _rows(database, "find_used")[0]


def dead_letters(database: Database) -> list[Row]:
    """Return the newest dead letters by error, project and type, the largest group first."""
    return _rows(database, "group_dead_letters", look=MOST_DEAD)


def partitions(database: Database) -> list[Row]:
    """Return the months in the hot tables, newest first."""
    return _rows(database, "list_partitions")


def archive(database: Database, *, before: date | None = None) -> tuple[list[Row], date | None]:
    """Return the months that left the hot tables, newest first, each whole, and before which the next page begins."""
    rows = _rows(database, "page_archive", before=before, limit=_MOST_MONTHS)
    if len(rows) < _MOST_MONTHS:
        return rows, None
    whole = [row for row in rows if row["month"] != rows[-1]["month"]]
    return whole, whole[-1]["month"]


def named_phones(database: Database, event_id: int, *, limit: int) -> list[UUID]:
    """Return installations that an event names."""
    return [row["installation_id"] for row in _rows(database, "list_named_phones", event_id=event_id, limit=limit)]


def event_pauses(database: Database, event_id: int) -> list[Row]:
    """Return the pauses that are over and lay in the way of an event, oldest first."""
    asked = {"event_id": event_id, "most": _SAMPLE}
    with database.transaction("bound_by_key") as connection, connection.cursor(row_factory=dict_row) as cursor:
        spans = cursor.execute(_SQL["find_event_spans"], asked).fetchall()
    return pauses(database, [(row["cycle"], row["source"], row["since"], row["until"]) for row in spans])


def pauses(database: Database, spans: Sequence[tuple[str, str, datetime, datetime]]) -> list[Row]:
    """Return the pauses that are over and fell into spans: cycle, source, since when, until when."""
    if not spans:
        return []
    cycles, sources, sinces, untils = map(list, zip(*spans, strict=True))
    asked = {"cycles": cycles, "sources": sources, "sinces": sinces, "untils": untils}
    return _rows(database, "list_pauses", **asked, look=_MOST_PAUSES)
