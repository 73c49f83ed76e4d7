"""Subscriptions to news for tests: made, read and kept up by hand."""

from __future__ import annotations

import json
from typing import Any

import psycopg

from relevo.app import App
from relevo.core.model import Report

ALL = ("event.finished", "delivery.failed", "token.disabled", "installation.unregistered")


def subscribe(conn: psycopg.Connection[Any], name: str = "app", *kinds: str, **more: object) -> bool:
    """Subscribe to some kinds of news, or to all."""
    asked = {"name": name, "kinds": kinds or ALL} | more
    row = conn.execute("select relevo.subscribe_news(%s::jsonb)", [json.dumps(asked)]).fetchone()
    assert row is not None
    return bool(row[0])


def read(
    conn: psycopg.Connection[Any], name: str = "app", after: int | None = None, limit: int = 1000
) -> list[dict[str, Any]]:
    """Read a subscription's next news."""
    with conn.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        return cursor.execute("select * from relevo.read_news(%s, %s, %s)", [name, after, limit]).fetchall()


def positions(conn: psycopg.Connection[Any], name: str = "app") -> list[int]:
    """Return the numbers of the news that wait."""
    return [row["news_position"] for row in read(conn, name)]


def acknowledge(conn: psycopg.Connection[Any], position: int, name: str = "app") -> bool:
    """Note that news were dealt with."""
    row = conn.execute("select relevo.acknowledge_news(%s, %s)", [name, position]).fetchone()
    assert row is not None
    return bool(row[0])


def reap(app: App) -> Report:
    """Run the reaper once, as by hand: it folds counts and shares out the news."""
    report = app.runner.run(app.registry["reaper"], "manual")
    assert report.outcome in ("ok", "idle"), report
    return report


def write(conn: psycopg.Connection[Any], count: int, kind: str = "token.disabled") -> None:
    """Write news as triggers do."""
    conn.execute(
        "insert into relevo.news_inbox (at, kind, project, data)"
        " select now(), %s, 'default', '{}' from generate_series(1, %s)",
        [kind, count],
    )


def waiting(conn: psycopg.Connection[Any]) -> int:
    """Count the news that were not shared out yet."""
    row = conn.execute("select count(*) from relevo.news_inbox").fetchone()
    assert row is not None
    return int(row[0])
