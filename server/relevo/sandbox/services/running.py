"""The push services beside Expo while they run: their sockets, their files, and what tests and the demo call."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from relevo.core.errors import InvalidInputError
from relevo.core.known_services import NATIVE
from relevo.core.serving import listen, url_of
from relevo.sandbox import push_service
from relevo.sandbox.faults.expo import Exchange
from relevo.sandbox.services import certificates
from relevo.sandbox.services.exchange import Request, Service
from relevo.sandbox.services.http1 import Http1
from relevo.sandbox.services.http2 import Http2
from relevo.sandbox.services.served import Served
from relevo.sandbox.state import SandboxState

_MAX_CONNECTIONS = 1_000
_MAX_WORDS = 10
_MAX_NAME = 200


class Services:
    """Every push service beside Expo on ports of one host, with a folder for what they make."""

    def __init__(self, state: SandboxState, host: str, port: int, folder: Path | None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="relevo-sandbox-") if folder is None else None
        place = folder if self._temporary is None else Path(self._temporary.name)
        assert place is not None
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._sockets = _listen(host, port, place / "ports.json")
        urls = (url_of(each).replace("http:", "https:", 1) for each in self._sockets)
        self.addresses: dict[str, str] = dict(zip(push_service.addresses(), urls, strict=True))
        self.served: dict[str, Served] = {
            each.name: import_module(f"relevo.providers.{each.name}.sandbox.service").SERVED(
                state, place, [self.addresses[name] for name in each.addresses]
            )
            for each in push_service.known()
        }
        self.projects_file = self._write_projects(place / "projects.json")
        self.ca_file, self._pair = certificates.make_certificate(place, host)
        self._services = [service for each in self.served.values() for service in each.services]
        self._secret_paths = tuple(path for each in self.served.values() for path in each.secret_paths)
        self._state = state
        state.services = self
        self.open: set[asyncio.Transport] = set()
        self._servers: list[asyncio.Server] = []

    def _write_projects(self, file: Path) -> Path:
        """Write the file that a sender takes as PUSH_PROJECTS_FILE, for its project `default`."""
        default = {name: each.entry for name, each in self.served.items()}
        certificates.write_private(file, json.dumps({"default": default}, indent=2).encode() + b"\n")
        return file

    @property
    def files(self) -> dict[str, Path]:
        """The files of the keys that were made, by name."""
        return {name: file for each in self.served.values() for name, file in each.files.items()}

    def settings(self) -> dict[str, str]:
        """Return the settings by which Relevo sends to these services."""
        own = {name: value for each in self.served.values() for name, value in each.settings.items()}
        return {"PUSH_PROJECTS_FILE": str(self.projects_file), **own, "PUSH_CA_FILE": str(self.ca_file)}

    def make_token(self, given: Any) -> str:
        """Make a token for an admin call: `{"service", "name", "faults": []}`, and options of the service."""
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            raise InvalidInputError(f'A phone must be an object like {{"service": "{NATIVE[0]}", "name": "ana"}}.')
        words = given.get("faults", [])
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words) or len(words) > _MAX_WORDS:
            raise InvalidInputError(f"`faults` must be a list of at most {_MAX_WORDS} words.")
        service = push_service.named(given.get("service"))
        home = given.get(service.home_option)
        made_by = self.served[service.name]
        return made_by.token(given["name"][:_MAX_NAME], *words, home=None if home is None else str(home))

    def expire_access_tokens(self) -> None:
        """Expire every access token that was given out."""
        for each in self.served.values():
            each.expire_access_tokens()

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
        if request.path != service.token_path:
            self._state.answered[service.name, exchange.answer.status] += 1
        if self._state.tell is not None:
            self._state.tell(_line(service, request, exchange, self._secret_paths))


def _listen(host: str, port: int, note: Path) -> list[socket.socket]:
    """Listen on the ports from this one on; 0 takes those of the last time if they are free, else any."""
    count = len(push_service.addresses())
    if port:
        return _listen_on(host, range(port, port + count))
    try:
        found = _listen_on(host, islice([*json.loads(note.read_bytes()), *[0] * count], count))
    except (OSError, OverflowError, ValueError, TypeError):
        found = _listen_on(host, [0] * count)
    certificates.write_private(note, json.dumps([each.getsockname()[1] for each in found]).encode())
    return found


def _listen_on(host: str, ports: Iterable[int]) -> list[socket.socket]:
    with ExitStack() as stack:
        found = [stack.enter_context(listen(host, each)) for each in ports]
        stack.pop_all()
    return found


def _line(service: Service, request: Request, exchange: Exchange, secret_paths: tuple[str, ...]) -> str:
    """Write the outcome of a request to the log in one line, without tokens and secrets."""
    place = next((f"{each}…" for each in secret_paths if request.path.startswith(each)), request.path[:200])
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
