"""Fan-out: an event becomes one delivery per installation that asked for it, slice by slice, each with its cursor."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import partial
from typing import Any, Literal, NamedTuple
from uuid import UUID

import psycopg
from psycopg import errors as pg

from relevo.config import MINUTE
from relevo.core import queries
from relevo.core.i18n import N_
from relevo.core.logs import normalise_error
from relevo.core.model import Lane, Step
from relevo.cycles import Assembled, runaway
from relevo.cycles.look_bounds import LookBound
from relevo.cycles.wording import list_due, word_due
from relevo.database.arrays import array
from relevo.database.pool import Connection
from relevo.delivery.known_wordings import Wordings
from relevo.delivery.tracing.exporter import Attributes
from relevo.delivery.tracing.traced import Tracing
from relevo.operators.formats import in_numbers
from relevo.runtime.cycle_facts import CycleFacts
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every

FACTS = CycleFacts(
    "fanout",
    does="makes deliveries of events, in slices; gives events their texts, closes batches, ends what was cancelled",
    counts={
        "targets_selected": "phones that an event is for",
        "deliveries_created": "deliveries made",
        "events_fanned_out": "events whose fan-out finished",
        "events_expired": "events whose deadline passed before their fan-out",
        "events_held": "events held by the runaway brake",
        "events_worded": "events whose texts were rendered",
        "events_unrendered": "events that ended because their texts cannot be rendered",
        "batches_closed": "batches whose time was over",
        "events_batched": "events in these batches",
        "deliveries_batched": "phones left to a batch",
        "deliveries_gathered": "phones left to a digest",
        "deliveries_capped": "phones left out because of a cap",
        "deliveries_left_to_digests": "phones over a cap that were left to a digest",
        "deliveries_cancelled": "deliveries of cancelled or completed events that were ended",
        "events_ended": "cancelled or completed events without open deliveries",
    },
    after="ingest",
    wakeable=True,
    feeds="dispatch",
    waiting=lambda backlog: in_numbers(backlog.events, "event waits", "events wait") if backlog.events else "",
    paused=N_("%(who)s paused fan-out."),
    resumed=N_("%(who)s resumed fan-out after %(time)s."),
)
_SQL = queries.load("fanout")
_FEW = runaway.WATCHED_PHONES  # so that the brake counts all of them, and one chunk holds them
_TOGETHER = 500  # a tenth of a second: an urgent event that comes meanwhile waits no longer
_RETRY_MS, _LONGEST_RETRY_MS = 5_000, 600_000  # after a failure; each more in a row doubles it
_LONGEST_ERROR = 300
_UNWORDED_EVERY_S = 0.2  # while others fan out; else as soon as nothing does
_BATCHES_EVERY_S = 0.2  # likewise
_BATCHES_TOGETHER = 100
_HELD_AS = {
    "batched": "deliveries_batched",
    "gathered": "deliveries_gathered",
    "capped": "deliveries_capped",
    "left_to_digests": "deliveries_left_to_digests",
}
_HELD = Step({"events_held": 1}, items=1, more=True)


class Slice(NamedTuple):
    """The outcome of a slice of an event, and how often its phones, or the first of them, were counted."""

    is_last: bool
    targets: int
    created: int | None
    """None if the month is sealed."""
    projects: Sequence[str] | None = None
    counted: Sequence[UUID] | None = None
    in_hour: Sequence[float] | None = None
    busiest_day: Sequence[int] | None = None
    held: Mapping[str, int] | None = None
    """How many were not pushed by themselves, by why not."""

    @property
    def counts(self) -> dict[UUID, runaway.Count]:
        """The counts by phone."""
        return runaway.counts_of(self.counted, self.in_hour, self.busiest_day)

    @property
    def held_counts(self) -> dict[str, int]:
        """How many were not pushed by themselves, by the names that a run counts them by."""
        return {_HELD_AS[why]: count for why, count in (self.held or {}).items() if count}


class Turn(NamedTuple):
    """The event whose turn it is, locked by this transaction, and what `fan_out_next` made of it at once."""

    id: int
    project: str
    audience: str
    lane: Lane
    event_day: date | None
    too_late: bool
    named: int | None
    """How many phones it names, of more than a few only that; None if it names none, or nobody needed to know."""
    due_hour: datetime
    how: Literal["together", "slice", "picked", "sealed"]
    """Fanned out with others, or a slice of it made; only locked; or nothing made, for its month is sealed."""
    fanned: Sequence[int]
    late: Sequence[int]
    events: Sequence[int] | None
    installations: Sequence[UUID] | None
    """Of what was fanned out together: what came to an end, what was too late, and each event beside its phones."""
    made: Slice
    """The slice that was made of it, or what was fanned out together."""

    @classmethod
    def of(cls, row: Sequence[Any]) -> Turn:
        """Return a row of `fan_out_next`, whose last columns are those of a slice."""
        of_slice = -len(Slice._fields)
        return cls._make([*row[:of_slice], Slice(*row[of_slice:])])

    @property
    def is_alone(self) -> bool:
        """Whether it is for named phones and nobody counted them, for no other event is due in its lane."""
        return self.audience == "installations" and self.event_day is None and self.named is None


class _ApartError(Exception):
    """Some events need a fan-out of their own, so the common one is rolled back."""

    def __init__(self, events: Iterable[int]) -> None:
        super().__init__()
        self.events = list(events)


class _TooManyError(Exception):
    """A slice is undone: its event is one too many for its phones."""

    def __init__(self, stop: runaway.Stop) -> None:
        super().__init__()
        self.stop = stop


@dataclass
class _Memory:
    """This process's memory from one step to the next."""

    assembled: Assembled
    served: str = ""
    """The project whose turn was last; the next one's is next. Each replica goes round by itself."""
    wordings: Wordings = field(default_factory=Wordings)
    looked_for_unworded: float = -_UNWORDED_EVERY_S
    """When events that wait for their texts were last looked for."""
    closed_batches: float = -_BATCHES_EVERY_S
    """When batches were last closed."""
    turns: LookBound = field(default_factory=lambda: LookBound(_SQL["find_first_turn"], ("since", "due_since")))
    ended: LookBound = field(default_factory=lambda: LookBound(_SQL["find_first_ended"], ("ended_since",)))

    @property
    def tracing(self) -> Tracing | None:
        """Makes the spans of traced events; None if no exporter is configured."""
        return self.assembled.services.tracing


