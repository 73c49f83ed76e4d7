"""Fleet-wide singletons: a lease for liveness, a term as the fence, a slot so that a night happens once."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import structlog

from relevo.config import Settings
from relevo.core import queries
from relevo.core.errors import LostLeaseError
from relevo.core.model import LossReason
from relevo.database.outages import BUSY
from relevo.database.pool import Connection, Database
from relevo.runtime.heartbeat import Heartbeat, Loss, Renewed

_SQL = queries.load("singleton")
_RUNS = queries.load("runner")
_log = structlog.get_logger("relevo.singleton")
_HOUR_MS = 3_600_000
_LOOK_AGAIN_S = 1.0


@dataclass(frozen=True)
class Held:
    """The lease is ours; `term` is our fence."""

    cycle: str
    source: str
    holder: UUID
    term: int
    lease_ms: int
    lost: threading.Event = field(default_factory=threading.Event)

    def lose(self, reason: LossReason, detail: str) -> None:
        """Learn from the heartbeat that the lease is gone."""
        self.lost.set()
        _log.warning("lease_lost", cycle=self.cycle, source=self.source, reason=reason, detail=detail)

    def fence(self, connection: Connection) -> None:
        """Read our term FOR SHARE; raise LostLeaseError if a successor has raised it."""
        parameters = {"cycle": self.cycle, "source": self.source, "term": self.term}
        if self.lost.is_set() or connection.execute(_SQL["hold_term"], parameters).fetchone() is None:
            self.lost.set()
            raise LostLeaseError(
                f"{self.cycle} was taken over by another process while this one was away.",
                hint="Nothing of this transaction was written.",
            )


@dataclass(frozen=True)
class NotHeld:
    """The run may not start: somebody else holds the lease, or the slot is filled."""

    reason: str
    look_again_in_s: float | None


class Singletons:
    """Takes and gives back the leases of fleet-wide cycles."""

    def __init__(self, database: Database, settings: Settings, worker_id: str, heartbeat: Heartbeat) -> None:
        self._database = database
        self._settings = settings
        self._worker_id = worker_id
        self._heartbeat = heartbeat

    def acquire(self, run: dict[str, Any]) -> Held | NotHeld:
        """Take lease, term and the slot, if it has one, in one transaction, and write the run's row with them.

        Beside the row's columns `run` holds how long its slot is, as `slot_ms`.
        """
        try:
            return self._take(run)
        except BUSY:
            return NotHeld("another process is taking it, or its former holder is still writing", _LOOK_AGAIN_S)

    def _take(self, run: dict[str, Any]) -> Held | NotHeld:
        holder = uuid4()
        lease_ms = self._settings.outbox_lease_duration_ms
        key = {"cycle": run["cycle"], "source": run["source"]}
        with self._database.transaction() as connection:
            asked = key | {"holder": holder, "worker_id": self._worker_id, "lease_ms": lease_ms}
            row = connection.execute(_SQL["acquire_lease"], asked).fetchone()
            if row is None:
                return self._locked(connection, key)
            held = Held(run["cycle"], run["source"], holder, row[0], lease_ms)
            connection.execute(_SQL["raise_term"], key | {"term": held.term})
            former = connection.execute(_RUNS["abandon_running"], key | {"worker_id": self._worker_id}).fetchall()
            for run_id, worker_id in former:
                _log.warning("run_abandoned", abandoned_run=run_id, former_worker=worker_id, **key)
            refused = self._begin(connection, run)
            if refused is not None:
                connection.execute(_SQL["release_lease"], key | {"holder": holder})
                return refused
        self._heartbeat.keep(holder, held, self.renew)
        return held

    def renew(self, connection: Connection, leases: Mapping[UUID, Held]) -> Renewed:
        """Extend leases, inside the heartbeat's transaction, and return which are gone; one held locked is not."""
        standing = dict(connection.execute(_SQL["renew_leases"], {"holders": list(leases)}).fetchall())
        gone = set(leases) - set(standing)
        lost = [Loss(holder, "taken_by_another_worker", "Its lease was taken over.") for holder in gone]
        return Renewed(lost, locked=sum(state == "locked" for state in standing.values()))

    def _locked(self, connection: Connection, key: dict[str, Any]) -> NotHeld:
        row = connection.execute(_SQL["read_lease"], key).fetchone()
        if row is None:  # it was given back between our two looks
            return NotHeld("locked by another process", 0.1)
        return NotHeld(f"locked by worker {row[0]}", max(0.0, row[2].total_seconds()) + 0.05)

    def _begin(self, connection: Connection, run: dict[str, Any]) -> NotHeld | None:
        """Write the run's row, into its slot if it has one; a filled slot, or one that failed just now, refuses."""
        if run["slot_at"] is None:
            connection.execute(_RUNS["begin_run"], run)
            return None
        parameters = run | {
            "error_base_ms": max(1, self._settings.worker_tick_loop_error_backoff_ms),
            "error_max_ms": _HOUR_MS,
        }
        begun = connection.execute(_RUNS["begin_slot_run"], parameters).fetchone()
        if begun is None and connection.execute(_RUNS["free_repeated_slots"], parameters).rowcount:
            _log.warning("clock_set_back", cycle=run["cycle"], source=run["source"], slot_at=run["slot_at"].isoformat())
            begun = connection.execute(_RUNS["begin_slot_run"], parameters).fetchone()
        if begun is not None:
            return None
        slot = f"{run['slot_at']:%Y-%m-%d %H:%M:%S}Z"
        row = connection.execute(_RUNS["read_slot_wait"], parameters).fetchone()
        if row is None or row[0] is None:
            return NotHeld(f"slot {slot} is filled", None)
        return NotHeld(f"slot {slot} failed just now and is tried again later", max(0.05, row[0] + 0.05))

    def release(self, connection: Connection, held: Held) -> None:
        """Give the lease back with the transaction that ends the run, so that the next need not wait."""
        self.forget(held)
        connection.execute(_SQL["release_lease"], {"cycle": held.cycle, "source": held.source, "holder": held.holder})

    def forget(self, held: Held) -> None:
        """Stop keeping a lease alive; left alone, it lapses."""
        self._heartbeat.drop(held.holder)
