"""Serving: uvicorn on a thread and an event loop of its own, beside the scheduler or alone."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress

import structlog
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from relevo.access.oidc import Provider
from relevo.access.phones import DeviceRules
from relevo.app import App
from relevo.core.serving import BACKLOG, listen, url_of, uvicorn_config
from relevo.database.replica import open_reader
from relevo.http import api
from relevo.http.admission import Admission
from relevo.http.cached import Cached
from relevo.http.connections import ACCEPTED_AT_ONCE, Connections, protocol_for
from relevo.http.dashboard import refusals
from relevo.http.dashboard.login import LoginCodes
from relevo.http.database_threads import DatabaseThreads
from relevo.http.health import Readiness, own_port
from relevo.http.middleware import RequestMiddleware
from relevo.http.recorded import RecordedActions
from relevo.http.strangers import RefusedStrangers
from relevo.http.waiting import MOST_WAITERS, Places
from relevo.runtime.scheduler import Scheduler
from relevo.runtime.wakeups import Listener

_log = structlog.get_logger("relevo.http")
_AGAIN_S = 5.0
_STOP_S = 10.0
_MOST_PORTS = 50
_PROBE_WAIT_S = 1.0


class HttpServer:
    """The HTTP face of one process; a port that is taken is told in health and tried again, and ends nothing."""

    def __init__(self, app: App, *, scheduled: bool = True) -> None:
        self._app = app
        self._settings = app.settings
        self.readiness = Readiness(app.settings, scheduled)
        self._device_rules = DeviceRules.of(app.settings, app.webpush_hosts)  # a bad file of keys is told at the start
        self._provider = Provider(app.settings) if app.settings.oidc_issuer else None
        self.url = ""
        self.codes = LoginCodes()
        self._stop = threading.Event()
        self._serving = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.connections = Connections.of(app.settings)
        self._servers: list[uvicorn.Server] = []
        self.api: FastAPI | None = None
        self._thread = threading.Thread(target=self._life, name="relevo-http", daemon=True)

    def start(self) -> None:
        """Begin to serve, or to try to."""
        self._thread.start()

    def watch(self, scheduler: Scheduler, listener: Listener) -> None:
        """Return what runs in this process, for /health/ready."""
        self.readiness.scheduler, self.readiness.listener = scheduler, listener

    def wait_until_serving(self, timeout_s: float) -> bool:
        """Wait until a port was found; return whether it was."""
        return self._serving.wait(timeout_s)

    def login_link(self) -> str:
        """Return a link that logs in once, for a person on this machine."""
        return f"{self.url}/login?code={self.codes.make()}"

    def stop(self) -> None:
        """Answer what is under way, hang up, and end the thread."""
        self._stop.set()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._leave)
        if self._thread.ident is not None:
            self._thread.join(_STOP_S)

    def _leave(self) -> None:
        if self.api is not None:
            self.api.state.waiters.close()
            self.api.state.inbox_waiters.close()
        for server in self._servers:
            server.should_exit = True

    def _life(self) -> None:
        listening = self._until_bound()
        if listening is None:
            return
        self.url = url_of(listening)
        self._app.worker.http = {"address": self.url}
        _log.info("http_serving", url=self.url, docs=f"{self.url}/docs")
        asyncio.run(self._serve(listening))

    def _until_bound(self) -> socket.socket | None:
        """Bind, trying again while the port is taken; None if told to stop before."""
        while not self._stop.is_set():
            try:
                return self._bind()
            except OSError as error:
                self._complain(
                    f"HTTP cannot be served on {self._settings.http_host}, port {self._settings.http_port}: "
                    f"{error.strerror or error}; Relevo keeps trying; "
                    "free the port, or set HTTP_PORT or HTTP_HOST"
                )
                self._stop.wait(_AGAIN_S)
        return None

    def _complain(self, problem: str) -> None:
        """Report in health what cannot be served, and in the log, once."""
        told = ({"address": self.url} if self.url else {}) | {"problem": problem}
        if self._app.worker.http != told:
            _log.error("http_not_serving", problem=problem)
        self._app.worker.http = told

    def _bind(self) -> socket.socket:
        """Take the port; for the embedded demo, where nobody chose one, the next that is free."""
        host, port = self._settings.http_host, self._settings.http_port
        if self._settings.database_url is not None or "http_port" in self._settings.origins:
            return listen(host, port)
        for each in range(port, min(port + _MOST_PORTS, 65_536)):
            with suppress(OSError):
                return listen(host, each)
        return listen(host, port)

    async def _serve(self, listening: socket.socket) -> None:
        settings = self._settings
        self._loop = asyncio.get_running_loop()
        name = f"relevo http {self._app.worker.worker_id}"
        database = self._app.database.beside(name, settings.http_pool_size)
        reader = open_reader(database, settings, name, settings.http_pool_size)
        threads = DatabaseThreads(database, settings.http_pool_size, settings.http_pool_wait_ms / 1000, reader)
        probes = DatabaseThreads(
            self._app.database.beside(f"relevo ready {self._app.worker.worker_id}", 1), 1, _PROBE_WAIT_S
        )
        self.api = made = api.make(self._app)
        places = Places(min(MOST_WAITERS, max(2, self.connections.most // 2)))
        api.furnish(made, threads, places, self._device_rules, self.codes, provider=self._provider)
        # A connection of its own: while requests have all the others this process is busy, and no less ready.
        made.state.checks = Cached(lambda: probes.run(self.readiness.look))
        metrics = self._app.metrics
        self.connections.strangers = strangers = RefusedStrangers(metrics.count_refused)
        wrapped = RequestMiddleware(made, settings.http_max_body_bytes, metrics.count_answer, strangers)
        self._servers = [_server(wrapped, self.connections, made.state.admission)]
        serving = [self._servers[0].serve([listening])]
        if (own_socket := self._metrics_socket()) is not None:
            self._servers.append(
                _server(RequestMiddleware(own_port(made), settings.http_max_body_bytes), self.connections)
            )
            serving.append(self._servers[1].serve([own_socket]))
        if self._stop.is_set():
            self._leave()
        self._serving.set()
        recorded: RecordedActions = made.state.recorded
        watching = [
            asyncio.create_task(each)
            for each in (self.connections.close_overdue(), strangers.tell_each_minute(), recorded.tell_on(threads))
        ]
        try:
            await asyncio.gather(*serving)
        finally:
            for task in watching:
                task.cancel()
            strangers.tell()
            for connection in list(self.connections.all):
                connection.transport.abort()  # those that outlasted the drain
            await refusals.close(made.state)
            await recorded.close(threads)
            made.state.long_work.close()
            made.state.rendering.close()
            made.state.sign_on_threads.close()
            for each in (threads, probes):
                each.close()
                each.database.close()
            await asyncio.sleep(0.05)  # what was aborted is closed in the loop's next rounds

    def _metrics_socket(self) -> socket.socket | None:
        port = self._settings.metrics_port
        if port is None:
            return None
        try:
            return listen(self._settings.http_host, port)
        except OSError as error:
            self._complain(f"/metrics cannot be served on port {port}: {error.strerror or error}; set METRICS_PORT")
            return None


class _Server(uvicorn.Server):
    """Accepts few connections at once, so that each is counted in time, and lets many wait to be accepted."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(BACKLOG)


def _server(app: ASGIApp, connections: Connections, admission: Admission | None = None) -> uvicorn.Server:
    return _Server(uvicorn_config(app, protocol_for(connections, admission), ACCEPTED_AT_ONCE))
