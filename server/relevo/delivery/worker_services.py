"""Services that every claim of a worker needs, and values that the parts of one claim share."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from relevo.config import Settings
from relevo.core.metrics import Metrics
from relevo.core.model import NEWS, Lane
from relevo.core.ports import Composer, PushMiddleware, PushProvider
from relevo.core.sending_project import SendingProject
from relevo.database.pool import Database
from relevo.delivery.claiming.claim import Claim
from relevo.delivery.claiming.claims import Claims
from relevo.delivery.claiming.due_lanes import Key
from relevo.delivery.known_wordings import Wordings
from relevo.delivery.projects.allowance import Allowance
from relevo.delivery.projects.pauses import PhonePauses, TurnedAway
from relevo.delivery.projects.projects import Projects
from relevo.delivery.projects.rate_and_breaker import SendingRules
from relevo.delivery.projects.request_pool import RequestPool, RequestPools
from relevo.delivery.report import Report
from relevo.delivery.shadow_provider import ShadowProvider
from relevo.delivery.tracing.traced import ClaimSpans, Tracing
from relevo.runtime.hung_calls import HungCalls
from relevo.runtime.runs import Run

_PATIENCE_S = 1.0


@dataclass(frozen=True)
class WorkerServices:
    """Services that every claim of a worker needs."""

    settings: Settings
    database: Database
    worker_id: str
    claims: Claims
    projects: Projects
    providers: Mapping[str, PushProvider]
    """The push services by name; expo is always among them."""
    middlewares: Sequence[PushMiddleware] = ()
    composers: Mapping[str, Composer] = field(default_factory=dict)
    pools: RequestPools = field(default_factory=RequestPools)
    phone_pauses: PhonePauses = field(default_factory=PhonePauses)
    turned_away: TurnedAway = field(default_factory=TurnedAway)
    hung: HungCalls = field(default_factory=HungCalls)
    metrics: Metrics = field(default_factory=Metrics)
    wordings: Wordings = field(default_factory=Wordings)
    hanging: dict[Future[None], Any] = field(default_factory=dict)
    """Claims that outlasted their run, because all that is left of them hangs."""
    tracing: Tracing | None = None
    """Makes the spans of traced events; None if no exporter is configured."""

    def provider_of(self, project: str, *, in_shadow: bool = False) -> PushProvider:
        """Return the push service of a project, as deliveries name it; in shadow mode one that sends nothing."""
        name = SendingProject.parse(project).provider
        if in_shadow:
            return ShadowProvider.of(name, self.providers.get(name))
        return self.providers[name]


@dataclass(eq=False)
class ClaimContext:
    """Shared values of one claim's parts: the claim, its recipient, the longest wait, and the report."""

    services: WorkerServices
    run: Run
    claim: Claim
    lane: Lane
    pool: RequestPool
    allowance: Allowance
    """The project's allowance at the time of the claim."""
    report: Report = field(default_factory=Report)

    probe: bool = field(init=False)
    """Whether only one may be sent, to learn how the project is; the others are handed back."""
    project: str = field(init=False)
    key: Key = field(init=False)
    """The project and lane of its deliveries."""
    projects: Projects = field(init=False)
    provider: PushProvider = field(init=False)
    """The push service its deliveries go to."""
    rules: SendingRules = field(init=False)
    patience_s: float = field(init=False)
    """How long the others of a claim wait for one whose composer or middleware takes its time."""
    spans: ClaimSpans | None = field(default=None, init=False)
    """The spans of its traced events, if there are any."""

    def __post_init__(self) -> None:
        """Find what follows from the claim."""
        self.probe = self.allowance.grant.probe
        self.project, self.key = self.claim.project, (self.claim.project, self.lane)
        self.projects = self.services.projects
        self.provider = self.services.provider_of(self.project, in_shadow=self.claim.in_shadow)
        self.rules = self.projects.rules.of(self.project)
        self.patience_s = min(_PATIENCE_S, self.claim.lease_ms / 4000)

    @property
    def now(self) -> datetime | None:
        """The time to hand to statements."""
        return self.run.now

    def enter_pool(self, size: int, within_s: float | None = None) -> int:
        """Wait until requests would be sent soon; return how many, or 0 if the time or the right to send is over."""
        by = math.inf if within_s is None else time.monotonic() + within_s
        return self.pool.enter(
            self.lane, size, lambda: self.is_halted or self.claim.loss is not None or time.monotonic() > by
        )

    @property
    def is_halted(self) -> bool:
        """Whether nothing more may be sent for now."""
        return self.pool.halted or self.run.stopping.is_set()


def is_news_project(project: str) -> bool:
    """Return whether what is sent in a project is news; relevo.is_news_project says the same in SQL."""
    return project.startswith((f"{NEWS}::", "webhook::news."))
