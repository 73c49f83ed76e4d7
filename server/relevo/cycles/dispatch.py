"""Dispatch: as long as something is due and may be sent, claim batches and let each go its way beside the others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field

import structlog
from psycopg import errors as pg

from relevo.delivery import limits
from relevo.delivery.batch import Batch, Services
from relevo.delivery.projects import Allowance, DueLane
from relevo.errors import DatabaseUnavailableError
from relevo.logs import normalise_error
from relevo.model import Step
from relevo.runtime import threads
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every

_log = structlog.get_logger("relevo.dispatch")

_LOOK_EVERY_S = 0.05
_BATCHES_AT_ONCE = 32
_BATCHES_PER_LANE = 8
_WORTH_WAITING_S = 2.0
_AFTER_SURPRISE_S = 5.0  # what failed once for no known reason would fail again and again
_NEVER = float("inf")
_MAX_PROBLEMS = 20

Key = tuple[str, str]


def cycle(services: Services) -> Cycle:
    """Return dispatch for the schedule: on every replica, woken by fan-out."""
    settings = services.settings
    timing = Every(settings.dispatch_interval_minutes * 60_000)

    def step(run: Run) -> Step:
        return _Drain(services, run).go()

    return Cycle("dispatch", timing, step, wakeable=True)


@dataclass
class _Drain:
    """One busy period: which lanes are due, which must wait, what is under way."""

    services: Services
    run: Run
    under_way: dict[Future[None], Batch] = field(default_factory=dict)
    not_before: dict[Key, float] = field(default_factory=dict)
    """When a lane may be tried again, by the monotonic clock."""
    due: list[DueLane] = field(default_factory=list)
    looked_at: float = -_NEVER
    claimed: int = 0
    claimed_before_look: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def go(self) -> Step:
        """Claim and hand over as long as there is something to do, then wait for what is under way."""
        try:
            while self._fill() or self.under_way or self._look_anew():
                self._collect()
        except DatabaseUnavailableError as error:  # what was under way is counted all the same
            self.problems.append(normalise_error(error, 200))
        finally:
            while self.under_way:
                self._collect()
            self._give_connections_back()
        more = not self._may_claim() and any(lane.due_in_s <= 0 for lane in self.due)
        counts = {name: count for name, count in self.counts.items() if count}
        return Step(
            counts, self.claimed, more=more, problems=tuple(self.problems[:_MAX_PROBLEMS]), due_in_s=self._due_in_s()
        )

    def _may_claim(self) -> bool:
        return self.run.may_go_on() and self.run.items_left > self.claimed

    def _fill(self) -> bool:
        """Claim one batch per lane, round after round, as far as there is room; tell whether to come back."""
        if not self._may_claim():
            return False
        self._look()
        while self._may_claim() and sum(self._claim_one(lane) for lane in list(self._open_lanes())):
            pass
        return any(True for _ in self._soon())

    def _look(self) -> None:
        if time.monotonic() - self.looked_at < _LOOK_EVERY_S:
            return
        self.due = self.services.projects.due_lanes(self.run.now)
        self.looked_at = time.monotonic()
        self.claimed_before_look = self.claimed

    def _look_anew(self) -> bool:
        """Look once more after the last batch: what it left behind, e.g. of another lease, may be due as well."""
        if self.claimed == self.claimed_before_look or not self._may_claim():
            return False
        self.looked_at = -_NEVER
        self._look()
        return any(True for _ in self._open_lanes())

    def _open_lanes(self) -> Iterator[DueLane]:
        now = time.monotonic()
        for lane in self.due:
            if lane.due_in_s <= 0 and self.not_before.get((lane.project, lane.lane), 0.0) <= now and self._room(lane):
                yield lane

    def _soon(self) -> Iterator[DueLane]:
        """The lanes that are due and may be sent within a moment: worth waiting for."""
        horizon = time.monotonic() + _WORTH_WAITING_S
        for lane in self.due:
            if lane.due_in_s <= 0 and self.not_before.get((lane.project, lane.lane), 0.0) < horizon:
                yield lane

    def _room(self, lane: DueLane) -> bool:
        """Tell whether another batch may be claimed: little more than the request pool can send without a pause."""
        pool = self.services.pools.of(lane.project)
        ours = sum(b.claim.project == lane.project and b.lane == lane.lane for b in self.under_way.values())
        standing = pool.under_way(lane.lane)
        return len(self.under_way) < _BATCHES_AT_ONCE and ours < _BATCHES_PER_LANE and standing <= 2 * pool.capacity

    def _claim_one(self, lane: DueLane) -> bool:
        """Reserve, claim and hand over one batch; tell whether that was a full one, so that another may follow."""
        services, run, key = self.services, self.run, (lane.project, lane.lane)
        most = self._batch_limit(lane)
        if most <= 0:
            return False
        pool = self.services.pools.of(lane.project)
        self.used.add(lane.project)
        allowance = services.projects.reserve(lane.project, lane.lane, most, run.now, in_flight=pool.in_flight())
        granted = allowance.grant.count
        if not granted:
            self._rest(lane, allowance)
            return False
        pool.resize(allowance.connections)
        pool.halted = False
        probe = allowance.grant.probe
        limit = most if probe else granted  # a probe passes by what is stale, however much of it there is
        claim = services.claims.claim("dispatch", lane.project, lane.lane, limit=limit, shard=run.shard, now=run.now)
        taken = len(claim.deliveries) if claim else 0
        if taken < granted:
            self.due = [each for each in self.due if each != lane]
        unused = 0 if probe else granted
        if claim is None:
            self.not_before[key] = time.monotonic() + _LOOK_EVERY_S
            if probe:
                services.projects.cancel_probe(lane.project, run.now)
        else:  # on its way first: what is written down beside it can wait
            self.claimed += taken
            batch = Batch(services, run, claim, lane.lane, pool, troubled=allowance.troubled, probe=probe)
            unused -= batch.reserve(unused)
            self.under_way[threads.start("relevo-batch", batch.deliver)] = batch
            run.begin_work()
        services.projects.give_back(lane.project, lane.lane, unused, run.now)
        return taken == granted and not probe

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
        return min(limit, self.run.items_left - self.claimed)

    def _rest(self, lane: DueLane, allowance: Allowance) -> None:
        """Leave a lane alone for as long as what stands in its way will stand."""
        wait_s = max(allowance.grant.wait_s, 0.005)
        for each in ["urgent", "bulk"] if allowance.grant.why in ("breaker", "runaway", "rest") else [lane.lane]:
            self.not_before[lane.project, each] = time.monotonic() + wait_s
        if allowance.grant.why == "runaway":
            self.services.projects.check_brakes(lane.project, self.run.now)

    def _collect(self) -> None:
        """Wait a moment for a batch to end, and count what became of it."""
        if not self.under_way:
            time.sleep(min(_LOOK_EVERY_S, max(0.0, self._next_chance_s())))
            return
        timeout = max(0.001, min(_LOOK_EVERY_S, self._next_chance_s()))
        done, _ = wait(self.under_way, timeout=timeout, return_when=FIRST_COMPLETED)
        for future in done:
            batch = self.under_way.pop(future)
            self.counts += batch.counts
            self.problems += batch.problems[: max(0, _MAX_PROBLEMS - len(self.problems))]
            if batch.probe:  # whoever waited for its end asks again
                self.not_before = {key: at for key, at in self.not_before.items() if key[0] != batch.claim.project}
            if (error := future.exception()) is not None:
                self._note(batch, error)
            self._check_brakes(batch.claim.project)

    def _check_brakes(self, project: str) -> None:
        """Look at a project's brakes; what stands in the way of that must not keep us from the other batches' ends."""
        try:
            self.services.projects.check_brakes(project, self.run.now)
        except (DatabaseUnavailableError, pg.OperationalError) as error:
            self.problems.append(f"the brakes of {project}: {normalise_error(error, 200)}")

    def _note(self, batch: Batch, error: BaseException) -> None:
        if not isinstance(error, DatabaseUnavailableError):
            _log.error("batch_failed", claim=str(batch.claim.token), exc_info=error)
        self.problems.append(f"a batch of {batch.claim.project}: {normalise_error(error, 200)}")
        self.not_before[batch.claim.project, batch.lane] = time.monotonic() + _AFTER_SURPRISE_S

    def _next_chance_s(self) -> float:
        waits = [self.not_before.get((lane.project, lane.lane), 0.0) for lane in self.due if lane.due_in_s <= 0]
        return min(waits, default=_NEVER) - time.monotonic()

    def _due_in_s(self) -> float | None:
        """Return when the next delivery falls due, or may be sent at last."""
        now = time.monotonic()
        waits = [
            max(lane.due_in_s, self.not_before.get((lane.project, lane.lane), 0.0) - now, _LOOK_EVERY_S)
            for lane in self.due
        ]
        return min(waits, default=None)

    def _give_connections_back(self) -> None:
        for project in self.used:
            try:
                self.services.projects.drop_connections(project, "dispatch")
            except DatabaseUnavailableError:  # their lease ends by itself
                return
