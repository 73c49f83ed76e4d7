"""Assembly of the push services: which there are by the settings, and with which credentials."""

from __future__ import annotations

import relevo.core.needs_server  # isort: skip # noqa: F401 ahead of all it needs

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog

from relevo.config import Settings
from relevo.core.addresses import is_local
from relevo.core.errors import ConfigError, UsageError
from relevo.core.known_services import NATIVE, WITH_ENVIRONMENT
from relevo.core.model import NEWS
from relevo.core.ports import PushProvider
from relevo.core.push_hosts import Hosts
from relevo.core.sending_project import SendingProject
from relevo.database.pool import Database
from relevo.providers.expo.entry import ExpoEntry
from relevo.providers.expo.provider import Expo
from relevo.providers.push_projects import PushProject, PushProjects, Unusable
from relevo.providers.secret_file import SecretFile, UnusableFileError
from relevo.providers.webhook.provider import Webhook, read_addresses
from relevo.providers.webpush.entry import WebPushEntry
from relevo.sandbox import embedded as embedded_sandbox

EXPO = "https://exp.host"
_log = structlog.get_logger("relevo.providers")
_MAX_KEY = 65_536
_NO_RECEIPT = "00000000-0000-0000-0000-000000000000"


@contextmanager
def push_providers(
    settings: Settings,
    more: Sequence[PushProvider] = (),
    projects: PushProjects | None = None,
    database: Database | None = None,
) -> Iterator[dict[str, PushProvider]]:
    """Open the push services by name: Expo, those that PUSH_PROJECTS_FILE and WEBHOOKS_FILE name, a team's own.

    `database` is where those of several processes share what they have to.
    """
    with ExitStack() as stack:
        settings = stack.enter_context(sandboxed(settings))
        projects = projects or push_projects(settings)
        found: list[PushProvider] = [_expo(settings, projects)]
        if settings.push_projects_file or settings.push_projects:
            found += _native(settings, projects, database)
            for place, trouble in projects.troubles():
                _log.error("push_credential_not_used", place=place, error=trouble)
        if settings.webhooks_file is not None:
            found += _webhooks(settings, "webhook", NEWS)
        providers = {provider.name: provider for provider in [*found, *more]}
        for provider in providers.values():
            stack.callback(provider.close)
        yield providers


@contextmanager
def sandboxed(settings: Settings) -> Iterator[Settings]:
    """Yield the settings as they are, or while nothing at all is configured with the embedded sandbox's addresses."""
    if expo_address(settings) is not None:
        yield settings
        return
    with embedded_sandbox.acquire(settings.relevo_data_dir) as found:
        own = {} if settings.push_projects_file or settings.push_projects else found.settings
        more = {name.lower(): Path(value) if name.endswith("_FILE") else value for name, value in own.items()}
        yield settings.model_copy(update={"expo_base_url": found.url, **more})


def push_projects(settings: Settings) -> PushProjects:
    """Return each project's credentials: of PUSH_PROJECTS_FILE, read again when it changed, or of PUSH_PROJECTS."""
    file, given = settings.push_projects_file, settings.push_projects
    name = "PUSH_PROJECTS_FILE" if file else "PUSH_PROJECTS"
    try:
        modules = cache(_module)  # one whose extra is missing is looked for once: that takes 10 ms
        checks = {service: partial(_check, modules, service) for service in NATIVE}
        return PushProjects(file, given.get_secret_value() if given else "{}", checks)
    except (OSError, ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, UnusableFileError) else type(error).__name__
        raise ConfigError(
            f"{name} cannot be used: {why}.", hint="The page on native push has an example: /guide/native-push."
        ) from None


def webpush_hosts(settings: Settings, projects: PushProjects, project: str) -> Hosts:
    """Return where Web Push of a project may go, as PUSH_PROJECTS_FILE has it now."""
    found = projects.find(WebPushEntry, project)
    return Hosts(settings.webpush_hosts or (), () if isinstance(found, Unusable) else found.entry.hosts)


def unusable(projects: PushProjects) -> Iterator[str]:
    """Yield what of PUSH_PROJECTS_FILE cannot be used as it is now, each in words."""
    for place, trouble in projects.troubles():
        yield f"{place}: {trouble}"


def credential_troubles(
    settings: Settings, sending: Iterable[str], database: Database | None = None
) -> Iterator[tuple[str, str]]:
    """Ask each push service about each project's credentials, without sending: yield where one stands, and its trouble.

    `sending` are the sending projects known so far: of two environments both are asked only if both are in use.
    """
    if not (settings.push_projects_file or settings.push_projects):
        return
    projects = push_projects(settings)
    yield from projects.troubles()
    for path in projects.open_files():
        yield path.name, "others than its owner may read it: chmod 600"
    broken = {place for place, _ in projects.troubles()}
    known = [SendingProject.parse(each) for each in sending]
    for provider in _native(settings, projects, database):
        ask = getattr(provider, "trouble", lambda _project: "")
        for name in projects.names(provider.name):
            place = f"PUSH_PROJECTS_FILE, {name}, {provider.name}"
            if place in broken:
                continue
            parts = {each.part for each in known if (each.provider, each.name) == (provider.name, name)}
            for part in sorted(parts if provider.name in WITH_ENVIRONMENT and parts else {""}):
                if trouble := ask(str(SendingProject(provider.name, name, part))):
                    yield f"{place}, {part}" if part else place, trouble
        provider.close()


