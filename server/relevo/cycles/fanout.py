"""Fan-out: an event becomes one delivery per installation that asked for it, slice by slice, each with its cursor."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import psycopg
from psycopg import errors as pg

from relevo.config import MINUTE, Settings
from relevo.core import queries
from relevo.core.logs import normalise_error
from relevo.core.model import Lane, Step
from relevo.database.arrays import array
from relevo.database.outages import is_unavailable
from relevo.database.pool import Connection
from relevo.delivery import runaway
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every

_SQL = queries.load("fanout")
_FEW = runaway.WATCHED_PHONES  # so that the brake counts all of them, and one chunk holds them
_TOGETHER = 500  # a tenth of a second: an urgent event that comes meanwhile waits no longer
_LOOK_FIRST_S = 60.0
_RETRY_MS, _LONGEST_RETRY_MS = 5_000, 600_000  # after a failure; each more in a row doubles it
_LONGEST_ERROR = 300
_HELD = Step({"events_held": 1}, items=1, more=True)


@dataclass(frozen=True)
class Fanning:
    """An event on its way to its deliveries, locked by this transaction."""

    id: int
    project: str
    audience: str
    lane: Lane
    event_day: date | None
    too_late: bool
    named: int | None
    """How many phones it names, of more than a few only that; None if it names none, or nobody needed to know."""
    due_hour: datetime

    @property
    def is_alone(self) -> bool:
        """Whether it is for named phones and nobody counted them, for no other event is due in its lane."""
        return self.audience == "installations" and self.event_day is None and self.named is None


class _ApartError(Exception):
    """What was begun together is undone: some events need to be fanned out one by one."""

    def __init__(self, events: Iterable[int]) -> None:
        super().__init__()
        self.events = list(events)


class _TooManyError(Exception):
    """A slice is undone: its event is one too many for its phones."""

    def __init__(self, stop: runaway.Stop, phones: runaway.Phones) -> None:
        super().__init__()
        self.stop, self.phones = stop, phones


@dataclass
class _Memory:
    """What this process remembers from one step to the next."""

    served: str = ""
    """The project whose turn was last; the next one's is next. Each replica goes round by itself."""
    looks_first_until: float = 0.0

    def trusts(self) -> bool:
        """Tell whether what is made may be committed unseen: not for a while after something had to be looked at.

        What has to be weighed seldom comes alone, and each time it is made in vain, with an error in the server's log.
        """
        return time.monotonic() >= self.looks_first_until

    def lose_trust(self) -> None:
        self.looks_first_until = time.monotonic() + _LOOK_FIRST_S


def cycle(settings: Settings) -> Cycle:
    """Return fan-out for the schedule: on every replica, each at another event."""
    timing, memory = Every(settings.dispatch_interval_minutes * MINUTE), _Memory()
    return Cycle("fanout", timing, lambda run: _step(run, memory), wakeable=True, feeds="dispatch")


def _step(run: Run, memory: _Memory) -> Step:
    """Fan out small personal events together, or make one slice of another event, or end some of an ended one's."""
    made = _fan_out_unseen(run, memory) if memory.trusts() else None
    return _fan_out(run, memory, at_once=True) if made is None else made


def _fan_out_unseen(run: Run, memory: _Memory) -> Step | None:
    """Fan out what is next and commit it, by one message; None, and nothing made, if somebody has to look first."""
    try:
        row = run.at_once("bound_relaxed", _SQL["fan_out_unseen"], _asked(run, memory))
    except psycopg.Error as error:
        if is_unavailable(error):
            raise
        memory.lose_trust()
        return None
    if row is None:
        return _look_beside(run)
    memory.served = row[0]
    return _tell_unseen(row[1:])


def _tell_unseen(made: Sequence[Any]) -> Step | None:
    """Tell what was made and committed; None if an event was only picked."""
    how, is_last, targets, created, alone, fanned, late = made
    if how == "slice":
        return _slice(None, is_last, targets, created, None, alone=alone)
    return _small_step(fanned or (), late or (), created) if fanned or late else None


def _fan_out(run: Run, memory: _Memory, *, at_once: bool) -> Step:
    """Fan out what is next; if that fails at once, it is picked first, so that one bad event stops only itself."""
    event: Fanning | None = None
    try:
        with run.transaction("bound_relaxed") as connection:  # the journal's commit brings it along
            asked = _asked(run, memory) | {"at_once": at_once}
            row = connection.execute(_SQL["fan_out_next"], asked).fetchone()
            if row is not None:
                event = Fanning(*row[:8])
                memory.served = event.project
                return _go_on(run, connection, event, row[8], row[9:])
    except _ApartError as error:
        return _take_apart(run, error.events)
    except _TooManyError as error:
        return _hold(run, event, error) if event is not None else Step(more=True)
    except psycopg.Error as error:
        if is_unavailable(error) or (event is None and not at_once):
            raise
        return _fan_out(run, memory, at_once=False) if at_once or event is None else _step_back(run, event, error)
    return _look_beside(run)


