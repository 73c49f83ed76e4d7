"""When a cycle is due, decided without a clock: slots that all replicas agree on, and pauses by table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import get_args
from zoneinfo import ZoneInfo

import pytest

from relevo.config import Settings
from relevo.core.model import RunOutcome
from relevo.runtime.timing import Cron, Every, doubled, pause_ms

SANTIAGO = "America/Santiago"
NIGHTLY = Cron("17 3 * * *", SANTIAGO)
PACE = Settings(
    worker_busy_loop_delay_ms=250,
    worker_idle_backoff_min_ms=1_000,
    worker_idle_backoff_max_ms=30_000,
    worker_idle_backoff_jitter_ms=500,
    worker_tick_loop_error_backoff_ms=30_000,
    worker_tick_loop_max_jitter_ms=2_000,
)


def utc(text: str) -> datetime:
    """Read a moment of UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_interval_slots_are_those_of_date_bin(conn) -> None:
    """An interval's slot is the database's date_bin from the epoch, so every replica sees the same one."""
    moments = [utc("2026-04-05T02:59:59.999999"), utc("2026-09-06T04:00:00"), utc("1999-12-31T23:59:59")]
    for interval_ms, now in product([250, 1_000, 7_000, 120_000, 86_400_000], moments):
        every = Every(interval_ms)
        binned = conn.execute(
            "select date_bin(%s * interval '1 ms', %s, 'epoch'::timestamptz)", [interval_ms, now]
        ).fetchone()
        assert binned == (every.slot_at(now),)
        assert every.slot_at(now) <= now < every.next_slot(now)
        assert every.next_slot(now) - every.slot_at(now) == timedelta(milliseconds=interval_ms)


def test_an_interval_slot_does_not_depend_on_who_asks_when() -> None:
    """Two replicas that look anywhere within the same two minutes speak of one slot; a moment later of the next."""
    every = Every(120_000)
    start = utc("2026-01-01T10:00:00")
    seen = {every.slot_at(start + timedelta(seconds=s)) for s in (0, 0.001, 59, 119.999)}
    assert seen == {start}
    assert every.slot_at(start + timedelta(seconds=120)) == start + timedelta(seconds=120)


@pytest.mark.parametrize(
    ("now", "slot", "following"),
    [
        ("2026-06-10T07:16:59", "2026-06-09T07:17:00", "2026-06-10T07:17:00"),  # winter: four hours behind UTC
        ("2026-06-10T07:17:00", "2026-06-10T07:17:00", "2026-06-11T07:17:00"),  # the very moment belongs to its slot
        ("2026-01-10T12:00:00", "2026-01-10T06:17:00", "2026-01-11T06:17:00"),  # summer: three hours behind UTC
        ("2026-04-04T12:00:00", "2026-04-04T06:17:00", "2026-04-05T07:17:00"),  # summer ends in the night to the 5th
        ("2026-09-05T12:00:00", "2026-09-05T07:17:00", "2026-09-06T06:17:00"),  # summer begins in the night to the 6th
    ],
)
def test_a_nightly_slot_is_local_time_in_summer_and_winter(now: str, slot: str, following: str) -> None:
    """03:17 in Santiago is 06:17 or 07:17 in UTC; the night of a clock change has one such slot too."""
    assert NIGHTLY.slot_at(utc(now)) == utc(slot)
    assert NIGHTLY.next_slot(utc(now)) == utc(following)


@pytest.mark.parametrize("expression", ["17 3 * * *", "30 23 * * *", "30 0 * * *", "0 * * * *", "*/7 22-23,0-1 * * *"])
@pytest.mark.parametrize("start", ["2026-04-03T12:00:00", "2026-09-04T12:00:00"])
def test_slots_only_go_forward_over_a_clock_change(expression: str, start: str) -> None:
    """Around both clock changes slots rise, each begins where next_slot said, and lasts until the one after it."""
    cron = Cron(expression, SANTIAGO)
    now, end = utc(start), utc(start) + timedelta(days=3)
    while now < end:
        following = cron.next_slot(now)
        assert following > now
        assert cron.slot_at(following) == following
        assert cron.slot_at(following - timedelta(microseconds=1)) == cron.slot_at(now) <= now
        now = following


