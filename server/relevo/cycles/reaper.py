"""Reaper: take back expired claims, notice silent workers, end the runs they left behind, fold events' counts.

It also deletes what an app's own transaction left of an event that it deleted, lets what waits follow phones that
moved to another provider, and looks again at what waits for quiet hours of a project whose hours changed.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import NamedTuple
from uuid import UUID

import psycopg
import structlog

from relevo.config import Settings
from relevo.core import queries
from relevo.core.errors import RelevoError
from relevo.core.logs import normalise_error
from relevo.core.model import Step
from relevo.core.phrases import Phrase
from relevo.cycles import Assembled, news, runaway
from relevo.cycles.look_bounds import LookBound
from relevo.database.arrays import array, text_array
from relevo.database.outages import is_unavailable
from relevo.database.pool import Connection, Manner
from relevo.delivery.claiming.claims import end_claim
from relevo.runtime import clock_set_back
from relevo.runtime.cycle_facts import CycleFacts
from relevo.runtime.halving import PutOff, in_batches, put_behind
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every
from relevo.runtime.troubles import Thing

FACTS = CycleFacts(
    "reaper",
    does="takes back claims whose lease ended, ends the runs of workers that died, adds up counts, hands out news",
    counts={
        "claims_reaped": "claims taken back because their lease ended",
        "deliveries_recovered": "deliveries of these claims that return to the queue",
        "deliveries_ambiguous": "deliveries whose request had begun: the push may have been sent",
        "deliveries_dead": "deliveries that failed for good: no attempt is left, or their workers died repeatedly",
        "deliveries_unknown": "deliveries that end as `unknown`, because they may be sent at most once",
        "deliveries_closed_by_late_ticket": "deliveries that end as sent, because of a late ticket",
        "stale_ms": "for how long the leases had been expired, in milliseconds, in total",
        "workers_lost": "workers that died without reporting their end",
        "runs_abandoned": "runs of these workers that were ended",
        "events_held": "events held by the runaway brake",
        "leftovers_deleted": "deliveries deleted because their event was",
        "news_sent": "news sent on their way to webhooks",
    },
    bookkeeping=True,
    waiting=lambda _backlog: Phrase("no replica returns the deliveries of lost workers to the queue"),
)
_SQL = queries.load("reaper")
_WAKE = queries.load("wakeups")
_log = structlog.get_logger("relevo.reaper")
_CLAIMS_PER_STEP = 50
_FOLDS_PER_STEP = 10_000
_WHOLE_FOLDS_SHARE, _LONGEST_UNFOLDED_S = 0.002, 60.0
_LEFTOVERS, _MOST_LEFTOVERS = 5_000, 100_000
_MOVED_PHONES, _MOST_MOVED_PHONES = 200, 10_000
_TALLIES_SHOWN_MS = 15 * 60_000  # by `relevo status`; the brake on disabling tokens looks less far back
_TAKEN_BACK = ("deliveries_recovered", "deliveries_dead", "deliveries_unknown", "deliveries_closed_by_late_ticket")


class _Batches(NamedTuple):
    """How a statement goes on, batch by batch, each committed; what it leaves waits for the next round."""

    limit: int = _FOLDS_PER_STEP
    fewest: int = _FOLDS_PER_STEP
    """A batch in which it finds fewer than these is the last; so is one of a statement that does not say."""
    most: float = math.inf
    """How much may be found in one round."""
    manner: Manner = "bound_transaction"


_IN_BATCHES = {
    "fold_tallies": _Batches(),
    "prune_refused_events": _Batches(),
    "fill_inboxes": _Batches(1_000, 1_000, 100_000, "bound_by_key"),
    "recheck_projects": _Batches(1_000, 1, 100, "bound_by_key"),
}


class NotEndedError(RelevoError):
    """An expired claim could not be ended: its rows are locked, or cannot be written."""

    def __init__(self, token: UUID, why: Exception) -> None:
        super().__init__(f"Claim {token} has expired and could not be ended.")
        self.token = token
        self.why = why


class NotWrittenError(RelevoError):
    """Deliveries of an expired claim cannot be written, and stay in it."""

    def __init__(self, left: Mapping[int, Exception]) -> None:
        named = ", ".join(map(str, list(left)[:5]))
        why = normalise_error(next(iter(left.values())), 150)
        super().__init__(f"{len(left)} of its deliveries cannot be written ({named}): {why}")


class Reaped(NamedTuple):
    """A claim that was taken back, what became of its deliveries, and which it keeps for they cannot be written."""

    token: UUID
    counts: Counter[str]
    left: Mapping[int, Exception]


@dataclass
class Folded:
    """Up to which number this process folded the changes of events' counts, and when it looks for all of them again.

    While somebody holds a snapshot, what was folded stays in the table as dead rows, and a look from the beginning
    passes by all of them. A change that is committed after later ones were folded waits for a look at all.
    """

    upto: int = 0
    looks_at_all_at: float = -math.inf


@dataclass
class Memory:
    """This process's memory from one round to the next."""

    folded: Folded = field(default_factory=Folded)
    claims: LookBound = field(default_factory=lambda: LookBound(_SQL["find_first_claim"], ("since",)))


