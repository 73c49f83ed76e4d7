"""Claiming: reserve a project's tokens, claim what is due and start to send it, each claim on a thread of its own.

Rows that somebody holds locked, or a slow statement, are then that lane's trouble alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from relevo.cycles.dispatch.lanes import thing_of
from relevo.database.pool import Connection
from relevo.delivery.claim_sender import ClaimSender
from relevo.delivery.claiming.claim import Claim
from relevo.delivery.claiming.claims import Take
from relevo.delivery.claiming.due_lanes import DueLane, Key
from relevo.delivery.projects import rate_and_breaker
from relevo.delivery.projects.allowance import Allowance
from relevo.delivery.projects.connection_leases import PoolUse
from relevo.delivery.report import Report
from relevo.delivery.worker_services import ClaimContext, WorkerServices
from relevo.runtime import threads
from relevo.runtime.runs import Run

_SLOW_S = 0.25  # a claim that takes longer goes on beside the others
_MOST_PENDING = 3  # each keeps a connection of the pool, which senders need for what they have


@dataclass(frozen=True)
class Claimed:
    """A lane's allowance, and its claims that are being sent."""

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
        """Whether as many were claimed as might be, so that more may be due."""
        return self.count >= self.allowance.grant.count and not self.allowance.is_all


@dataclass(eq=False)
class PendingClaim:
    """A claim that is being made."""

    lane: DueLane
    most: int
    since: float = field(default_factory=time.monotonic)
    is_awaited: bool = True
    """Whether it should be made within a moment, for which others wait."""
    result: Future[Claimed] = field(default_factory=Future)
    thread: Future[None] = field(default_factory=Future)
    """The claim's thread, which also sends the claim, or returns an unused reservation."""


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

    def start(self, lane: DueLane, most: int) -> None:
        """Begin a claim."""
        self.projects.add(lane.project)
        claim = PendingClaim(lane, most)
        claim.is_awaited = not self.run.troubles.is_known(thing_of(lane.key))
        claim.thread = threads.start("relevo-claim", partial(self.reserve_and_claim, claim))
        self.pending.append(claim)

    def wait_for(self, claims: Sequence[PendingClaim]) -> list[PendingClaim]:
        """Wait for the first of some claims that is made, unless each takes its time; return those that are."""
        awaited = [each for each in claims if each.is_awaited]
        left_s = max((each.since + _SLOW_S for each in awaited), default=0.0) - time.monotonic()
        wait([each.result for each in claims], timeout=max(0.0, left_s), return_when=FIRST_COMPLETED)
        return [each for each in claims if each.result.done()]

    def in_the_way(self, lane: DueLane) -> list[PendingClaim]:
        """Return the claims to wait for before one of a lane: those of its project, or all if they are many."""
        own = [each for each in self.pending if each.lane.project == lane.project]
        return own or (self.pending if len(self.pending) >= _MOST_PENDING else [])

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
            allowance, claim = self._reserve(lane, pending.most)
            grant = allowance.grant
            unused = 0 if grant.probe else grant.count
            if grant.count and not allowance.is_all:
                claim = self._claim(lane, grant, pending.most)
            sender = self._sender(lane, allowance, claim) if claim is not None else None
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

    def _reserve(self, lane: DueLane, most: int) -> tuple[Allowance, Claim | None]:
        """Reserve tokens; what is little is claimed in the same transaction, and returned with them."""
        pool, allowed = self.services.pools[lane.project], list[Allowance]()

        def reserve(take: Take) -> Claim | None:
            claims = list[Claim | None]()

            def take_all(connection: Connection, allowance: Allowance) -> None:
                allowed.append(allowance)  # now: if the COMMIT's answer is lost, the claim may stand all the same
                claims.append(take(connection, allowance.grant.count))

            allowance = self.services.projects.reserve(
                *lane.key,
                most,
                self.run.now,
                pool=PoolUse(pool.in_flight(), pool.capacity),
                since=lane.since,
                take_all=take_all,
            )
            allowed.append(allowance)
            return claims[0] if claims else None

        claim = self.services.claims.claim_within(
            reserve,
            "dispatch",
            *lane.key,
            shard=self.run.shard,
            now=self.run.now,
            since=lane.since,
            in_shadow=lane.in_shadow,
        )
        allowance = allowed[-1]
        if allowance.grant.count:
            pool.resize(allowance.connections)
            pool.halted = False
        return allowance, claim

    def _claim(self, lane: DueLane, grant: rate_and_breaker.Grant, most: int) -> Claim | None:
        return self.services.claims.claim(
            "dispatch",
            *lane.key,
            limit=most if grant.probe else grant.count,  # a probe skips what is stale, however much of it there is
            shard=self.run.shard,
            now=self.run.now,
            probe=grant.probe,
            since=lane.since,
            in_shadow=lane.in_shadow,
        )

    def _sender(self, lane: DueLane, allowance: Allowance, claim: Claim) -> ClaimSender:
        services, run = self.services, self.run
        return ClaimSender(ClaimContext(services, run, claim, lane.lane, services.pools[lane.project], allowance))

    def _deliver(self, sender: ClaimSender) -> None:
        """Send what a claim holds and check its project's brake if that is on, both beside the other claims."""
        try:
            sender.deliver()
        finally:
            if sender.context.allowance.braked:
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
