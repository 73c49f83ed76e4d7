"""Assembly: the only place that knows which parts make up a running Relevo."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

from relevo.config import Settings
from relevo.core import logs
from relevo.core.addresses import is_loopback
from relevo.core.errors import ConfigError, NotFoundError
from relevo.core.metrics import Metrics
from relevo.core.model import NEWS
from relevo.core.ports import ArchiveStore, Composer, PushProvider, Renderer, Source
from relevo.cycles import cleanup, dispatch, export, fanout, ingest, reaper, receipt
from relevo.database.instance import Guard
from relevo.database.opening import database
from relevo.database.pool import Database
from relevo.delivery import rendering
from relevo.delivery.claims import Claims
from relevo.delivery.projects import Projects
from relevo.delivery.sending import PushMiddleware
from relevo.delivery.services import Services, provider_name
from relevo.operators.gauges import Gauges
from relevo.providers.expo import Expo
from relevo.providers.secret_file import SecretFile
from relevo.providers.webhook import Webhook, read_addresses
from relevo.runtime.heartbeat import Heartbeat
from relevo.runtime.hung_calls import HungCalls
from relevo.runtime.runner import Runner
from relevo.runtime.runs import Cycle, Middleware
from relevo.runtime.singleton import Singletons
from relevo.runtime.workers import Role, Worker, make_worker_id
from relevo.sandbox import embedded as embedded_sandbox
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


EXPO = "https://exp.host"
_NO_RECEIPT = "00000000-0000-0000-0000-000000000000"


@contextmanager
def push_providers(settings: Settings, more: Sequence[PushProvider] = ()) -> Iterator[dict[str, PushProvider]]:
    """Open the push services by name: Expo, webhooks if any are written down, and those of a team's own."""
    with ExitStack() as stack:
        found: list[PushProvider] = [_expo(settings, stack)]
        if settings.webhooks_file is not None:
            found += _webhooks(settings, "webhook", NEWS)
        providers = {provider.name: provider for provider in [*found, *more]}
        for provider in providers.values():
            stack.callback(provider.close)
        yield providers


def _expo(settings: Settings, stack: ExitStack) -> Expo:
    """Make Expo at the configured address, its own, or while nothing at all is configured in a sandbox."""
    address, token = settings.expo_base_url or EXPO, settings.expo_access_token
    if token is not None and not _is_header(token.get_secret_value()):
        raise ConfigError("EXPO_ACCESS_TOKEN must be one word of ASCII.", hint="Copy it anew from Expo's dashboard.")
    if settings.database_url is None and settings.expo_base_url is None and token is None:
        address = stack.enter_context(embedded_sandbox.acquire(settings.relevo_data_dir))
    return Expo(
        base_url=address,
        access_token=token.get_secret_value() if token else None,
        access_tokens=_access_tokens(settings),
        timeout_ms=settings.push_request_timeout_ms,
        connect_timeout_ms=settings.push_connect_timeout_ms,
        max_messages=settings.push_chunk_size,
        max_receipts=settings.receipt_chunk_size,
        proxies=settings.proxies,
    )


def refused_tokens(settings: Settings) -> Iterator[str]:
    """Ask Expo for a receipt that nobody has, with each access token; yield where those stand that it refuses."""
    if expo_address(settings) is None:
        return
    own = "EXPO_ACCESS_TOKENS_FILE" if settings.expo_access_tokens_file else "EXPO_ACCESS_TOKENS"
    places = {"": "EXPO_ACCESS_TOKEN"} if settings.expo_access_token else {}
    places |= {project: f"{own}, {project}" for project in _access_tokens(settings)()}
    with ExitStack() as stack:
        expo = _expo(settings, stack)
        stack.callback(expo.close)
        for project, place in places.items():
            if expo.fetch_receipts([_NO_RECEIPT], project).kind == "unauthorised":
                yield place


def expo_address(settings: Settings) -> str | None:
    """Return where pushes to Expo go; None while they go to the embedded sandbox, which comes and goes with a run."""
    if settings.database_url is None and settings.expo_base_url is None and settings.expo_access_token is None:
        return None
    return settings.expo_base_url or EXPO