def cycles(given: Assembled) -> list[Cycle]:
    """Return the reaper for the schedule: on every replica, for a fleet without one is not healthy."""
    memory = Memory()
    return [Cycle.of(FACTS, Every(given.settings.reaper_interval_ms), lambda run: step(run, memory))]


def step(run: Run, memory: Memory) -> Step:
    """Take back some expired claims, each in its own transaction; then do what one replica does for all of them."""
    rebased = clock_set_back.Rebased(is_complete=False)
    with run.contain(Thing("part", "reaper clock")):
        rebased = clock_set_back.rebase(run)
    counts, more = _reap_some(run, memory.claims)
    if not rebased.is_complete or _is_our_turn(run):  # the turn is not taken before all is brought to now
        counts += _keep_up(run, memory.folded)
    items = sum(counts[name] for name in _TAKEN_BACK)
    problems = (_said_of_clock(rebased.counts),) if rebased.was_set_back else ()
    return Step(dict(counts), items, more=more, problems=problems)


def _said_of_clock(rebased: Counter[str]) -> str:
    waited = ", ".join(f"{count:,} {kind.replace('_', '-')}" for kind, count in rebased.items() if count) or "nothing"
    return f"The database's clock was set back; what waited for times beyond it was brought to now: {waited}."


def _is_our_turn(run: Run) -> bool:
    """Return whether nobody in the fleet just did what once per interval is enough for; by hand it is always done."""
    by_hand = run.context.trigger in ("manual", "tick")
    every_ms = (
        run.settings.reaper_interval_ms * 3 // 4
    )  # less than a round's pause: one replica alone is always in time
    taken = run.execute(_SQL["take_turn"], {"every_ms": every_ms, "now": run.now}).fetchone()
    return by_hand or taken is not None


def _keep_up(run: Run, folded: Folded) -> Counter[str]:
    """Do what one replica does for all of them, part by part: one that fails keeps no other from being done."""
    counts: Counter[str] = Counter()
    parts: dict[str, Callable[[Run], Counter[str]]] = {
        "end_lost_workers": _end_lost_workers,
        "fold_progress": partial(_fold_progress, folded),
        "fold_counts": _fold_counts,
        **{statement: partial(_go_on, statement) for statement in _IN_BATCHES},
        "delete_leftovers": _delete_leftovers,
        "follow_moved_phones": _follow_moved_phones,
        "fold_repeats": _fold_repeats,
        "fold_reactions": _fold_reactions,
        "news": news.distribute_news,
    }
    for name, part in parts.items():
        with run.contain(Thing("part", f"reaper {name}")):
            counts += part(run)
    return counts


def _end_lost_workers(run: Run) -> Counter[str]:
    """Notice other workers that died in silence and end their runs; wake the singletons whose slot is free again."""
    with run.transaction() as connection:
        asked = {"worker_id": run.context.worker_id, "now": None}
        lost = connection.execute(_SQL["mark_lost_workers"], asked).fetchall()
        abandoned = connection.execute(_SQL["abandon_runs"], asked).fetchall()
        for _, cycle_name, _, _, slot_at in abandoned:
            if slot_at is not None:
                connection.execute(_WAKE["send_wake"], {"cycle": cycle_name})
    for worker, hostname, pid, seen_at in lost:
        _log.error("worker_lost", lost_worker=worker, hostname=hostname, pid=pid, last_seen_at=seen_at.isoformat())
    for run_id, cycle_name, source, former, _ in abandoned:
        _log.warning("run_abandoned", abandoned_run=run_id, of_cycle=cycle_name, source=source, former_worker=former)
    return Counter(workers_lost=len(lost), runs_abandoned=len(abandoned))


