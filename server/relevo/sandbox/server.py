"""Starting and stopping a sandbox: in a thread of this process, or for as long as a command runs."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from relevo.core.errors import RelevoError
from relevo.core.serving import listen, url_of, uvicorn_config
from relevo.sandbox import faults
from relevo.sandbox.app import SandboxApp, Tell
from relevo.sandbox.messages import Message
from relevo.sandbox.settings import Settings
from relevo.sandbox.world import World

T = TypeVar("T")
_STOP_S = 10.0


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
    """A local Expo push service.

    `with Sandbox(rate_per_s=0) as sandbox:` serves at `sandbox.url` from a daemon thread until the block ends. It
    listens on the loopback interface unless told otherwise; port 0 takes any that is free. Keyword arguments are the
    fields of `Settings`. `tell` is called with one line for each request, from the sandbox's thread.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, tell: Tell | None = None, **settings: Any) -> None:
        self._world = World(Settings().changed(settings))
        self._address = (host, port)
        self._tell = tell
        self._app: SandboxApp | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.url = ""

    def start(self) -> Self:
        """Listen and serve; raises RelevoError when the address cannot be had."""
        try:
            listening = listen(*self._address)
        except (OSError, OverflowError) as error:
            raise _unavailable(*self._address, error) from None
        self.url = url_of(listening)
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

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def totals(self) -> dict[str, Any]:
        """Return what was counted so far."""
        return self._ask(self._world.totals)

    def phones(self) -> dict[str, dict[str, Any]]:
        """Return every phone's counters by its token: `{"received": 2, "distinct": 1}`."""
        return self._ask(self._all_phones)

    def received(self, token: str) -> list[Message]:
        """Return a phone's last messages, oldest first."""
        return self._ask(lambda: self._messages_of(token))

    def set(self, **changes: Any) -> None:
        """Change settings from now on."""
        self._ask(lambda: self._world.change(changes))

    def add_fault(self, fault: str, **how: Any) -> None:
        """Put a fault into force: `add_fault("500", share=0.1, times=3, project=None, seconds=60, on="send")`."""
        rule = faults.make_rule({"fault": fault, **how})
        self._ask(lambda: self._world.rules.add([rule]))

    def clear_faults(self) -> None:
        """Forget the faults put into force; those in tokens' names stay."""
        self._ask(self._world.rules.clear)

    def reset(self) -> None:
        """Forget the phones and count anew."""
        self._ask(self._world.reset)

    async def _serve(self, listening: socket.socket, ready: threading.Event) -> None:
        self._app = SandboxApp(self._world, self._tell)
        self._loop = asyncio.get_running_loop()
        self._server = uvicorn.Server(uvicorn_config(self._app, _Protocol))
        ready.set()
        await self._server.serve(sockets=[listening])
        for connection in list(self._server.server_state.connections):  # those that outlasted the drain
            connection.transport.abort()
        await asyncio.sleep(0.05)  # what was aborted is closed in the loop's next rounds

    def _leave(self) -> None:
        if self._app is not None and self._server is not None:
            self._app.stop()
            self._server.should_exit = True

    def _ask(self, question: Callable[[], T]) -> T:
        """Run a function where the world may be touched: in the sandbox's thread while there is one."""
        if self._loop is None or self._thread is None:
            return question()

        async def answer() -> T:
            return question()

        return asyncio.run_coroutine_threadsafe(answer(), self._loop).result()

    def _all_phones(self) -> dict[str, dict[str, Any]]:
        phones, _ = self._world.phones.page(len(self._world.phones), 0)
        return {phone.token: {"received": phone.received, "distinct": phone.distinct} for phone in phones}

    def _messages_of(self, token: str) -> list[Message]:
        phone = self._world.phones.find(token)
        return [kept["message"] for kept in phone.messages()] if phone else []


def serve(
    *,
    host: str,
    port: int,
    started: Callable[[str], None],
    tell: Tell | None = None,
    rules: Iterable[dict[str, Any]] = (),
    **settings: Any,
) -> None:
    """Serve until SIGINT or SIGTERM; `started` is called with the address."""
    leave = threading.Event()
    sandbox = Sandbox(host=host, port=port, tell=tell, **settings)
    for rule in rules:
        sandbox.add_fault(**rule)
    before = {number: signal.signal(number, lambda *_: leave.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with sandbox:
            started(sandbox.url)
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
