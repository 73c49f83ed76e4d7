"""What operators read of sources."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from relevo.app import App
from relevo.operators import sources


@pytest.mark.parametrize(("source", "places"), [("folder", ["a:2", "a:1"]), (None, ["a:2", "b:1", "a:1"])])
def test_rejects_are_those_of_the_source(
    build: Callable[..., App], conn: psycopg.Connection, source: str | None, places: list[str]
) -> None:
    """Rejects are listed, at once or page by page, of the source that is asked for, or of all; never those that are mended."""
    told = "insert into relevo.ingest_rejects (source, place, reason, resolved_at) values (%s, %s, 'no JSON', %s)"
    for name, place, resolved in (
        ("folder", "a:1", None),
        ("ocds", "b:1", None),
        ("folder", "a:2", None),
        ("folder", "a:3", "2026-01-01Z"),
    ):
        conn.execute(told, [name, place, resolved])
    database = build().database
    assert [row["place"] for row in sources.rejects(database, source=source)] == places
    assert [row["place"] for row in sources.page_of_rejects(database, source=source).rows] == places
