"""Cron expressions as cron reads them, in the time of a place whose clock changes."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import product
from typing import NamedTuple
from zoneinfo import ZoneInfo

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
# The rarest: a 29th of February on a given weekday, over the year 2100.
_LONGEST_WAIT_DAYS = 41 * 366
_LEAP_YEAR = 2024
NOT_CRON = "must be a cron expression of five fields such as 17 3 * * *"
_ITEM = re.compile(r"(?:\*|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/([0-9]{1,2}))?")


class _Field(NamedTuple):
    """One of the five: its bounds, and the names that may stand for its numbers from `low` on."""

    low: int
    high: int
    names: tuple[str, ...] = ()


_WEEKDAY = _Field(0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FIELDS = (_Field(0, 59), _Field(0, 23), _Field(1, 31), _Field(1, 12, _MONTHS), _WEEKDAY)
_WEEK = 7
_HOURS = 24


@dataclass(frozen=True)
class Expression:
    """What the five fields name; 0 is Sunday."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """Day of month and weekday are both restricted: one of them is enough, as in every cron."""

    def last(self, now: datetime, zone: ZoneInfo) -> datetime:
        """Return the last moment it names, `now` included, in UTC."""
        start = now.astimezone(zone).date() + _DAY
        return max(self._nearest(now, zone, (start - _DAY * n for n in range(_LONGEST_WAIT_DAYS)), later=False))

    def next(self, now: datetime, zone: ZoneInfo) -> datetime:
        """Return the first moment it names after `now`, in UTC."""
        start = now.astimezone(zone).date() - _DAY
        return min(self._nearest(now, zone, (start + _DAY * n for n in range(_LONGEST_WAIT_DAYS)), later=True))

    def _nearest(self, now: datetime, zone: ZoneInfo, days: Iterator[date], *, later: bool) -> list[datetime]:
        """Return the moments before or after `now` of the first of these days that has some, and of the day after it.

        Where an hour is repeated around midnight, the days overlap.
        """
        for day in days:
            found = [moment for moment in self._moments(day, zone) if (moment > now) == later]
            if found:
                return found + [moment for moment in self._moments(next(days, day), zone) if (moment > now) == later]
        raise ValueError("no day meets this cron expression")

    def names_day(self, day: date) -> bool:
        """Tell whether it names some time of this day."""
        by_date, by_weekday = day.day in self.days, day.isoweekday() % _WEEK in self.weekdays
        return day.month in self.months and (by_date or by_weekday if self.either_day else by_date and by_weekday)

    def _moments(self, day: date, zone: ZoneInfo) -> set[datetime]:
        """Return the moments of a local day.

        A time that the clock jumps over is the end of the jump. One that comes twice is the first of the two, except
        where every hour is named: then the repeated hour is an hour like any other.
        """
        if not self.names_day(day):
            return set()
        moments: set[datetime] = set()
        for hour, minute in product(self.hours, self.minutes):
            local = datetime.combine(day, time(hour, minute), zone)
            first, second = local.astimezone(UTC), local.replace(fold=1).astimezone(UTC)
            moments.add(first if first <= second else _end_of_jump(second, first, zone))
            if first < second and len(self.hours) == _HOURS:
                moments.add(second)
        return moments


def _end_of_jump(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """Return when the clock jumped, between these two moments."""
    offset = before.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // 2 // _SECOND * _SECOND
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after


@lru_cache(maxsize=64)
def parse(text: str) -> Expression:
    """Read five fields; raises ValueError if they are no cron expression, or one that no day meets."""
    fields = text.lower().split()
    if len(fields) != len(_FIELDS):
        raise ValueError(NOT_CRON)
    minutes, hours, days, months, weekdays = (
        _read_field(given, field) for given, field in zip(fields, _FIELDS, strict=True)
    )
    either_day = not (fields[2].startswith("*") or fields[4].startswith("*"))
    if not either_day and not any(min(days) <= monthrange(_LEAP_YEAR, month)[1] for month in months):
        raise ValueError("must be a cron expression that some day meets, such as 17 3 * * *")
    return Expression(minutes, hours, days, months, weekdays, either_day)


def _read_field(text: str, field: _Field) -> frozenset[int]:
    found: set[int] = set()
    for item in text.split(","):
        read = _ITEM.fullmatch(item)
        if read is None:
            raise ValueError(NOT_CRON)
        first, last, steps = read.groups()
        found.update(_numbers(first, last, steps, field))
    return frozenset(number % _WEEK for number in found) if field is _WEEKDAY else frozenset(found)


def _numbers(first: str | None, last: str | None, steps: str | None, field: _Field) -> range:
    """Return what `*`, `5`, `1-5` or `*/2` names; a week may be passed over its end, as in fri-mon, and 7 is Sunday."""
    low = field.low if first is None else _number(first, field)
    high = _number(last, field) if last else low if first and not steps else field.high
    step = int(steps or 1)
    if field is _WEEKDAY and high < low:
        high += _WEEK
    if high < low or step == 0:
        raise ValueError(NOT_CRON)
    return range(low, high + 1, step)


def _number(text: str, field: _Field) -> int:
    if text in field.names:
        return field.low + field.names.index(text)
    number = int(text) if text.isdecimal() else -1
    if not field.low <= number <= field.high + (field is _WEEKDAY):
        raise ValueError(NOT_CRON)
    return number
