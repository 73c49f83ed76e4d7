"""Starting and stopping a sandbox: in a thread of this process, or for as long as a command runs."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from relevo.core.errors import MissingPartError, RelevoError
from relevo.core.known_services import NATIVE_IN_WORDS
from relevo.core.serving import listen, url_of, uvicorn_config
from relevo.sandbox import push_service
from relevo.sandbox.app import SandboxApp, Tell
from relevo.sandbox.messages import Message
from relevo.sandbox.settings import Settings
from relevo.sandbox.state import SandboxState

if TYPE_CHECKING:
    from relevo.sandbox.services.running import Services

T = TypeVar("T")
_STOP_S = 10.0
MAX_NATIVE_PORT = 65_536 - len(push_service.addresses())
"""The highest first port of the services beside Expo."""


class _Protocol(HttpToolsProtocol):
    """Lends the app the connection itself, so that it can hang up; does not wait for half a request when it stops."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["transport"] = self.transport

    def shutdown(self) -> None:
        if self.cycle is not None and self.cycle.more_body:
            self.transport.close()
        else:
            super().shutdown()


class Sandbox:
    """A local Expo push service, and with `native=True` the native push services beside it.

    `with Sandbox(rate_per_s=0) as sandbox:` serves at `sandbox.url` from a daemon thread until the block ends. It
    listens on the loopback interface unless told otherwise; port 0 takes any that is free. Keyword arguments are the
    fields of `Settings`. `tell` is called with one line for each request, from the sandbox's thread.

    With `native=True` the services' addresses are `fcm`, `apns`, `apns_sandbox` and `webpush`, all of them in
    `addresses` (`native_port` is the first of their ports), and `ca_file`, `projects_file` and the key files are what a
    sender needs. They lie in `folder`, which keeps them for the next start; without one they are temporary.
    """

    fcm = apns = apns_sandbox = webpush = ""
    ca_file = projects_file = service_account_file = apns_key_file = vapid_key_file = Path()

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tell: Tell | None = None,
        native: bool = False,
        native_port: int = 0,
        folder: Path | None = None,
        **settings: Any,
    ) -> None:
        self._state = SandboxState(Settings().changed(settings))
        self._state.tell = tell
        self._address = (host, port)
        self._native = (native, native_port, folder)
        self._services: Services | None = None
        self._app: SandboxApp | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.url = ""
        self.addresses: dict[str, str] = {}

    def start(self) -> Self:
        """Listen and serve; raises RelevoError when the address cannot be had."""
        try:
            listening = listen(*self._address)
        except (OSError, OverflowError) as error:
            raise _unavailable(*self._address, error) from None
        self.url = url_of(listening)
        if self._native[0]:
            self._open_services(listening)
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(listening, ready)), name="relevo-sandbox", daemon=True
        )
        self._thread.start()
        ready.wait()
        return self

    def stop(self) -> None:
        """Answer what is late, hang up, and end the thread; a second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None:
            return
        self._loop.call_soon_threadsafe(self._leave)
        thread.join(_STOP_S)
        self._loop = None
        if self._services is not None:
            self._services.clean_up()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def totals(self) -> dict[str, Any]:
        """Return what was counted so far."""
        return self._ask(self._state.totals)

    def phones(self) -> dict[str, dict[str, Any]]:
        """Return every phone's counters by its token: `{"received": 2, "distinct": 1}`."""
        return self._ask(self._all_phones)

    def received(self, token: str) -> list[Message]:
        """Return a phone's last messages, oldest first."""
        return self._ask(lambda: self._messages_of(token))

    def set(self, **changes: Any) -> None:
        """Change settings from now on."""
        self._ask(lambda: self._state.change(changes))

    def add_fault(self, fault: str, **how: Any) -> None:
        """Put a fault into force: `add_fault("500", share=0.1, times=3, project=None, seconds=60, on="send")`."""
        given = {"fault": fault, **how}
        self._ask(lambda: self._state.add_faults([given]))

    def clear_faults(self) -> None:
        """Forget the faults put into force; those in tokens' names stay."""
        self._ask(self._state.clear_faults)

    def token(self, service: str, name: str, *words: str, home: str | None = None) -> str:
        """Return the token of a phone of a service; words are faults, as in `token("fcm", "ana", "UNREGISTERED")`."""
        found = push_service.of(service) if self._services is None else self._services.served[service]
        return found.token(name, *words, home=home)

    def fcm_token(self, name: str, *words: str) -> str:
        """Return a registration token of FCM."""
        return self.token("fcm", name, *words)

    def apns_token(self, name: str, *words: str, environment: str = "production") -> str:
        """Return a device token of APNs; words are faults, as in `apns_token("ana", "TooManyRequests*1")`."""
        return self.token("apns", name, *words, home=environment)

    def subscription(self, name: str, *words: str, key: str | None = None) -> str:
        """Return a browser's subscription as JSON text, bound to a sender's public key (by default the sandbox's)."""
        return self.token("webpush", name, *words, home=key)

    def add_apns_key(self, key_id: str, environment: str | None = None) -> Path:
        """Make one more key of the APNs team, for both environments or for one; return its file."""
        apns: Any = self._running().served["apns"]
        made: Path = apns.keys.add(key_id, environment)
        return made

    def expire_access_tokens(self) -> None:
        """Expire every access token that was given out."""
        self._ask(self._running().expire_access_tokens)

    def settings(self) -> dict[str, str]:
        """Return the settings by which Relevo sends to the native push services here; none without `native`."""
        return self._services.settings() if self._services is not None else {}

    def switch(self, token: str, *, on: bool) -> None:
        """Switch a phone off, or on again: then it receives what its push service kept for it."""
        self._ask(lambda: self._state.switch(token, on=on))

    def _running(self) -> Services:
        if self._services is None:
            raise RelevoError("This sandbox speaks Expo alone.", hint="Start it as Sandbox(native=True).")
        return self._services

    def _open_services(self, listening: socket.socket) -> None:
        """Listen for the other services; what is missing for them is said before anything serves."""
        _, port, folder = self._native
        host = self._address[0]
        try:
            self._services = _load_services()(self._state, host, port, folder)
        except (OSError, OverflowError, RelevoError) as error:
            listening.close()
            raise error if isinstance(error, RelevoError) else _unavailable(host, port, error) from None
        self.addresses = self._services.addresses
        self.ca_file, self.projects_file = self._services.ca_file, self._services.projects_file
        vars(self).update(self.addresses, **self._services.files)

    def reset(self) -> None:
        """Forget the phones and count anew."""
        self._ask(self._state.reset)

    async def _serve(self, listening: socket.socket, ready: threading.Event) -> None:
        self._app = SandboxApp(self._state, self._state.tell)
        self._loop = asyncio.get_running_loop()
        self._server = uvicorn.Server(uvicorn_config(self._app, _Protocol))
        if self._services is not None:
            await self._services.start()
        ready.set()
        await self._server.serve(sockets=[listening])
        if self._services is not None:
            self._services.stop()
        for connection in list(self._server.server_state.connections):  # those that outlasted the drain
            connection.transport.abort()
        await asyncio.sleep(0.05)  # what was aborted is closed in the loop's next rounds

    def _leave(self) -> None:
        if self._app is not None and self._server is not None:
            self._app.stop()
            self._server.should_exit = True

    def _ask(self, question: Callable[[], T]) -> T:
        """Run a function where the state may be touched: in the sandbox's thread while there is one."""
        if self._loop is None or self._thread is None:
            return question()

        async def answer() -> T:
            return question()

        return asyncio.run_coroutine_threadsafe(answer(), self._loop).result()

    def _all_phones(self) -> dict[str, dict[str, Any]]:
        phones, _ = self._state.phones.page(len(self._state.phones), 0)
        return {phone.token: {"received": phone.received, "distinct": phone.distinct} for phone in phones}

    def _messages_of(self, token: str) -> list[Message]:
        phone = self._state.phones.find(push_service.phone_key(token))
        return [kept["message"] for kept in phone.messages()] if phone else []