def cycles(given: Assembled) -> list[Cycle]:
    """Return fan-out for the schedule: on every replica, each at another event."""
    timing, memory = Every(given.settings.dispatch_interval_minutes * MINUTE), _Memory(given)
    return [Cycle.of(FACTS, timing, lambda run: _step(run, memory))]


def _step(run: Run, memory: _Memory) -> Step:
    """Fan out; close batches and give events their texts now and then, and once nothing else is to be done.

    However many batches are due, the others have their turn after each hundred.
    """
    step: Step | None = None
    if time.monotonic() - memory.closed_batches >= _BATCHES_EVERY_S:
        step = _close_batches(run)
        memory.closed_batches = time.monotonic()
    if step is None and time.monotonic() - memory.looked_for_unworded >= _UNWORDED_EVERY_S:
        step = _word_due(run, memory)
    return step or _fan_out(run, memory, at_once=True)


def _word_due(run: Run, memory: _Memory) -> Step | None:
    """Give events that are due their texts."""
    try:
        return _all_or_each(partial(word_due, run, memory.wordings), partial(list_due, run), partial(_leave_alone, run))
    finally:
        memory.looked_for_unworded = time.monotonic()  # when it ended: fan-out has its turn, however long this took


def _close_batches(run: Run) -> Step | None:
    """Close the batches of personal events whose window has ended: each becomes one push."""
    return _all_or_each(partial(_close, run), partial(_list_due_batches, run), partial(_put_off, run))


def _close(run: Run, batch: int | None = None) -> Step | None:
    asked = {"most": _BATCHES_TOGETHER, "alone": batch, "now": run.now}
    closed, told = run.execute(_SQL["close_batches"], asked, "bound_relaxed").fetchone() or (0, 0)
    return Step({"batches_closed": closed, "events_batched": told}, items=closed, more=True) if closed else None


