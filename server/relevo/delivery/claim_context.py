"""What the parts of one claim share: the claim, whom it goes to, how long they may wait, and what they report."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from relevo.core.model import Lane
from relevo.core.ports import PushProvider
from relevo.delivery.claim import Claim
from relevo.delivery.due_lanes import Key
from relevo.delivery.projects import Projects
from relevo.delivery.rate_and_breaker import Rules
from relevo.delivery.report import Report
from relevo.delivery.sending import RequestPool
from relevo.delivery.worker_services import WorkerServices
from relevo.runtime.runs import Run

_PATIENCE_S = 1.0


@dataclass(eq=False)
class ClaimContext:
    """What the parts of one claim share."""

    services: WorkerServices
    run: Run
    claim: Claim
    lane: Lane
    pool: RequestPool
    probe: bool = False
    """Whether only one may be sent, to learn how the project is; the others are handed back."""
    report: Report = field(default_factory=Report)

    project: str = field(init=False)
    key: Key = field(init=False)
    """The project and lane of its deliveries."""
    projects: Projects = field(init=False)
    provider: PushProvider = field(init=False)
    """The push service its deliveries go to."""
    rules: Rules = field(init=False)
    patience_s: float = field(init=False)
    """How long the others of a claim wait for one whose composer or middleware takes its time."""

    def __post_init__(self) -> None:
        """Find what follows from the claim."""
        self.project, self.key = self.claim.project, (self.claim.project, self.lane)
        self.projects, self.provider = self.services.projects, self.services.provider_of(self.project)
        self.rules = self.projects.rules.of(self.project)
        self.patience_s = min(_PATIENCE_S, self.claim.lease_ms / 4000)

    @property
    def now(self) -> datetime | None:
        """The time to hand to statements."""
        return self.run.now

    def enter_pool(self, size: int) -> int:
        """Wait until requests would be sent soon; return how many, or 0 once nothing may be sent any more."""
        return self.pool.enter(self.lane, size, lambda: self.is_halted or self.claim.loss is not None)

    @property
    def is_halted(self) -> bool:
        """Whether nothing more may be sent for now."""
        return self.pool.halted or self.run.stopping.is_set()
