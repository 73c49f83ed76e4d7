"""The versions of event types' texts that this process has read, shared by fan-out, digests and dispatch."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

from psycopg.rows import dict_row

from relevo.core import queries
from relevo.core.wordings import Wording
from relevo.database.pool import Connection

_SQL = queries.load("words")
_MOST_KEPT = 1_000_000
"""How many bytes of patterns stay in memory: read, one takes up to 30 bytes for each of them."""


@dataclass
class Wordings:
    """The versions of types' texts that a process has read, up to a weight; they never change."""

    _known: dict[tuple[str, int], Wording] = field(default_factory=dict)
    """The one that was read last is the last one."""
    _lock: Lock = field(default_factory=Lock)

    def read(self, connection: Connection, event_type: str, version: int) -> Wording | None:
        """Return a version, read once as long as it is kept; None if it is not there."""
        known = self._known.get((event_type, version))
        if known is not None:
            return known
        with connection.cursor(row_factory=dict_row) as cursor:
            asked = {"event_type": event_type, "version": version}
            row = cursor.execute(_SQL["read_wording"], asked).fetchone()
        if row is None:
            return None
        return self._keep((event_type, version), Wording.of_row(row))

    def _keep(self, key: tuple[str, int], wording: Wording) -> Wording:
        with self._lock:
            self._known[key] = wording
            while sum(each.weight for each in self._known.values()) > _MOST_KEPT and len(self._known) > 1:
                del self._known[next(iter(self._known))]
        return wording
