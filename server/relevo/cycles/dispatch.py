"""Dispatch: as long as something is due and may be sent, claim batches and let each go its way beside the others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import psycopg
import structlog

from relevo.core.errors import DatabaseUnavailableError
from relevo.core.logs import normalise_error
from relevo.core.model import Lane, Step
from relevo.delivery import limits
from relevo.delivery.batch import Batch
from relevo.delivery.due import DueLane, Key
from relevo.delivery.posts import MIDDLEWARE, SERVICE
from relevo.delivery.projects import Allowance
from relevo.delivery.services import Services
from relevo.runtime import threads
from relevo.runtime.hung import MOST_CALLS
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every
from relevo.runtime.troubles import Thing, is_own

_log = structlog.get_logger("relevo.dispatch")

_LOOK_EVERY_S = 0.05
_CALLED_S = 0.015  # something new is due, and may be urgent
_MOMENT_S = 0.005
_LONGEST_REST_S = 0.5  # a call may go astray, and what others hand back is called out to nobody
_BATCHES_AT_ONCE = 32
_BATCHES_PER_LANE = 8
_WORTH_WAITING_S = 2.0
_AFTER_OUTAGE_S = 5.0
_SLOW_S = 0.25  # a claim that takes longer goes on beside the others
_SLOW_CLAIMS = 3  # each keeps a connection of the pool, which batches need to send what they have
_NOT_OURS_S = 5.0  # what is due there is for replicas that may claim its type
_AFTER_HUNG_S = 5.0
_NEVER = float("inf")
_MAX_PROBLEMS = 20

LANES: tuple[Lane, ...] = ("urgent", "bulk")


def cycle(services: Services) -> Cycle:
    """Return dispatch for the schedule: on every replica, woken by fan-out."""
    settings = services.settings
    timing = Every(settings.dispatch_interval_minutes * 60_000)

    def step(run: Run) -> Step:
        return _Drain(services, run).go()

    return Cycle("dispatch", timing, step, wakeable=True)


@dataclass(frozen=True)
class _Taken:
    """What a lane may send now, and what was claimed of it and is on its way."""

    allowance: Allowance
    batch: Batch | None = None
    unused: int = 0
    """How much was reserved in vain, and is to be given back."""
    delivering: Future[None] = field(default_factory=Future)


class _Claiming(NamedTuple):
    """A claim that is being made."""

    lane: DueLane
    most: int
    since: float
    thread: Future[None]
    """Its thread, which brings what it claimed on its way."""


@dataclass
class _Drain:
    """One busy period: which lanes are due, which must wait, what is under way."""

    services: Services
    run: Run
    under_way: dict[Future[None], Batch] = field(default_factory=dict)
    claiming: dict[Future[_Taken], _Claiming] = field(default_factory=dict)
    helpers: list[Future[None]] = field(default_factory=list)
    owed: list[tuple[DueLane, int]] = field(default_factory=list)
    """What was reserved in vain, and is to be given back."""
    not_before: dict[Key, float] = field(default_factory=dict)
    """When a lane may be tried again, by the monotonic clock."""
    due: list[DueLane] = field(default_factory=list)
    looked_at: float = -_NEVER
    asked_at: float = -_NEVER
    """When the fleet was last told to call us."""
    looking_since: float = field(default_factory=time.monotonic)
    claimed: int = 0
    stayed_at: int = 0
    """How much was claimed when it last had nothing to do."""
    left_behind: bool = False
    """Whether a batch ended since the last look, and may have handed something back."""
    cut_short: bool = False
    """Whether a claim since the last look took less than it might: more may be due, of another lease."""
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def go(self) -> Step:
        """Claim and hand over as long as there is something to do, then wait for what is under way."""
        self._adopt()
        self.not_before |= {_key_of(name): at for name, at in self.run.resting("lane").items()}
        try:
            if self.run.is_ahead:
                self._get_ready()
                self.run.await_call()
            self._drain()
            while self._stays():
                self._drain()
        except DatabaseUnavailableError as error:  # what was under way is counted all the same
            self._tell(normalise_error(error, 200))
        finally:
            self._wind_up()
        for sentence in self.services.hung.news():
            self._told_of_hung(sentence)
        more = not self._may_claim() and any(lane.due_in_s <= 0 for lane in self.due)
        counts = {name: count for name, count in self.counts.items() if count}
        return Step(
            counts, self.claimed, more=more, problems=tuple(self.problems[:_MAX_PROBLEMS]), due_in_s=self._due_in_s()
        )

    def _drain(self) -> None:
        """Go on until nothing is due that may be sent within a moment, and nothing is under way."""
        while self._fill() or self.claiming or self._waits() or self._look_anew():
            self._collect()
            self._catch_up()  # not before: the first request went out meanwhile

    def _stays(self) -> bool:
        """Wait for more, its connections kept unless others may lack them; tell whether to look again."""
        if self.problems or self.run.left_alone or not self._may_claim():
            return False
        self._drop_connections({project for project in self.used if self.services.projects.is_scarce(project)})
        worked, took_s = self.claimed > self.stayed_at, time.monotonic() - self.looking_since
        staying = self.run.stays(worked=worked, took_s=took_s, rest_s=_CALLED_S, due_in_s=self._due_in_s())
        self.stayed_at, self.looking_since, self.looked_at = self.claimed, time.monotonic(), -_NEVER
        return staying

    def _get_ready(self) -> None:
        """Do what the first claim needs and what does not depend on it, while what feeds this cycle is at work."""
        project = self.services.projects.served
        if project is None:
            return
        self.used.add(project)
        with suppress(DatabaseUnavailableError, psycopg.Error):  # the claim does what could not be done now
            in_flight = self.services.pools.of(project).in_flight()
            composed = self.services.projects.get_ready(project, in_flight=in_flight)
            if composed is not None:
                self.services.claims.learn_composed(composed)

    def _adopt(self) -> None:
        """Take over the batches that an earlier run left because all that was left of them hung."""
        self.under_way.update(self.services.hanging)
        self.services.hanging.clear()

    def _waits(self) -> bool:
        """Tell whether to wait for batches: for those that hang only while others can be served meanwhile."""
        return self._is_going() or (bool(self.under_way) and self._may_claim())

    def _is_going(self) -> bool:
        """Tell whether a batch gets on; one that hangs hands back what it has once the process stops."""
        stopping = self.run.stopping.is_set()
        return any(stopping or not batch.hanging for batch in self.under_way.values())

    def _wind_up(self) -> None:
        """Wait for what is under way, leave what hangs to the next run, and give the connections back."""
        while self.claiming or self._is_going():
            try:
                self._collect()
            except DatabaseUnavailableError as error:
                self._tell(normalise_error(error, 200))
        while self.owed:
            self._give_back_beside(*self.owed.pop())
        self.services.hanging.update(self.under_way)
        wait(self.helpers, timeout=self.services.settings.outbox_lease_duration_ms / 1000)
        self._drop_connections(set(self.used))

    def _drop_connections(self, projects: set[str]) -> None:
        self.used -= projects
        for project in projects if not self.run.abandoned.is_set() else ():
            try:
                in_flight = self.services.pools.of(project).in_flight()
                self.services.projects.drop_connections(project, "dispatch", in_flight=in_flight)
            except psycopg.Error:  # their lease ends by itself
                continue
            except DatabaseUnavailableError:
                return

    def _tell(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _may_claim(self) -> bool:
        return self.run.may_go_on() and self.run.items_left > self.claimed

    def _fill(self) -> bool:
        """Claim one batch per lane, round after round, as far as there is room; tell whether to come back."""
        if not self._may_claim():
            return False
        self._look()
        while self._may_claim() and self._go_round():
            pass
        return any(True for _ in self._soon())

    def _go_round(self) -> bool:
        """Claim one batch of each open lane, and look in between; tell whether one of them was full."""
        tried, full, lanes, looked_at = set[Key](), False, self._open_lanes(), self.looked_at
        while (lane := next((each for each in lanes if _key(each) not in tried), None)) is not None:
            tried.add(_key(lane))
            full |= self._claim_one(lane)
            self._look()  # what is urgent waits neither for the other lanes, nor until no more bulk fits in
            if self.looked_at != looked_at:
                lanes, looked_at = self._open_lanes(), self.looked_at
        return full

    def _look(self) -> None:
        if time.monotonic() < self._look_at():
            return
        self.run.woken.clear()  # before the look: a call that comes during it is worth another
        try:
            self.due = self.services.projects.due_lanes(self.run.now)
        except psycopg.Error as error:
            self._tell(f"what is due could not be read: {normalise_error(error, 200)}")
        self.looked_at = time.monotonic()
        self.left_behind = self.cut_short = False

    def _look_at(self) -> float:
        """Return when to look again: in a moment if something may have changed, else once something may be sent.

        While a run only waits for a rate, a breaker, connections or room, what is new is called out to it.
        """
        soon = self.looked_at + _LOOK_EVERY_S
        if self.run.woken.is_set():
            return self.looked_at + _CALLED_S
        if self.left_behind or self.cut_short or time.monotonic() < soon:
            return soon
        if self.asked_at < self.looked_at - 2 * _LONGEST_REST_S:  # others may have said in between that nobody rests
            self.run.ask_to_be_woken()
            self.asked_at = time.monotonic()
            return soon  # what came before that was not called out
        later = [self.looked_at + lane.due_in_s for lane in self.due if lane.due_in_s > 0]
        return max(soon, min([self.looked_at + _LONGEST_REST_S, *later]))

    def _look_anew(self) -> bool:
        """Look once more after the last batch: what it left behind, of another lease or for a new token, may be due."""
        if not self.left_behind or not self._may_claim():
            return False
        self.looked_at = -_NEVER
        self._look()
        return any(True for _ in self._soon())

    def _open_lanes(self) -> Iterator[DueLane]:
        now = time.monotonic()
        for lane in list(self.due):
            if lane.due_in_s <= 0 and self.not_before.get(_key(lane), 0.0) <= now and self._room(lane):
                yield lane

    def _soon(self) -> Iterator[DueLane]:
        """The lanes that are due and may be sent within a moment: worth waiting for."""
        horizon = time.monotonic() + _WORTH_WAITING_S
        for lane in self.due:
            if lane.due_in_s <= 0 and self.not_before.get(_key(lane), 0.0) < horizon:
                yield lane

    def _room(self, lane: DueLane) -> bool:
        """Tell whether another batch may be claimed: little more than the request pool can send without a pause."""
        pool = self.services.pools.of(lane.project)
        going = [batch for batch in self.under_way.values() if not batch.hanging]
        ours = sum(b.claim.project == lane.project and b.lane == lane.lane for b in going)
        standing = pool.under_way(lane.lane)
        return (
            len(going) < _BATCHES_AT_ONCE
            and ours < _BATCHES_PER_LANE
            and standing <= 2 * pool.capacity
            and len(self.claiming) < _SLOW_CLAIMS
            and _key(lane) not in {_key(each.lane) for each in self.claiming.values()}
        )

    def _claim_one(self, lane: DueLane) -> bool:
        """Reserve, claim and hand over one batch; tell whether that was a full one, so that another may follow.

        On a thread of its own: rows that somebody holds locked, or a slow statement, are this lane's trouble alone.
        """
        most = self._batch_limit(lane)
        if most <= 0 or len(self.claiming) >= _SLOW_CLAIMS or self._is_hung(lane):
            return False
        self._catch_up()
        self.used.add(lane.project)
        taking: Future[_Taken] = Future()
        thread = threads.start("relevo-claim", partial(self._take, lane, most, taking))
        self.claiming[taking] = _Claiming(lane, most, time.monotonic(), thread)
        wait([taking], timeout=0 if self.run.troubles.is_known(_thing(*_key(lane))) else _SLOW_S)
        return taking.done() and self._hand_over(taking)

    def _is_hung(self, lane: DueLane) -> bool:
        """Tell whether so many requests of a project hang in this process that no more are made for now."""
        hung = sum(self.services.hung.count(what, lane.project) for what in (MIDDLEWARE, SERVICE))
        if hung < MOST_CALLS and not self.services.pools.of(lane.project).is_full_of_hung():
            return False
        self._tell(f"project {lane.project} sends nothing in this process: {hung} of its requests have not come back")
        for each in LANES:
            self.not_before[lane.project, each] = time.monotonic() + _AFTER_HUNG_S
        return True

    def _take(self, lane: DueLane, most: int, taking: Future[_Taken]) -> None:
        """Reserve and claim, hand that to whoever waits for it, and bring what was claimed on its way.

        Of a full claim what was reserved in vain goes back first: another one follows at once, and must not wait for
        tokens that are not used.
        """
        projects, now = self.services.projects, self.run.now
        pool = self.services.pools.of(lane.project)
        grant, batch, unused = limits.Grant(0), None, 0
        try:
            allowance = projects.reserve(
                lane.project, lane.lane, most, now, in_flight=pool.in_flight(), since=lane.since
            )
            grant = allowance.grant
            if grant.count:
                pool.resize(allowance.connections)
                pool.halted = False
            unused = 0 if grant.probe else grant.count
            batch = self._claim(lane, allowance, most) if grant.count else None
            unused -= batch.tokens if batch else 0
            if unused and batch is not None and len(batch.claim.deliveries) == grant.count:
                self._give_back(lane, unused)
                unused = 0
            taken = _Taken(allowance, batch, unused)
            taking.set_result(taken)
        except BaseException as error:  # noqa: BLE001 whatever it is, it belongs to whoever waits for it
            with suppress(InvalidStateError):
                taking.set_exception(error)
            if batch is not None:  # nobody waits for it any more
                unused += batch.tokens
                with self._in_passing(lane.project):
                    self.services.claims.release(batch.claim, now)
        else:
            if batch is not None:
                threads.carry_out(partial(self._deliver, batch), taken.delivering)
                return
        if grant.probe and batch is None:
            with self._in_passing(lane.project):
                projects.cancel_probe(lane.project, now)
        self._give_back(lane, unused)

    def _give_back(self, lane: DueLane, unused: int) -> None:
        with self._in_passing(lane.project):
            self.services.projects.give_back(lane.project, lane.lane, unused, self.run.now)

    def _claim(self, lane: DueLane, allowance: Allowance, most: int) -> Batch | None:
        services, run, grant = self.services, self.run, allowance.grant
        limit = most if grant.probe else grant.count  # a probe passes by what is stale, however much of it there is
        claim = services.claims.claim(
            "dispatch",
            lane.project,
            lane.lane,
            limit=limit,
            shard=run.shard,
            now=run.now,
            probe=grant.probe,
            since=lane.since,
        )
        if claim is None:
            return None
        pool = services.pools.of(lane.project)
        batch = Batch(
            services, run, claim, lane.lane, pool, allowance.troubled, watched=allowance.watched, probe=grant.probe
        )
        batch.reserve(0 if grant.probe else grant.count)
        return batch

    @contextmanager
    def _in_passing(self, project: str) -> Iterator[None]:
        """Let nothing that is written beside a batch cost more than a sentence."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 whatever it is, the deliveries come first
            self._tell(f"project {project} was not told: {normalise_error(error, 200)}")

    def _hand_over(self, taking: Future[_Taken]) -> bool:
        """Let what was claimed go its way; tell whether another claim may follow at once."""
        lane, *_, thread = self.claiming.pop(taking)
        if taking.exception() is not None or taking.result().batch is None:
            self.helpers.append(thread)  # it still has to give back what it took in vain
        try:
            taken = taking.result()
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever it is, it belongs to this lane
            self._leave_alone(lane.project, lane.lane, error)
            return False
        allowance, batch = taken.allowance, taken.batch
        if not allowance.grant.count:
            self._rest(lane, allowance)
            return False
        count = len(batch.claim.deliveries) if batch else 0
        if count < allowance.grant.count:
            self.cut_short = True
            self.due = [each for each in self.due if _key(each) != _key(lane)]
        if batch is None:
            pause_s = _NOT_OURS_S if self.services.claims.limited else _LOOK_EVERY_S
            self.not_before[_key(lane)] = time.monotonic() + pause_s
            return False
        self.claimed += count
        self.under_way[taken.delivering] = batch
        if taken.unused and self.services.projects.rules.rate_per_s:
            self.owed.append((lane, taken.unused))
        return count == allowance.grant.count and not batch.probe

    def _catch_up(self) -> None:
        """Write down what need not be there before the first request is out: the run's row, tokens given back."""
        if self.claimed:
            self.run.begin_work()
        while self.owed:
            self._give_back_beside(*self.owed.pop())

    def _give_back_beside(self, lane: DueLane, unused: int) -> None:
        try:
            self.helpers.append(threads.start("relevo-unused", partial(self._give_back, lane, unused)))
        except threads.NoThreadError:
            self._give_back(lane, unused)

    def _deliver(self, batch: Batch) -> None:
        """Bring a batch on its way and look at its project's brakes, both beside the other batches."""
        try:
            batch.deliver()
        finally:
            with self._in_passing(batch.claim.project):
                self.services.projects.check_brakes(batch.claim.project, self.run.now)

    def _leave_alone(self, project: str, lane: Lane, error: BaseException) -> None:
        """Leave a lane alone on which an error was met that is no outage, longer each time; the others go on."""
        pause_s = self.run.leave_alone(_thing(project, lane), error)
        self.not_before[project, lane] = time.monotonic() + pause_s

    def _batch_limit(self, lane: DueLane) -> int:
        settings, pool = self.services.settings, self.services.pools.of(lane.project)
        limit = limits.batch_limit(
            most=settings.outbox_batch_size,
            chunk=settings.push_chunk_size,
            connections=settings.outbox_concurrency if pool.capacity == 1 else pool.capacity,
            under_way=pool.under_way(),
            latency_ms=pool.latency_ms,
            lease_ms=settings.outbox_lease_duration_ms,
        )
        asked = sum(each.most for each in self.claiming.values())
        return min(limit, self.run.items_left - self.claimed - asked)

    def _rest(self, lane: DueLane, allowance: Allowance) -> None:
        """Leave a lane alone for as long as what stands in its way will stand."""
        wait_s = max(allowance.grant.wait_s, 0.005)
        lanes = LANES if allowance.grant.why in ("breaker", "rest") else (lane.lane,)
        for each in lanes:
            self.not_before[lane.project, each] = time.monotonic() + wait_s
            self.services.projects.lanes.rest(lane.project, each, wait_s)

    def _collect(self) -> None:
        """Wait a moment for a claim or a batch to end, and go on with it or count what became of it."""
        if not self.under_way and not self.claiming:
            time.sleep(min(_LOOK_EVERY_S, max(0.0, self._next_chance_s())))
            return
        timeout = max(_MOMENT_S, min(_LOOK_EVERY_S, self._next_chance_s()))
        awaited: list[Future[Any]] = [*self.under_way, *self.claiming]
        wait(awaited, timeout=timeout, return_when=FIRST_COMPLETED)
        self.helpers = [each for each in self.helpers if not each.done()]
        for taking in [each for each in self.claiming if each.done()]:
            self._hand_over(taking)
        for delivering in [each for each in self.under_way if each.done()]:
            self._count(self.under_way.pop(delivering), delivering.exception())
        self._give_up_overdue()

    def _give_up_overdue(self) -> None:
        """Wait no longer for claims and batches that have lasted three leases and more."""
        now, hung = time.monotonic(), self.services.hung
        lasts_s = 3 * self.services.settings.outbox_lease_duration_ms / 1000
        for taking in [each for each, claiming in self.claiming.items() if now > claiming.since + lasts_s]:
            if taking.cancel():
                lane, _, since, thread = self.claiming.pop(taking)
                self._told_of_hung(hung.give_up(hung.add("a claim", lane.project, since, lasts_s, thread)))
                self.not_before[_key(lane)] = now + _AFTER_HUNG_S
        for delivering in [each for each, batch in self.under_way.items() if now > batch.overdue_at]:
            batch = self.under_way.pop(delivering)
            batch.claim.lose("error", "Its batch hangs and was given up.")
            call = hung.add("a batch", batch.claim.project, batch.claim.taken_at, lasts_s, delivering)
            self._told_of_hung(hung.give_up(call))
            self.counts += batch.counts

    def _told_of_hung(self, sentence: str) -> None:
        self.counts["calls_given_up"] += 1
        self._tell(sentence)

    def _count(self, batch: Batch, error: BaseException | None) -> None:
        """Count what became of a batch."""
        self.left_behind = True
        project = batch.claim.project
        self.counts += batch.counts
        for problem in batch.problems:
            self._tell(problem)
        if batch.probe:  # whoever waited for its end asks again
            self.services.projects.lanes.look_again(project)
            self.not_before = {key: at for key, at in self.not_before.items() if key[0] != project}
        if error is not None:
            self._note(batch, error)
        elif batch.busy is not None:
            self._leave_alone(project, batch.lane, batch.busy)
        else:
            self.run.troubles.went_well(_thing(project, batch.lane))

    def _note(self, batch: Batch, error: BaseException) -> None:
        if is_own(error):
            _log.error("batch_failed", claim=str(batch.claim.token), exc_info=error)
            self._leave_alone(batch.claim.project, batch.lane, error)
        else:
            self._tell(f"a batch of {batch.claim.project}: {normalise_error(error, 200)}")
            self.not_before[batch.claim.project, batch.lane] = time.monotonic() + _AFTER_OUTAGE_S

    def _next_chance_s(self) -> float:
        claiming = {_key(each.lane) for each in self.claiming.values()}
        due = [_key(lane) for lane in self.due if lane.due_in_s <= 0]
        waits = [self.not_before.get(key, 0.0) for key in due if key not in claiming]
        return min(waits, default=_NEVER) - time.monotonic()

    def _due_in_s(self) -> float | None:
        """Return when the next delivery falls due, or may be sent at last."""
        now = time.monotonic()
        waits = [max(lane.due_in_s, self.not_before.get(_key(lane), 0.0) - now, _LOOK_EVERY_S) for lane in self.due]
        return min(waits, default=None)


def _key(lane: DueLane) -> Key:
    return lane.project, lane.lane


def _thing(project: str, lane: Lane) -> Thing:
    return Thing("lane", f"{lane} {project}")


def _key_of(name: str) -> Key:
    lane, _, project = name.partition(" ")
    return project, "urgent" if lane == "urgent" else "bulk"
