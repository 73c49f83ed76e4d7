"""The heartbeat: one thread and one connection that keep this process's leases alive, and notice when they are not."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date
from typing import Protocol
from uuid import UUID

import psycopg
import structlog

from relevo import queries
from relevo.db import Connection, Database
from relevo.errors import RelevoError
from relevo.model import LossReason

_CLAIMS = queries.load("claims")
_LEASES = queries.load("singleton")
_WORKERS = queries.load("workers")
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


class ClaimLease(Lease, Protocol):
    """A claim's lease, with the keys needed to explain its loss."""

    def renewed(self, since: float) -> None:
        """Learn that it was extended, from a moment of the monotonic clock on."""
        ...

    @property
    def days(self) -> list[date]:
        """The event days of its deliveries, in the order of their ids."""
        ...

    @property
    def ids(self) -> list[int]:
        """The ids of its deliveries."""
        ...


class Heartbeat:
    """Extends every lease of this process at less than a third of its length."""

    def __init__(self, database: Database, worker_id: str, interval_ms: int) -> None:
        self._database = database
        self._worker_id = worker_id
        self._interval_s = interval_ms / 1000
        self._connection: Connection | None = None
        self._claims: dict[UUID, ClaimLease] = {}
        self._cycles: dict[UUID, Lease] = {}
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

    def hold_claim(self, token: UUID, claim: ClaimLease) -> None:
        """Keep a claim alive until `drop`."""
        with self._guard:
            self._claims[token] = claim
            self._hurry_for(claim)

    def hold_cycle(self, holder: UUID, lease: Lease) -> None:
        """Keep a fleet-wide cycle's lease alive until `drop`."""
        with self._guard:
            self._cycles[holder] = lease
            self._hurry_for(lease)

    def _hurry_for(self, lease: Lease) -> None:
        """Beat at once if the next beat would come too late for a new lease."""
        if time.monotonic() + _pause_of(lease) < self._due:
            self._wake.set()

    def drop(self, key: UUID) -> None:
        """Stop keeping a claim or a cycle's lease alive."""
        with self._guard:
            self._claims.pop(key, None)
            self._cycles.pop(key, None)

    def suspect(self, token: UUID) -> None:
        """Look at once whether a claim is still ours: somebody said that it is not."""
        with self._guard:
            ours = token in self._claims
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
        return min([self._interval_s, *map(_pause_of, (*self._claims.values(), *self._cycles.values()))])

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
            claims, cycles = dict(self._claims), dict(self._cycles)
            patience_s = max(self._pause_s(), _PATIENCE_S)
        lost: list[tuple[UUID, Lease, LossReason, str]] = []
        with self._database.watch():
            if self._connection is None:
                self._connection = self._database.single()
            with _cut_after(patience_s, self._connection), self._connection.transaction():
                self._database.bound(self._connection, "bound_by_key")
                self._say_alive(self._connection)
                lost += self._renew_claims(self._connection, claims)
                lost += self._renew_cycles(self._connection, cycles)
        for key, lease, reason, detail in lost:
            self._lose(key, lease, reason, detail)

    def _say_alive(self, connection: Connection) -> None:
        row = connection.execute(_WORKERS["beat_worker"], {"worker_id": self._worker_id, "now": None}).fetchone()
        if row and row[0]:
            _log.warning("worker_was_given_up", worker_id=self._worker_id)

    def _renew_claims(
        self, connection: Connection, claims: dict[UUID, ClaimLease]
    ) -> list[tuple[UUID, Lease, LossReason, str]]:
        if not claims:
            return []
        since = time.monotonic()  # before the statement: what is left is never overrated
        rows = connection.execute(_CLAIMS["renew_claims"], {"tokens": list(claims), "now": None}).fetchall()
        for (token,) in rows:
            claims[token].renewed(since)
        gone = set(claims) - {row[0] for row in rows}
        return [(token, claims[token], *_why(connection, token, claims[token])) for token in gone]

    def _renew_cycles(
        self, connection: Connection, cycles: dict[UUID, Lease]
    ) -> list[tuple[UUID, Lease, LossReason, str]]:
        if not cycles:
            return []
        rows = connection.execute(_LEASES["renew_leases"], {"holders": list(cycles)}).fetchall()
        gone = set(cycles) - {row[0] for row in rows}
        return [(holder, cycles[holder], "taken_by_another_worker", "Its lease was taken over.") for holder in gone]

    def _lose_all(self, detail: str) -> None:
        with self._guard:
            held = [*self._claims.items(), *self._cycles.items()]
        for key, lease in held:
            self._lose(key, lease, "error", f"The heartbeat could not reach the database: {detail}")

    def _lose(self, key: UUID, lease: Lease, reason: LossReason, detail: str) -> None:
        with self._guard:
            held = self._claims.pop(key, None) or self._cycles.pop(key, None)
        if held is not None:  # not dropped by its owner in the meantime
            lease.lose(reason, detail)

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


def explain_loss(connection: Connection, token: UUID, claim: ClaimLease) -> LossReason:
    """Tell why a claim is no longer ours, in a transaction that goes by keys.

    `error` means that it stands, but may not be used any more.
    """
    parameters = {"token": token, "days": claim.days, "ids": claim.ids}
    row = connection.execute(_CLAIMS["explain_loss"], parameters).fetchone()
    reason: LossReason = row[0] if row else "not_found"
    return reason


def _why(connection: Connection, token: UUID, claim: ClaimLease) -> tuple[LossReason, str]:
    reason = explain_loss(connection, token, claim)
    held_too_long = "It was held for three times its lease and is not renewed."
    return reason, held_too_long if reason == "error" else "The heartbeat found it ended."
