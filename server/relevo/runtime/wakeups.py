"""Wake-ups by LISTEN/NOTIFY, proven by a self-test; while they cannot be heard, polling is enough."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal
from uuid import UUID, uuid4

import psycopg
import structlog

from relevo.core import queries
from relevo.core.errors import RelevoError
from relevo.database.pool import Connection, Database

_SQL = queries.load("wakeups")
_log = structlog.get_logger("relevo.wakeups")

_TEST_EVERY_S = 30.0
_TEST_WAIT_S = 3.0
_RETRY_S = 0.5
_RETRY_MAX_S = 15.0

Hearing = Literal["listening", "polling"]


class Listener:
    """One thread and one direct connection that pass on what the fleet calls out."""

    def __init__(
        self,
        database: Database,
        *,
        on_wake: Callable[[str], None],
        on_lost: Callable[[UUID], None],
        on_change: Callable[[Hearing], None],
        on_resumed: Callable[[], None] = lambda: None,
        test_every_s: float = _TEST_EVERY_S,
        test_wait_s: float = _TEST_WAIT_S,
    ) -> None:
        self._database = database
        self._on_wake = on_wake
        self._on_lost = on_lost
        self._on_change = on_change
        self._on_resumed = on_resumed
        self._test_every_s = test_every_s
        self._test_wait_s = test_wait_s
        self._hearing: Hearing | None = None
        self._told: Hearing | None = None
        self._stop = threading.Event()
        self._prompted = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="relevo-listener", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        self._stop.set()
        self._prompted.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=5)

    @property
    def hearing(self) -> Hearing | None:
        """Whether calls are heard; None before that is known, or once the thread has ended."""
        return self._hearing if self._thread.is_alive() else None

    def prompt(self) -> None:
        """Try again, or prove again that calls are heard, at once: the database was away."""
        self._prompted.set()

    def _loop(self) -> None:
        pause = _RETRY_S
        while not self._stop.is_set():
            try:
                self._listen()
            except (RelevoError, psycopg.Error) as error:
                if self._stop.is_set():
                    return
                heard = self._hearing == "listening"
                self._change("polling", str(error))
                pause = _RETRY_S if heard else min(pause * 2, _RETRY_MAX_S)
                self._prompted.wait(pause)
                self._prompted.clear()

    def _listen(self) -> None:
        with self._database.watch(), self._database.direct() as connection:
            for name in ("listen_wake", "listen_lost", "listen_selftest"):
                connection.execute(_SQL[name])
            while not self._stop.is_set():
                self._prompted.clear()
                self._prove(connection)
                self._change("listening")
                self._hear(connection, time.monotonic() + self._test_every_s)

    def _prove(self, connection: Connection) -> None:
        """Call ourselves the way others would, and wait until the call is heard."""
        nonce = uuid4().hex
        with self._database.connection() as caller:
            caller.execute(_SQL["send_selftest"], {"nonce": nonce})
        if not self._hear(connection, time.monotonic() + self._test_wait_s, until=nonce):
            raise RelevoError(
                "A test call was sent and not heard.",
                hint="LISTEN does not work through PgBouncer: set DATABASE_DIRECT_URL.",
            )

    def _hear(self, connection: Connection, deadline: float, until: str | None = None) -> bool:
        """Pass on calls until the deadline, a stop, our own test call, or, if none is awaited, a prompt."""
        while not self._stop.is_set() and (left := deadline - time.monotonic()) > 0:
            if until is None and self._prompted.is_set():
                break
            heard = False
            for call in connection.notifies(timeout=min(left, 0.25), stop_after=1):  # to its end: calls come in packets
                if call.channel == "relevo_selftest":
                    heard = heard or call.payload == until
                else:
                    self._pass_on(call.channel, call.payload)
            if heard:
                return True
        return until is None

    def _pass_on(self, channel: str, payload: str) -> None:
        if channel == "relevo_wake":
            self._on_wake(payload)
        elif channel == "relevo_lost":
            try:
                token = UUID(payload)
            except ValueError:
                return  # anyone may NOTIFY; what is no token concerns nobody
            self._on_lost(token)

    def _change(self, hearing: Hearing, detail: str = "") -> None:
        """Log a change once; tell it in table state too, with the next look if that fails."""
        before, self._hearing = self._hearing, hearing
        if hearing != before:
            if hearing == "polling":
                _log.warning("wakeups_degraded", detail=detail, fallback="polling")
            else:
                _log.info("wakeups_listening")
                if before == "polling":
                    self._on_resumed()  # calls may have been missed in between
        if hearing != self._told:
            with suppress(RelevoError, psycopg.Error):
                self._on_change(hearing)
                self._told = hearing
