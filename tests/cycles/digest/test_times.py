"""When digests close: at the local time that a preference says, once a day or week, whatever clocks do."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relevo.client import quiet, verbs
from relevo.client.values import Event
from support.phones import add_phones
from support.soak import cases

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


CHANGES = {
    "America/Santiago": ["2026-04-05 03:00", "2026-09-06 04:00"],  # both at midnight
    "Australia/Lord_Howe": ["2024-04-06 15:00", "2024-10-05 15:30"],
    "Pacific/Apia": ["2011-12-30 10:00"],
    "Africa/Casablanca": ["2025-02-23 02:00", "2025-04-06 02:00"],
    "Asia/Kathmandu": ["2026-06-30 18:15"],
}
Places = st.sampled_from(
    [(zone, datetime.fromisoformat(at).replace(tzinfo=UTC)) for zone, ats in CHANGES.items() for at in ats]
)
Deliveries = st.builds(
    lambda day, minute: f"{f'weekly {day}' if day else 'daily'} {minute // 60:02}:{minute % 60:02}",
    st.sampled_from(("", *DAYS)),
    st.integers(0, 1439),
)
HARDLY = [HealthCheck.function_scoped_fixture]


def stepped(delivery: str, zone: str, after: datetime) -> datetime:
    """Step from minute to minute: a time that comes twice counts when it comes last, one that is jumped over as if it were not."""
    kind, *day, clock = delivery.split()
    here, wanted = ZoneInfo(zone), time.fromisoformat(clock)
    then = after.replace(second=0, microsecond=0) - timedelta(hours=27)
    shown = then.astimezone(here).replace(tzinfo=None)
    found: dict[date, datetime] = {}
    while then < after + timedelta(days=9):
        local = (then + timedelta(minutes=1)).astimezone(here).replace(tzinfo=None)
        if local < shown:
            shown = local - timedelta(minutes=1)  # what was shown before comes once more
            found = {each: at for each, at in found.items() if datetime.combine(each, wanted) <= shown}
        for number in range((local.date() - shown.date()).days + 1):
            moment = datetime.combine(shown.date() + timedelta(days=number), wanted)
            if shown < moment <= local and (kind == "daily" or DAYS[moment.weekday()] == day[0]):
                found[moment.date()] = then + (timedelta(minutes=1) if moment == local else moment - shown)
        then, shown = then + timedelta(minutes=1), local
    return min(at for at in found.values() if at > after)


@settings(max_examples=cases(40, whole=1_500), deadline=None, suppress_health_check=HARDLY)
@given(Deliveries, Places, st.integers(-3_000, 3_000))
def test_the_next_closing_is_where_stepping_comes_to(
    conn: psycopg.Connection[Any], delivery: str, place: tuple[str, datetime], minutes: int
) -> None:
    """Around changes of clocks, Apia's missing day and the week's end, a digest closes next when the wall clock comes to its time."""
    zone, around = place
    after = around + timedelta(minutes=minutes)
    row = conn.execute("select relevo.next_digest(%s, %s, %s)", [delivery, zone, after]).fetchone()
    assert row == (stepped(delivery, zone, after),)


@settings(max_examples=cases(40, whole=1_500), deadline=None, suppress_health_check=HARDLY)
@given(Places, st.integers(-9_000, 9_000))
def test_caps_count_in_what_the_calendar_shows(
    conn: psycopg.Connection[Any], place: tuple[str, datetime], minutes: int
) -> None:
    """An event counts in the hour, day and week that the wall clock of its phone shows when it is to be sent."""
    zone, around = place
    due = around + timedelta(minutes=minutes)
    if conn.execute("select count(*) from relevo.caps").fetchone() == (0,):
        for per in ("hour", "day", "week"):
            quiet.set_cap(conn, 9, per=per)
        verbs.enqueue(conn, Event("notice", "any", "Any", audience=add_phones(conn, 1)))
    conn.execute("update relevo.device_installations set timezone = %s", [zone])
    rows = conn.execute(
        """select c.per, a.bucket from relevo.notification_events e, relevo.device_installations i,
             lateral relevo.applicable_caps(e, array[i.installation_id], array[%(due)s::timestamptz], %(due)s) a join relevo.caps c on c.id = a.cap""",
        {"due": due},
    ).fetchall()
    local = due.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    hour = local.replace(minute=0)
    monday = day = datetime.combine(local.date(), time())
    while monday.weekday():
        monday -= timedelta(days=1)
    assert dict(rows) == {"hour": hour, "day": day, "week": monday}