def sandbox_address(settings: Settings) -> str | None:
    """Return where a sandbox on this machine shows what phones got, if that is where pushes to Expo go."""
    address = expo_address(settings)
    if address is None:
        return embedded_sandbox.noted_address(settings.relevo_data_dir)
    host = urlsplit(address).hostname or ""
    return address.rstrip("/") if host == "localhost" or is_loopback(host) else None


def _access_tokens(settings: Settings) -> Callable[[], Mapping[str, str]]:
    """Return what tells the access tokens of single projects: the file, read again when it changed, or the setting."""
    file, given = settings.expo_access_tokens_file, settings.expo_access_tokens
    name = "EXPO_ACCESS_TOKENS_FILE" if file else "EXPO_ACCESS_TOKENS"
    try:
        if file is not None:
            return SecretFile(file, _tokens_by_project)
        read = _tokens_by_project(given.get_secret_value()) if given else {}
    except PermissionError:
        raise ConfigError(
            f"{name} may not be read by this user.", hint="Run this as the user that the service runs as."
        ) from None
    except (OSError, ValueError, RecursionError):
        raise ConfigError(
            f"{name} must be a JSON object of access tokens by project.", hint='As in {"@acme/app": "…"}.'
        ) from None
    return lambda: read


def _tokens_by_project(text: str) -> dict[str, str]:
    read = json.loads(text)
    if not isinstance(read, dict) or not all(isinstance(token, str) and _is_header(token) for token in read.values()):
        raise ValueError("not a JSON object of access tokens by project")
    return read


def _is_header(token: str) -> bool:
    """Tell whether a token is one word of ASCII, as a header can hold it."""
    return token.isascii() and token.isprintable() and token != "" and " " not in token


def webhook_trouble(settings: Settings, webhook: str) -> str:
    """Say why nothing could be sent to a webhook by the settings here; nothing if it can."""
    if settings.webhooks_file is None:
        return f"WEBHOOKS_FILE, where the webhook {webhook} must stand, is not set here"
    try:
        return _webhooks(settings, NEWS)[0].trouble(webhook)
    except ConfigError as error:
        return error.message.removesuffix(".")


def _webhooks(settings: Settings, *names: str) -> list[Webhook]:
    """Make the push services that post to the addresses of WEBHOOKS_FILE: for the app's pushes, and for news."""
    assert settings.webhooks_file is not None
    try:
        addresses = SecretFile(settings.webhooks_file, read_addresses)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"WEBHOOKS_FILE cannot be used: {error}.",
            hint='As in {"billing": {"url": "https://example.com/hook", "secret": "whsec_…"}}.',
        ) from None
    return [
        Webhook(
            addresses,
            name=name,
            timeout_ms=settings.push_request_timeout_ms,
            connect_timeout_ms=settings.push_connect_timeout_ms,
            allow_private=settings.http_allow_private,
        )
        for name in names
    ]


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
    with database(settings, f"relevo {worker_id}") as opened, push_providers(settings, providers) as serving:
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
        projects = Projects(opened, settings, worker_id, heartbeat, lambda project: provider_name(project) in serving)
        pushing = serving, push_middlewares, composers or {}
        services = Services(settings, opened, worker_id, claims, projects, *pushing, hung=hung, metrics=metrics)
        ingesting = _ingesting(settings, sources, renderers or {})
        own = _own_cycles(services, ingesting, store or archive_store(settings))
        registry = _registry([*own, *(each if isinstance(each, Cycle) else each(settings, claims) for each in cycles)])
        worker = Worker(opened, settings, worker_id, hung, guard=guard, composers=sorted(composers or {}))
        heartbeat.announce(guard.check)  # first: the beat tells what it found
        heartbeat.announce(worker.beat)
        try:
            yield App(settings, opened, worker, heartbeat, claims, runner, services, registry, metrics)
        finally:
            services.pools.close()
            heartbeat.stop()
