"""When digests close: at the local time that a preference says, once a day or week, whatever clocks do."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

CHAIN = """
with recursive times as (
  select relevo.next_digest(%(delivery)s, %(zone)s, %(begin)s) as at
  union all
  select relevo.next_digest(%(delivery)s, %(zone)s, t.at) from times t where t.at < %(end)s)
select at from times where at < %(end)s order by 1
"""
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def expected(delivery: str, zone: str, begin: date, end: date) -> list[datetime]:
    """Return the instants of a local time on all days, or one of each week: after a gap, and the second of two."""
    kind, *day, clock = delivery.split()
    found = set()
    for n in range((end - begin).days):
        local = datetime.combine(begin + timedelta(days=n), time.fromisoformat(clock), ZoneInfo(zone))
        if kind == "daily" or DAYS[local.weekday()] == day[0]:
            found.add(max(local.astimezone(UTC), local.replace(fold=1).astimezone(UTC)))
    return sorted(found)


@pytest.mark.parametrize(
    ("zone", "delivery", "year"),
    [
        ("America/Santiago", "daily 00:30", 2026),  # its gap is at midnight
        ("America/Santiago", "daily 23:30", 2026),  # which comes twice on one day
        ("America/Santiago", "weekly sun 00:00", 2026),
        ("Australia/Lord_Howe", "daily 02:15", 2026),  # half an hour
        ("Africa/Casablanca", "daily 02:30", 2025),  # another time in Ramadan
        ("Asia/Kathmandu", "weekly fri 08:00", 2026),
        ("Pacific/Apia", "daily 08:00", 2011),  # without 30 December
    ],
)
def test_each_day_or_week_once(conn: psycopg.Connection[Any], zone: str, delivery: str, year: int) -> None:
    """Over a year each closing follows the one before, at the local time: none is left out, none comes twice."""
    begin, end = date(year, 1, 1), date(year + 1, 1, 3)
    bounds = {"begin": datetime(year, 1, 3, tzinfo=UTC), "end": datetime(year, 12, 31, 20, tzinfo=UTC)}
    rows = conn.execute(CHAIN, {"delivery": delivery, "zone": zone, **bounds}).fetchall()
    right = [at for at in expected(delivery, zone, begin, end) if bounds["begin"] < at < bounds["end"]]
    assert [row[0] for row in rows] == right


def test_hours_are_those_of_utc(conn: psycopg.Connection[Any]) -> None:
    """An hourly digest closes at each full hour of UTC, also where the clock differs by half an hour."""
    asked = {"delivery": "hourly", "zone": "Asia/Kathmandu", "begin": datetime(2026, 4, 4, tzinfo=UTC), "end": datetime(2026, 4, 5, tzinfo=UTC)}  # fmt: skip
    rows = conn.execute(CHAIN, asked).fetchall()
    assert [row[0] for row in rows] == [datetime(2026, 4, 4, hour, tzinfo=UTC) for hour in range(1, 24)]
