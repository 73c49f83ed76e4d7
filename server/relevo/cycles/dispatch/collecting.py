"""Collecting: which claims are under way, what became of those that ended, and which are waited for no longer."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field

import structlog

from relevo.core.logs import normalise_error
from relevo.cycles.dispatch.lanes import Lanes, thing_of
from relevo.delivery.claim_sender import ClaimSender
from relevo.delivery.claiming.due_lanes import DueLane
from relevo.delivery.report import Report
from relevo.delivery.worker_services import WorkerServices
from relevo.runtime.runs import Run
from relevo.runtime.troubles import is_own

_log = structlog.get_logger("relevo.dispatch")

_MOST_BATCHES = 32
_MOST_OF_A_LANE = 8
_AFTER_OUTAGE_S = 5.0


@dataclass
class Senders:
    """The claims of one run that are under way; it takes over those that an earlier run left because they hang."""

    services: WorkerServices
    run: Run
    report: Report
    lanes: Lanes
    under_way: dict[Future[None], ClaimSender] = field(default_factory=dict)
    claimed: int = 0
    """How many deliveries were claimed in this run."""

    def __post_init__(self) -> None:
        """Take over what an earlier run left."""
        self.under_way.update(self.services.hanging)
        self.services.hanging.clear()

    def has_room(self, lane: DueLane) -> bool:
        """Return whether another claim may be made: little more than the request pool can send without a pause.

        A lane has its share of all claims, however many the others have; one without a claim always gets its first.
        """
        pool = self.services.pools[lane.project]
        going = Counter(sender.context.key for sender in self.under_way.values() if not sender.hanging)
        of_lane, lanes = going[lane.key], len(going.keys() | {lane.key})
        has_place = going.total() < _MOST_BATCHES or of_lane < max(1, _MOST_BATCHES // lanes)
        return has_place and of_lane < _MOST_OF_A_LANE and pool.under_way(lane.lane) <= 2 * pool.capacity

    def are_going(self) -> bool:
        """Return whether a claim makes progress; one that hangs hands back what it has once the process stops."""
        stopping = self.run.stopping.is_set()
        return any(stopping or not sender.hanging for sender in self.under_way.values())

    def collect(self) -> None:
        """Count what became of the claims that ended, and give up those that have lasted too long."""
        for delivering in [each for each in self.under_way if each.done()]:
            self._count(self.under_way.pop(delivering), delivering.exception())
        self._give_up_overdue()

    def _count(self, sender: ClaimSender, error: BaseException | None) -> None:
        self.lanes.claim_ended = True
        self.report.include(sender.context.report)
        if sender.context.probe:  # whoever waited for its end tries again
            self.lanes.reopen(sender.context.project)
        if error is not None:
            self._note(sender, error)
        elif sender.busy is not None:
            self.lanes.leave_alone(sender.context.key, sender.busy)
        else:
            self.run.troubles.went_well(thing_of(sender.context.key))

    def _note(self, sender: ClaimSender, error: BaseException) -> None:
        if is_own(error):
            _log.error("claim_failed", claim=str(sender.claim.token), exc_info=error)
            self.lanes.leave_alone(sender.context.key, error)
        else:
            self.report.add(f"a claim of {sender.context.project}: {normalise_error(error, 200)}")
            self.lanes.wait(sender.context.key, _AFTER_OUTAGE_S)

    def _give_up_overdue(self) -> None:
        now, hung = time.monotonic(), self.services.hung
        lasts_s = 3 * self.services.settings.outbox_lease_duration_ms / 1000
        for delivering in [each for each, sender in self.under_way.items() if now > sender.overdue_at]:
            sender = self.under_way.pop(delivering)
            sender.claim.lose("error", "Its sending hangs and was given up.")
            call = hung.add("a claim", sender.context.project, sender.claim.taken_at, lasts_s, delivering)
            self.report.add_hung(hung.give_up(call))
            self.report.counts += sender.context.report.counts

    def leave_hanging(self) -> None:
        """Leave what hangs to the next run."""
        self.services.hanging.update(self.under_way)
