"""Deliveries for tests: rows made in SQL, as fan-out would."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any
from uuid import uuid4

import psycopg

TODAY = datetime.now(UTC).date()


def add_deliveries(
    conn: psycopg.Connection[Any],
    count: int,
    *,
    day: date = TODAY,
    project: str = "default",
    lane: str = "bulk",
    event_type: str = "tender.new",
    event: int = 1,
    due: datetime | None = None,
    deadline: datetime | None = None,
    at_most_once: bool = False,
    attempts: int = 0,
    lapses: int = 0,
) -> list[int]:
    """Insert open deliveries of one event to new installations and return their ids."""
    fixed, status = (day, event, event_type), "retryable" if attempts else "pending"
    with conn.cursor() as cursor:
        cursor.executemany(
            """
            with phone as (
              insert into relevo.device_installations (token) values (%s) returning installation_id
            )
            insert into relevo.notification_deliveries (event_day, notification_event_id, event_type, installation_id,
              project, lane, next_attempt_at, deadline_at, at_most_once, attempt_count, lapse_count, status)
            select %s, %s, %s, installation_id, %s, %s, coalesce(%s, now()), %s, %s, %s, %s, %s from phone returning id
            """,
            [
                (
                    f"ExponentPushToken[{uuid4()}]",
                    *fixed,
                    project,
                    lane,
                    due,
                    deadline,
                    at_most_once,
                    attempts,
                    lapses,
                    status,
                )
                for _ in range(count)
            ],
            returning=True,
        )
        return [result.fetchone()[0] for result in cursor.results()]


def states(conn: psycopg.Connection[Any]) -> dict[str, int]:
    """Count the deliveries per status."""
    return dict(conn.execute("select status, count(*) from relevo.notification_deliveries group by status").fetchall())


def one(conn: psycopg.Connection[Any], delivery_id: int) -> dict[str, Any]:
    """Read one delivery with its claim spelled out."""
    with conn.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        row = cursor.execute("select * from relevo.deliveries where id = %s", [delivery_id]).fetchone()
    assert row is not None
    return row
