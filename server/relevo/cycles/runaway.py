"""The runaway brake: what comes again and again, far above its own past, is held until somebody looks.

Two things are watched. At fan-out, how often what one origin sends of one type (a stream) falls due for the same
phones: the event is held before a delivery is made. At the reaper, how often pushes of one event were tried again.
Urgent events are spared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from relevo.config import Settings
from relevo.core import queries
from relevo.core.logs import get_logger
from relevo.core.phrases import release_command
from relevo.database.arrays import array, text_array, uuid_array
from relevo.database.pool import Connection

_SQL = queries.load("runaway")
_log = get_logger("relevo.runaway")

WATCHED_PHONES = 100
"""So many phones of an event are counted: of few all of them, and of a hundred thousand these stand for the others."""
_ALL_PHONES = UUID(int=0)
_PAST = timedelta(days=7)  # one week has one of each day
_HOUR = timedelta(hours=1)
_FACTOR = 2  # times as often as on its busiest day before something may come within an hour
_REPEATS, _FEW_DELIVERIES = 10, 3  # so often each push of an event may be tried again within an hour

_LONGEST_REASON = 300


@dataclass(frozen=True)
class RunawayLimits:
    """The numbers behind the decisions, from the settings."""

    min_events: int
    first_events: int


@dataclass(frozen=True)
class Count:
    """How many events fell due within the last hour, this one included, and on the busiest day before."""

    in_hour: float
    busiest_day: int = 0


@dataclass(frozen=True)
class Stream:
    """The events of one type from one origin, counted when an event falls due."""

    id: int | None
    event_type: str
    origin: str
    due_at: datetime
    known_since: datetime | None
    held_at: datetime | None
    held_above: int | None
    in_hour: float
    released: bool
    """Whether the event was held before, and released."""

    @property
    def has_past(self) -> bool:
        """Whether it is known for long enough to be judged by what it sent before."""
        return self.known_since is not None and self.due_at - self.known_since >= _PAST


@dataclass(frozen=True)
class Stop:
    """The reason to hold an event: how many of its phones are above the limit, and the highest count of a phone."""

    phones: int
    over: int
    most: Count
    flood: Count | None = None
    """How often its stream came, if that itself is far above its past."""
    above: int | None = None
    """If more than this many of the stream come within an hour, the next need not be weighed."""
    installations: Sequence[UUID] = ()
    """The phones that the event was counted for, and their projects."""
    projects: Sequence[str] = ()

    def reason(self, stream: Stream) -> str:
        """Return it in numbers: now, and before."""
        what = f"{stream.event_type} from {stream.origin}"
        who = f"{self.over} of {self.phones} phones" if self.phones > 1 else "a phone"
        if self.flood is None:
            got = f"{who} got up to {self.most.in_hour:.0f} of {what} within an hour"
            said = f"{got}, {self.most.busiest_day} on the busiest day before"
        else:
            came = f"{what} came {self.flood.in_hour:.0f} times within an hour"
            busiest = self.flood.busiest_day
            usual = f"{'once' if busiest == 1 else f'{busiest} times'} on its busiest day before"
            said = f"{came}, {usual}; {who} got up to {self.most.in_hour:.0f} of them"
        return said[:_LONGEST_REASON]


def rules_of(settings: Settings) -> RunawayLimits:
    """Return the numbers behind the decisions that the settings ask for."""
    return RunawayLimits(min_events=settings.push_runaway_min_events, first_events=settings.push_runaway_first_events)


def judge(everyone: Count | None, phones: Sequence[Count], rules: RunawayLimits, *, has_past: bool) -> Stop | None:
    """Decide whether an event is one too many for most of its phones.

    A phone has enough if it got far more within an hour than on any day before; or, of a stream with a past that itself
    comes far more often than ever, more than a few. `everyone` counts the stream as a whole; personal events have none,
    for a chat may grow as it likes.
    """
    usual = max(rules.min_events, _FACTOR * everyone.busiest_day) if everyone else 0
    flood = everyone if everyone is not None and has_past and everyone.in_hour > usual else None
    over = [phone for phone in phones if _has_enough(phone, rules, flood=flood is not None)]
    if 2 * len(over) <= len(phones):
        return None
    if flood is None:
        usual = min(_most_for(phone, rules) for phone in over)
    broad = everyone is not None and len(phones) >= WATCHED_PHONES
    most = max(over, key=lambda phone: phone.in_hour)
    return Stop(len(phones), len(over), most, flood, usual if broad else None)


def _has_enough(phone: Count, rules: RunawayLimits, *, flood: bool) -> bool:
    return phone.in_hour > _most_for(phone, rules) or (flood and phone.in_hour > rules.min_events)


def _most_for(phone: Count, rules: RunawayLimits) -> int:
    return max(rules.first_events, _FACTOR * phone.busiest_day)


def enough_for_none(rules: RunawayLimits) -> int:
    """Return how many events within an hour are too many for no phone, whatever it or its stream got before."""
    return min(rules.first_events, rules.min_events)


def is_still_stopped(stream: Stream) -> bool:
    """Return whether a stream was stopped as a whole within the last hour, and still comes as often."""
    if stream.held_at is None or stream.held_above is None:
        return False
    return stream.due_at - stream.held_at < _HOUR and stream.in_hour + 1 > stream.held_above


def is_retry_storm(repeats: int, deliveries: int) -> bool:
    """Return whether an event's pushes were tried again more often within an hour than any ordinary policy does."""
    return repeats > _REPEATS * max(deliveries, _FEW_DELIVERIES)


