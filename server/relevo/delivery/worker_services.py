"""What every claim of a worker needs, in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from relevo.config import Settings
from relevo.core.metrics import Metrics
from relevo.core.model import NEWS
from relevo.core.ports import Composer, PushProvider
from relevo.core.sending_project import SendingProject
from relevo.database.pool import Database
from relevo.delivery.claims import Claims
from relevo.delivery.pauses import PhonePauses, TurnedAway
from relevo.delivery.phone_texts import Wordings
from relevo.delivery.projects import Projects
from relevo.delivery.sending import PushMiddleware, RequestPools
from relevo.runtime.hung_calls import HungCalls


@dataclass(frozen=True)
class WorkerServices:
    """What every claim of a worker needs."""

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

    def provider_of(self, project: str) -> PushProvider:
        """Return the push service of a project, as deliveries name it."""
        return self.providers[SendingProject.parse(project).provider]


def is_news_project(project: str) -> bool:
    """Return whether what is sent in a project is news; relevo.is_news_project says the same in SQL."""
    return project.startswith((f"{NEWS}::", "webhook::news."))