def _go_on(statement: str, run: Run) -> Counter[str]:
    """Repeat a statement until little is left; what it did is the fleet's own business."""
    batches, total = _IN_BATCHES[statement], 0
    found = batches.fewest
    while found >= batches.fewest and total < batches.most and run.may_go_on():
        asked = {"limit": batches.limit, "window_ms": _TALLIES_SHOWN_MS, "now": run.now}
        done = run.execute(_SQL[statement], asked, batches.manner)
        (found,) = (done.fetchone() if done.description else None) or (0,)
        total += found
    return Counter()


def _fold_progress(folded: Folded, run: Run) -> Counter[str]:
    """Fold the changes of events' counts, batch by batch, each behind the one before.

    Those of an event whose counts cannot be written wait for the next look at all.
    """
    began = time.monotonic()
    looks_at_all = run.context.trigger == "manual" or began >= folded.looks_at_all_at
    after, left_out = 0 if looks_at_all else folded.upto, set[int]()

    def fold(limit: int) -> int:
        nonlocal after, looks_at_all
        asked = {"limit": limit, "after": after, "left_out": array(left_out)}
        found, last = run.execute(_SQL["fold_progress"], asked).fetchone() or (0, None)
        if looks_at_all:
            took, looks_at_all = time.monotonic() - began, False
            folded.looks_at_all_at = began + min(took / _WHOLE_FOLDS_SHARE, _LONGEST_UNFOLDED_S)
        after = folded.upto = max(after, last or 0)
        return int(found)

    def leave_out() -> PutOff | None:
        asked = {"after": after, "left_out": array(left_out)}
        row = run.execute(_SQL["find_first_progress"], asked).fetchone()
        if row is None:
            return None
        left_out.add(row[1])
        return PutOff(row[0], name=f"event {row[1]}")

    in_batches(run, "fold_progress", fold, leave_out, limit=_FOLDS_PER_STEP)
    return Counter()


def _fold_counts(run: Run) -> Counter[str]:
    """Fold the changes of how many deliveries there are of each status, but of those that cannot be written."""
    left_out: set[str] = set()

    def fold(limit: int) -> int:
        row = run.execute(_SQL["fold_counts"], {"limit": limit, "left_out": text_array(left_out)}).fetchone()
        return row[0] if row else 0

    def leave_out() -> PutOff | None:
        row = run.execute(_SQL["find_first_count"], {"left_out": text_array(left_out)}).fetchone()
        if row is None:
            return None
        left_out.add(row[1])
        return PutOff(row[0], name=f"status {row[1]}")

    in_batches(run, "fold_counts", fold, leave_out, limit=_FOLDS_PER_STEP)
    return Counter()


def _delete_leftovers(run: Run) -> Counter[str]:
    """Delete what is left of deleted events, event by event; one that cannot be deleted keeps no other."""
    deleted, left_out = 0, set[int]()
    while deleted < _MOST_LEFTOVERS and run.may_go_on():
        event: int | None = None
        try:
            with run.transaction("bound_by_key") as connection:
                asked = {"left_out": array(left_out), "limit": _LEFTOVERS}
                row = connection.execute(_SQL["pick_deleted_event"], asked).fetchone()
                if row is None:
                    break
                event = row[0]
                done = connection.execute(_SQL["delete_leftovers"], asked | {"event_id": event}).fetchone()
                deleted += done[0] if done else 0
        except psycopg.Error as error:
            if event is None:
                raise
            left_out.add(event)
            run.leave_alone(Thing("part", f"reaper leftovers of event {event}"), error)
    return Counter(leftovers_deleted=deleted)


