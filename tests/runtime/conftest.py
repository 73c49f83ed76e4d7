"""What tests of running cycles share: processes that never outlive a test, probe tables, and ears for log lines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from processes import Processes
from relevo.core import logs

Rows = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def processes(dsn: str, tmp_path: Path) -> Iterator[Processes]:
    """Start processes on the test's database."""
    started = Processes(dsn, tmp_path)
    yield started
    started.close()


@pytest.fixture
def rows(conn: psycopg.Connection[Any]) -> Rows:
    """Read rows as dictionaries: `rows("select …", [parameters])`."""

    def read(query: str, parameters: Any = ()) -> list[dict[str, Any]]:
        with conn.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query, parameters).fetchall()

    return read


@pytest.fixture
def runs(rows: Rows) -> Rows:
    """Read the runs of a cycle, oldest first: `runs("probe", outcome="ok")`."""

    def read(cycle: str, outcome: str | None = None) -> list[dict[str, Any]]:
        return rows(
            "select * from relevo.worker_runs where cycle = %s and outcome = coalesce(%s, outcome) order by id",
            [cycle, outcome],
        )

    return read


@pytest.fixture
def probed(rows: Rows) -> Rows:
    """Read what a probe wrote, in order: `probed("nightly", word="end")`."""

    def read(cycle: str, word: str | None = None) -> list[dict[str, Any]]:
        return rows(
            "select * from public.probe where cycle = %s and word = coalesce(%s, word) order by id", [cycle, word]
        )

    return read


@pytest.fixture
def said() -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Hear this process's log lines as they are written: `said("run_finished", cycle="probe")`."""
    out = io.StringIO()
    logs.configure("info", "json", out)

    def lines(event: str | None = None, **fields: object) -> list[dict[str, Any]]:
        every = [json.loads(line) for line in out.getvalue().splitlines()]
        return [
            line
            for line in every
            if event in (None, line["event"]) and all(line.get(key) == value for key, value in fields.items())
        ]

    yield lines
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, logs._Handler)]:
        root.removeHandler(handler)