def _asked(run: Run, memory: _Memory) -> dict[str, Any]:
    """Tell whose turn was last, what to leave out, how much to make, and what is to be looked at first."""
    return {
        "after_project": memory.served,
        "given_up": array(run.given_up.events),
        "apart": array(run.given_up.together),
        "aside": array(run.given_up.begun),
        "few": _few(run),
        "most_events": _most_events(run),
        "most": run.settings.fanout_slice_size,
        "brake": run.settings.push_runaway_brake,
        "enough": runaway.enough_for_none(runaway.rules_of(run.settings)),
        "now": run.now,
    }


def _go_on(run: Run, connection: Connection, event: Fanning, how: str, made: Sequence[Any]) -> Step:
    """Tell what was made at once of an event that this transaction has locked, or make it."""
    if how == "together":
        return _together(event, made, runaway.rules_of(run.settings))
    if event.too_late:
        return _expire(run, connection, event)
    if how == "picked" and _is_small(run, event):  # they failed together
        rows = connection.execute(_SQL["pick_small_events"], _small_ones(run, event)).fetchall()
        return _take_apart(run, {event.id, *(row[0] for row in rows)})
    watch = _watch(run, connection, event) if _is_watched(run, event) else None
    if how == "picked" and watch is not None and watch.is_stopped():
        watch.hold_unseen()
        return _HELD
    sliced = _make_slice(run, connection, event) if how == "picked" else made[4:] if how == "slice" else None
    if sliced is None:
        connection.execute(_SQL["end_sealed_event"], {"event_id": event.id, "now": run.now})
        return Step({"events_expired": 1}, items=1, more=True)
    return _slice(watch, *sliced, alone=how == "slice" and event.is_alone)


def _step_back(run: Run, event: Fanning, error: psycopg.Error) -> Step:
    """Go on after an error: beside what is there already, or with others."""
    if isinstance(error, pg.UniqueViolation) and event.id not in run.given_up.begun:
        run.given_up.begun.add(event.id)  # no crash can cause it
        return Step(more=True)
    return _leave_alone(run, event.id, error)


def _leave_alone(run: Run, event_id: int, error: psycopg.Error) -> Step:
    """Write down that an event's fan-out failed, and when it is tried again; it must not hold up those behind it."""
    run.given_up.events.add(event_id)
    why = normalise_error(error, _LONGEST_ERROR)
    failed = {"event_id": event_id, "error": why, "base_ms": _RETRY_MS, "max_ms": _LONGEST_RETRY_MS, "now": run.now}
    problems = [f"event {event_id}: {why[:200]}"]
    try:
        with run.transaction("bound_relaxed") as connection:
            connection.execute(_SQL["note_failed_fanout"], failed)
    except psycopg.Error as second:
        if is_unavailable(second):
            raise
        problems.append(f"which could not be written down: {normalise_error(second, 200)}")
    return Step(problems=tuple(problems), more=True)


def _take_apart(run: Run, events: Iterable[int]) -> Step:
    """Leave events that could not be fanned out together to the next steps of this run, one by one."""
    run.given_up.together.update(events)
    return Step(more=True)


def _is_small(run: Run, event: Fanning) -> bool:
    """Tell whether an event may be fanned out together with others."""
    if event.event_day is not None or event.named is None or event.id in run.given_up.together:
        return False
    return event.named <= _few(run)


def _few(run: Run) -> int:
    return min(_FEW, run.settings.fanout_slice_size)


def _most_events(run: Run) -> int:
    return max(1, min(_TOGETHER, run.settings.fanout_slice_size, run.items_left))


def _small_ones(run: Run, first: Fanning) -> dict[str, Any]:
    """Tell which events are fanned out together with one, as many as a slice may hold."""
    return {
        "lane": first.lane,
        "project": first.project,
        "due_hour": first.due_hour,
        "few": _few(run),
        "most_events": _most_events(run),
        "left_out": array(run.given_up.events | run.given_up.together),
        "now": run.now,
    }


def _is_watched(run: Run, event: Fanning) -> bool:
    """Tell whether the runaway brake looks at an event: at its first slice, unless it is urgent."""
    return event.lane != "urgent" and event.event_day is None and run.settings.push_runaway_brake


def _together(first: Fanning, made: Sequence[Any], rules: runaway.Rules) -> Step:
    """Tell what came of small personal events, fanned out from beginning to end; what is too late ended."""
    fanned, late, events, installations, _, _, created, _, *counted = made
    if created is None or not (fanned or late):  # the month is sealed, or it changed since it was picked
        raise _ApartError([first.id, *fanned])
    weighty = runaway.to_be_weighed(rules, runaway.counts_of(*counted), events or (), installations or ())
    if weighty:
        raise _ApartError(weighty)
    return _small_step(fanned, late, created)


def _small_step(fanned: Sequence[int], late: Sequence[int], created: int) -> Step:
    """Tell what became of small events."""
    done = {"targets_selected": created, "deliveries_created": created, "events_fanned_out": len(fanned)}
    done |= {"events_expired": len(late)} if late else {}
    items = max(len(fanned) + len(late), created)
    return Step(done, items, more=True, wakes="dispatch" if created else "", short=items < _FEW)


