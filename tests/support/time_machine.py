"""A database and its workers that live at a made-up time, so that a test walks through a year."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from relevo import app
from relevo.app import App
from relevo.config import Settings
from relevo.core.model import Budget, Report
from support.shared_database import EMPTY

MADE_UP_TIME = """
create schema tests;
create table tests.clock (at timestamptz);
insert into tests.clock values (null);
create function tests.at(actual timestamptz) returns timestamptz language plpgsql stable as
  $$ begin return coalesce((select c.at from tests.clock c), actual); end $$;
create or replace function pg_catalog.now() returns timestamptz language sql stable as
  $$ select tests.at(transaction_timestamp()) $$;
create or replace function pg_catalog.clock_timestamp() returns timestamptz language sql volatile as
  $$ select tests.at(statement_timestamp()) $$;
"""
"""The planner inlines both functions wherever they stand: in statements, functions and defaults of columns."""


class TimeMachine:
    """A database of its own at a made-up time, an app's connection to it, and workers whose cycles are run by hand."""

    def __init__(self, conn: psycopg.Connection[Any], workers: list[App]) -> None:
        self.conn = conn
        self.workers = workers
        self.now = datetime(1970, 1, 1, tzinfo=UTC)

    def renew(self, begin: datetime) -> None:
        """Empty the database, and begin at a time, or at the same time of the first year that nobody lived in yet.

        Months that cleanup retired stay retired: time never goes back.
        """
        self.conn.execute(EMPTY)
        while begin - timedelta(days=70) < self.now:
            begin = begin.replace(year=begin.year + 1)
        self.travel_to(begin)

    def travel_to(self, now: datetime) -> None:
        """Let it be that time, for the database, the app and the workers; partitions of a new month are there before it."""
        is_new_month = (now.year, now.month) != (self.now.year, self.now.month)
        self.now = now
        self.conn.execute("update tests.clock set at = %s", [now])
        if is_new_month:
            self.conn.execute("select relevo.ensure_partitions(%s, 2)", [now.date()])

    def run(self, cycle: str, worker: int = 0) -> Report:
        """Run a cycle of a worker once; what it cannot do fails the test."""
        runs = self.workers[worker]
        report = runs.runner.run(runs.registry[cycle], "manual", budget=Budget(60_000, 1_000_000))
        assert report.outcome in ("ok", "idle"), report
        return report


@contextmanager
def time_machine(
    make_settings: Callable[..., Settings], workers: int = 1, parts: app.Parts | None = None, **changes: object
) -> Iterator[TimeMachine]:
    """Build workers on a database that no other test uses, and move its clock."""
    settings = make_settings(**changes)
    with ExitStack() as stack:
        conn = stack.enter_context(psycopg.connect(str(settings.database_url), autocommit=True))
        conn.execute(MADE_UP_TIME)
        built = []
        for number in range(workers):
            asked = make_settings(**changes | {"worker_id": f"w{number}"})
            made = stack.enter_context(app.build(asked, parts or app.Parts()))
            made.worker.record_start("run", [cycle.key for cycle in made.cycles()])
            built.append(made)
        yield TimeMachine(conn, built)
