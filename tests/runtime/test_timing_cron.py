"""Cron means cron: its numbers, names, ranges, steps and lists, and nights in which the clock changes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relevo.runtime.timing import Cron

SANTIAGO, BERLIN, LORD_HOWE = "America/Santiago", "Europe/Berlin", "Australia/Lord_Howe"
SUN, MON, TUE, WED, THU, FRI, SAT = range(7)
WEEK = {MON: "Monday", TUE: "Tuesday", WED: "Wednesday", THU: "Thursday", FRI: "Friday", SAT: "Saturday", SUN: "Sunday"}


def moments(expression: str, zone: str, first: str, last: str) -> list[datetime]:
    """Return what an expression names from one local day to another, in local time."""
    read, place = Cron(expression, zone), ZoneInfo(zone)
    now = datetime.fromisoformat(first).replace(tzinfo=place).astimezone(UTC) - timedelta(microseconds=1)
    end = datetime.fromisoformat(last).replace(tzinfo=place) + timedelta(days=1)
    found = []
    while (now := read.next_slot(now)) < end:
        assert read.slot_at(now) == now
        found.append(now.astimezone(place))
    return found


def local(found: list[datetime]) -> list[str]:
    """Write moments as their clock shows them, with the offset."""
    return [f"{moment:%m-%d %H:%M %z}" for moment in found]


@pytest.mark.parametrize(
    ("weekdays", "named"),
    [
        ("0", {SUN}),
        ("7", {SUN}),
        ("1", {MON}),
        ("6", {SAT}),
        ("1-5", {MON, TUE, WED, THU, FRI}),
        ("mon-fri", {MON, TUE, WED, THU, FRI}),
        ("MON,Wed,fri", {MON, WED, FRI}),
        ("5-7", {FRI, SAT, SUN}),
        ("0-7", set(range(7))),
        ("*", set(range(7))),
        ("*/2", {SUN, TUE, THU, SAT}),
        ("1-7/2", {MON, WED, FRI, SUN}),
        ("1,3-4,7", {MON, WED, THU, SUN}),
    ],
)
def test_weekdays_are_those_of_cron(weekdays: str, named: set[int]) -> None:
    """0 and 7 are Sunday, 1-5 is Monday to Friday."""
    found = moments(f"0 12 * * {weekdays}", SANTIAGO, "2026-06-01", "2026-06-14")
    assert {f"{moment:%A}" for moment in found} == {WEEK[day] for day in named}
    assert len(found) == 2 * len(named)


@pytest.mark.parametrize(
    ("expression", "hours_and_minutes"),
    [
        ("17 3 * * *", ["03:17"]),
        ("0,30 9-11 * * *", ["09:00", "09:30", "10:00", "10:30", "11:00", "11:30"]),
        ("*/20 8 * * *", ["08:00", "08:20", "08:40"]),
        ("5/25 8 * * *", ["08:05", "08:30", "08:55"]),
        ("10-30/10 8 * * *", ["08:10", "08:20", "08:30"]),
        ("0 */8 * * *", ["00:00", "08:00", "16:00"]),
        ("0 22-23,1 * * *", ["01:00", "22:00", "23:00"]),
        ("00 07 01 06 *", ["07:00"]),
        ("  0   7\t* jun * ", ["07:00"]),
    ],
)
def test_hours_and_minutes(expression: str, hours_and_minutes: list[str]) -> None:
    """Lists, ranges and steps name the times one expects, in order."""
    found = moments(expression, SANTIAGO, "2026-06-01", "2026-06-01")
    assert [f"{moment:%H:%M}" for moment in found] == hours_and_minutes


@pytest.mark.parametrize(
    ("days", "named"),
    [
        ("13 * 5", [5, 12, 13, 19, 26]),  # both restricted: a 13th, and every Friday
        ("13 * *", [13]),
        ("* * 5", [5, 12, 19, 26]),
        ("*/2 * 1", [1, 15, 29]),  # a field that begins with * restricts the other: odd days that are Mondays
        ("1-7 * */7", [7]),
        ("* jan-mar *", []),
        ("L * *", [30]),
        ("* * 5#2", [12]),
    ],
)
def test_a_day_of_month_or_a_weekday(days: str, named: list[int]) -> None:
    """Where both are restricted one of them is enough, as POSIX says; one that begins with a star narrows the other."""
    found = moments(f"0 12 {days}", SANTIAGO, "2026-06-01", "2026-06-30")
    assert [moment.day for moment in found] == named


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "daily",
        "@daily",
        "17 3 * *",
        "17 3 * * * *",
        "60 3 * * *",
        "17 24 * * *",
        "17 3 0 * *",
        "17 3 32 * *",
        "17 3 * 0 *",
        "17 3 * 13 *",
        "17 3 * * 8",
        "17 3 * * funday",
        "17 3 mon * *",
        "17 5-3 * * *",
        "17 3 * dec-jan *",
        "*/0 3 * * *",
        "*/00 3 * * *",
        "1,,2 3 * * *",
        "-1 3 * * *",
        "17 3 * * sat-mon",
        "17 3 last * *",
        "٣ 3 * * *",
        "1.5 3 * * *",
    ],
)
def test_what_is_no_cron_expression_is_refused(expression: str) -> None:
    """Nothing is guessed: one sentence says what would be right."""
    with pytest.raises(ValueError, match="must be a cron expression of five fields"):
        Cron(expression, SANTIAGO)


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 30-31 2 */2"])
def test_a_day_that_never_comes_is_refused(expression: str) -> None:
    """A cycle that would never run is told at once."""
    with pytest.raises(ValueError, match="some day meets"):
        Cron(expression, SANTIAGO)


def test_a_leap_day_on_a_given_weekday_is_found_over_a_century_without_one() -> None:
    """The rarest expression still has a last and a next time, forty years apart."""
    read = Cron("0 12 29 2 */7", "UTC")  # */7 names Sunday, and narrows
    now = datetime(2090, 1, 1, tzinfo=UTC)
    assert (read.slot_at(now).year, read.next_slot(now).year) == (2088, 2128)


@pytest.mark.parametrize(
    ("zone", "expression", "days", "expected"),
    [
        # Santiago, 2026-09-06: 00:00 becomes 01:00.
        (SANTIAGO, "30 0 * * *", ("09-05", "09-07"), ["09-05 00:30 -0400", "09-06 01:00 -0300", "09-07 00:30 -0300"]),
        (SANTIAGO, "0 0 * * *", ("09-06", "09-06"), ["09-06 01:00 -0300"]),
        (SANTIAGO, "0,30 0-1 * * *", ("09-06", "09-06"), ["09-06 01:00 -0300", "09-06 01:30 -0300"]),
        (SANTIAGO, "59 23 * * *", ("09-05", "09-06"), ["09-05 23:59 -0400", "09-06 23:59 -0300"]),
        # Santiago, 2026-04-04: 24:00 becomes 23:00.
        (SANTIAGO, "30 23 * * *", ("04-03", "04-05"), ["04-03 23:30 -0300", "04-04 23:30 -0300", "04-05 23:30 -0400"]),
        (SANTIAGO, "0 0 * * *", ("04-04", "04-05"), ["04-04 00:00 -0300", "04-05 00:00 -0400"]),
        (SANTIAGO, "0 22-23 * * *", ("04-04", "04-04"), ["04-04 22:00 -0300", "04-04 23:00 -0300"]),
        # Berlin, 2026-03-29: 02:00 becomes 03:00; 2026-10-25: 03:00 becomes 02:00.
        (BERLIN, "30 2 * * *", ("03-28", "03-30"), ["03-28 02:30 +0100", "03-29 03:00 +0200", "03-30 02:30 +0200"]),
        (BERLIN, "0,30 2-3 29 3 *", ("03-29", "03-29"), ["03-29 03:00 +0200", "03-29 03:30 +0200"]),
        (BERLIN, "30 2 * * *", ("10-24", "10-26"), ["10-24 02:30 +0200", "10-25 02:30 +0200", "10-26 02:30 +0100"]),
        (BERLIN, "0 3 * * *", ("10-25", "10-25"), ["10-25 03:00 +0100"]),
        # Lord Howe moves by half an hour; 2026-10-04: 02:00 becomes 02:30; 2026-04-05: 02:00 becomes 01:30.
        (LORD_HOWE, "15 2 * * *", ("10-03", "10-05"), ["10-03 02:15 +1030", "10-04 02:30 +1100", "10-05 02:15 +1100"]),
        (LORD_HOWE, "0 2 * * *", ("10-04", "10-04"), ["10-04 02:30 +1100"]),
        (LORD_HOWE, "45 1 * * *", ("04-04", "04-06"), ["04-04 01:45 +1100", "04-05 01:45 +1100", "04-06 01:45 +1030"]),
        (LORD_HOWE, "0 2 * * *", ("04-05", "04-05"), ["04-05 02:00 +1030"]),
        # Every hour is every hour: the repeated one is an hour of its own, and a gap costs no more than itself.
        (
            SANTIAGO,
            "30 * * * *",
            ("04-04", "04-05"),
            [
                *(f"04-04 {hour:02}:30 -0300" for hour in range(24)),
                "04-04 23:30 -0400",
                *(f"04-05 {hour:02}:30 -0400" for hour in range(24)),
            ],
        ),
        (
            BERLIN,
            "0 * * * *",
            ("03-29", "03-29"),
            ["03-29 00:00 +0100", "03-29 01:00 +0100", *(f"03-29 {hour:02}:00 +0200" for hour in range(3, 24))],
        ),
    ],
)
def test_nights_in_which_the_clock_changes(
    zone: str, expression: str, days: tuple[str, str], expected: list[str]
) -> None:
    """A time in a gap is the gap's end; one that comes twice is the first, except where every hour is named."""
    assert local(moments(expression, zone, f"2026-{days[0]}", f"2026-{days[1]}")) == expected


