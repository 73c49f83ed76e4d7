"""The heartbeat: one thread and one connection that keep this process's leases alive, and notice when they are not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import structlog

from relevo.core.errors import DatabaseUnavailableError, RelevoError
from relevo.core.logs import normalise_error
from relevo.core.model import LossReason
from relevo.database.outages import BUSY
from relevo.database.pool import Connection, Database

_log = structlog.get_logger("relevo.heartbeat")

_RETRY_S = 0.5
_PATIENCE_S = 1.0  # even the shortest interval leaves a busy server this long to answer
_ANNOUNCEMENT_LOCK_MS = 200
_ANNOUNCED_EVERY_MS = 4_000  # whoever was killed is missed three of these later


def announced_every_ms(interval_ms: int) -> int:
    """Return how often a process announces that it lives, given how often it extends its leases."""
    return min(interval_ms, _ANNOUNCED_EVERY_MS)


class Lease(Protocol):
    """Something this process holds for a while: a claim, or a fleet-wide cycle."""

    @property
    def lease_ms(self) -> int:
        """How long it lasts without a heartbeat."""

    def lose(self, reason: LossReason, detail: str) -> None:
        """Learn that it is gone."""


class Loss(NamedTuple):
    """A lease that is no longer ours, and why."""

    key: UUID
    reason: LossReason
    detail: str


class TimedLease(Protocol):
    """A lease whose holder watches by its own clock how much of it is left."""

    def renewed(self, since: float) -> None:
        """Learn that it was extended, from a moment of the monotonic clock on."""


class Renewed(NamedTuple):
    """The outcome for leases that were to be extended."""

    lost: Sequence[Loss] = ()
    extended: Sequence[TimedLease] = ()
    """Those that want to know of it, once it is committed."""
    locked: int = 0
    """How many somebody held locked: they stand, and are tried again."""


Renewal = Callable[[Connection, Mapping[UUID, Any]], Renewed]
"""Extends leases of one kind, by their keys, inside the beat's transaction, waiting for no lock on them."""