class Watch:
    """An event that falls due, inside the transaction of its first slice; `broad` unless its phones are named."""

    def __init__(
        self, connection: Connection, rules: RunawayLimits, event_id: int, *, broad: bool, now: datetime | None = None
    ) -> None:
        self._connection = connection
        self._rules = rules
        self._event_id = event_id
        self._broad = broad
        self._now = now

    @cached_property
    def stream(self) -> Stream:
        """The event's stream; without an id if the stream was never counted."""
        with self._connection.cursor(row_factory=class_row(Stream)) as cursor:
            stream = cursor.execute(_SQL["find_stream"], {"event_id": self._event_id}).fetchone()
        assert stream is not None  # the event's row is locked by this transaction
        return stream

    def is_stopped(self) -> bool:
        """Return whether the event is to be held before its phones are known: its stream is stopped as a whole."""
        return self._broad and not self.stream.released and is_still_stopped(self.stream)

    def weigh(self, counts: Mapping[UUID, Count], projects: Sequence[str]) -> Stop | None:
        """Return what speaks against an event that was counted for its phones; nothing does if it was released."""
        phones = {phone: count for phone, count in counts.items() if phone != _ALL_PHONES}
        stop = judge(counts.get(_ALL_PHONES), list(phones.values()), self._rules, has_past=self.stream.has_past)
        if stop is None or self.stream.released:
            return None
        return replace(stop, installations=list(phones), projects=projects)

    def hold(self, stop: Stop) -> None:
        """Hold the event, and report it if it is the first of its stream for an hour."""
        self._count(stop.installations)
        reason = stop.reason(self.stream)
        self._hold(reason, stop.above, stop.projects)
        if self.stream.held_at is None or self.stream.due_at - self.stream.held_at >= _HOUR:
            _report(self._connection, self.stream.event_type, reason, stop.projects, self._now)

    def hold_unseen(self) -> None:
        """Hold the event without looking for its phones."""
        self._count(())
        came = f"{self.stream.event_type} from {self.stream.origin} came {self.stream.in_hour + 1:.0f} times"
        self._hold(f"{came} within an hour, and all above {self.stream.held_above} are held", self.stream.held_above)

    def _hold(self, reason: str, above: int | None, projects: Sequence[str] = ()) -> None:
        held = {"stream_id": self.stream.id, "event_id": self._event_id, "reason": reason, "now": self._now}
        self._connection.execute(_SQL["hold_event"], held)
        marked = {"above": above, "projects": text_array(projects), "due_at": self.stream.due_at}
        self._connection.execute(_SQL["mark_stream"], held | marked)

    def _count(self, installations: Sequence[UUID]) -> None:
        """Count that the event came, though it did not pass; from now on its stream is known."""
        whom = [_ALL_PHONES, *installations] if self._broad else installations
        counted = {"events": [self._event_id] * len(whom), "installations": uuid_array(whom), "passed": False}
        self._connection.execute(_SQL["count_events"], counted)


def counts_of(
    counted: Sequence[UUID] | None, in_hour: Sequence[float] | None, busiest_day: Sequence[int] | None
) -> dict[UUID, Count]:
    """Return by phone what an event was counted to; of several streams, so that none is missed, most and least."""
    counts: dict[UUID, Count] = {}
    for phone, now, before in zip(counted or (), in_hour or (), busiest_day or (), strict=True):
        known = counts.get(phone, Count(now, before))
        counts[phone] = Count(max(now, known.in_hour), min(before, known.busiest_day))
    return counts


def to_be_weighed(
    rules: RunawayLimits, counts: Mapping[UUID, Count], events: Sequence[int], installations: Sequence[UUID]
) -> set[int]:
    """Return those of personal events, each beside a phone of it and counted together, that are to be weighed singly.

    None of the others can be one too many: their phones have not enough even with all of these together.
    """
    full = {phone for phone, count in counts.items() if _has_enough(count, rules, flood=False)}
    return {event for event, phone in zip(events, installations, strict=True) if phone in full} if full else set()


def expire_held(connection: Connection, which: Mapping[str, Any]) -> int:
    """End held events whose deadline passed; return how many."""
    return connection.execute(_SQL["expire_held"], dict(which)).rowcount


def fold_repeats(connection: Connection, settings: Settings, limit: int, now: datetime | None) -> int:
    """Fold how often pushes were tried again, and hold the events that were far too often; return how many."""
    rows = connection.execute(_SQL["fold_repeats"], {"limit": limit, "now": now}).fetchall()
    storms = [row for row in rows if settings.push_runaway_brake and is_retry_storm(row[2], row[3])]
    if not storms:
        return 0
    reasons = [_storm(*row) for row in storms]
    holding = {"events": array(row[0] for row in storms), "reasons": text_array(reasons), "now": now}
    held = connection.execute(_SQL["hold_repeats"], holding).fetchall()
    for event_type, reason in {row[1]: reason for row, reason in zip(storms, reasons, strict=True)}.items():
        _report(connection, event_type, reason, sorted({project for kind, project in held if kind == event_type}), now)
    return len(storms)


def _storm(event_id: int, event_type: str, repeats: int, deliveries: int) -> str:
    pushes = f"1 push of {event_type}" if deliveries == 1 else f"{deliveries} pushes of {event_type}"
    were = "was" if deliveries == 1 else "were"
    return f"{pushes} (event {event_id}) {were} tried again {repeats} times within an hour"


def _report(
    connection: Connection, event_type: str, reason: str, projects: Sequence[str], now: datetime | None
) -> None:
    detail = f"{reason}; `{release_command(event_type)}` lets it go on"[:_LONGEST_REASON]
    connection.execute(_SQL["tell_stopped"], {"projects": text_array(projects), "detail": detail, "now": now})
    _log.error("runaway_stopped", event_type=event_type, projects=list(projects), detail=detail)
