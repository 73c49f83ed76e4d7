"""Assembly: which parts make up a running Relevo; the push services are put together in push_services."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from importlib import import_module
from pathlib import Path

from relevo import cycles
from relevo.app import push_services
from relevo.config import Settings
from relevo.core import logs
from relevo.core.errors import ConfigError, NotFoundError
from relevo.core.metrics import Metrics
from relevo.core.ports import ArchiveStore, Composer, PushMiddleware, PushProvider, Renderer, Source
from relevo.core.push_hosts import Hosts
from relevo.core.sending_project import SendingProject
from relevo.cycles import ingest
from relevo.database.instance import Guard
from relevo.database.opening import database
from relevo.database.pool import Database
from relevo.delivery.claiming.claims import Claims
from relevo.delivery.composing import rendering
from relevo.delivery.projects.projects import Projects
from relevo.delivery.projects.provider_rules import ProviderRules
from relevo.delivery.tracing import traced
from relevo.delivery.worker_services import WorkerServices
from relevo.operators.gauges import Gauges
from relevo.runtime.disks import Disks
from relevo.runtime.heartbeat import Heartbeat
from relevo.runtime.hung_calls import HungCalls
from relevo.runtime.runner import Runner
from relevo.runtime.runs import Cycle, Middleware
from relevo.runtime.singleton import Singletons
from relevo.runtime.workers import Role, Worker, make_worker_id
from relevo.sources.chilecompra import ChileCompra
from relevo.sources.chilecompra_web import ChileCompraWeb
from relevo.sources.folder import Folder
from relevo.sources.ocds import Ocds
from relevo.stores.folder import FolderStore
from relevo.stores.s3 import S3Store

CycleMaker = Callable[[Settings, Claims], Cycle]
"""Makes a cycle out of the settings and the worker's claims."""


@dataclass(frozen=True)
class Parts:
    """The parts that a team adds to Relevo: the function that RELEVO_APP names returns it, and `build` takes it."""

    sources: Sequence[Source] = ()
    providers: Sequence[PushProvider] = ()
    cycles: Sequence[Cycle | CycleMaker] = ()
    renderers: Mapping[str, Renderer] = field(default_factory=dict)
    """By event type: how an item becomes an event's text, in place of ours."""
    composers: Mapping[str, Composer] = field(default_factory=dict)
    """By event type: what makes each phone's push its own."""
    middlewares: Sequence[Middleware] = ()
    """Middlewares that wrap runs."""
    push_middlewares: Sequence[PushMiddleware] = ()
    """Middlewares that wrap push requests."""
    store: ArchiveStore | None = None
    """The composer in place of Relevo's own."""


_NO_PARTS = Parts()


def load_parts(settings: Settings) -> Parts:
    """Call the function that RELEVO_APP names, with the settings; without it there is nothing more."""
    if settings.relevo_app is None:
        return _NO_PARTS
    module, _, function = settings.relevo_app.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does: the team's module lies where it is started
    try:
        parts = getattr(import_module(module), function)(settings)
    except Exception as error:
        raise ConfigError(
            f"RELEVO_APP={settings.relevo_app} could not be loaded: {logs.normalise_error(error)}.",
            hint="RELEVO_APP names a function, such as mine:parts, of a module in this folder or on PYTHONPATH.",
        ) from error
    if not isinstance(parts, Parts):
        raise ConfigError(
            f"RELEVO_APP={settings.relevo_app} must return relevo.Parts, not {type(parts).__name__}.",
            hint="For example: return relevo.Parts(sources=[MySource()]).",
        )
    return parts


@dataclass(frozen=True)
class App:
    """The assembled parts of one process."""

    settings: Settings
    database: Database
    worker: Worker
    heartbeat: Heartbeat
    claims: Claims
    runner: Runner
    services: WorkerServices
    registry: dict[str, Cycle]
    metrics: Metrics
    webpush_hosts: Callable[[str], Hosts] = lambda _project: Hosts()
    """Where Web Push of a project may go."""

    def cycles(self, names: Sequence[str] | None = None) -> list[Cycle]:
        """Return the cycles of these names (or name:source), in this order, or all; an unknown name is refused."""
        if not names:
            return list(self.registry.values())
        chosen: dict[str, Cycle] = {}
        for name in names:
            found = {key: cycle for key, cycle in self.registry.items() if name in (key, cycle.name)}
            if not found and name != "ingest":  # which is there without a source, and has nothing to do
                raise NotFoundError(f"There is no cycle {name}.", hint=self._known())
            chosen |= found
        return list(chosen.values())

    def switch_of(self, name: str) -> tuple[str, str]:
        """Return the cycle and the source that a name like ingest or ingest:folder means; a name alone, all of it."""
        chosen = self.cycles([name])
        return name.partition(":")[0], chosen[0].source if chosen and chosen[0].key == name else ""

    def _known(self) -> str:
        names = sorted({"ingest", *self.registry, *(cycle.name for cycle in self.registry.values())})
        own = "" if self.settings.relevo_app else " For one of your own set RELEVO_APP here, too."
        return f"Known: {', '.join(names)}.{own}"


