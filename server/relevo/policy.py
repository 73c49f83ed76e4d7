"""Pure decisions: values in, values out, no clock, no database, no chance of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relevo.model import Delivery, Outcome


@dataclass(frozen=True)
class Pace:
    """The pauses between rounds of a cycle, in milliseconds."""

    busy_ms: int
    idle_min_ms: int
    idle_max_ms: int
    idle_jitter_ms: int
    error_ms: int
    error_jitter_ms: int


def pause_ms(outcome: Outcome, *, more: bool, streak: int, ceiling_ms: int, pace: Pace, chance: float) -> float:
    """Return the pause before the next round: short after work, growing while idle, long after an error.

    `streak` counts the rounds that ended alike, this one included; `ceiling_ms` is the cycle's own interval.
    """
    if outcome == "failed":
        return doubled(pace.error_ms, streak, max(pace.error_ms, ceiling_ms)) + pace.error_jitter_ms * chance
    if more or outcome in ("ok", "partial"):
        return pace.busy_ms + min(pace.idle_jitter_ms, pace.busy_ms) * chance
    idle = doubled(pace.idle_min_ms, streak, pace.idle_max_ms) + pace.idle_jitter_ms * chance
    return min(idle, ceiling_ms)


def doubled(base_ms: int, streak: int, cap_ms: int) -> int:
    """Double a pause for each round of a streak after the first, up to a cap."""
    return min(base_ms << min(max(streak, 1) - 1, 30), cap_ms)


def batch_of(picked: Sequence[Delivery], suspect_lapses: int) -> Sequence[Delivery]:
    """Keep a suspect delivery, whose claims lapsed before, out of every batch but one of its own."""
    if picked and picked[0].lapse_count >= suspect_lapses:
        return picked[:1]
    return [delivery for delivery in picked if delivery.lapse_count < suspect_lapses]


@dataclass(frozen=True)
class LeaseClass:
    """The event types that share one lease; None for `only` means all but `without`."""

    lease_ms: int
    only: tuple[str, ...] | None = None
    without: tuple[str, ...] | None = None


def lease_class(oldest: str, leases: Mapping[str, int], default_ms: int) -> LeaseClass:
    """Return which types may share a claim with the oldest due delivery's type."""
    lease_ms = leases.get(oldest, default_ms)
    if lease_ms == default_ms:
        others = tuple(sorted(name for name, ms in leases.items() if ms != default_ms))
        return LeaseClass(lease_ms, without=others or None)
    return LeaseClass(lease_ms, only=tuple(sorted(name for name, ms in leases.items() if ms == lease_ms)))
