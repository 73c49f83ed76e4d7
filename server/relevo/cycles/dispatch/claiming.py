"""Claiming: reserve a project's tokens, claim what is due and start to send it, each claim on a thread of its own.

Rows that somebody holds locked, or a slow statement, are then that lane's trouble alone.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from relevo.cycles.dispatch.lanes import thing_of
from relevo.delivery import rate_and_breaker
from relevo.delivery.claim_sender import ClaimSender
from relevo.delivery.due_lanes import DueLane, Key
from relevo.delivery.projects import Allowance
from relevo.delivery.report import Report
from relevo.delivery.worker_services import ClaimContext, WorkerServices
from relevo.runtime import threads
from relevo.runtime.runs import Run

_SLOW_S = 0.25  # a claim that takes longer goes on beside the others
_MOST_PENDING = 3  # each keeps a connection of the pool, which senders need for what they have


@dataclass(frozen=True)
class Claimed:
    """What a lane may send now, and what was claimed of it and is on its way."""

    allowance: Allowance
    sender: ClaimSender | None = None
    unused: int = 0
    """How many tokens were reserved in vain, and are to be given back."""

    @property
    def count(self) -> int:
        """How many deliveries were claimed."""
        return len(self.sender.claim.deliveries) if self.sender else 0

    @property
    def is_full(self) -> bool:
        """Whether as many were claimed as might be."""
        return self.count >= self.allowance.grant.count


@dataclass(eq=False)
class PendingClaim:
    """A claim that is being made."""

    lane: DueLane
    most: int
    since: float = field(default_factory=time.monotonic)
    result: Future[Claimed] = field(default_factory=Future)
    thread: Future[None] = field(default_factory=Future)
    """Its thread, which also delivers what it claimed, or gives back what it reserved in vain."""


@dataclass
class Claiming:
    """The claims of one run that are being made, and the tokens to be given back."""

    services: WorkerServices
    run: Run
    report: Report
    pending: list[PendingClaim] = field(default_factory=list)
    helpers: list[Future[None]] = field(default_factory=list)
    """Threads that give something back."""
    unused: list[tuple[DueLane, int]] = field(default_factory=list)
    """Tokens that were reserved in vain, and are to be given back."""
    projects: set[str] = field(default_factory=set)
    """The projects that claims were made for, and that connections may be leased of."""

    @property
    def keys(self) -> set[Key]:
        """The lanes that a claim is being made of."""
        return {each.lane.key for each in self.pending}

    def has_room(self, lane: DueLane) -> bool:
        """Return whether a claim of a lane may be begun."""
        return len(self.pending) < _MOST_PENDING and lane.key not in self.keys

    def most_for(self, lane: DueLane, items_left: int) -> int:
        """Return how many deliveries of a lane may be claimed at once, of those that the run may still claim."""
        settings, pool = self.services.settings, self.services.pools[lane.project]
        rules = self.services.projects.rules.of(lane.project)
        limit = rate_and_breaker.claim_limit(
            most=settings.outbox_batch_size,
            chunk=rules.chunk,
            connections=rules.connections if pool.capacity == 1 else pool.capacity,
            under_way=pool.under_way(),
            latency_ms=pool.latency_ms,
            lease_ms=settings.outbox_lease_duration_ms,
        )
        if self.services.projects.unreachable.is_left(lane.project):
            limit = 1  # to learn whether the push service can be reached again costs one push at most
        return min(limit, items_left - sum(each.most for each in self.pending))

    def start(self, lane: DueLane, most: int) -> PendingClaim:
        """Begin a claim, and wait a moment for it."""
        self.projects.add(lane.project)
        claim = PendingClaim(lane, most)
        claim.thread = threads.start("relevo-claim", partial(self.reserve_and_claim, claim))
        self.pending.append(claim)
        wait([claim.result], timeout=0 if self.run.troubles.is_known(thing_of(lane.key)) else _SLOW_S)
        return claim

    def end(self, claim: PendingClaim) -> Claimed:
        """Return what was claimed; raises what the claim met."""
        self.pending.remove(claim)
        if claim.result.exception() is not None or claim.result.result().sender is None:
            self.helpers.append(claim.thread)
        return claim.result.result()

    def give_up_overdue(self) -> list[DueLane]:
        """Wait no longer for claims that have lasted three leases; return their lanes."""
        now, hung = time.monotonic(), self.services.hung
        lasts_s = 3 * self.services.settings.outbox_lease_duration_ms / 1000
        overdue = [each for each in self.pending if now > each.since + lasts_s and each.result.cancel()]
        for each in overdue:
            self.pending.remove(each)
            call = hung.add("a claim", each.lane.project, each.since, lasts_s, each.thread)
            self.report.add_hung(hung.give_up(call))
        return [each.lane for each in overdue]

    def reserve_and_claim(self, pending: PendingClaim) -> None:
        """Reserve and claim, hand that to whoever waits for it, and deliver what was claimed: a thread's work.

        Of a full claim, tokens reserved in vain go back first: another claim follows at once, and must not wait for
        tokens that are not used.
        """
        lane, projects, now = pending.lane, self.services.projects, self.run.now
        grant, sender, unused = rate_and_breaker.Grant(0), None, 0
        try:
            allowance = self._reserve(lane, pending.most)
            grant = allowance.grant
            unused = 0 if grant.probe else grant.count
            sender = self._claim(lane, allowance, pending.most) if grant.count else None
            unused -= sender.tokens if sender else 0
            if unused and sender is not None and len(sender.claim.deliveries) == grant.count:
                self._give_back(lane, unused)
                unused = 0
            pending.result.set_result(Claimed(allowance, sender, unused))
        except BaseException as error:  # noqa: BLE001 whatever it is, it belongs to whoever waits for it
            with suppress(InvalidStateError):
                pending.result.set_exception(error)
            if sender is not None:  # nobody waits for it any more
                unused += sender.tokens
                with self.report.in_passing(lane.project):
                    self.services.claims.release(sender.claim, now)
        else:
            if sender is not None:
                self._deliver(sender)
                return
        if grant.probe and sender is None:
            with self.report.in_passing(lane.project):
                projects.cancel_probe(lane.project, now)
        self._give_back(lane, unused)

    def _reserve(self, lane: DueLane, most: int) -> Allowance:
        pool = self.services.pools[lane.project]
        allowance = self.services.projects.reserve(
            lane.project, lane.lane, most, self.run.now, in_flight=pool.in_flight(), since=lane.since
        )
        if allowance.grant.count:
            pool.resize(allowance.connections)
            pool.halted = False
        return allowance

    def _claim(self, lane: DueLane, allowance: Allowance, most: int) -> ClaimSender | None:
        services, run, grant = self.services, self.run, allowance.grant
        claim = services.claims.claim(
            "dispatch",
            lane.project,
            lane.lane,
            limit=most if grant.probe else grant.count,  # a probe skips what is stale, however much of it there is
            shard=run.shard,
            now=run.now,
            probe=grant.probe,
            since=lane.since,
        )
        if claim is None:
            return None
        return ClaimSender(ClaimContext(services, run, claim, lane.lane, services.pools[lane.project], allowance))

    def _deliver(self, sender: ClaimSender) -> None:
        """Send what a claim holds and check its project's brakes, both beside the other claims."""
        try:
            sender.deliver()
        finally:
            with self.report.in_passing(sender.context.project):
                self.services.projects.check_brakes(sender.context.project, self.run.now)

    def give_back_unused(self) -> None:
        """Give back the tokens that were reserved in vain, on threads of their own."""
        while self.unused:
            lane, unused = self.unused.pop()
            try:
                self.helpers.append(threads.start("relevo-unused", partial(self._give_back, lane, unused)))
            except threads.NoThreadError:
                self._give_back(lane, unused)

    def _give_back(self, lane: DueLane, unused: int) -> None:
        with self.report.in_passing(lane.project):
            self.services.projects.give_back(lane.project, lane.lane, unused, self.run.now)
