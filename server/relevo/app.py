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

from relevo import push_services
from relevo.config import Settings
from relevo.core import logs
from relevo.core.errors import ConfigError, NotFoundError
from relevo.core.metrics import Metrics
from relevo.core.ports import ArchiveStore, Composer, PushProvider, Renderer, Source
from relevo.core.push_hosts import Hosts
from relevo.core.sending_project import SendingProject
from relevo.cycles import cleanup, digest, dispatch, export, fanout, ingest, reaper, receipt
from relevo.database.instance import Guard
from relevo.database.opening import database
from relevo.database.pool import Database
from relevo.delivery import rendering
from relevo.delivery.claims import Claims
from relevo.delivery.projects import Projects
from relevo.delivery.provider_rules import ProviderRules
from relevo.delivery.sending import PushMiddleware
from relevo.delivery.services import Services
from relevo.operators.gauges import Gauges
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
    """What a team adds to Relevo: the function that RELEVO_APP names returns it, and `build` takes the same by name."""

    sources: Sequence[Source] = ()
    providers: Sequence[PushProvider] = ()
    cycles: Sequence[Cycle | CycleMaker] = ()
    renderers: Mapping[str, Renderer] = field(default_factory=dict)
    composers: Mapping[str, Composer] = field(default_factory=dict)
    middlewares: Sequence[Middleware] = ()
    push_middlewares: Sequence[PushMiddleware] = ()
    store: ArchiveStore | None = None


def load_parts(settings: Settings) -> Parts:
    """Call the function that RELEVO_APP names, with the settings; without it there is nothing more."""
    if settings.relevo_app is None:
        return Parts()
    module, _, function = settings.relevo_app.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does: the team's module lies where it is started
    try:
        parts = getattr(import_module(module), function)(settings)
    except Exception as error:
        raise ConfigError(
            f"RELEVO_APP={settings.relevo_app} could not be loaded: {logs.normalise_error(error)}.",
            hint="It names a function, as in mine:parts; its module lies in this folder or on PYTHONPATH.",
        ) from error
    if not isinstance(parts, Parts):
        raise ConfigError(
            f"RELEVO_APP={settings.relevo_app} must return relevo.Parts, not {type(parts).__name__}.",
            hint="As in: return relevo.Parts(sources=[MySource()]).",
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
    services: Services
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


def _ingesting(settings: Settings, sources: Sequence[Source], renderers: Mapping[str, Renderer]) -> list[Cycle]:
    """Return a cycle for each source: those that the settings name, and further ones."""
    reading = [*_sources(settings), *sources]
    return [ingest.cycle(settings, source, _renderer(source, renderers)) for source in reading]


def _own_cycles(services: Services, ingesting: Sequence[Cycle], store: ArchiveStore | None) -> list[Cycle]:
    """Return our cycles, in the order in which they are shown."""
    settings = services.settings
    return [
        reaper.cycle(settings),
        *ingesting,
        fanout.cycle(settings),
        digest.cycle(settings),
        dispatch.cycle(services),
        receipt.cycle(services),
        cleanup.cycle(settings),
        export.cycle(settings, store),
    ]


def _registry(cycles: Sequence[Cycle]) -> dict[str, Cycle]:
    registry: dict[str, Cycle] = {}
    for cycle in cycles:
        if cycle.key in registry:
            raise ConfigError(
                f"There are two cycles {cycle.key}.", hint="Give one of them, or its source, another name."
            )
        registry[cycle.key] = cycle
    return registry


def archive_store(settings: Settings) -> ArchiveStore | None:
    """Return the store that exported months are kept in, or None if none is set."""
    if settings.archive_bucket is not None:
        return S3Store(settings)
    if settings.archive_folder is not None:
        by_default = "archive_folder" not in settings.origins
        return FolderStore(settings.archive_folder, settings.archive_prefix, ours=by_default)
    return None


@contextmanager
def build(
    settings: Settings,
    *,
    role: Role = "run",
    sources: Sequence[Source] = (),
    providers: Sequence[PushProvider] = (),
    cycles: Sequence[Cycle | CycleMaker] = (),
    renderers: Mapping[str, Renderer] | None = None,
    composers: Mapping[str, Composer] | None = None,
    middlewares: Sequence[Middleware] = (),
    push_middlewares: Sequence[PushMiddleware] = (),
    store: ArchiveStore | None = None,
    clock: Callable[[], datetime | None] = lambda: None,
) -> Iterator[App]:
    """Assemble a process that can run cycles; `sources`, `providers` and `cycles` join ours, `store` replaces ours.

    By event type, `renderers` replace how an item becomes an event's text, `composers` make each phone's push its own.
    `middlewares` wrap runs, `push_middlewares` push requests; `clock` lets tests travel in time.
    """
    if not logs.is_configured():
        logs.configure(settings.log_level, settings.log_format)
    worker_id = make_worker_id(settings, role)
    with (
        database(settings, f"relevo {worker_id}") as opened,
        push_services.sandboxed(settings) as sending,
        push_services.push_providers(
            sending, providers, credentials := push_services.push_projects(sending)
        ) as serving,
    ):
        heartbeat = Heartbeat(opened, settings.outbox_lease_heartbeat_ms)
        claims = Claims(opened, settings, worker_id, heartbeat)
        claims.composed = frozenset(composers or {})
        singletons = Singletons(opened, settings, worker_id, heartbeat)
        hung, guard, metrics = HungCalls(), Guard(settings), Metrics()
        metrics.show(Gauges(opened, settings, worker_id))
        runner = Runner(
            opened,
            settings,
            worker_id,
            singletons,
            middlewares=middlewares,
            hung=hung,
            guard=guard,
            metrics=metrics,
            patience_s=math.inf if role == "run" else settings.outbox_lease_duration_ms / 1000,
            stop_s=math.inf if role == "run" else settings.worker_shutdown_timeout_ms / 1000,
            clock=clock,
        )
        projects = Projects(
            opened,
            settings,
            worker_id,
            heartbeat,
            serves=lambda key: SendingProject.parse(key).provider in serving,
            rules=ProviderRules(settings, serving, partial(push_services.overrides, credentials)),
        )
        pushing = serving, push_middlewares, composers or {}
        services = Services(settings, opened, worker_id, claims, projects, *pushing, hung=hung, metrics=metrics)
        ingesting = _ingesting(settings, sources, renderers or {})
        own = _own_cycles(services, ingesting, store or archive_store(settings))
        registry = _registry([*own, *(each if isinstance(each, Cycle) else each(settings, claims) for each in cycles)])
        unusable = partial(push_services.unusable, credentials)
        worker = Worker(
            opened, settings, worker_id, hung, guard=guard, composers=sorted(composers or {}), unusable=unusable
        )
        heartbeat.announce(guard.check)  # first: the beat tells what it found
        heartbeat.announce(worker.beat)
        try:
            hosts = partial(push_services.webpush_hosts, sending, credentials)
            yield App(settings, opened, worker, heartbeat, claims, runner, services, registry, metrics, hosts)
        finally:
            services.pools.close()
            heartbeat.stop()