def has_native() -> bool:
    """Return whether the packages for the native push services are installed."""
    return find_spec("h2") is not None and find_spec("cryptography") is not None


def _load_services() -> type[Services]:
    try:
        from relevo.sandbox.services.running import Services  # noqa: PLC0415 needs packages of an extra
    except ModuleNotFoundError as error:
        raise MissingPartError(
            f"{NATIVE_IN_WORDS} need {error.name}, which is not installed.",
            hint="Install one of their extras, as in pip install 'relevo[fcm]'.",
        ) from None
    return Services


def serve(
    *,
    host: str,
    port: int,
    started: Callable[[Sandbox], None],
    tell: Tell | None = None,
    rules: Iterable[dict[str, Any]] = (),
    **settings: Any,
) -> None:
    """Serve until SIGINT or SIGTERM; `started` is called with the sandbox."""
    leave = threading.Event()
    sandbox = Sandbox(host=host, port=port, tell=tell, **settings)
    for rule in rules:
        sandbox.add_fault(**rule)
    before = {number: signal.signal(number, lambda *_: leave.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with sandbox:
            started(sandbox)
            leave.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _unavailable(host: str, port: int, error: Exception) -> RelevoError:
    why = getattr(error, "strerror", None) or error
    return RelevoError(
        f"The sandbox cannot listen on {host}, port {port}: {why}.",
        hint="Choose another port with --port; 0 takes any that is free.",
    )
