"""Push services that this process cannot reach: it leaves their pushes to other workers, for longer each time.

A name that does not resolve, a connection that is refused or times out, or a certificate that is not trusted may be the
trouble of this machine alone. Nothing was sent, so another worker can send it at once.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import psycopg
import structlog
from psycopg.types.json import Jsonb

from relevo.core import queries
from relevo.core.errors import DatabaseUnavailableError
from relevo.core.known_services import SERVICES, WITH_HOST
from relevo.core.logs import normalise_error
from relevo.core.model import ReceiptReply, Reply, Ticket
from relevo.core.sending_project import SendingProject
from relevo.database.pool import Database
from relevo.runtime.timing import doubled

_SQL = queries.load("unreachable")
_log = structlog.get_logger("relevo.unreachable")
_CODES = frozenset({"NoConnection", "ConnectTimeout", "ProxyRefused", "NoToken"})
_ONE_ADDRESS = frozenset(SERVICES) - frozenset(WITH_HOST)
"""The push services that all projects reach at one address; a webhook or a browser's service has its own."""
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 1_000, 30_000
_MOST_REPORTED = 50
_LONGEST_REASON = 300


def is_unreached(said: Reply | ReceiptReply | Ticket) -> bool:
    """Return whether no connection to the push service could be opened, so that certainly nothing was sent."""
    state = said.fate if isinstance(said, Ticket) else said.kind
    return state == "not_sent" and said.code in _CODES


def service_of(project: str) -> str:
    """Return what is reached or not: a push service with one address, or else the project alone."""
    provider = SendingProject.parse(project).provider
    return provider if provider in _ONE_ADDRESS else project


@dataclass
class _Unreached:
    reason: str
    since: float
    failures: int = 0
    retry_at: float = 0.0
    is_left: bool = False
    """Whether another worker may reach it."""


class UnreachableServices:
    """The push services that this process cannot reach, in memory and in the worker's row."""

    def __init__(self, database: Database, worker_id: str) -> None:
        self._database = database
        self._worker_id = worker_id
        self._known: dict[str, _Unreached] = {}
        self._guard = threading.Lock()

    def met(self, project: str, reason: str) -> bool:
        """Note that a project's push service could not be reached; return whether another worker may reach it.

        If one may, this process leaves the service alone for a while.
        """
        service = service_of(project)
        asked = {"worker_id": self._worker_id, "service": service}
        others_reach = self._database.execute(_SQL["find_reaching_worker"], asked).fetchone() is not None
        with self._guard:
            now = time.monotonic()
            met = self._known.setdefault(service, _Unreached(reason, now))
            if met.retry_at <= now:  # the requests of one wave are one failure
                met.failures, met.reason = met.failures + 1, reason
                pause_ms = doubled(_FIRST_PAUSE_MS, met.failures, _LONGEST_PAUSE_MS) if others_reach else 0
                met.retry_at = now + pause_ms / 1000
            met.is_left = others_reach
        _log.warning("service_unreachable", service=service, reason=reason, left_to_others=others_reach)
        self._report()
        return others_reach

    def reached(self, project: str) -> None:
        """Note that a project's push service answered."""
        if not self._known:
            return
        with self._guard:
            met = self._known.pop(service_of(project), None)
        if met is not None:
            _log.info("service_reached", service=service_of(project), failures=met.failures)
            self._report()

    def is_left(self, project: str) -> bool:
        """Return whether a project's push service is left to other workers until this process reaches it again."""
        met = self._known.get(service_of(project)) if self._known else None
        return met is not None and met.is_left

    def rest_s(self, project: str) -> float:
        """Return for how many seconds this process leaves a project's push service alone."""
        met = self._known.get(service_of(project)) if self._known else None
        return max(0.0, met.retry_at - time.monotonic()) if met else 0.0

    def _report(self) -> None:
        """Write to the worker's row what operators and other workers read; without that the log has it."""
        now = time.monotonic()
        with self._guard:
            known = [
                {
                    "service": service[:_LONGEST_REASON],
                    "reason": met.reason[:_LONGEST_REASON],
                    "failures": met.failures,
                    "since_s": now - met.since,
                    "retry_s": met.retry_at - now,
                }
                for service, met in list(self._known.items())[:_MOST_REPORTED]
            ]
        try:
            reported = {"worker_id": self._worker_id, "unreachable": Jsonb(known)}
            self._database.execute(_SQL["report_unreachable"], reported, "bound_unflushed")
        except (DatabaseUnavailableError, psycopg.Error) as failed:
            _log.warning("unreachable_not_reported", error=normalise_error(failed, 200))
