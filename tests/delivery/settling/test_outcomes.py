"""What each obstacle makes of its delivery, by table: it ends, and how, or it waits, and for how long."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import pytest

from relevo.core.model import Delivery, Obstacle
from relevo.delivery.settling.outcomes import obstructed
from support import native

AT = datetime(2026, 11, 19, 12, tzinfo=UTC)
MINUTE_MS = 60_000
ENDS: dict[Obstacle, tuple[str, str]] = {
    "event_gone": ("cancelled", "event_gone"),
    "event_ended": ("cancelled", "event_ended"),
    "handled_elsewhere": ("cancelled", "handled_elsewhere"),
    "superseded": ("cancelled", "superseded"),
    "deadline_passed": ("expired", "deadline_passed"),
    "quiet_expired": ("expired", "quiet_hours"),
    "project_changed": ("skipped", "project_changed"),
    "owner_changed": ("skipped", "owner_changed"),
    "installation_gone": ("skipped", "installation_gone"),
    "not_allowed": ("skipped", "not_allowed"),
    "opted_out": ("skipped", "opted_out"),
    "refused": ("skipped", "refused"),
    "not_accepted": ("skipped", "not_accepted"),
    "preference_changed": ("skipped", "preference_changed"),
    "told_already": ("skipped", "told_already"),
}
WAITS: tuple[Obstacle, ...] = ("token_changed", "repeats_held", "quiet_hours")


def delivery(seconds_left: float | None = None) -> Delivery:
    """Return a delivery of an event in somebody's quiet hours."""
    return native.delivery("ab", "apns::default::production", quiet_until=AT, seconds_left=seconds_left)


def test_the_table_has_every_obstacle() -> None:
    """Whoever adds one says here what becomes of its deliveries."""
    assert {*ENDS, *WAITS} == set(get_args(Obstacle))
    assert obstructed(delivery(), None) is None


@pytest.mark.parametrize(("obstacle", "expected"), ENDS.items())
def test_what_ends(obstacle: Obstacle, expected: tuple[str, str]) -> None:
    """It ends with the reason, and without an attempt."""
    said = obstructed(delivery(), obstacle)
    assert said is not None
    assert (said.status, said.error_code, said.attempted) == (*expected, False)


@pytest.mark.parametrize("seconds_left", [None, 3_600.0, 300.0, 30.0])
def test_what_waits(seconds_left: float | None) -> None:
    """A new token goes with the next claim, quiet hours end at their time, and what is held is looked at before its deadline."""
    said = {each: obstructed(delivery(seconds_left), each) for each in WAITS}
    found = {name: (a.status, a.error_code, a.attempted, a.not_before) for name, a in said.items() if a is not None}
    assert found == {
        "token_changed": ("retryable", "token_changed", False, None),
        "repeats_held": ("retryable", "repeats_held", False, None),
        "quiet_hours": ("retryable", "quiet_hours", False, AT),
    }
    held_ms = {None: 15 * MINUTE_MS, 3_600.0: 15 * MINUTE_MS, 300.0: 4 * MINUTE_MS, 30.0: MINUTE_MS}[seconds_left]
    held, moved = said["repeats_held"], said["token_changed"]
    assert held is not None
    assert moved is not None
    assert (held.retry_after_ms, moved.retry_after_ms < MINUTE_MS) == (held_ms, True)