def _sources(settings: Settings) -> list[Source]:
    makers: dict[str, Callable[[Settings], Source]] = {
        "chilecompra": ChileCompra,
        "chilecompra-web": ChileCompraWeb,
        "ocds": Ocds,
        "folder": Folder,
    }
    return [makers[name](settings) for name in settings.sources]


def _renderer(source: Source, renderers: Mapping[str, Renderer]) -> Renderer:
    """Return what turns a source's items into text: the one given for its event type, its own, or ours."""
    kind = ingest.event_type_of(source)
    ours = rendering.tender if kind == ingest.EVENT_TYPE else rendering.news
    found: Renderer = renderers.get(kind) or getattr(source, "render", None) or ours
    return found


def _registry(services: WorkerServices, parts: Parts) -> dict[str, Cycle]:
    """Return the cycles by name, ours first, in the order in which they are shown."""
    settings = services.settings
    reading = [*_sources(settings), *parts.sources]
    rendered = [(source, _renderer(source, parts.renderers)) for source in reading]
    given = cycles.Assembled(services, rendered, parts.store or archive_store(settings))
    added = [each if isinstance(each, Cycle) else each(settings, services.claims) for each in parts.cycles]
    registry: dict[str, Cycle] = {}
    for cycle in [*cycles.assemble(given), *added]:
        if cycle.key in registry:
            raise ConfigError(
                f"There are two cycles {cycle.key}.", hint="Give one of them, or its source, another name."
            )
        registry[cycle.key] = cycle
    return registry


def _serves(providers: Mapping[str, PushProvider], project: str) -> bool:
    return SendingProject.parse(project).provider in providers


def archive_store(settings: Settings) -> ArchiveStore | None:
    """Return the store that exported months are kept in, or None if none is set."""
    if settings.archive_bucket is not None:
        return S3Store(settings)
    if settings.archive_folder is not None:
        by_default = "archive_folder" not in settings.origins
        return FolderStore(settings.archive_folder, settings.archive_prefix, ours=by_default)
    return None


def _time_for_runs(settings: Settings, role: Role) -> tuple[float, float]:
    """Return for how many seconds a run is waited for, and for its end; a process that stays has all the time."""
    if role == "run":
        return math.inf, math.inf
    return settings.outbox_lease_duration_ms / 1000, settings.worker_shutdown_timeout_ms / 1000


@contextmanager
def build(
    settings: Settings,
    parts: Parts = _NO_PARTS,
    *,
    role: Role = "run",
    clock: Callable[[], datetime | None] = lambda: None,
) -> Iterator[App]:
    """Assemble a process that can run cycles, with what a team adds to it; `clock` lets tests travel in time."""
    if not logs.is_configured():
        logs.configure(settings.log_level, settings.log_format)
    worker_id = make_worker_id(settings, role)
    with (
        database(settings, f"relevo {worker_id}") as opened,
        push_services.sandboxed(settings) as sending,
        push_services.push_providers(
            sending, parts.providers, credentials := push_services.push_projects(sending), opened
        ) as serving,
        traced.configured(opened) as tracing,
    ):
        heartbeat = Heartbeat(opened, settings.outbox_lease_heartbeat_ms)
        claims = Claims(opened, settings, worker_id, heartbeat)
        claims.composed = frozenset(parts.composers)
        hung, guard, metrics = HungCalls(), Guard(settings), Metrics()
        metrics.registry.register(Gauges(opened, settings, worker_id))
        patience_s, stop_s = _time_for_runs(settings, role)
        runner = Runner(
            opened,
            settings,
            worker_id,
            Singletons(opened, settings, worker_id, heartbeat),
            middlewares=parts.middlewares,
            hung=hung,
            guard=guard,
            metrics=metrics,
            patience_s=patience_s,
            stop_s=stop_s,
            clock=clock,
        )
        rules = ProviderRules(settings, serving, credentials.overrides)
        serves = partial(_serves, serving)
        projects = Projects(opened, settings, worker_id, heartbeat, serves=serves, rules=rules)
        pushing = serving, parts.push_middlewares, parts.composers
        services = WorkerServices(
            settings, opened, worker_id, claims, projects, *pushing, hung=hung, metrics=metrics, tracing=tracing
        )
        unusable = partial(push_services.unusable, credentials)
        disks = Disks([settings.archive_folder] if settings.archive_folder else ())
        composers = sorted(parts.composers)
        worker = Worker(
            opened, settings, worker_id, hung, guard=guard, composers=composers, unusable=unusable, disks=disks
        )
        heartbeat.announce(guard.look)  # first: the beat tells what it found, and a run that is under way stops
        heartbeat.announce(worker.beat)
        try:
            registry, hosts = _registry(services, parts), partial(push_services.webpush_hosts, sending, credentials)
            yield App(settings, opened, worker, heartbeat, claims, runner, services, registry, metrics, hosts)
        finally:
            services.pools.close()
            heartbeat.stop()
            disks.stop()
