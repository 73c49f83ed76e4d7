"""A worker's life in table state: registered, seen, stopping, stopped; any reaper notices its silence."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Literal
from uuid import uuid4

import structlog
from psycopg.types.json import Jsonb

from relevo.config import Settings
from relevo.core import queries
from relevo.core.version import __version__
from relevo.database.instance import Guard
from relevo.database.pool import Connection, Database
from relevo.runtime.disks import Disks
from relevo.runtime.heartbeat import announced_every_ms
from relevo.runtime.hung_calls import HungCalls
from relevo.runtime.runs import Cycle
from relevo.runtime.timing import Cron, Every

Role = Literal["run", "tick", "run-cycle"]

_SQL = queries.load("workers")
_log = structlog.get_logger("relevo.workers")
_MOST_TOLD = 50
_LONGEST = 300


def make_worker_id(settings: Settings, role: Role) -> str:
    """Return WORKER_ID, or a name that no other start has; a command beside the service is not the service."""
    own = f"{os.getpid()}:{uuid4().hex[:8]}"
    if settings.worker_id is not None:
        return settings.worker_id if role == "run" else f"{settings.worker_id[:70]}:{own}"
    return f"{socket.gethostname()[:60]}:{own}"


class Worker:
    """This process's row in `workers`."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        worker_id: str,
        hung: HungCalls,
        *,
        guard: Guard,
        composers: Sequence[str] = (),
        unusable: Callable[[], Iterable[str]] = tuple,
        disks: Disks | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._unusable = unusable
        self._disks = disks or Disks()
        self._composers = list(composers)
        self._database = database
        self._settings = settings
        self._role: Role = "run"
        self._hung = hung
        self._guard = guard
        self.worker_id = worker_id
        self.http: dict[str, str] | None = None
        """Where this process serves HTTP, or why it cannot."""
        self._undescribed: Sequence[Cycle] = ()

    def record_start(self, role: Role, cycles: Sequence[str]) -> None:
        """Write that this process has started, which cycles it runs, and why it rests, if it does.

        One that stays watches its disks.
        """
        self._role = role
        if role == "run":
            self._disks.start()
        with self._database.connection() as connection:
            self._guard.look(connection)
            started = {
                "worker_id": self.worker_id,
                "hostname": socket.gethostname(),
                "pid": os.getpid(),
                "version": __version__,
                "role": role,
                "cycles": list(cycles),
                "composers": self._composers,
                "lease_ms": self._settings.outbox_lease_duration_ms,
                "rests_because": self._guard.differs or None,
                "clock": self._clock(),
                "now": None,
            }
            connection.execute(_SQL["register_worker"], started)
            connection.execute(_SQL["forget_awake"])
        _log.info("worker_started", worker_id=self.worker_id, role=role, cycles=list(cycles), version=__version__)

    def describe(self, cycles: Sequence[Cycle]) -> None:
        """Write down when each cycle runs here, and why it cannot if it cannot: status judges by that which is late.

        What somebody holds locked is written with a later beat.
        """
        self._undescribed = cycles
        with self._database.connection() as connection:
            self._describe(connection)

    def _describe(self, connection: Connection) -> None:
        crons = [cycle.timing if isinstance(cycle.timing, Cron) else None for cycle in self._undescribed]
        described = {
            "cycles": [cycle.name for cycle in self._undescribed],
            "sources": [cycle.source for cycle in self._undescribed],
            "every_ms": [
                each.timing.interval_ms if isinstance(each.timing, Every) else None for each in self._undescribed
            ],
            "crons": [cron and cron.expression for cron in crons],
            "timezones": [cron and cron.timezone for cron in crons],
            "off_reasons": [cycle.off[:_LONGEST] or None for cycle in self._undescribed],
        }
        (left,) = connection.execute(_SQL["describe_cycles"], described).fetchone() or (0,)
        if left == 0:
            self._undescribed = ()

    def serve(self, providers: Sequence[str]) -> None:
        """Allow installations to name the push services that this process serves."""
        self._database.execute(_SQL["add_providers"], {"providers": list(providers)})

    def beat(self, connection: Connection) -> None:
        """Write, inside the heartbeat's transaction, that this process lives, what hangs in it and why it rests."""
        hung = Jsonb([each._asdict() for each in self._hung.given_up()[:_MOST_TOLD]])
        said = {
            "worker_id": self.worker_id,
            "hung": hung,
            "http": Jsonb(self.http) if self.http else None,
            "rests_because": self._guard.differs or None,
            "unusable": [each[:_LONGEST] for each in islice(self._unusable(), _MOST_TOLD)],
            "unwritable": Jsonb([each._asdict() for each in self._disks.unwritable()]),
            "next_ms": announced_every_ms(self._settings.outbox_lease_heartbeat_ms),
            "clock": self._clock(),
            "now": None,
        }
        if self._undescribed:
            self._describe(connection)
        row = connection.execute(_SQL["beat_worker"], said).fetchone()
        if row and row[0]:
            _log.warning("worker_was_declared_lost", worker_id=self.worker_id)

    def note_wakeups(self, wakeups: Literal["listening", "polling"]) -> None:
        """Write whether wake-ups are heard."""
        self._database.execute(_SQL["note_wakeups"], {"worker_id": self.worker_id, "wakeups": wakeups})

    def stopping(self, why: str) -> None:
        """Write that this process has begun to stop."""
        _log.info("worker_stopping", worker_id=self.worker_id, why=why)
        self._database.execute(_SQL["note_stopping"], {"worker_id": self.worker_id, "now": None}, "bound_transaction")

    def stopped(self) -> None:
        """Write that this process has stopped. Commands leave no row, and ticks, one every minute, only the last."""
        gone = {"worker_id": self.worker_id, "now": None}
        if self._role == "tick":
            self._database.execute(_SQL["remove_former_ticks"], gone, "bound_transaction")
        goodbye = "remove_worker" if self._role == "run-cycle" else "note_stopped"
        self._database.execute(_SQL[goodbye], gone, "bound_transaction")
        _log.info("worker_stopped", worker_id=self.worker_id)