@pytest.mark.parametrize(
    ("expression", "first", "last"),
    [("30 0 * * *", "2026-01-01", "2027-12-31"), ("30 23 * * *", "2026-01-01", "2027-12-31")],
)
def test_two_years_of_santiago_have_one_run_a_night(expression: str, first: str, last: str) -> None:
    """The two expressions that missed the night to 2026-09-06 and ran twice on 2027-04-03."""
    days = [moment.date() for moment in moments(expression, SANTIAGO, first, last)]
    assert days == [date(2026, 1, 1) + timedelta(days=n) for n in range(730)]


ZONES = st.sampled_from(
    [
        SANTIAGO,
        BERLIN,
        LORD_HOWE,
        "UTC",
        "America/New_York",
        "Africa/Casablanca",
        "Asia/Kolkata",
        "America/Nuuk",
        "Asia/Beirut",
    ]
)
INSTANTS = st.integers(1_577_836_800, 2_051_222_400).map(
    lambda seconds: datetime.fromtimestamp(seconds, UTC)
)  # 2020 to 2034


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    spans = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    return st.one_of(st.just("*"), number.map(str), spans, st.integers(1, high).map(lambda step: f"*/{step}"))


EXPRESSIONS = st.tuples(_field(0, 59), _field(0, 23), _field(1, 28), _field(1, 12), _field(0, 7)).map(" ".join)


