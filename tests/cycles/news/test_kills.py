"""A kill at every step of telling the news ends, after a restart, with each told once, and none lost.

The kill points are made from the named statements, so that a new one is covered by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from relevo.app import App
from support.deliveries import add_event
from support.killed_cycles import KilledProcesses, kill_points
from support.news_subscriptions import acknowledge, read, reap, subscribe, write
from support.processes import eventually

NOT_COVERED = {
    "news.put_off_event": "only after a row that cannot be written was undone; without it that row is met first again",
    "news.put_off_news": "likewise",
}

TOLD = "select count(*), count(distinct event_key) from relevo.notification_events where event_type = 'relevo.news'"

HELD = (
    "select from pg_stat_activity where datname = current_database() and backend_type = 'client backend'"
    " and xact_start is not null and pid <> pg_backend_pid()"  # for a moment it may still look active
)
"""What the dead still hold locked is passed over, as what another replica has in hand."""


def scene(conn: psycopg.Connection[Any], name: str) -> None:
    """Make an event that has just finished, some other news, and some that are acknowledged but not forgotten."""
    write(conn, 3)
    event = add_event(conn, event_type=f"note {name}")
    conn.execute(
        "insert into relevo.event_progress_deltas (event_id, status, deliveries) values (%s, 'ok', 1)", [event]
    )


def test_a_kill_at_any_statement(dsn: str, conn: psycopg.Connection[Any], build: Callable[..., App]) -> None:
    """Whatever statement the process dies at, the next run goes on: nothing is lost, and nothing told twice."""
    subscribe(conn, "feed")
    subscribe(conn, "hook", webhook="billing")
    with KilledProcesses.start(dsn) as killed_processes:
        scene(conn, "first")
        executed = killed_processes.run("reaper")
        points = kill_points(executed, "news", NOT_COVERED)
        assert len(points) > 10
        app = build()
        for number, point in enumerate(points):
            acknowledge(conn, 4 * (number + 1), "feed")
            scene(conn, str(number))
            killed_processes.run("reaper", kill=point)
            eventually(lambda: not conn.execute(HELD).fetchone(), "the server notices the death")
            reap(app)
            told = [(row["news_position"], row["kind"]) for row in read(conn, "feed")]
            first = 4 * (number + 1)
            assert [position for position, _ in told] == [first + 1, first + 2, first + 3, first + 4], point
            assert sorted(kind for _, kind in told) == ["event.finished", *["token.disabled"] * 3], point
            assert conn.execute(TOLD).fetchone() == (4 * (number + 2),) * 2, point
