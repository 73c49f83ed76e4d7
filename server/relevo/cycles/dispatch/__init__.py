"""Dispatch: as long as something is due and may be sent, choose a lane, claim some of it, and collect what ended.

`lanes` chooses, `claiming` claims and starts to send (`relevo.delivery.claim_sender`), `collecting` counts what
became of it. The loop is here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

from relevo.core.errors import DatabaseUnavailableError
from relevo.core.i18n import N_
from relevo.core.logs import normalise_error
from relevo.core.model import Step
from relevo.cycles import Assembled
from relevo.cycles.dispatch.claiming import Claiming, PendingClaim
from relevo.cycles.dispatch.collecting import Senders
from relevo.cycles.dispatch.lanes import CALLED_S, READ_EVERY_S, Lanes
from relevo.delivery.claiming.due_lanes import DueLane, Key
from relevo.delivery.report import Report
from relevo.delivery.sending.in_flight import MIDDLEWARE, SERVICE
from relevo.delivery.worker_services import WorkerServices
from relevo.operators.formats import in_numbers
from relevo.runtime.cycle_facts import CycleFacts
from relevo.runtime.hung_calls import MOST_CALLS
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every

FACTS = CycleFacts(
    "dispatch",
    does="claims due deliveries, sends them in requests of up to 100, and records the answers",
    counts={
        "push_requests": "requests to push services",
        "notifications_sent": "pushes that the push service accepted",
        "notifications_ok": "pushes accepted by a push service without receipts",
        "notifications_retryable": "pushes that failed and are tried again",
        "notifications_postponed": "pushes returned to the queue without spending an attempt",
        "notifications_failed": "pushes that failed for good",
        "notifications_unknown": "pushes that may have been sent and are not tried again",
        "notifications_invalidated": "pushes to a token that the push service does not know any more",
        "notifications_expired": "pushes whose deadline passed",
        "notifications_skipped": "pushes that a rule stopped before they were sent",
        "notifications_shadow": "of the skipped ones, pushes that only shadow mode kept from being sent",
        "notifications_cancelled": "pushes whose event was cancelled or completed",
        "notifications_silent": "pushes sent without a sound, because of quiet hours",
        "late_tickets": "tickets that arrived after their claim was lost",
        "tokens_disabled": "tokens disabled",
        "claims_lost": "claims lost to the reaper while they were worked on",
        "calls_given_up": "calls that hung and were given up",
        "answers_not_written": "answers that could not be written",
        "projects_stopped": "projects with due deliveries whose breaker is open or that rest (by hand and by tick)",
        "news_taken": "news that a webhook accepted",
        "news_retryable": "news that are tried again",
        "news_postponed": "news returned to the queue without spending an attempt",
        "news_failed": "news that failed for good",
        "news_unknown": "news that may have been sent and are not tried again",
        "news_expired": "news whose time passed",
        "news_skipped": "news that a rule stopped",
        "news_cancelled": "news of a removed subscription",
        "news_invalid": "news to a webhook that is gone",
    },
    after="digest",
    wakeable=True,
    waiting=lambda backlog: (
        in_numbers(backlog.deliveries, "delivery is due", "deliveries are due") if backlog.deliveries else ""
    ),
    paused=N_("%(who)s paused sending."),
    resumed=N_("%(who)s resumed sending after %(time)s."),
)
_MOMENT_S = 0.005
_AFTER_HUNG_S = 5.0
_GIVES_BACK_S = 5.0  # how long the end of a run waits for tokens to go back, also to a project whose row somebody holds


def cycles(given: Assembled) -> list[Cycle]:
    """Return dispatch for the schedule: on every replica, woken by fan-out."""
    timing = Every(given.settings.dispatch_interval_minutes * 60_000)
    return [Cycle.of(FACTS, timing, lambda run: _Dispatch(given.services, run).go())]


@dataclass
class _Dispatch:
    """One run: its loop over choosing, claiming and collecting."""

    services: WorkerServices
    run: Run
    report: Report = field(default_factory=Report)
    lanes: Lanes = field(init=False)
    claiming: Claiming = field(init=False)
    senders: Senders = field(init=False)
    idle_since: float = field(default_factory=time.monotonic)
    """When it last began to look for work, and how much was claimed by then."""
    idle_claimed: int = 0

    def __post_init__(self) -> None:
        self.lanes = Lanes(self.services, self.run, self.report)
        self.claiming = Claiming(self.services, self.run, self.report)
        self.senders = Senders(self.services, self.run, self.report, self.lanes)

    def go(self) -> Step:
        """Claim as long as there is something to do, then wait for what is under way."""
        try:
            if self.run.is_ahead:
                self._get_ready()
                self.run.await_call()
            self._drain()
            while self._wait_for_work():
                self._drain()
        except DatabaseUnavailableError as error:  # what was under way is counted all the same
            self.report.add(normalise_error(error, 200))
        finally:
            self._wind_up()
        for sentence in self.services.hung.unreported():
            self.report.add_hung(sentence)
        if self.run.context.trigger in ("manual", "tick"):  # who looks at its end alone learns of no later run
            self.report.fail_turned_away()
            self._add_stopped()
        return Step(
            {name: count for name, count in self.report.counts.items() if count},
            self.senders.claimed,
            more=not self._may_claim() and any(lane.due_in_s <= 0 for lane in self.lanes.due),
            problems=self.report.sentences(),
            due_in_s=self.lanes.due_in_s(),
        )

    def _add_stopped(self) -> None:
        """Add the projects of which something is due that may not be sent now, because they are stopped or rest."""
        try:
            stopped = self.services.projects.stopped(self.run.now)
        except (DatabaseUnavailableError, psycopg.Error) as error:
            self.report.add(f"stopped projects could not be read: {normalise_error(error, 200)}")
            return
        for each in stopped:
            if each.project not in self.report.failures:
                self.report.counts["projects_stopped"] += 1
                self.report.add(
                    f"project {each.project} sends nothing until {each.until:%Y-%m-%d %H:%M:%S}Z: {each.reason}"
                )

    def _get_ready(self) -> None:
        """Do what the first claim needs and what does not depend on it, while what feeds this cycle is at work."""
        project = self.services.projects.served
        if project is None:
            return
        self.claiming.projects.add(project)
        with suppress(DatabaseUnavailableError, psycopg.Error):  # the claim does what could not be done now
            in_flight = self.services.pools[project].in_flight()
            composed = self.services.projects.get_ready(project, in_flight=in_flight)
            if composed is not None:
                self.services.claims.learn_composed(composed)

    def _drain(self) -> None:
        """Go on until nothing is due that may be sent within a moment, and nothing is under way."""
        while self._fill() or self.claiming.pending or self._waits() or self._is_more_due():
            self._collect()
            self._catch_up()  # not before: the first request went out meanwhile

    @property
    def _items_left(self) -> int:
        return self.run.items_left - self.senders.claimed

    def _may_claim(self) -> bool:
        return self.run.may_go_on() and self._items_left > 0

    def _fill(self) -> bool:
        """Make one claim per lane, round after round, as far as there is room; return whether to come back."""
        if not self._may_claim():
            return False
        self.lanes.refresh()
        while self._may_claim() and self._go_round():
            pass
        return self.lanes.are_soon_open()

    def _go_round(self) -> bool:
        """Make one claim of each open lane; return whether one of them was full, so that more may be due.

        What is due is read again in between: what is urgent waits neither for the other lanes, nor until no more bulk
        fits in.
        """
        tried, full, lanes = set[Key](), False, self.lanes.open()
        while (lane := next(lanes, None)) is not None:
            if lane.key in tried or not self.senders.has_room(lane):
                continue
            full |= self._make_room(lane)
            if not self.claiming.has_room(lane):
                continue
            tried.add(lane.key)
            self._claim(lane)
            if self.lanes.refresh():
                lanes = self.lanes.open()
        return self._take_over_made(self.claiming.pending) or full

    def _make_room(self, lane: DueLane) -> bool:
        """Wait a moment for claims in whose way one of a lane would be; return whether one of them was full.

        Claims of several projects are made side by side, those of one project one after the other.
        """
        full = False
        while pending := self.claiming.in_the_way(lane):
            count = len(self.claiming.pending)
            full |= self._take_over_made(pending)
            if len(self.claiming.pending) == count:  # what takes its time goes on beside the others
                break
        return full

    def _take_over_made(self, pending: Sequence[PendingClaim]) -> bool:
        """Wait a moment for one of some claims, and take over those that are made; return whether one was full."""
        full = [self._take_over(claim) for claim in self.claiming.wait_for(pending)]
        return any(full)

    def _claim(self, lane: DueLane) -> None:
        """Begin one claim."""
        most = self.claiming.most_for(lane, self._items_left)
        if most <= 0 or self._is_hung(lane) or self._is_unreachable(lane):
            return
        self._catch_up()
        self.claiming.start(lane, most)

    def _is_hung(self, lane: DueLane) -> bool:
        """Return whether so many requests of a project hang in this process that no more are made for now."""
        hung = sum(self.services.hung.count(what, lane.project) for what in (MIDDLEWARE, SERVICE))
        if hung < MOST_CALLS and not self.services.pools[lane.project].is_full_of_hung():
            return False
        why = f"{hung} of its requests have not come back"
        self.report.add(f"project {lane.project} sends nothing in this process: {why}")
        self.lanes.wait_for_project(lane.project, _AFTER_HUNG_S)
        return True

    def _is_unreachable(self, lane: DueLane) -> bool:
        """Return whether this process leaves a project alone because it could not reach the push service."""
        rest_s = self.services.projects.unreachable.rest_s(lane.project)
        if rest_s:
            self.lanes.rest(lane.project, rest_s)
        return rest_s > 0

    def _take_over(self, claim: PendingClaim) -> bool:
        """Take a claim that was made among those under way; return whether another may follow at once."""
        lane = claim.lane
        try:
            claimed = self.claiming.end(claim)
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever it is, it belongs to this lane
            self.lanes.leave_alone(lane.key, error)
            return False
        if not claimed.allowance.grant.count:
            self.lanes.wait_for_allowance(lane, claimed.allowance)
            return False
        if not claimed.is_full:
            self.lanes.found_short(lane, empty=claimed.sender is None)
        if claimed.sender is None:
            return False
        self.senders.claimed += claimed.count
        self.senders.under_way[claim.thread] = claimed.sender
        if claimed.unused and self.services.projects.rules.of(lane.project).rate_per_s:
            self.claiming.unused.append((lane, claimed.unused))
        return claimed.is_full and not claimed.sender.context.probe

    def _catch_up(self) -> None:
        """Write what need not be there before the first request is out: the run's row, tokens given back."""
        if self.senders.claimed:
            self.run.begin_work()
        self.claiming.give_back_unused()

    def _collect(self) -> None:
        """Wait a moment for a claim to be made or to end, and go on with it."""
        chance_s = self.lanes.next_chance_s(self.claiming.keys)
        if not self.senders.under_way and not self.claiming.pending:
            time.sleep(min(READ_EVERY_S, max(0.0, chance_s)))
            return
        awaited: list[Future[Any]] = [*self.senders.under_way, *(each.result for each in self.claiming.pending)]
        wait(awaited, timeout=max(_MOMENT_S, min(READ_EVERY_S, chance_s)), return_when=FIRST_COMPLETED)
        self.claiming.helpers = [each for each in self.claiming.helpers if not each.done()]
        for claim in [each for each in self.claiming.pending if each.result.done()]:
            self._take_over(claim)
        for lane in self.claiming.give_up_overdue():
            self.lanes.wait(lane.key, _AFTER_HUNG_S)
        self.senders.collect()

    def _waits(self) -> bool:
        """Return whether to wait for claims: for those that hang only while others can be served meanwhile."""
        return self.senders.are_going() or (bool(self.senders.under_way) and self._may_claim())

    def _is_more_due(self) -> bool:
        """Read once more after the last claim what is due: what it left, of another lease or for a new token."""
        if not self.lanes.claim_ended or not self._may_claim():
            return False
        self.lanes.forget_read()
        self.lanes.refresh()
        return self.lanes.are_soon_open()

    def _wait_for_work(self) -> bool:
        """Wait for more to do, connections kept unless others may lack them; return whether to read again."""
        if self.report.problems or self.run.left_alone or not self._may_claim():
            return False
        self._drop_connections(
            {each for each in self.claiming.projects if self.services.projects.connections.is_scarce(each)}
        )
        worked, took_s = self.senders.claimed > self.idle_claimed, time.monotonic() - self.idle_since
        more = self.run.wait_for_work(worked=worked, took_s=took_s, rest_s=CALLED_S, due_in_s=self.lanes.due_in_s())
        self.idle_claimed, self.idle_since = self.senders.claimed, time.monotonic()
        self.lanes.forget_read()
        return more

    def _wind_up(self) -> None:
        """Wait for what is under way, leave what hangs to the next run, and give tokens and connections back."""
        while self.claiming.pending or self.senders.are_going():
            try:
                self._collect()
            except DatabaseUnavailableError as error:
                self.report.add(normalise_error(error, 200))
        self.claiming.give_back_unused()
        self.senders.leave_hanging()
        wait(self.claiming.helpers, timeout=_GIVES_BACK_S)
        self._drop_connections(set(self.claiming.projects))

    def _drop_connections(self, projects: set[str]) -> None:
        self.claiming.projects -= projects
        if not projects or self.run.abandoned.is_set():
            return
        with suppress(DatabaseUnavailableError, psycopg.Error):  # their leases end by themselves
            in_flight = {project: self.services.pools[project].in_flight() for project in projects}
            self.services.projects.connections.drop(in_flight, "dispatch")