def _follow_moved_phones(run: Run) -> Counter[str]:
    """Bring what waits for phones that moved to where they are now."""

    def follow(limit: int) -> int:
        asked = {"limit": limit, "now": run.now}
        row = run.execute(_SQL["follow_moved_phones"], asked, "bound_by_key").fetchone()
        return row[0] if row else 0

    put_off = partial(put_behind, run, _SQL["put_off_moved_phone"])
    in_batches(run, "follow_moved_phones", follow, put_off, limit=_MOVED_PHONES, most=_MOST_MOVED_PHONES)
    return Counter()


def _fold_repeats(run: Run) -> Counter[str]:
    with run.transaction() as connection:
        return Counter(events_held=runaway.fold_repeats(connection, run.settings, _FOLDS_PER_STEP, run.now))


def _fold_reactions(run: Run) -> Counter[str]:
    """Add to events how often they were opened and read since."""
    folded = run.execute(_SQL["fold_reactions"], {"limit": _FOLDS_PER_STEP}).fetchall()
    for kind, count in folded:
        run.metrics.reactions.labels(kind).inc(max(count, 0))
    return Counter()


def _reap_some(run: Run, claims: LookBound) -> tuple[Counter[str], bool]:
    """Take back expired claims, oldest first; one that cannot be ended must not hold up the others.

    Returns whether there may be more.
    """
    counts: Counter[str] = Counter()
    given_up = run.given_up.claims | {UUID(token) for token in run.resting("claim")}
    for _ in range(_CLAIMS_PER_STEP):
        if not run.may_go_on():
            return counts, False
        try:
            since = claims.read(run)["since"]
            with run.transaction("bound_by_key") as connection, claims.watched():
                taken = reap_one(connection, run.settings, run.now, given_up=given_up, since=since)
        except NotEndedError as error:
            _leave_alone(run, error.token, error.why)
            given_up.add(error.token)
            continue
        if taken is None:
            return counts, False
        if taken.left:
            _leave_alone(run, taken.token, NotWrittenError(taken.left))
            given_up.add(taken.token)
        else:
            run.troubles.went_well(Thing("claim", str(taken.token)))
        if taken.counts["claims_reaped"]:
            run.metrics.reaper_stale.observe(taken.counts["stale_ms"] / 1000)
        counts += taken.counts
    return counts, True


def _leave_alone(run: Run, token: UUID, why: Exception) -> None:
    run.leave_alone(Thing("claim", str(token)), why)
    run.given_up.claims.add(token)


def reap_one(
    connection: Connection,
    settings: Settings,
    now: datetime | None = None,
    given_up: Iterable[UUID] = (),
    since: datetime | None = None,
) -> Reaped | None:
    """Take back the claim that expired first; return what became of its deliveries, or None if none has expired."""
    row = connection.execute(
        _SQL["pick_expired_claim"], {"now": now, "given_up": list(given_up), "since": since}
    ).fetchone()
    if row is None:
        return None
    token, worker_id, cycle_name, deliveries, overdue, held_for = row
    try:
        ended, left = end_claim(connection, settings, token, lapsed=True, now=now)
    except psycopg.Error as error:
        if is_unavailable(error):
            raise
        raise NotEndedError(token, error) from error
    if not deliveries:  # a barred token, never a claim
        return Reaped(token, Counter(), left)
    connection.execute(_SQL["tell_reaped"], {"token": token, "cycle": cycle_name})
    _log.warning(
        "claim_reaped",
        claim=str(token),
        former_worker=worker_id,
        of_cycle=cycle_name,
        deliveries=ended.total() - ended["ambiguous"],
        ambiguous=ended["ambiguous"],
        left=len(left),
        overdue_ms=round(overdue.total_seconds() * 1000),
        held_ms=round(held_for.total_seconds() * 1000),
    )
    counts = Counter(
        claims_reaped=int(not left),
        deliveries_recovered=ended["pending"] + ended["retryable"],
        deliveries_ambiguous=ended["ambiguous"],
        deliveries_dead=ended["failed"],
        deliveries_unknown=ended["unknown"],
        deliveries_closed_by_late_ticket=ended["sent"],
        stale_ms=0 if left else round(overdue.total_seconds() * 1000),
    )
    return Reaped(token, counts, left)