def _check(modules: Callable[[str], Any], name: str, project: PushProject[Any]) -> None:
    """Raise ValueError if a push service cannot use a project's secret, or its extra is not installed."""
    tokens = modules(f"{name}.credentials")
    if tokens is None:
        raise ValueError(f"its push service is not installed: pip install 'relevo[{name}]'")
    tokens.check(project)


def _native(settings: Settings, projects: PushProjects, database: Database | None) -> Iterator[Any]:
    """Make the push services that phones talk to themselves, but for those whose extra is not installed."""
    for module in filter(None, (_module(f"{name}.provider") for name in NATIVE)):
        yield module.make(projects, settings, database)


def _module(name: str) -> Any:
    """Return a module of providers/; None if the extra that it needs is not installed."""
    try:
        return import_module(f"relevo.providers.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("relevo"):
            raise
        return None


def vapid_key(file: Path) -> tuple[str, bool]:
    """Return the public key of the pair whose private key is in a file, and whether the pair was made just now."""
    tokens = _module("webpush.credentials")
    if tokens is None:
        raise ConfigError("Web Push is not installed.", hint="pip install 'relevo[webpush]'")
    try:
        if file.exists():
            with file.open(encoding="utf-8") as kept:
                return str(tokens.public_key(tokens.load_key(kept.read(_MAX_KEY)))), False
        pair = tokens.make_pair()
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as made:
            made.write(pair.private_pem)
    except OSError as error:
        raise UsageError(f"{file} cannot be used ({type(error).__name__}).") from None
    except ValueError:
        raise UsageError(f"{file} holds no private key.", hint="Name a file that is not there yet.") from None
    return str(pair.public), True


def _expo(settings: Settings, projects: PushProjects) -> Expo:
    """Make Expo at the configured address, or its own."""
    address, token = settings.expo_base_url or EXPO, settings.expo_access_token
    if token is not None and not _is_header(token.get_secret_value()):
        raise ConfigError("EXPO_ACCESS_TOKEN must be one word of ASCII.", hint="Copy it anew from Expo's dashboard.")
    return Expo(
        base_url=address,
        access_token=token.get_secret_value() if token else None,
        access_tokens=_access_tokens(settings, projects),
        timeout_ms=settings.push_request_timeout_ms,
        connect_timeout_ms=settings.push_connect_timeout_ms,
        max_messages=settings.push_chunk_size,
        max_receipts=settings.receipt_chunk_size,
        proxies=settings.proxies,
        ca_file=str(settings.push_ca_file) if settings.push_ca_file else None,
    )


def refused_tokens(settings: Settings) -> Iterator[str]:
    """Ask Expo for a receipt that nobody has, with each access token; yield where those stand that it refuses."""
    if expo_address(settings) is None:
        return
    own = "EXPO_ACCESS_TOKENS_FILE" if settings.expo_access_tokens_file else "EXPO_ACCESS_TOKENS"
    places = {"": "EXPO_ACCESS_TOKEN"} if settings.expo_access_token else {}
    projects = push_projects(settings)
    places |= {project: f"{own}, {project}" for project in _own_access_tokens(settings)()}
    places |= {project: f"PUSH_PROJECTS_FILE, {project}, expo" for project in projects.all(ExpoEntry)}
    with ExitStack() as stack:
        expo = _expo(settings, projects)
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
    return address.rstrip("/") if is_local(host) else None


def _access_tokens(settings: Settings, projects: PushProjects) -> Callable[[], Mapping[str, str]]:
    """Return a function for the access tokens of single projects now: those of PUSH_PROJECTS_FILE, then the others."""
    own = _own_access_tokens(settings)

    def now() -> Mapping[str, str]:
        named = {name: each.secret for name, each in projects.all(ExpoEntry).items() if each.secret}
        return {**own(), **named} if named else own()

    return now


def _own_access_tokens(settings: Settings) -> Callable[[], Mapping[str, str]]:
    """Return a function for the access tokens of single projects: the file, read anew if it changed, or the setting."""
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
    """Return whether a token is one word of ASCII, as a header can hold it."""
    return token.isascii() and token.isprintable() and token != "" and " " not in token


def webhook_trouble(settings: Settings, webhook: str) -> str:
    """Return why nothing could be sent to a webhook by the settings here; nothing if it can."""
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
            ca_file=str(settings.push_ca_file) if settings.push_ca_file else None,
        )
        for name in names
    ]
