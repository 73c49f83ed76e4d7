"""Runs of cycles, and the pauses that lay in something's way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from relevo.core import queries
from relevo.database.pool import Database
from relevo.operators.reading import LOOKED_AT, MAX_LIMIT, Page, Row, fetch, fetch_page

_SQL = queries.load("runs")

_MOST_PAUSES = 50
_TROUBLED = ("partial", "failed", "skipped", "abandoned")


def latest(database: Database, *, cycle: str | None = None, outcome: str | None = None, limit: int = 20) -> list[Row]:
    """Return runs, newest first."""
    return fetch(database, _SQL["list_runs"], cycle=cycle, outcome=outcome, limit=min(limit, MAX_LIMIT))


def page(
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
    asked = {"cycle": cycle, "source": source, "outcome": outcome, "worker": worker, "hours": hours}
    statement = _SQL["page_troubled_runs" if outcome in _TROUBLED else "page_runs"]
    look = 0 if outcome is None and worker is None else LOOKED_AT
    return fetch_page(database, statement, before, limit, look=look, by_key=True, **asked)


def run(database: Database, run_id: int) -> Row | None:
    """Return one run, with its neighbours of the same cycle."""
    return next(iter(fetch(database, _SQL["read_run"], run_id=run_id)), None)


def known_cycles(database: Database, ours: Iterable[str]) -> list[str]:
    """Return the names of all cycles: Relevo's own, and others that have run here."""
    return sorted({*ours, *(row["cycle"] for row in fetch(database, _SQL["list_cycles"]))})


def paused(database: Database) -> dict[str, str]:
    """Return why cycles are paused, by their names."""
    return {row["cycle"]: row["paused_reason"] for row in fetch(database, _SQL["list_cycles"]) if row["paused_reason"]}


def pauses(database: Database, spans: Sequence[tuple[str, str, datetime, datetime]]) -> list[Row]:
    """Return the pauses that are over and fell into spans: cycle, source, since when, until when."""
    if not spans:
        return []
    cycles, sources, sinces, untils = map(list, zip(*spans, strict=True))
    asked = {"cycles": cycles, "sources": sources, "sinces": sinces, "untils": untils}
    return fetch(database, _SQL["list_pauses"], **asked, look=_MOST_PAUSES)