def test_the_registry_s_own_timing(build) -> None:
    """By default the reaper runs every ten seconds everywhere, cleanup at 03:17 of Santiago once in the fleet."""
    registry = build().registry
    assert (registry["reaper"].timing.ceiling_ms, registry["reaper"].singleton) == (10_000, False)
    assert (registry["cleanup"].timing, registry["cleanup"].singleton) == (NIGHTLY, True)
    other = build(cleanup_cron="5 4 * * 0", worker_timezone="UTC").registry
    assert other["cleanup"].timing == Cron("5 4 * * 0", "UTC")


def test_rare_and_lately_begun_slots_are_found() -> None:
    """The slot of a cron that fires once in four years is its last date, however long ago."""
    leap = Cron("0 12 29 2 *", SANTIAGO)
    assert leap.slot_at(utc("2027-11-01T00:00:00")) == utc("2024-02-29T15:00:00")
    assert leap.next_slot(utc("2027-11-01T00:00:00")) == utc("2028-02-29T15:00:00")


def test_slots_are_utc_whatever_zone_the_moment_comes_in() -> None:
    """A moment given in another zone is the same moment."""
    now = utc("2026-06-10T09:00:00")
    for zone in ("Asia/Tokyo", SANTIAGO):
        assert NIGHTLY.slot_at(now.astimezone(ZoneInfo(zone))) == NIGHTLY.slot_at(now)
        assert NIGHTLY.slot_at(now.astimezone(ZoneInfo(zone))).tzinfo is UTC


@pytest.mark.parametrize(
    ("round_", "streak", "ceiling_ms", "chance", "expected"),
    [
        (("ok", True), 1, 60_000, 0.0, 250),  # work was found: soon again
        (("ok", False), 9, 60_000, 0.0, 250),
        (("partial", False), 1, 60_000, 0.0, 250),
        (("ok", False), 1, 60_000, 1.0, 500),  # with jitter, at most as much again
        (("idle", True), 5, 60_000, 0.0, 250),  # stopped by its budget before it found anything
        (("idle", False), 1, 60_000, 0.0, 1_000),  # idle: the floor, doubled round by round
        (("idle", False), 2, 60_000, 0.0, 2_000),
        (("idle", False), 5, 60_000, 0.0, 16_000),
        (("idle", False), 6, 60_000, 0.0, 30_000),  # up to the maximum
        (("idle", False), 600, 60_000, 1.0, 30_500),  # plus jitter
        (("idle", False), 600, 10_000, 1.0, 10_000),  # and never beyond the cycle's own interval
        (("skipped", False), 3, 60_000, 0.0, 4_000),
        (("failed", False), 1, 60_000, 0.0, 30_000),  # failed: long, doubled up to the interval
        (("failed", False), 1, 60_000, 1.0, 32_000),
        (("failed", False), 9, 60_000, 0.0, 60_000),
        (("failed", True), 9, 10_000, 0.0, 30_000),  # but never shorter than the setting
    ],
)
def test_the_pause_after_a_round(
    round_: tuple[RunOutcome, bool], streak: int, ceiling_ms: int, chance: float, expected: float
) -> None:
    """Short after work, growing while idle, long after an error, each with its jitter and its cap."""
    outcome, more = round_
    assert pause_ms(outcome, PACE, more=more, streak=streak, ceiling_ms=ceiling_ms, chance=chance) == expected


@pytest.mark.parametrize("outcome", get_args(RunOutcome))
def test_no_pause_is_ever_without_bound(outcome: RunOutcome) -> None:
    """Whatever a round ends with, and however often, the pause stays below the hour."""
    for streak in (0, 1, 31, 10**9):
        for ceiling_ms in (10, 3_600_000):
            pause = pause_ms(outcome, PACE, more=False, streak=streak, ceiling_ms=ceiling_ms, chance=1.0)
            assert 0 < pause <= 3_602_000


@pytest.mark.parametrize(("streak", "expected"), [(0, 100), (1, 100), (2, 200), (4, 800), (5, 1_000), (10**9, 1_000)])
def test_doubling_is_capped(streak: int, expected: int) -> None:
    """Each further round of a streak doubles the pause, up to the cap."""
    assert doubled(100, streak, 1_000) == expected
