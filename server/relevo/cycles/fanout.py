"""Fan-out: an event becomes one delivery per installation that asked for it, slice by slice, each with its cursor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from itertools import accumulate
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.rows import class_row

from relevo import queries
from relevo.config import Settings
from relevo.db import Connection, array, is_unavailable
from relevo.delivery import runaway
from relevo.logs import normalise_error
from relevo.model import Lane, Step
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every

_SQL = queries.load("fanout")
_FEW = runaway.WATCHED_PHONES  # so that the brake counts all of them, and one chunk holds them
_TOGETHER = 500  # a tenth of a second: an urgent event that comes meanwhile waits no longer
_HELD = Step({"events_held": 1}, items=1, more=True)


@dataclass(frozen=True)
class Fanning:
    """An event on its way to its deliveries, locked by this transaction."""

    id: int
    event_type: str
    audience: str
    lane: Lane
    event_day: date | None
    fanout_upto: int | None
    fanout_cursor: int
    buckets: list[str] | None
    too_late: bool
    named: int | None
    """How many phones it names, of more than a hundred only that; None if it names none."""
    due_hour: datetime


@dataclass(frozen=True)
class Small:
    """A personal event for few phones that has not begun, locked by this transaction."""

    id: int
    too_late: bool
    named: int


class _ApartError(Exception):
    """What was begun together is undone: some events need to be fanned out one by one."""

    def __init__(self, events: Iterable[int]) -> None:
        super().__init__()
        self.events = list(events)


def cycle(settings: Settings) -> Cycle:
    """Return fan-out for the schedule: on every replica, each at another event."""
    timing = Every(settings.fanout_interval_minutes * 60_000)
    return Cycle("fanout", timing, step, wakeable=True)


def step(run: Run) -> Step:
    """Fan out small personal events together, or make one slice of another event, or end some of an ended one's."""
    event: Fanning | None = None
    together: list[Small] = []
    sliced: Step | None = None
    try:
        with run.transaction("bound_unflushed") as connection:  # the journal's commit brings it along
            event = _pick(run, connection)
            if event is not None and _is_small(run, event):
                together = _pick_small(run, connection, event)
                sliced = _fan_out_together(run, connection, event, together)
            elif event is not None:
                sliced = _slice(run, connection, event)
    except _ApartError as error:
        return _take_apart(run, error.events)
    except psycopg.Error as error:
        if event is None or is_unavailable(error):
            raise
        # one bad event stops only itself
        return _take_apart(run, [each.id for each in together]) if together else _give_up(run, event, error)
    if sliced is None:
        with run.transaction("bound_by_key") as connection:
            return _sweep(run, connection)
    return sliced


def _take_apart(run: Run, events: Iterable[int]) -> Step:
    """Leave events that could not be fanned out together to the next steps of this run, one by one."""
    run.given_up.together.update(events)
    return Step(more=True)


def _give_up(run: Run, event: Fanning, error: psycopg.Error) -> Step:
    """Leave an event that cannot be fanned out to a later run, so that it does not hold up those behind it."""
    run.given_up.events.add(event.id)
    return Step(problems=(f"event {event.id}: {normalise_error(error, 200)}",), more=True)


def _pick(run: Run, connection: Connection) -> Fanning | None:
    with connection.cursor(row_factory=class_row(Fanning)) as cursor:
        return cursor.execute(_SQL["pick_event"], {"now": run.now, "given_up": list(run.given_up.events)}).fetchone()


def _is_small(run: Run, event: Fanning) -> bool:
    """Tell whether an event may be fanned out together with others."""
    if event.event_day is not None or event.named is None or event.id in run.given_up.together:
        return False
    return event.named <= _few(run)


def _few(run: Run) -> int:
    return min(_FEW, run.settings.fanout_slice_size)


def _pick_small(run: Run, connection: Connection, first: Fanning) -> list[Small]:
    """Lock an event's like: as many as a slice may hold."""
    asked = {
        "lane": first.lane,
        "due_hour": first.due_hour,
        "few": _few(run),
        "left_out": array(run.given_up.events | run.given_up.together),
        "limit": max(1, min(_TOGETHER, run.settings.fanout_slice_size, run.items_left)),
        "now": run.now,
    }
    run.database.bound(connection, "bound_by_key")
    with connection.cursor(row_factory=class_row(Small)) as cursor:
        events = cursor.execute(_SQL["pick_small_events"], asked).fetchall()
    sums = accumulate(event.named for event in events)
    return [event for event, total in zip(events, sums, strict=True) if total <= run.settings.fanout_slice_size]


def _fan_out_together(run: Run, connection: Connection, first: Fanning, events: list[Small]) -> Step:
    """Fan out small personal events from beginning to end; what is too late ends."""
    if not events:  # it changed since it was picked: nobody looks for it in vain again and again
        raise _ApartError([first.id])
    late = [event.id for event in events if event.too_late]
    if late:
        connection.execute(_SQL["expire_events"], {"events": array(late), "now": run.now})
    rest = [event.id for event in events if not event.too_late]
    created = _create_together(run, connection, first.lane, rest) if rest else 0
    counts = {"targets_selected": created, "deliveries_created": created, "events_fanned_out": len(rest)}
    counts |= {"events_expired": len(late)} if late else {}
    return Step(counts, items=max(len(events), created), more=True)