class Heartbeat:
    """Extends every lease of this process at less than a third of its length; who holds a lease says how.

    It also finds out when a database that did not answer does so again, and then looks twice a second.
    """

    def __init__(self, database: Database, interval_ms: int) -> None:
        self._database = database
        self._interval_s = interval_ms / 1000
        self._announced_every_s = announced_every_ms(interval_ms) / 1000
        self._connection: Connection | None = None
        self._held: dict[UUID, tuple[Lease, Renewal]] = {}
        self._announcements: list[Callable[[Connection], object]] = []
        self._due = 0.0
        """When the leases need a beat; whatever else makes us beat before may fail without a loss."""
        self._look_at = 0.0
        self._announce_at = 0.0
        self._unannounced = False
        self.failing = False
        """Whether the last beat did not reach the database: what is claimed now could not be kept."""
        self._guard = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="relevo-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat; the worker must be registered."""
        self._database.probe_by(self._wake.set)
        self._thread.start()

    def stop(self) -> None:
        """Stop beating and close the connection."""
        self._database.probe_by(None)
        self._stop.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)
        if not self._thread.is_alive():
            self._disconnect()

    def announce(self, announcement: Callable[[Connection], object]) -> None:
        """Register a write for every beat and in between, such as that this worker lives."""
        self._announcements.append(announcement)

    def keep(self, key: UUID, lease: Lease, renewal: Renewal) -> None:
        """Keep a lease alive until `drop`; beat at once if the next beat would come too late for it."""
        with self._guard:
            self._held[key] = lease, renewal
            if time.monotonic() + _pause_of(lease) < self._due:
                self._due = time.monotonic()
                self._wake.set()

    def drop(self, key: UUID) -> None:
        """Stop keeping a lease alive."""
        with self._guard:
            self._held.pop(key, None)

    def suspect(self, key: UUID) -> None:
        """Check at once whether a lease is still ours: somebody said that it is not."""
        with self._guard:
            ours = key in self._held
        if ours:
            self._wake.set()

    def _loop(self) -> None:
        while not self._stop.is_set():
            beat_at = min(self._due, self._look_at)
            woken = self._wake.wait(timeout=max(0.0, min(beat_at, self._announce_at) - time.monotonic()))
            self._wake.clear()
            if self._stop.is_set():
                return
            if woken or time.monotonic() >= beat_at or not self._announce_between():
                self._beat_in_time()

    def _beat_in_time(self) -> None:
        """Beat, and set when to beat again: soon, if this one did not reach all it should."""
        began, failed_before = time.monotonic(), self.failing
        due = began >= self._due
        self._announce_at = began + self._announced_every_s
        locked = self._beat_or_lose(lose=due)
        alive = locked is not None
        self.failing = not alive
        with self._guard:
            now = time.monotonic()
            if alive:
                self._due = now + self._pause_s()
            elif due:
                self._due = now + _RETRY_S
            look_soon = locked or not (alive and self._database.is_reachable)
            self._look_at = now + _RETRY_S if look_soon else self._due
        if failed_before and alive:
            self._database.tell_reachable()  # what failed for want of a beat goes on

    def _pause_s(self) -> float:
        return min([self._interval_s, *(_pause_of(lease) for lease, _ in self._held.values())])

    def _beat_or_lose(self, *, lose: bool = True) -> int | None:
        """Beat; after a failure once more on a fresh connection; then give everything up, for nobody knows.

        Returns None after a failure, else how many leases are to be tried again.
        """
        for last in (False, True):
            try:
                return self.beat()
            except BUSY as error:  # the server is there, and every lease ends by its own clock
                if not self.failing:
                    _log.warning("heartbeat_delayed", detail=normalise_error(error))
                return None
            except RelevoError as error:
                self._disconnect()
                detail = str(error)
            except Exception as error:  # noqa: BLE001 a heartbeat that died would let every lease lapse unseen
                self._disconnect()
                detail = type(error).__name__
                if last:
                    _log.exception("heartbeat_failed")
        if lose:
            self._lose_all(detail)
        return None

    def beat(self) -> int:
        """Extend all leases in one short transaction and inform those that are lost; return how many to try again."""
        with self._guard:
            by_renewal: dict[Renewal, dict[UUID, Lease]] = {}
            for key, (lease, renewal) in self._held.items():
                by_renewal.setdefault(renewal, {})[key] = lease
            patience_s = max(self._pause_s(), _PATIENCE_S)
        connection, is_new = self._connected()
        with self._database.watch(probing=is_new):
            with connection.within(patience_s):
                since = time.monotonic()  # before the transaction, whose time leases count from: never overrated
                with self._database.begin(connection, "bound_by_key"):
                    renewed = [renewal(connection, leases) for renewal, leases in by_renewal.items()]
                for extended in (lease for each in renewed for lease in each.extended):
                    extended.renewed(since)
                self._announce(connection)
            self.failing = False  # before whoever waits for the database goes on
        for loss in (loss for each in renewed for loss in each.lost):
            self._lose(loss)
        return sum(each.locked for each in renewed)

    def _connected(self) -> tuple[Connection, bool]:
        """Return a connection, and whether it is new.

        While the database is said to be away, or somebody lost his, only a new one can tell that it answers: an old
        one may live on where no other can be had, and serves until then.
        """
        if self._connection is not None and self._database.is_reachable and not self._database.is_doubted:
            return self._connection, False
        try:
            opened = self._database.single()
        except DatabaseUnavailableError:
            if self._connection is None:
                raise
            return self._connection, False
        self._disconnect()
        self._connection = opened
        return opened, True

    def _announce_between(self) -> bool:
        """Announce between two beats; return False if that failed, so that a beat finds out why."""
        if self._connection is None:
            return False
        try:
            with self._connection.within(max(self._announced_every_s, _PATIENCE_S)):
                self._announce(self._connection)
        except Exception:  # noqa: BLE001 whatever it is, the beat meets it as well, and knows what to do
            return False
        return True

    def _announce(self, connection: Connection) -> None:
        """Write what goes with a beat, in a transaction of its own: whoever locks a worker's row costs it no lease."""
        self._announce_at = time.monotonic() + self._announced_every_s
        try:
            with self._database.begin(connection, "bound_by_key", lock_ms=_ANNOUNCEMENT_LOCK_MS):
                for announcement in self._announcements:
                    announcement(connection)
        except BUSY as error:
            if not self._unannounced:
                _log.warning("worker_not_registered", detail=normalise_error(error))
            self._unannounced = True
        else:
            self._unannounced = False

    def _lose_all(self, detail: str) -> None:
        with self._guard:
            held = list(self._held)
        for key in held:
            self._lose(Loss(key, "error", f"The heartbeat could not reach the database: {detail}"))

    def _lose(self, loss: Loss) -> None:
        with self._guard:
            if loss.key in self._held:  # not dropped by its owner in the meantime
                self._held[loss.key][0].lose(loss.reason, loss.detail)  # first: whom nobody keeps knows it
                del self._held[loss.key]

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _pause_of(lease: Lease) -> float:
    return lease.lease_ms / 4000
