"""The three services while they run: their sockets, their files, and what tests and the demo call."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from relevo.core.errors import InvalidInputError
from relevo.core.known_services import NATIVE, listed
from relevo.core.serving import listen, url_of
from relevo.sandbox.faults import device_tokens
from relevo.sandbox.faults.device_tokens import PUSH
from relevo.sandbox.faults.expo import Exchange
from relevo.sandbox.services import certificates
from relevo.sandbox.services.apns import PATH, Apns, ProviderTokens
from relevo.sandbox.services.credentials import Credentials, point
from relevo.sandbox.services.exchange import Request, Service
from relevo.sandbox.services.fcm import Fcm
from relevo.sandbox.services.http1 import Http1
from relevo.sandbox.services.http2 import Http2
from relevo.sandbox.services.json_web_tokens import encode
from relevo.sandbox.services.webpush import WebPush
from relevo.sandbox.state import SandboxState

_MAX_CONNECTIONS = 1_000
_MAX_WORDS = 10
_MAX_NAME = 200
_SECRET_PATHS = (PATH, PUSH)


class Addresses(NamedTuple):
    """Where each service listens; APNs has one address per environment."""

    fcm: str
    apns: str
    apns_sandbox: str
    webpush: str


class Services:
    """FCM, APNs and Web Push on four ports of one host, with a folder for what they make."""

    def __init__(self, state: SandboxState, host: str, port: int, folder: Path | None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="relevo-sandbox-") if folder is None else None
        place = folder if self._temporary is None else Path(self._temporary.name)
        assert place is not None
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._sockets = _listen(host, port, place / "ports.json")
        self.addresses = Addresses(*(url_of(each).replace("http:", "https:", 1) for each in self._sockets))
        self.credentials = Credentials(place, f"{self.addresses.fcm}/token")
        self.projects_file = self.credentials.write_projects(urlsplit(self.addresses.webpush).netloc)
        self.ca_file, self._pair = certificates.make_certificate(place, host)
        self.fcm = Fcm(state, self.credentials, self.addresses.fcm)
        tokens = ProviderTokens(state, self.credentials)
        self._services: tuple[Service, ...] = (
            self.fcm,
            Apns(state, "production", tokens),
            Apns(state, "sandbox", tokens),
            WebPush(state, self.credentials, self.addresses.webpush),
        )
        self._state = state
        state.services = self
        self.open: set[asyncio.Transport] = set()
        self._servers: list[asyncio.Server] = []

    def settings(self) -> dict[str, str]:
        """Return the settings by which Relevo sends to these services."""
        return {
            "PUSH_PROJECTS_FILE": str(self.projects_file),
            "FCM_BASE_URL": self.addresses.fcm,
            "APNS_BASE_URL": self.addresses.apns,
            "APNS_SANDBOX_BASE_URL": self.addresses.apns_sandbox,
            "PUSH_CA_FILE": str(self.ca_file),
        }

    def make_token(self, given: Any) -> str:
        """Make a token for an admin call: `{"service", "name", "faults": [], "environment" or "key"}`."""
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            raise InvalidInputError('A phone must be an object like {"service": "fcm", "name": "ana"}.')
        service, words = given.get("service"), given.get("faults", [])
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words) or len(words) > _MAX_WORDS:
            raise InvalidInputError(f"`faults` must be a list of at most {_MAX_WORDS} words.")
        name = given["name"][:_MAX_NAME]
        match service:
            case "fcm":
                return device_tokens.fcm_token(name, *words)
            case "apns":
                return device_tokens.apns_token(name, *words, environment=str(given.get("environment", "production")))
            case "webpush":
                return self.subscription(name, *words, key=given.get("key"))
        raise InvalidInputError(f"There is no service {str(service)[:50]!r}.", hint=f"Use {listed(NATIVE)}.")

    def expire_access_tokens(self) -> None:
        """Let every access token that FCM gave out expire."""
        self.fcm.tokens.expire()

    def subscription(self, name: str, *words: str, key: str | None = None) -> str:
        """Return a browser's subscription as JSON text, bound to a sender's public key (by default the sandbox's)."""
        place = device_tokens.push_place(name, *words, key=key or self.credentials.vapid_key)
        private, secret = self.credentials.browser_key(place)
        keys = {"p256dh": encode(point(private.public_key())), "auth": encode(secret)}
        found = {"endpoint": f"{self.addresses.webpush}{PUSH}{place}", "keys": keys}
        return json.dumps(found, separators=(",", ":"))

    async def start(self) -> None:
        """Serve, in the loop that runs."""
        loop = asyncio.get_running_loop()
        for service, listening in zip(self._services, self._sockets, strict=True):
            protocols = ["h2", "http/1.1"] if service.speaks_http1 else ["h2"]
            context = certificates.server_context(self._pair, protocols)
            server = await loop.create_server(partial(Connection, service, self), sock=listening, ssl=context)
            self._servers.append(server)

    def stop(self) -> None:
        """Hang up on everybody."""
        for server in self._servers:
            server.close()
        for transport in list(self.open):
            transport.abort()

    def clean_up(self) -> None:
        """Remove the files of a temporary folder, and sockets that never served."""
        for listening in self._sockets:
            listening.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def record(self, service: Service, request: Request, exchange: Exchange) -> None:
        """Count an answer, and tell of it."""
        if request.path != "/token":
            self._state.answered[service.name, exchange.answer.status] += 1
        if self._state.tell is not None:
            self._state.tell(_line(service, request, exchange))


def _listen(host: str, port: int, note: Path) -> list[socket.socket]:
    """Listen on four ports from this one on; 0 takes those of the last time if they are free, else any."""
    if port:
        return _listen_on(host, range(port, port + len(Addresses._fields)))
    try:
        found = _listen_on(host, json.loads(note.read_bytes()))
    except (OSError, OverflowError, ValueError, TypeError):
        found = _listen_on(host, [0] * len(Addresses._fields))
    certificates.write_private(note, json.dumps([each.getsockname()[1] for each in found]).encode())
    return found


def _listen_on(host: str, ports: Iterable[int]) -> list[socket.socket]:
    with ExitStack() as stack:
        found = [stack.enter_context(listen(host, each)) for each in ports]
        stack.pop_all()
    return found


def _line(service: Service, request: Request, exchange: Exchange) -> str:
    """Say in one line what came of a request, naming no token and no secret."""
    place = next((f"{each}…" for each in _SECRET_PATHS if request.path.startswith(each)), request.path[:200])
    parts = [request.method, place, str(exchange.answer.status), service.name]
    if exchange.fault is not None:
        parts.append(f"fault {exchange.fault.word}")
    return "  ".join(parts)


class Connection(asyncio.Protocol):
    """A client's connection until it is known whether HTTP/2 or HTTP/1.1 is spoken on it: that takes over."""

    def __init__(self, service: Service, services: Services) -> None:
        self._service = service
        self._services = services

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the client, or hang up where there is no protocol for it."""
        assert isinstance(transport, asyncio.Transport)
        tls = transport.get_extra_info("ssl_object")
        is_http2 = tls is not None and tls.selected_alpn_protocol() == "h2"
        if len(self._services.open) >= _MAX_CONNECTIONS or not (is_http2 or self._service.speaks_http1):
            transport.abort()
            return
        self._services.open.add(transport)
        transport.set_protocol((Http2 if is_http2 else Http1)(self._service, transport, self._services))