def _list_due_batches(run: Run) -> list[int]:
    due = run.execute(_SQL["list_due_batches"], {"most": _BATCHES_TOGETHER, "now": run.now}, "bound_relaxed").fetchall()
    return [batch for (batch,) in due]


def _put_off(run: Run, batch: int, error: psycopg.Error) -> Step:
    run.execute(_SQL["put_off_batch"], {"batch": batch, "now": run.now}, "bound_relaxed")
    return Step(problems=(f"batch {batch}: {normalise_error(error, 200)}",))


def _all_or_each(
    do: Callable[..., Step | None], list_due: Callable[[], list[int]], leave: Callable[[int, psycopg.Error], Step]
) -> Step | None:
    """Do all that is due, None if nothing is; if that fails, each by itself, so that a bad one stops only itself."""
    with suppress(psycopg.Error):  # an outage is no such error
        return do()
    problems: list[str] = []
    for each in list_due():
        try:
            do(each)
        except psycopg.Error as error:
            problems += leave(each, error).problems
    return Step(problems=tuple(problems), more=True)


def _fan_out(run: Run, memory: _Memory, *, at_once: bool) -> Step:
    """Fan out small personal events together, or make one slice of another event, or end some of an ended one's.

    If that fails at once, the event is picked first, so that one bad event stops only itself.
    """
    event: Turn | None = None
    began_ns = time.time_ns()
    asked = _asked(run, memory) | memory.turns.read(run) | {"at_once": at_once}
    try:
        with run.transaction("bound_relaxed") as connection:  # the journal's commit brings it along
            with memory.turns.watched():
                row = connection.execute(_SQL["fan_out_next"], asked).fetchone()
            if row is not None:
                event = Turn.of(row)
                memory.served = event.project
                made = _go_on(run, connection, event)
        if event is not None:
            if memory.tracing is not None:
                memory.tracing.fanned_out(_traced(event, made), began_ns)
            return made
    except _ApartError as error:
        return _take_apart(run, error.events)
    except _TooManyError as error:
        return _hold(run, event, error) if event is not None else Step(more=True)
    except psycopg.Error as error:
        if event is None and not at_once:
            raise
        return _fan_out(run, memory, at_once=False) if at_once or event is None else _step_back(run, event, error)
    return _close_batches(run) or _word_due(run, memory) or _look_beside(run, memory)


def _traced(event: Turn, made: Step) -> dict[int, Attributes]:
    """Return what the spans of a turn's events say: how many phones each was for, and the outcome."""
    if event.how == "together":
        phones = Counter(event.events or ())
        outcomes = dict.fromkeys(event.fanned, "fanned_out") | dict.fromkeys(event.late, "expired")
        return {each: {"relevo.phones": phones[each], "relevo.outcome": said} for each, said in outcomes.items()}
    outcome = "expired" if made.counts.get("events_expired") else "held" if made is _HELD else "fanned_out"
    return {event.id: {"relevo.phones": made.counts.get("targets_selected", 0), "relevo.outcome": outcome}}


def _asked(run: Run, memory: _Memory) -> dict[str, Any]:
    """Return the parameters: whose turn was last, what to leave out, how much to make, what to weigh first."""
    return _bounds(run) | {
        "after_project": memory.served,
        "given_up": array(run.given_up.events),
        "apart": array(run.given_up.together),
        "aside": array(run.given_up.begun),
        "brake": run.settings.push_runaway_brake,
    }


def _bounds(run: Run) -> dict[str, Any]:
    """Return how much is made at once, and how much is too much for no phone."""
    slice_size = run.settings.fanout_slice_size
    return {
        "few": min(_FEW, slice_size),
        "most_events": max(1, min(_TOGETHER, slice_size, run.items_left)),
        "most": slice_size,
        "enough": runaway.enough_for_none(runaway.rules_of(run.settings)),
        "now": run.now,
    }


