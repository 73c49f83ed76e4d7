"""Leases of connections: how many requests of a project this worker may have under way at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID, uuid4

import structlog

from relevo.config import Settings
from relevo.core import queries
from relevo.core.model import LossReason
from relevo.database.arrays import text_array
from relevo.database.pool import Connection, Database
from relevo.runtime.heartbeat import Heartbeat, Loss, Renewed

_SQL = queries.load("projects")
_log = structlog.get_logger("relevo.projects")

User = Literal["dispatch", "receipt"]


class Share(NamedTuple):
    """This worker's share of a project's connections, and since when, unless an earlier lease goes on."""

    connections: int
    leased_at: float | None = None


@dataclass(eq=False)
class ConnectionLease:
    """This worker's share of a project's connections, which its heartbeat keeps while they are used."""

    project: str
    lease_ms: int
    connections: int
    taken_at: float
    """When the request for the share began."""
    since: float
    """When this process last knew that the whole lease lay before it."""
    key: UUID = field(default_factory=uuid4)

    def renewed(self, since: float) -> None:
        """Learn that the heartbeat extended it, from a moment of the monotonic clock on."""
        self.since = since

    def lose(self, reason: LossReason, detail: str) -> None:
        """Learn that others may have it."""
        self.connections = 0
        _log.warning("connections_lost", project=self.project, reason=reason, detail=detail)

    def lasts(self, needed_ms: int) -> bool:
        """Return whether so much of it is left."""
        return self.connections > 0 and time.monotonic() + needed_ms / 1000 <= self.since + self.lease_ms / 1000


class PoolUse(NamedTuple):
    """How many requests of a pool are in flight, and how many may be at once."""

    in_flight: int = 0
    capacity: int = 0


UNUSED = PoolUse()


class ConnectionLeases:
    """This worker's leases, which its heartbeat keeps while a cycle uses them."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        worker_id: str,
        heartbeat: Heartbeat,
        most: Callable[[str], int],
    ) -> None:
        self._most = most
        self._database = database
        self._settings = settings
        self._worker_id = worker_id
        self._heartbeat = heartbeat
        self._leased: dict[str, ConnectionLease] = {}
        self._users: dict[str, set[User]] = {}
        self._guard = threading.Lock()

    def use(self, project: str, user: User) -> None:
        """Note that a cycle uses a project's connections."""
        with self._guard:
            users, lease = self._users.setdefault(project, set()), self._leased.get(project)
            if lease is not None and lease.connections and not users:
                self._heartbeat.keep(lease.key, lease, self.renew)
            users.add(user)

    def leased_lately(self, project: str, now: datetime | None = None) -> int:
        """Return how many connections were leased a moment ago; 0 if it is longer ago."""
        lease = self._leased.get(project)
        if lease is None or now is not None:
            return 0
        lately = time.monotonic() - lease.taken_at < min(1.0, self._settings.outbox_lease_duration_ms / 4000)
        return lease.connections if lately else 0

    def take(self, connection: Connection, project: str, now: datetime | None, *, pool: PoolUse, began: float) -> Share:
        """Take our share; while more than that may be under way, others must not have the difference yet.

        What waits in the pool may begin before the pool is made smaller. A new lease counts from `began`, before its
        transaction.
        """
        if leased := self.leased_lately(project, now):
            return Share(leased)
        lease = self._leased.get(project)
        may_begin = min(pool.capacity, lease.connections) if lease is not None and lease.lasts(0) else 0
        under_way = max(pool.in_flight, may_begin)
        asked = self.parameters(project) | {"now": now, "under_way": under_way}
        row = connection.execute(_SQL["lease_connections"], asked).fetchone()
        if row is None:
            return Share(0)
        return Share(int(row[0]), began if row[0] >= under_way else None)

    def parameters(self, project: str) -> dict[str, Any]:
        """Return what the statements take that lease connections."""
        settings = self._settings
        return {
            "project": project,
            "worker_id": self._worker_id,
            "most": self._most(project),
            "lease_ms": settings.outbox_lease_duration_ms,
        }

    def keep(self, project: str, share: Share) -> None:
        """Remember, once it is committed, which share was taken, and have the heartbeat keep it."""
        connections, leased_at = share
        if not connections or leased_at is None:
            return
        lease = self._leased.get(project)
        if lease is not None and not lease.lasts(0):  # a beat under way may still find that one lost
            self._heartbeat.drop(lease.key)
            lease = None
        if lease is None:
            lease_ms = self._settings.outbox_lease_duration_ms
            lease = self._leased[project] = ConnectionLease(project, lease_ms, connections, leased_at, leased_at)
        lease.connections, lease.taken_at, lease.since = connections, leased_at, leased_at
        self._heartbeat.keep(lease.key, lease, self.renew)

    def renew(self, connection: Connection, leases: Mapping[UUID, ConnectionLease]) -> Renewed:
        """Extend leases of connections, inside the heartbeat's transaction; what has run out stays so."""
        asked = self.parameters("") | {"projects": text_array(lease.project for lease in leases.values())}
        standing = dict(connection.execute(_SQL["renew_connections"], asked).fetchall())
        why = "Their lease ran out."
        lost = [Loss(key, "not_found", why) for key, lease in leases.items() if lease.project not in standing]
        extended = [lease for lease in leases.values() if standing.get(lease.project)]
        return Renewed(lost, extended, locked=len(leases) - len(lost) - len(extended))

    def may_connect(self, project: str) -> bool:
        """Return, in the last moment before a request, whether a connection is leased for as long as it may take."""
        lease = self._leased.get(project)
        return lease is not None and lease.lasts(self._settings.push_request_timeout_ms)

    def is_scarce(self, project: str) -> bool:
        """Return whether this worker has a single connection of a project: others may have none."""
        lease = self._leased.get(project)
        return lease is not None and lease.connections == 1

    def drop(self, in_flight: Mapping[str, int], user: User) -> None:
        """Give back this worker's connections of some projects, once neither cycle uses them any more.

        While requests that hang may still have theirs, of which `in_flight` says how many there are, they stay this
        worker's until their lease ends.
        """
        with self._guard:
            free: list[str] = []
            for project, going in in_flight.items():
                users = self._users.get(project, set())
                users.discard(user)
                lease = self._leased.get(project)
                if lease is not None and not users:
                    self._heartbeat.drop(lease.key)
                if not users and not going:
                    self._leased.pop(project, None)
                    free.append(project)
            if free:
                dropped = {"worker_id": self._worker_id, "projects": text_array(sorted(free))}
                self._database.execute(_SQL["drop_connections"], dropped, "bound_relaxed")
