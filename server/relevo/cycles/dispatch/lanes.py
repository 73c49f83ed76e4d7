"""Choosing a lane: which lanes are due, which of them have to wait, and when to read again what is due."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import psycopg

from relevo.core.logs import normalise_error
from relevo.core.model import Lane
from relevo.delivery.claiming.due_lanes import DueLane, Key
from relevo.delivery.projects.allowance import Allowance
from relevo.delivery.report import Report
from relevo.delivery.worker_services import WorkerServices
from relevo.runtime.runs import Run
from relevo.runtime.troubles import Thing

READ_EVERY_S = 0.05
CALLED_S = 0.015  # something new is due, and may be urgent
_LONGEST_REST_S = 0.5  # a call may be lost, and nobody is called for what others hand back
_WORTH_WAITING_S = 2.0
_LEAST_WAIT_S = 0.005
_NOT_OURS_S = 5.0  # what is due there is for replicas that may claim its type
_NEVER = float("inf")

BOTH: tuple[Lane, ...] = ("urgent", "bulk")


@dataclass
class Lanes:
    """The lanes that are due, as read last, and until when some of them wait."""

    services: WorkerServices
    run: Run
    report: Report
    due: list[DueLane] = field(default_factory=list)
    not_before: dict[Key, float] = field(default_factory=dict)
    """When a lane may be tried again, by the monotonic clock."""
    read_at: float = -_NEVER
    asked_at: float = -_NEVER
    """When the fleet was last asked to call us."""
    claim_ended: bool = False
    """Whether a claim ended since the last read, and may have handed something back."""
    claim_was_short: bool = False
    """Whether a claim since the last read took less than it might: more may be due, of another lease."""

    def __post_init__(self) -> None:
        """Begin with the lanes that an earlier run left alone."""
        self.not_before |= {_key_of(name): at for name, at in self.run.resting("lane").items()}

    def refresh(self) -> bool:
        """Read what is due if it is time for that; return whether it was read."""
        if time.monotonic() < self._refresh_at():
            return False
        self.run.woken.clear()  # before the read: a call that comes during it is worth another
        try:
            self.due = self.services.projects.lanes.read(self.run.now)
        except psycopg.Error as error:
            self.report.add(f"what is due could not be read: {normalise_error(error, 200)}")
        self.read_at = time.monotonic()
        self.claim_ended = self.claim_was_short = False
        return True

    def forget_read(self) -> None:
        """Make the next refresh read the due lanes, however recent the last read is."""
        self.read_at = -_NEVER

    def _refresh_at(self) -> float:
        """Return when to read again: in a moment if something may have changed, else once something may be sent.

        While a run only waits for a rate, a breaker, connections or room, it is called for what is new.
        """
        soon = self.read_at + READ_EVERY_S
        if self.run.woken.is_set():
            return self.read_at + CALLED_S
        if self.claim_ended or self.claim_was_short or time.monotonic() < soon:
            return soon
        if self.asked_at < self.read_at - 2 * _LONGEST_REST_S:  # others may have said in between that nobody rests
            self.run.ask_to_be_woken()
            self.asked_at = time.monotonic()
            return soon  # nobody called for what came before that
        later = [self.read_at + lane.due_in_s for lane in self.due if lane.due_in_s > 0]
        return max(soon, min([self.read_at + _LONGEST_REST_S, *later]))

    def open(self) -> Iterator[DueLane]:
        """The lanes that are due and may be claimed now; those whose project somebody holds locked come last."""
        now, projects = time.monotonic(), self.services.projects
        due = sorted(self.due, key=lambda lane: projects.is_locked(lane.project))
        return (lane for lane in due if lane.due_in_s <= 0 and self.not_before.get(lane.key, 0.0) <= now)

    def are_soon_open(self) -> bool:
        """Return whether a lane is due and may be sent within a moment: worth waiting for.

        One that waits for its rate or for connections since before the last read was read as due once it may go on.
        """
        horizon = time.monotonic() + _WORTH_WAITING_S
        return any(self._is_due(lane) and self.not_before.get(lane.key, 0.0) < horizon for lane in self.due)

    def _is_due(self, lane: DueLane) -> bool:
        waits = self.not_before.get(lane.key, 0.0) > self.read_at
        return lane.due_in_s <= 0 or (waits and lane.due_in_s < _WORTH_WAITING_S)

    def next_chance_s(self, claiming: Collection[Key]) -> float:
        """Return in how many seconds a lane may be claimed, of those that nobody claims just now."""
        due = [lane.key for lane in self.due if lane.due_in_s <= 0 and lane.key not in claiming]
        return min((self.not_before.get(key, 0.0) for key in due), default=_NEVER) - time.monotonic()

    def due_in_s(self) -> float | None:
        """Return when the next delivery falls due, or may be sent at last."""
        now = time.monotonic()
        waits = [max(lane.due_in_s, self.not_before.get(lane.key, 0.0) - now, READ_EVERY_S) for lane in self.due]
        return min(waits, default=None)

    def wait(self, key: Key, pause_s: float) -> None:
        """Try a lane again only after a pause."""
        self.not_before[key] = time.monotonic() + pause_s

    def wait_for_project(self, project: str, pause_s: float) -> None:
        """Try both lanes of a project again only after a pause."""
        for lane in BOTH:
            self.wait((project, lane), pause_s)

    def rest(self, project: str, rest_s: float) -> None:
        """Leave both lanes of a project out for so long."""
        self.wait_for_project(project, rest_s)
        for lane in BOTH:
            self.services.projects.lanes.rest(project, lane, rest_s)

    def wait_for_allowance(self, lane: DueLane, allowance: Allowance) -> None:
        """Make a lane wait until the obstacle in its way ends."""
        wait_s = max(allowance.grant.wait_s, _LEAST_WAIT_S)
        for each in BOTH if allowance.grant.why in ("breaker", "rest") else (lane.lane,):
            self.wait((lane.project, each), wait_s)
            self.services.projects.lanes.rest(lane.project, each, wait_s)

    def found_short(self, lane: DueLane, *, empty: bool) -> None:
        """Note that a claim took less than it might, or nothing: what is due there is not known any more."""
        self.claim_was_short = True
        self.due = [each for each in self.due if each.project != lane.project or each.lane != lane.lane]
        if empty:
            self.wait(lane.key, _NOT_OURS_S if self.services.claims.limited else READ_EVERY_S)

    def reopen(self, project: str) -> None:
        """Try a project's lanes again at once: a probe has ended."""
        self.services.projects.lanes.recheck(project)
        self.not_before = {key: at for key, at in self.not_before.items() if key[0] != project}

    def leave_alone(self, key: Key, error: BaseException) -> None:
        """Leave a lane alone on which an error was met that is no outage, longer each time; the others go on."""
        self.wait(key, self.run.leave_alone(thing_of(key), error))


def thing_of(key: Key) -> Thing:
    """Return a lane as what an error is met on."""
    project, lane = key
    return Thing("lane", f"{lane} {project}")


def _key_of(name: str) -> Key:
    lane, _, project = name.partition(" ")
    return project, "urgent" if lane == "urgent" else "bulk"