def _go_on(run: Run, connection: Connection, event: Turn) -> Step:
    """Return what was made at once of an event that this transaction has locked, or make it."""
    if event.how == "together":
        return _together(event, runaway.rules_of(run.settings))
    if event.too_late:
        return _expire(run, connection, event)
    is_picked = event.how == "picked"
    if is_picked and _is_small(run, event):  # they failed together
        rows = connection.execute(_SQL["pick_small_events"], _small_ones(run, event)).fetchall()
        return _take_apart(run, {event.id, *(row[0] for row in rows)})
    watch = _watch(run, connection, event) if _is_watched(run, event) else None
    if is_picked and watch is not None and watch.is_stopped():
        watch.hold_unseen()
        return _HELD
    made = _make_slice(run, connection, event) if is_picked else event.made if event.how == "slice" else None
    if made is None:
        connection.execute(_SQL["end_sealed_event"], {"event_id": event.id, "now": run.now})
        return Step({"events_expired": 1}, items=1, more=True)
    return _slice_step(watch, made, alone=not is_picked and event.is_alone)


def _step_back(run: Run, event: Turn, error: psycopg.Error) -> Step:
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
        run.execute(_SQL["note_failed_fanout"], failed, "bound_relaxed")
    except psycopg.Error as second:
        problems.append(f"which could not be written down: {normalise_error(second, 200)}")
    return Step(problems=tuple(problems), more=True)


def _take_apart(run: Run, events: Iterable[int]) -> Step:
    """Leave events that could not be fanned out together to the next steps of this run, one by one."""
    run.given_up.together.update(events)
    return Step(more=True)


def _is_small(run: Run, event: Turn) -> bool:
    """Return whether an event may be fanned out together with others."""
    if event.event_day is not None or event.named is None or event.id in run.given_up.together:
        return False
    return event.named <= min(_FEW, run.settings.fanout_slice_size)


def _small_ones(run: Run, first: Turn) -> dict[str, Any]:
    """Return the parameters that say which events are fanned out together with one, as many as a slice may hold."""
    return _bounds(run) | {
        "lane": first.lane,
        "project": first.project,
        "due_hour": first.due_hour,
        "left_out": array(run.given_up.events | run.given_up.together),
    }


def _is_watched(run: Run, event: Turn) -> bool:
    """Return whether the runaway brake checks an event: at its first slice, unless it is urgent."""
    return event.lane != "urgent" and event.event_day is None and run.settings.push_runaway_brake


def _together(turn: Turn, rules: runaway.RunawayLimits) -> Step:
    """Return what came of small personal events, fanned out from beginning to end; what is too late ended."""
    made, fanned, late = turn.made, turn.fanned, turn.late
    if made.created is None or not (fanned or late):  # the month is sealed, or it changed since it was picked
        raise _ApartError([turn.id, *fanned])
    weighty = runaway.to_be_weighed(rules, made.counts, turn.events or (), turn.installations or ())
    if weighty:
        raise _ApartError(weighty)
    created, items = made.created, max(len(fanned) + len(late), made.created)
    done = {"targets_selected": created, "deliveries_created": created, "events_fanned_out": len(fanned)}
    done |= {"events_expired": len(late)} if late else {}
    done |= made.held_counts
    return Step(done, items, more=True, wakes="dispatch" if created else "", short=items < _FEW)


def _expire(run: Run, connection: Connection, event: Turn) -> Step:
    """End an event whose deadline passed before, or while, it fanned out."""
    late = "expire_events" if event.event_day is None else "stop_late_fanout"
    connection.execute(_SQL[late], {"event_id": event.id, "events": [event.id], "now": run.now})
    return Step({"events_expired": 1}, items=1, more=True)


def _make_slice(run: Run, connection: Connection, event: Turn) -> Slice | None:
    """Make one slice of an event that was picked; nothing if its month is sealed."""
    slice_of = {"event_id": event.id, "watched": _is_watched(run, event), "step_aside": event.id in run.given_up.begun}
    row = connection.execute(_SQL["fan_out_slice"], _bounds(run) | slice_of).fetchone()
    return Slice(*row) if row else None


