"""What is a runaway: decided by numbers alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import pytest

from relevo.core.model import Delivery
from relevo.core.phrases import release_command
from relevo.cycles import runaway
from relevo.cycles.runaway import Count, RunawayLimits, Stop, Stream
from relevo.delivery.settling.outcomes import obstructed

RULES = RunawayLimits(min_events=100, first_events=1_000)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
NEW = Stream(1, "digest", "app", NOW, NOW, None, None, 0.0, released=False)
KNOWN = replace(NEW, known_since=NOW - timedelta(days=7))


@pytest.mark.parametrize(
    ("stream", "everyone", "phones", "stopped"),
    [
        # a week's past: the stream itself comes more often within an hour than twice on its busiest day, and phones get it all
        (KNOWN, Count(100, 1), [Count(100, 1)] * 5, False),
        (KNOWN, Count(101, 1), [Count(101, 1)] * 5, True),
        (KNOWN, Count(822, 411), [Count(822, 411)] * 5, False),
        (KNOWN, Count(823, 411), [Count(823, 411)] * 5, True),
        # half of its phones, or a few, are no reason to keep it from the others
        (KNOWN, Count(101, 1), [Count(101, 1)] * 5 + [Count(1)] * 5, False),
        (KNOWN, Count(101, 1), [Count(101, 1)] * 6 + [Count(1)] * 5, True),
        # many events, each for few: nobody gets much
        (KNOWN, Count(50_000, 10), [Count(3, 1)] * 2, False),
        # one who asks for more than before gets what always came
        (KNOWN, Count(80, 411), [Count(80, 2)], False),
        # without a past only what would be too much for any phone
        (NEW, Count(1_000), [Count(1_000)] * 5, False),
        (NEW, Count(1_001), [Count(1_001)] * 5, True),
        # a personal event is measured by its phone alone: a chat grows, and some talk a lot
        (KNOWN, None, [Count(1_000, 3)], False),
        (KNOWN, None, [Count(1_001, 3)], True),
        (KNOWN, None, [Count(4_000, 2_000)], False),
        (KNOWN, None, [Count(4_001, 2_000)], True),
        (KNOWN, None, [Count(9_999, 3), Count(4, 3)], False),
    ],
)
def test_what_is_stopped(stream: Stream, everyone: Count | None, phones: list[Count], stopped: bool) -> None:
    """Far above its own past, for most of its phones."""
    assert (runaway.judge(everyone, phones, RULES, has_past=stream.has_past) is not None) == stopped


def test_what_is_said() -> None:
    """Both numbers, now and before, of what came and of who got it."""
    said = Stop(4, 4, Count(150, 3), flood=Count(150, 3)).reason(KNOWN)
    came = "digest from app came 150 times within an hour, 3 times on its busiest day before"
    assert said == f"{came}; 4 of 4 phones got up to 150 of them"
    said = Stop(1, 1, Count(1_234, 40)).reason(KNOWN)
    assert said == "a phone got up to 1234 of digest from app within an hour, 40 on the busiest day before"
    long = replace(KNOWN, event_type="x" * 100, origin="y" * 100)
    assert len(Stop(100, 100, Count(10**9, 1), flood=Count(10**9, 10**9)).reason(long)) <= 300


def test_a_past_is_a_week() -> None:
    """Younger than that, a stream has not shown what it does on each day."""
    assert KNOWN.has_past
    assert not replace(KNOWN, known_since=NOW - timedelta(days=6, hours=23)).has_past


@pytest.mark.parametrize(
    ("stream", "everyone", "phones", "above"),
    [
        (KNOWN, Count(900, 300), 100, 600),
        (KNOWN, Count(900, 300), 99, None),
        (NEW, Count(1_001), 100, 1_000),
        (KNOWN, None, 100, None),
    ],
)
def test_a_stream_is_stopped_as_a_whole(stream: Stream, everyone: Count | None, phones: int, above: int | None) -> None:
    """If an event that reaches many is one too many, the next need not be weighed, until they come less often."""
    stop = runaway.judge(everyone, [Count(1_001)] * phones, RULES, has_past=stream.has_past)
    assert stop is not None
    assert stop.above == above


@pytest.mark.parametrize(
    ("stream", "stopped"),
    [
        (replace(KNOWN, in_hour=600.0, held_at=NOW, held_above=600), True),
        (replace(KNOWN, in_hour=599.0, held_at=NOW, held_above=600), False),
        (replace(KNOWN, in_hour=600.0, held_at=NOW, held_above=None), False),
        (replace(KNOWN, in_hour=600.0, held_at=NOW - timedelta(minutes=59), held_above=600), True),
        (replace(KNOWN, in_hour=600.0, held_at=NOW - timedelta(minutes=60), held_above=600), False),
        (KNOWN, False),
    ],
)
def test_it_stays_stopped_while_it_comes_as_often(stream: Stream, stopped: bool) -> None:
    """What was stopped as a whole within the hour stays so; then, and if it comes less often, it is weighed again."""
    assert runaway.is_still_stopped(stream) == stopped


@pytest.mark.parametrize(
    ("repeats", "deliveries", "storm"),
    [
        (30, 1, False),
        (31, 1, True),
        (30, 3, False),
        (5_000, 500, False),
        (5_001, 500, True),
        (3_200_000, 400_000, False),
    ],
)
def test_a_retry_storm(repeats: int, deliveries: int, storm: bool) -> None:
    """Each push tried again more than ten times within an hour; an ordinary policy, 8 times in three hours, never is."""
    assert runaway.is_retry_storm(repeats, deliveries) == storm


def test_a_phone_that_is_counted_in_two_streams() -> None:
    """It is judged by the most that it got within an hour and by the calmer of the two pasts, so that neither is missed."""
    ana, bea = UUID(int=1), UUID(int=2)
    counts = runaway.counts_of([ana, bea, ana, bea], [5.0, 2.0, 3.0, 9.0], [1, 20, 10, 4])
    assert counts == {ana: Count(5.0, 1), bea: Count(9.0, 4)}


@pytest.mark.parametrize(("seconds_left", "pause_s"), [(None, 900), (3_600, 900), (900, 840), (90, 60), (30, 60)])
def test_what_is_held_looks_again_before_its_deadline(seconds_left: float | None, pause_s: int) -> None:
    """Every quarter of an hour, and once more before it would be too late."""
    delivery = Delivery(
        date(2026, 11, 20), 1, 1, UUID(int=1), "digest", "expo", "default", "bulk", False, "retryable", 3, 0, None
    )
    answer = obstructed(delivery._replace(seconds_left=seconds_left), "repeats_held")
    assert answer is not None
    assert (answer.status, answer.attempted, answer.retry_after_ms) == ("retryable", False, pause_s * 1000)


def test_the_remedy_can_be_pasted() -> None:
    """A type is whatever the app calls it: a shell must not read it otherwise."""
    assert release_command("digest", "app") == "relevo release --type digest --origin app"
    assert release_command("a; rm -rf b") == "relevo release --type 'a; rm -rf b'"
