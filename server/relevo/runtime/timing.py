"""When a cycle runs: every so often or by cron, which slot a moment belongs to, and the pauses between rounds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cronsim import CronSim

from relevo.config.kinds import check_cron

if TYPE_CHECKING:
    from relevo.config import Settings
    from relevo.core.model import RunOutcome

_DAY_MS = 86_400_000
_REPEATED = timedelta(hours=2)
"""More than what a clock that is set back repeats: times in it are found by their first pass alone."""


@dataclass(frozen=True)
class Every:
    """An interval; its slots are counted from the epoch, so every replica sees the same ones."""

    interval_ms: int

    @property
    def ceiling_ms(self) -> int:
        """Return the longest pause between two rounds."""
        return self.interval_ms

    def slot_at(self, now: datetime) -> datetime:
        """Return the start of the slot that `now` lies in."""
        step = timedelta(milliseconds=self.interval_ms)
        epoch = datetime.fromtimestamp(0, UTC)
        return epoch + step * ((now - epoch) // step)

    def next_slot(self, now: datetime) -> datetime:
        """Return the start of the slot after the one that `now` lies in."""
        return self.slot_at(now) + timedelta(milliseconds=self.interval_ms)

    def slot_ms(self, now: datetime) -> int:  # noqa: ARG002 of a cron expression it depends
        """Return how long the slot is that `now` lies in."""
        return self.interval_ms


@dataclass(frozen=True)
class Cron:
    """A cron expression in a time zone; a slot is a time it names."""

    expression: str
    timezone: str

    def __post_init__(self) -> None:
        check_cron(self.expression)
        ZoneInfo(self.timezone)

    @property
    def ceiling_ms(self) -> int:
        """Return the longest pause after an error: a nightly cycle that failed is tried again within the hour."""
        return _DAY_MS // 24

    def slot_at(self, now: datetime) -> datetime:
        """Return the last time the expression named, `now` included."""
        later = (now + _REPEATED).astimezone(ZoneInfo(self.timezone))
        return next(slot for slot in CronSim(self.expression, later, reverse=True) if slot <= now).astimezone(UTC)

    def next_slot(self, now: datetime) -> datetime:
        """Return the next time the expression names, after `now`."""
        local = now.astimezone(ZoneInfo(self.timezone))
        return next(slot for slot in CronSim(self.expression, local) if slot > now).astimezone(UTC)

    def slot_ms(self, now: datetime) -> int:
        """Return how long the slot is that `now` lies in."""
        return (self.next_slot(now) - self.slot_at(now)) // timedelta(milliseconds=1)


Timing = Every | Cron


def pause_ms(
    outcome: RunOutcome, settings: Settings, *, more: bool, streak: int, ceiling_ms: int, chance: float
) -> float:
    """Return the pause before the next round: short after work, growing while idle, long after an error.

    `streak` counts the rounds that ended alike, this one included; `ceiling_ms` is the cycle's own interval.
    """
    if outcome == "failed":
        error_ms = settings.worker_tick_loop_error_backoff_ms
        return doubled(error_ms, streak, max(error_ms, ceiling_ms)) + settings.worker_tick_loop_max_jitter_ms * chance
    busy_ms, jitter_ms = settings.worker_busy_loop_delay_ms, settings.worker_idle_backoff_jitter_ms
    if more or outcome in ("ok", "partial"):
        return busy_ms + min(jitter_ms, busy_ms) * chance
    idle_ms = doubled(settings.worker_idle_backoff_min_ms, streak, settings.worker_idle_backoff_max_ms)
    return min(idle_ms + jitter_ms * chance, ceiling_ms)


def doubled(base_ms: int, streak: int, cap_ms: int) -> int:
    """Double a pause for each round of a streak after the first, up to a cap."""
    return min(base_ms << min(max(streak, 1) - 1, 30), cap_ms)