def _create_together(run: Run, connection: Connection, lane: Lane, events: list[int]) -> int:
    watched = lane != "urgent" and run.settings.push_runaway_brake
    asked = {"events": array(events), "watched": watched, "now": run.now}
    made = connection.execute(_SQL["fan_out_events"], asked).fetchone()
    if made is None:  # the month is sealed
        raise _ApartError(events)
    created: int = made[0]
    if not created:
        return 0
    if watched and (weighty := runaway.count_many(connection, runaway.rules_of(run.settings), made[1], made[2])):
        raise _ApartError(weighty)
    connection.execute(_SQL["wake_dispatch"])
    return created


def _slice(run: Run, connection: Connection, event: Fanning) -> Step:
    """Make one slice; return what it did."""
    if event.too_late:
        late = "expire_events" if event.event_day is None else "stop_late_fanout"
        connection.execute(_SQL[late], {"event_id": event.id, "events": [event.id], "now": run.now})
        return Step({"events_expired": 1}, items=1, more=True)
    watch = _watch(run, connection, event)
    if watch is not None and watch.is_stopped():
        watch.hold_unseen()
        return _HELD
    day, upto = _begin(run, connection, event) if event.event_day is None else (event.event_day, event.fanout_upto)
    if connection.execute(_SQL["hold_day_open"], {"day": day}).fetchone() != (True,):
        connection.execute(_SQL["end_sealed_event"], {"event_id": event.id, "now": run.now})
        return Step({"events_expired": 1}, items=1, more=True)
    slice_of = {
        "event_id": event.id,
        "audience": event.audience,
        "buckets": event.buckets,
        "after_seq": event.fanout_cursor,
        "upto_seq": upto,
        "limit": run.settings.fanout_slice_size,
        "watched": runaway.WATCHED_PHONES if watch is not None else 0,
        "now": run.now,
    }
    bound = connection.execute(_SQL[f"bound_{event.audience}"], slice_of).fetchone()
    finished = bound is None
    slice_of["upto_seq"] = upto if bound is None else bound[0]
    made = _create(connection, slice_of, watch)
    if made is None:
        return _HELD
    targets, created = made
    ending = slice_of | {"targets": targets, "created": created, "finished": finished}
    connection.execute(_SQL["advance_event"], ending)
    if created:
        connection.execute(_SQL["wake_dispatch"])
    counts = {"targets_selected": targets, "deliveries_created": created, "events_fanned_out": int(finished)}
    return Step(counts, items=max(1, created), more=True)


def _watch(run: Run, connection: Connection, event: Fanning) -> runaway.Watch | None:
    """Watch an event's first slice, unless it is urgent or the brake is off."""
    if event.lane == "urgent" or event.event_day is not None or not run.settings.push_runaway_brake:
        return None
    rules = runaway.rules_of(run.settings)
    return runaway.Watch(connection, rules, event.id, broad=event.audience != "installations", now=run.now)


def _begin(run: Run, connection: Connection, event: Fanning) -> tuple[date, int]:
    row = connection.execute(_SQL["begin_fanout"], {"event_id": event.id, "now": run.now}).fetchone()
    assert row is not None  # its row is locked by this transaction
    return row[0], row[1]


def _create(connection: Connection, slice_of: dict[str, Any], watch: runaway.Watch | None) -> tuple[int, int] | None:
    """Insert plainly; only if a delivery is there already, which no crash can cause, step aside for it.

    If the event is one too many it is held, nothing is made of it, and None returned.
    """
    stop = None
    try:
        with connection.transaction() as making:
            row = connection.execute(_SQL["create_deliveries"], slice_of).fetchone()
            created, installations, projects = row or (0, None, None)
            phones = runaway.Phones(installations or (), projects or ())
            if watch is not None and created and (stop := watch.weigh(phones)) is not None:
                raise psycopg.Rollback(making)
    except pg.UniqueViolation:
        made = connection.execute(_SQL["create_missing_deliveries"], slice_of).fetchone()
        created = made[0] if made else 0
        row = connection.execute(_SQL["count_targets"], slice_of).fetchone()
        return (row[0] if row else created), created
    if watch is not None and stop is not None:
        watch.hold(stop, phones)
        return None
    return created, created


def _sweep(run: Run, connection: Connection) -> Step:
    """End what is left of a cancelled or completed event; what is claimed is ended by its holder."""
    expired = runaway.expire_held(connection, run.settings.fanout_slice_size, run.now)
    if expired:
        return Step({"events_expired": expired}, items=expired, more=True)
    row = connection.execute(_SQL["pick_ended_event"], {"run_started_at": run.context.started_at}).fetchone()
    if row is None:
        due = connection.execute(_SQL["read_next_due"], {"now": run.now}).fetchone()
        return Step(due_in_s=due[0] if due else None)
    limit = run.settings.fanout_slice_size
    ending = {"event_id": row[0], "day": row[1], "limit": limit, "now": run.now}
    ended = connection.execute(_SQL["cancel_deliveries"], ending).fetchone()
    cancelled, chunks = ended or (0, 0)
    if chunks == max(1, limit // 100):  # there may be more
        return Step({"deliveries_cancelled": cancelled}, items=cancelled, more=True)
    swept = connection.execute(_SQL["mark_swept"], ending).fetchone()
    counts = {"deliveries_cancelled": cancelled, "events_ended": int(swept is not None and swept[0])}
    found = {name: count for name, count in counts.items() if count}  # nothing but claimed ones left is nothing done
    return Step(found, items=sum(found.values()), more=True)
