"""What every batch of a worker needs, in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from relevo.config import Settings
from relevo.core.metrics import Metrics
from relevo.core.model import NEWS
from relevo.core.ports import Composer, PushProvider
from relevo.database.pool import Database
from relevo.delivery.claims import Claims
from relevo.delivery.projects import Projects
from relevo.delivery.sending import PushMiddleware, RequestPools
from relevo.runtime.hung_calls import HungCalls

EXPO = "expo"


@dataclass(frozen=True)
class Services:
    """What every batch of a worker needs."""

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
    hung: HungCalls = field(default_factory=HungCalls)
    metrics: Metrics = field(default_factory=Metrics)
    hanging: dict[Future[None], Any] = field(default_factory=dict)
    """Batches that outlasted their run, because all that is left of them hangs."""

    def provider_of(self, project: str) -> PushProvider:
        """Return the push service of a project, as deliveries name it."""
        return self.providers[provider_name(project)]


def is_news_project(project: str) -> bool:
    """Return whether what is sent in a project is news; relevo.is_news_project says the same in SQL."""
    return project.startswith((f"{NEWS}::", "webhook::news."))


def provider_name(project: str) -> str:
    """Return the provider of a project as deliveries name it: Expo's projects have their own name alone."""
    name, colons, _ = project.partition("::")
    return name if colons else EXPO
