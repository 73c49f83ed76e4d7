"""What operators read: runs, workers, cycles, claims, health."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import errors as pg
from psycopg.rows import dict_row

from relevo import door, queries
from relevo.config import Settings
from relevo.cycles.ingest import REJECT_ATTEMPTS
from relevo.db import Database
from relevo.errors import MigrationError

_SQL = queries.load("insights")
MAX_LIMIT = 1_000

Row = dict[str, Any]


def _rows(database: Database, statement: str, **parameters: object) -> list[Row]:
    try:
        with database.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(_SQL[statement], parameters).fetchall()
    except (pg.UndefinedTable, pg.InvalidSchemaName, pg.UndefinedColumn, pg.UndefinedFunction) as error:
        raise MigrationError(
            "This database has no relevo schema of this version.", hint="Run `relevo migrate`."
        ) from error


def runs(database: Database, *, cycle: str | None = None, outcome: str | None = None, limit: int = 20) -> list[Row]:
    """Return runs, newest first."""
    return _rows(database, "list_runs", cycle=cycle, outcome=outcome, limit=min(limit, MAX_LIMIT))


def events(
    database: Database, *, event_type: str | None = None, state: str | None = None, limit: int = 20
) -> list[Row]:
    """Return events, newest first."""
    return _rows(database, "list_events", event_type=event_type, state=state, limit=min(limit, MAX_LIMIT))


@dataclass(frozen=True)
class Story:
    """The saga of one event: what happened when, how far its deliveries are, what went wrong."""

    event: Mapping[str, Any]
    moments: list[Row]
    errors: list[Row]


def story(database: Database, event_id: int) -> Story | None:
    """Return the saga of one event, or None if there is none."""
    moments = _rows(database, "read_story", event_id=event_id)
    with database.connection() as connection:
        status = door.get(connection, event_id)
    if status is None:
        return None
    incidents = _rows(database, "list_event_incidents", event_id=event_id)
    moments_and_incidents = [*moments, *({**row, "what": row["what"].replace("_", " ")} for row in incidents)]
    moments_and_incidents.sort(key=lambda row: row["at"])
    return Story(status.raw, moments_and_incidents, _rows(database, "list_event_errors", event_id=event_id))


def installations(database: Database, *, project: str | None = None, limit: int = 20) -> list[Row]:
    """Return installations, newest first, their tokens shortened."""
    return _rows(database, "list_installations", project=project, limit=min(limit, MAX_LIMIT))


def rejects(database: Database, *, source: str | None = None, limit: int = 20) -> list[Row]:
    """Return what sources offered and could not be used."""
    return _rows(database, "list_rejects", source=source, limit=min(limit, MAX_LIMIT))


def archive(database: Database) -> list[Row]:
    """Return the months that left the hot tables, oldest first."""
    return _rows(database, "list_archive")


@dataclass(frozen=True)
class Health:
    """Whether the fleet is well, and if not, why."""

    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Tell whether nothing is wrong."""
        return not self.problems


@dataclass(frozen=True)
class Status:
    """The fleet at a glance."""

    workers: list[Row]
    cycles: list[Row]
    claims: Row
    sources: list[Row]
    projects: list[Row]
    health: Health


def status(database: Database, settings: Settings) -> Status:
    """Return the fleet at a glance."""
    return Status(
        _rows(database, "list_workers", limit=50),
        _rows(database, "list_cycles"),
        _rows(database, "sum_claims")[0],
        sources(database),
        projects(database),
        health(database, settings),
    )


def sources(database: Database) -> list[Row]:
    """Return the sources with their last answer, and what stays wrong with them."""
    return _rows(database, "list_sources", given_up_attempts=REJECT_ATTEMPTS)


def projects(database: Database) -> list[Row]:
    """Return the projects with what holds them up."""
    return _rows(database, "list_projects", limit=MAX_LIMIT)


def health(database: Database, settings: Settings) -> Health:
    """Tell what is wrong: no reaper takes back what the dead held, a project may not send, a month may not leave."""
    row = _rows(database, "read_health")[0]
    limit_s = 3 * settings.reaper_interval_ms / 1000
    problems = []
    if row["reaper_quiet_s"] is None:
        problems.append("no reaper has ever run; start `relevo run`")
    elif row["reaper_quiet_s"] > limit_s:
        problems.append(
            f"no reaper has run for {row['reaper_quiet_s']:.0f} s (limit {limit_s:.0f} s); start `relevo run`"
        )
    if row["oldest_expired_s"] is not None and row["oldest_expired_s"] > limit_s:
        problems.append(f"an expired claim has been waiting for a reaper for {row['oldest_expired_s']:.0f} s")
    for source in sources(database):
        problems += _left_out(source)
    for project in projects(database):
        problems += _held_up(project)
    for month in archive(database):
        if month["last_error"] is not None:
            problems.append(f"{month['entity']} {month['month']:%Y-%m} is not archived: {month['last_error']}")
    return Health(tuple(problems))


def _left_out(source: Row) -> list[str]:
    found = [f"source {source['source']}: {problem}" for problem in source["problems"]]
    if source["given_up"]:
        found.append(
            f"source {source['source']}: {source['given_up']} rejects were tried {REJECT_ATTEMPTS} times and given up; "
            "`relevo rejects` shows them, `relevo rejects --retry` has them tried again"
        )
    return found


def _held_up(project: Row) -> list[str]:
    name, found = project["project"], []
    if project["breaker"] != "closed":
        found.append(f"project {name} sends nothing but probes: {project['breaker_reason']}")
    if project["pruning_stopped_at"] is not None:
        found.append(
            f"project {name} has so many unregistered tokens that none is disabled; check the push credentials"
        )
    if project["runaway_since"] is not None:
        found.append(
            f"project {name} sent far more than it has phones and was stopped; `relevo release {name}` lets it go on"
        )
    return found