def _slice_step(watch: runaway.Watch | None, made: Slice, *, alone: bool) -> Step:
    """Return what a slice came to, unless its event is one too many."""
    if watch is not None and (counts := made.counts) and (stop := watch.weigh(counts, made.projects or ())) is not None:
        raise _TooManyError(stop)
    created, ended = made.created or 0, int(made.is_last)
    done = {"targets_selected": made.targets, "deliveries_created": created, "events_fanned_out": ended}
    done |= made.held_counts
    wakes = "dispatch" if created else ""
    return Step(done, items=max(1, created), more=True, wakes=wakes, short=made.is_last and alone)


def _watch(run: Run, connection: Connection, event: Turn) -> runaway.Watch:
    rules = runaway.rules_of(run.settings)
    return runaway.Watch(connection, rules, event.id, broad=event.audience != "installations", now=run.now)


def _hold(run: Run, event: Turn, found: _TooManyError) -> Step:
    """Hold an event that is one too many, its slice undone; whoever took it in between finds the same."""
    try:
        with run.transaction("bound_relaxed") as connection:
            if connection.execute(_SQL["lock_event"], {"event_id": event.id}).fetchone() is None:
                return Step(more=True)
            _watch(run, connection, event).hold(found.stop)
    except psycopg.Error as error:
        return _leave_alone(run, event.id, error)
    return _HELD


def _look_beside(run: Run, memory: _Memory) -> Step:
    """Look for what else there is to do once nothing is to be fanned out, and when the next event falls due."""
    bound = memory.ended.read(run)
    look = bound | {"looks_since": run.looks_since, "now": run.now}
    with memory.ended.watched():
        row = run.execute(_SQL["look_beside"], look, "bound_relaxed").fetchone()
    held_late, ended_before, due_in_s, run.looks_since = row or (False, False, None, None)
    if held_late and (expired := _end_held(run)):
        return expired
    swept = _sweep(run, bound) if ended_before else None
    if swept is not None:
        return swept
    return Step(due_in_s=min((s for s in (due_in_s, memory.turns.looks_again_in_s) if s is not None), default=None))


def _end_held(run: Run) -> Step | None:
    """End held events whose deadline passed; one that cannot be written keeps no other."""
    return _all_or_each(partial(_expire_held, run), partial(_list_held, run), partial(_pass_by, run))


def _expire_held(run: Run, event_id: int | None = None) -> Step | None:
    """End events that the brake held beyond their deadline, None if there is none that this run has not given up."""
    with run.transaction("bound_relaxed") as connection:
        expired = runaway.expire_held(connection, _held_late(run) | {"alone": event_id})
    return Step({"events_expired": expired}, items=expired, more=True) if expired else None


def _list_held(run: Run) -> list[int]:
    return [row[0] for row in run.execute(_SQL["list_held_late"], _held_late(run), "bound_relaxed").fetchall()]


def _held_late(run: Run) -> dict[str, Any]:
    return {"limit": run.settings.fanout_slice_size, "left_out": array(run.given_up.events), "now": run.now}


def _pass_by(run: Run, event_id: int, error: psycopg.Error) -> Step:
    """Leave a held event that cannot be ended to a later run."""
    run.given_up.events.add(event_id)
    return Step(problems=(f"held event {event_id}: {normalise_error(error, 200)}",))


def _sweep(run: Run, bound: Mapping[str, datetime | None]) -> Step | None:
    """End what is left of a cancelled or completed event, if there is one; what is claimed is ended by its holder."""
    event_id: int | None = None
    try:
        with run.transaction("bound_relaxed") as connection:
            row = connection.execute(_SQL["pick_ended_event"], {**bound, "looks_since": run.looks_since}).fetchone()
            if row is None:
                return None
            event_id, day = row
            return _end_some(run, connection, event_id, day)
    except psycopg.Error as error:
        if event_id is None:
            raise
        run.execute(_SQL["sweep_later"], {"event_id": event_id}, "bound_relaxed")  # behind the others, in a later run
        return Step(problems=(f"the rest of event {event_id}: {normalise_error(error, 200)}",), more=True)


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
