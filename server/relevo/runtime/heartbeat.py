"""The heartbeat: one thread and one connection that keep this process's leases alive, and notice when they are not."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import psycopg
import structlog

from relevo.db import Connection, Database
from relevo.errors import RelevoError
from relevo.model import LossReason

_log = structlog.get_logger("relevo.heartbeat")

_RETRY_S = 1.0
_PATIENCE_S = 1.0  # even the shortest interval leaves a busy server this long to answer


class Lease(Protocol):
    """Something this process holds for a while: a claim, or a fleet-wide cycle."""

    @property
    def lease_ms(self) -> int:
        """How long it lasts without a heartbeat."""
        ...

    def lose(self, reason: LossReason, detail: str) -> None:
        """Learn that it is gone."""
        ...


class Loss(NamedTuple):
    """A lease that is no longer ours, and why."""

    key: UUID
    reason: LossReason
    detail: str


Renewal = Callable[[Connection, Mapping[UUID, Any]], Sequence[Loss]]
"""Extends leases of one kind, by their keys, inside the beat's transaction; returns those that are gone."""


class Heartbeat:
    """Extends every lease of this process at less than a third of its length; who holds a lease says how."""

    def __init__(self, database: Database, interval_ms: int) -> None:
        self._database = database
        self._interval_s = interval_ms / 1000
        self._connection: Connection | None = None
        self._held: dict[UUID, tuple[Lease, Renewal]] = {}
        self._announcements: list[Callable[[Connection], None]] = []
        self._due = 0.0
        self.failing = False
        """Whether the last beat did not reach the database: what is claimed now could not be kept."""
        self._guard = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="relevo-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat; the worker must be registered."""
        self._thread.start()

    def stop(self) -> None:
        """Stop beating and close the connection."""
        self._stop.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)
        if not self._thread.is_alive():
            self._disconnect()

    def announce(self, announcement: Callable[[Connection], None]) -> None:
        """Have something said with every beat, such as that this worker lives."""
        self._announcements.append(announcement)

    def keep(self, key: UUID, lease: Lease, renewal: Renewal) -> None:
        """Keep a lease alive until `drop`; beat at once if the next beat would come too late for it."""
        with self._guard:
            self._held[key] = lease, renewal
            if time.monotonic() + _pause_of(lease) < self._due:
                self._wake.set()

    def drop(self, key: UUID) -> None:
        """Stop keeping a lease alive."""
        with self._guard:
            self._held.pop(key, None)

    def suspect(self, key: UUID) -> None:
        """Look at once whether a lease is still ours: somebody said that it is not."""
        with self._guard:
            ours = key in self._held
        if ours:
            self._wake.set()

    def _loop(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(timeout=max(0.0, self._due - time.monotonic()))
            self._wake.clear()
            if self._stop.is_set():
                return
            alive = self._beat_or_lose()
            self.failing = not alive
            with self._guard:
                self._due = time.monotonic() + (self._pause_s() if alive else _RETRY_S)

    def _pause_s(self) -> float:
        return min([self._interval_s, *(_pause_of(lease) for lease, _ in self._held.values())])

    def _beat_or_lose(self) -> bool:
        """Beat; after a failure once more on a fresh connection; then give everything up, for nobody knows."""
        for last in (False, True):
            try:
                self.beat()
            except RelevoError as error:
                self._disconnect()
                if last:
                    self._lose_all(str(error))
                    return False
            except Exception as error:  # noqa: BLE001 a heartbeat that died would let every lease lapse unseen
                self._disconnect()
                if last:
                    _log.exception("heartbeat_failed")
                    self._lose_all(type(error).__name__)
                    return False
            else:
                return True
        return False

    def beat(self) -> None:
        """Extend all leases in one short transaction and tell the losers."""
        with self._guard:
            by_renewal: dict[Renewal, dict[UUID, Lease]] = {}
            for key, (lease, renewal) in self._held.items():
                by_renewal.setdefault(renewal, {})[key] = lease
            patience_s = max(self._pause_s(), _PATIENCE_S)
        lost: list[Loss] = []
        with self._database.watch():
            if self._connection is None:
                self._connection = self._database.single()
            with _cut_after(patience_s, self._connection), self._connection.transaction():
                self._database.bound(self._connection, "bound_by_key")
                for announcement in self._announcements:
                    announcement(self._connection)
                for renewal, leases in by_renewal.items():
                    lost += renewal(self._connection, leases)
        for loss in lost:
            self._lose(loss)

    def _lose_all(self, detail: str) -> None:
        with self._guard:
            held = list(self._held)
        for key in held:
            self._lose(Loss(key, "error", f"The heartbeat could not reach the database: {detail}"))

    def _lose(self, loss: Loss) -> None:
        with self._guard:
            held = self._held.pop(loss.key, None)
        if held is not None:  # not dropped by its owner in the meantime
            held[0].lose(loss.reason, loss.detail)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _pause_of(lease: Lease) -> float:
    return lease.lease_ms / 4000


@contextmanager
def _cut_after(seconds: float, connection: Connection) -> Iterator[None]:
    """Cut the connection if the block takes longer: a server that froze would keep the heartbeat waiting for ever."""
    timer = threading.Timer(seconds, _cut, [connection])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _cut(connection: Connection) -> None:
    with suppress(OSError, psycopg.OperationalError), socket.socket(fileno=os.dup(connection.fileno())) as twin:
        twin.shutdown(socket.SHUT_RDWR)