@given(expression=EXPRESSIONS, zone=ZONES, now=INSTANTS)
@settings(max_examples=150, deadline=None)
def test_slots_rise_and_agree(expression: str, zone: str, now: datetime) -> None:
    """Whatever the expression: the next time is later, it is its own last time, and between the two nothing lies."""
    read = Cron(expression, zone)
    before, after = read.slot_at(now), read.next_slot(now)
    assert before <= now < after
    assert (read.slot_at(before), read.slot_at(after)) == (before, after)
    assert read.next_slot(before) == read.next_slot(after - timedelta(microseconds=1)) == after
    assert read.next_slot(after) > after


@given(hour=st.integers(0, 23), minute=st.integers(0, 59), zone=ZONES, now=INSTANTS)
@settings(max_examples=150, deadline=None)
def test_a_daily_expression_has_one_slot_a_day(hour: int, minute: int, zone: str, now: datetime) -> None:
    """However the clock changes, a daily time comes once on each local day, and at its own time where the day has it."""
    read, place = Cron(f"{minute} {hour} * * *", zone), ZoneInfo(zone)
    days = []
    for _ in range(10):
        now = read.next_slot(now)
        shown = now.astimezone(place)
        days.append(shown.date())
        there = shown.replace(hour=hour, minute=minute, fold=0).astimezone(UTC).astimezone(place)
        if (there.hour, there.minute) == (hour, minute):
            assert shown == there, "its time is on the clock that day"
    assert days == [days[0] + timedelta(days=n) for n in range(10)]
