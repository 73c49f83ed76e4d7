"""When quiet hours end, whatever clocks do: what the database says, beside an oracle that steps from minute to minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relevo.client import quiet
from relevo.core.errors import InvalidInputError
from support.soak import cases

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
CHANGES = {
    "America/Santiago": ["2024-04-07 03:00", "2024-09-08 04:00", "2025-04-06 03:00", "2025-09-07 04:00"],
    "Australia/Lord_Howe": ["2024-04-06 15:00", "2024-10-05 15:30"],
    "Pacific/Apia": ["2011-12-30 10:00"],
    "Africa/Casablanca": ["2024-03-10 02:00", "2024-04-14 02:00"],
    "Asia/Kathmandu": ["2024-06-30 18:15"],
    "Europe/Madrid": ["2024-03-31 01:00", "2024-10-27 01:00"],
    "UTC": ["2024-12-31 23:59"],
}
"""When clocks were changed, or a week or a year ended; in Santiago at midnight, in Apia by a whole day."""

Minutes = st.integers(0, 1439)
Times = st.sampled_from(
    [(zone, datetime.fromisoformat(at).replace(tzinfo=UTC)) for zone, ats in CHANGES.items() for at in ats]
)


@st.composite
def windows(draw: st.DrawFn) -> str:
    """Draw a window, on some days or on each; over midnight as often as not."""
    days = draw(st.lists(st.sampled_from(DAYS), max_size=7, unique=True))
    begins, ends = draw(Minutes), draw(Minutes)
    hours = f"{begins // 60:02}:{begins % 60:02}-{ends // 60:02}:{ends % 60:02}"
    return f"{','.join(days)} {hours}" if days else hours


def quiet_minutes(given: list[str]) -> set[tuple[int, int]]:
    """Return the day and minute of each quiet minute of the week, found by walking along each window."""
    found = set()
    for each in given:
        days, _, hours = each.rpartition(" ")
        begins, ends = ((int(at[:2]) * 60 + int(at[3:])) for at in hours.split("-"))
        for day in days.split(",") if days else DAYS:
            minute, number = begins, DAYS.index(day)
            while True:
                found.add((number, minute))
                minute += 1
                if minute == 1440:
                    minute, number = 0, (number + 1) % 7
                if minute == ends % 1440:
                    break
    return found


def stepped(given: list[str], zone: str, at: datetime) -> datetime | None:
    """Step from minute to minute until the wall clock shows one that is not quiet."""
    hours, here, then = quiet_minutes(given), ZoneInfo(zone), at
    while True:
        local = then.astimezone(here)
        if (local.weekday(), local.hour * 60 + local.minute) not in hours:
            return None if then == at else then
        then = then.replace(second=0, microsecond=0) + timedelta(minutes=1)


@settings(
    max_examples=cases(150, whole=2_000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(windows(), min_size=1, max_size=3), Times, st.integers(-4_000, 4_000), st.integers(0, 59))
def test_the_end_is_where_stepping_ends(
    conn: psycopg.Connection[Any], given: list[str], change: tuple[str, datetime], minutes: int, seconds: int
) -> None:
    """Over midnight, the week's end and both changes of clocks, quiet hours end when the wall clock leaves them."""
    if len(quiet_minutes(given)) == 7 * 1440:
        return  # refused, as another test has it
    zone, around = change
    at = around + timedelta(minutes=minutes, seconds=seconds)
    ask = "select relevo.end_of_quiet(relevo.quiet_windows(%s::jsonb), %s, %s)"
    row = conn.execute(ask, [psycopg.types.json.Json(given), zone, at]).fetchone()
    assert row == (stepped(given, zone, at),)


@settings(max_examples=cases(60, whole=500), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(windows(), max_size=4))
def test_hours_are_told_as_they_are_taken(conn: psycopg.Connection[Any], given: list[str]) -> None:
    """What is shown of quiet hours is taken as the same hours again."""
    if len(quiet_minutes(given)) == 7 * 1440:
        return
    ask = "select w = relevo.quiet_windows(relevo.shown_windows(w)) from relevo.quiet_windows(%s::jsonb) as w"
    assert conn.execute(ask, [psycopg.types.json.Json(given)]).fetchone() == (True,)


def test_what_cannot_be_is_refused(conn: psycopg.Connection[Any]) -> None:
    """What is no window, no zone, nobody's, or all of the week is refused by a sentence that names it."""
    refused: list[tuple[dict[str, Any], str]] = [
        ({"owner": "ana", "windows": ["22:00-07:00"]}, "zone must be given, such as America/Santiago"),
        ({"project": "shop", "windows": ["22:00-07:00"]}, "zone must be given, such as America/Santiago"),
        ({"project": "shop", "windows": ["22:00-07:00"], "zone": None}, "zone must be given"),
        ({"owner": "ana", "zone": "UTC"}, "windows must be given beside zone, .* no quiet hours yet"),
        ({"owner": "ana"}, "windows must be given: a list .* or null to remove the quiet hours"),
        ({"owner": "ana", "windows": ["22-7"], "zone": "UTC"}, "22-7"),
        ({"owner": "ana", "windows": ["someday 22:00-07:00"], "zone": "UTC"}, "someday"),
        ({"owner": "ana", "windows": ["00:00-24:00"], "zone": "UTC"}, "leave some time of the week"),
        ({"owner": "ana", "windows": ["22:00-07:00"], "zone": "Mars/Base"}, "Mars/Base"),
        ({"owner": "ana", "windows": ["22:00-07:00"] * 51, "zone": "UTC"}, "at most 50"),
        ({"windows": ["22:00-07:00"]}, "must be given"),
        ({"installation_id": "a0b1c2d3-0000-4000-8000-000000000000", "windows": None}, "no installation"),
    ]
    for asked, complaint in refused:
        with pytest.raises(InvalidInputError, match=complaint):
            quiet.set_quiet(conn, **asked)