def _expire(run: Run, connection: Connection, event: Fanning) -> Step:
    """End an event whose deadline passed before, or while, it fanned out."""
    late = "expire_events" if event.event_day is None else "stop_late_fanout"
    connection.execute(_SQL[late], {"event_id": event.id, "events": [event.id], "now": run.now})
    return Step({"events_expired": 1}, items=1, more=True)


def _make_slice(run: Run, connection: Connection, event: Fanning) -> tuple[Any, ...] | None:
    """Make one slice of an event that was picked; nothing if its month is sealed."""
    slice_of = {
        "event_id": event.id,
        "most": run.settings.fanout_slice_size,
        "watched": _is_watched(run, event),
        "step_aside": event.id in run.given_up.begun,
        "enough": runaway.enough_for_none(runaway.rules_of(run.settings)),
        "now": run.now,
    }
    return connection.execute(_SQL["fan_out_slice"], slice_of).fetchone()


def _slice(
    watch: runaway.Watch | None,
    is_last: bool,
    targets: int,
    created: int,
    projects: Sequence[str] | None,
    *counted: Any,
    alone: bool,
) -> Step:
    """Tell what a slice came to, unless its event is one too many."""
    if watch is not None and (counts := runaway.counts_of(*counted)) and (stop := watch.weigh(counts)) is not None:
        raise _TooManyError(stop, runaway.phones_of(counts, projects or ()))
    done = {"targets_selected": targets, "deliveries_created": created, "events_fanned_out": int(is_last)}
    wakes = "dispatch" if created else ""
    return Step(done, items=max(1, created), more=True, wakes=wakes, short=bool(is_last and alone))


def _watch(run: Run, connection: Connection, event: Fanning) -> runaway.Watch:
    rules = runaway.rules_of(run.settings)
    return runaway.Watch(connection, rules, event.id, broad=event.audience != "installations", now=run.now)


def _hold(run: Run, event: Fanning, found: _TooManyError) -> Step:
    """Hold an event that is one too many, its slice undone; whoever took it in between finds the same."""
    try:
        with run.transaction("bound_relaxed") as connection:
            if connection.execute(_SQL["lock_event"], {"event_id": event.id}).fetchone() is None:
                return Step(more=True)
            _watch(run, connection, event).hold(found.stop, found.phones)
    except psycopg.Error as error:
        if is_unavailable(error):
            raise
        return _leave_alone(run, event.id, error)
    return _HELD


def _look_beside(run: Run) -> Step:
    """Look for what else there is to do once nothing is to be fanned out, and when the next event falls due."""
    look = {"looks_since": run.looks_since, "now": run.now}
    with run.transaction("bound_relaxed") as connection:
        row = connection.execute(_SQL["look_beside"], look).fetchone()
        held_late, ended_before, due_in_s, run.looks_since = row or (False, False, None, None)
        if held_late and (expired := runaway.expire_held(connection, run.settings.fanout_slice_size, run.now)):
            return Step({"events_expired": expired}, items=expired, more=True)
    swept = _sweep(run) if ended_before else None
    return Step(due_in_s=due_in_s) if swept is None else swept


def _sweep(run: Run) -> Step | None:
    """End what is left of a cancelled or completed event, if there is one; what is claimed is ended by its holder."""
    event_id: int | None = None
    try:
        with run.transaction("bound_relaxed") as connection:
            row = connection.execute(_SQL["pick_ended_event"], {"looks_since": run.looks_since}).fetchone()
            if row is None:
                return None
            event_id, day = row
            return _end_some(run, connection, event_id, day)
    except psycopg.Error as error:
        if is_unavailable(error) or event_id is None:
            raise
        return _sweep_later(run, event_id, error)


def _end_some(run: Run, connection: Connection, event_id: int, day: date | None) -> Step:
    """End some chunks of an ended event's deliveries, and note once nothing is left."""
    limit = run.settings.fanout_slice_size
    ending = {"event_id": event_id, "day": day, "limit": limit, "now": run.now}
    ended = connection.execute(_SQL["cancel_deliveries"], ending).fetchone()
    cancelled, chunks = ended or (0, 0)
    if chunks == max(1, limit // 100):  # there may be more
        return Step({"deliveries_cancelled": cancelled}, items=cancelled, more=True)
    swept = connection.execute(_SQL["mark_swept"], ending).fetchone()
    counts = {"deliveries_cancelled": cancelled, "events_ended": int(swept is not None and swept[0])}
    found = {name: count for name, count in counts.items() if count}  # nothing but claimed ones left is nothing done
    return Step(found, items=sum(found.values()), more=True)


def _sweep_later(run: Run, event_id: int, error: psycopg.Error) -> Step:
    """Put an event whose rest could not be ended behind the others; a later run tries again."""
    with run.transaction("bound_relaxed") as connection:
        connection.execute(_SQL["sweep_later"], {"event_id": event_id})
    return Step(problems=(f"the rest of event {event_id}: {normalise_error(error, 200)}",), more=True)
