"""Gauges: what the database says of the whole fleet, in one statement and at most every few seconds; and the pool's.

A gauge of the fleet is the same on every replica: `max by (…)`, never a sum. Those of one process say so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import psycopg
import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from relevo.config import Settings
from relevo.core import queries
from relevo.core.errors import DatabaseUnavailableError
from relevo.core.logs import lines_lost, normalise_error
from relevo.core.version import __version__
from relevo.database.pool import Database

_SQL = queries.load("gauges")
_PARTS = ("read_queue_gauges", "read_project_gauges", "read_fleet_gauges")
_log = structlog.get_logger("relevo.operators.gauges")
_FRESH_S = 10.0
_AGAIN_S = 1.0
_FLEET = "Of the whole fleet, the same on every replica: take the max, not the sum."
_OWN = "Of this process: add up all replicas."
_MIN = "Of this process: take the min."
BOUNDS = {"most": 10_000, "most_chunks": 500, "most_deltas": 50_000, "most_labels": 200}
"""Beyond these nothing is read: a gauge costs the same, however much waits."""
WATCHED = (
    "due_chunks",
    "claims",
    "awaited_receipts",
    "event_progress",
    "event_progress_deltas",
    "delivery_counts",
    "projects",
    "workers",
    "cycle_state",
    "push_tallies",
    "notification_events",
)
"""The tables whose dead rows would slow down the queue."""


class Gauge(NamedTuple):
    """The value of a gauge, and its labels."""

    says: str
    labels: tuple[str, ...] = ()


GAUGES = {
    "queue_deliveries": Gauge("Deliveries by status, without those of archived events.", ("status",)),
    "queue_due_deliveries": Gauge("Due deliveries, counted up to 500 chunks of each lane.", ("project", "lane")),
    "queue_quiet_deliveries": Gauge(
        "Deliveries that wait for the end of quiet hours, counted up to 500 chunks of each lane.", ("project", "lane")
    ),
    "queue_oldest_due_seconds": Gauge("For how long the oldest due delivery has been due.", ("project", "lane")),
    "claims": Gauge("Claims held by workers, or expired and waiting for a reaper.", ("state",)),
    "claimed_deliveries": Gauge("Deliveries in claims.", ("state", "cycle")),
    "workers": Gauge(
        "Processes that run cycles: late after half a lease without a heartbeat, silent after a lease, lost for "
        "an hour after that.",
        ("state",),
    ),
    "listeners_degraded": Gauge("Workers that hear no wake-ups and poll instead."),
    "hung_calls": Gauge("Calls of your own code that hung, were given up and have not returned."),
    "service_unreachable": Gauge(
        "1 while a worker cannot reach a push service; other workers send meanwhile, if there are any.",
        ("hostname", "service"),
    ),
    "worker_silent_seconds": Gauge(
        "For how long a worker of a machine has not been seen, once three heartbeats are missing, until it is "
        "seen, another starts there, or 15 minutes pass.",
        ("hostname",),
    ),
    "disk_full": Gauge(
        "1 while a worker cannot write to a folder (temporary files, ARCHIVE_FOLDER) or its log: its disk is full.",
        ("hostname", "place"),
    ),
    "clock_skew_seconds": Gauge(
        "By how much the clock of a worker's machine differs from the database's.", ("hostname",)
    ),
    "events_waiting": Gauge("Events that wait for their fan-out, counted up to 10,000."),
    "events_oldest_waiting_seconds": Gauge("For how long the oldest event has waited for the end of its fan-out."),
    "events_held": Gauge("Events that the runaway brake holds, counted up to 10,000."),
    "digests_oldest_due_seconds": Gauge("For how long the oldest digest has been due, until it is closed."),
    "receipts_oldest_due_seconds": Gauge("For how long the oldest receipt has been due.", ("project",)),
    "project_rate_share_ratio": Gauge("The share of its rate that a project may use; a 429 halves it.", ("project",)),
    "project_rate_tokens": Gauge("Pushes that the rate bucket allows at once.", ("project", "lane")),
    "project_breaker_open": Gauge("1 while the project's breaker is open and only probes are sent.", ("project",)),
    "project_brake_active": Gauge(
        "1 while Relevo disables no token, because too many were reported as gone.", ("project",)
    ),
    "news_waiting": Gauge("News of a subscription that wait to be read, or to be sent.", ("subscription",)),
    "news_dropped": Gauge("News of a subscription that were dropped unread.", ("subscription",)),
    "news_oldest_on_their_way_seconds": Gauge(
        "For how long the oldest of 500 news has been on its way to a webhook that has not accepted it yet.",
        ("subscription", "webhook"),
    ),
    "news_breaker_open": Gauge("1 while a webhook gets only probes.", ("subscription", "webhook")),
    "cycle_quiet_seconds": Gauge("How long ago a cycle last looked for work.", ("cycle", "source")),
    "cycle_failures": Gauge("How many rounds in a row have failed.", ("cycle", "source")),
    "cycle_paused": Gauge("1 while an operator has paused the cycle.", ("cycle", "source")),
    "source_age_seconds": Gauge("How long ago a source was last read.", ("source",)),
    "source_problems": Gauge("Problems of a source that last until somebody corrects them.", ("source",)),
    "archive_waiting_months": Gauge("Months that left the hot tables and are not verified in the store."),
    "archive_lag_seconds": Gauge("For how long the oldest of these months has waited."),
    "table_dead_tuples": Gauge("Dead rows of the queue's tables.", ("table",)),
    "oldest_snapshot_seconds": Gauge(
        "Age of the oldest transaction that keeps dead rows, among those that this role may see."
    ),
    "oldest_prepared_seconds": Gauge("Age of the oldest prepared transaction."),
    "database_copied": Gauge("1 while the database looks like a copy and nothing is sent."),
}
_POOL = {
    "relevo_pool_size_connections": ("pool_size", "Connections of the pool."),
    "relevo_pool_available_connections": ("pool_available", "Connections of the pool that nobody uses."),
    "relevo_pool_waiting_connections": ("requests_waiting", "Callers that wait for a connection."),
}
"""Counters of the pool, by the name of its gauge."""

PROCESS_GAUGES = {
    "relevo_database_up": Gauge("1 if this process reached PostgreSQL at its last read of the gauges."),
    "relevo_worker_info": Gauge("Always 1; the labels name the process and its version.", ("worker", "version")),
    "relevo_log_lines_lost_total": Gauge("Lines of its log that could not be written: the disk may be full."),
    **{name: Gauge(says) for name, (_, says) in _POOL.items()},
}
"""The gauges and the counter that each process reports of itself."""


class Gauges(Collector):
    """Reads the fleet's gauges, remembers them for a few seconds, and adds this process's own."""

    def __init__(self, database: Database, settings: Settings, worker_id: str) -> None:
        self._database = database
        self._settings = settings
        self._worker_id = worker_id
        self._guard = threading.Lock()
        self._read_at = float("-inf")
        self._rows: list[tuple[str, list[str], float]] = []
        self._up = False

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Name no metric beforehand: that would ask the database."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield every gauge; without the database only those of this process."""
        rows = self._fleet()
        yield from self._own()
        for name, gauge in GAUGES.items():
            family = GaugeMetricFamily(f"relevo_{name}", f"{gauge.says} {_FLEET}", labels=gauge.labels)
            for _, labels, value in (row for row in rows if row[0] == name):
                family.add_metric(labels, value)
            yield family

    def _fleet(self) -> list[tuple[str, list[str], float]]:
        """Return what was read within the last seconds; one scrape reads for all that come at once."""
        with self._guard:
            age_s = time.monotonic() - self._read_at
            if age_s > (_FRESH_S if self._up else _AGAIN_S):
                self._rows = self._read()
                self._read_at = time.monotonic()
            return self._rows

    def _read(self) -> list[tuple[str, list[str], float]]:
        asked = BOUNDS | {"watched": [f"relevo.{name}" for name in WATCHED], "instance": self._settings.relevo_instance}
        try:
            with self._database.transaction() as connection:
                rows = [row for name in _PARTS for row in connection.execute(_SQL[name], asked).fetchall()]
        except (DatabaseUnavailableError, psycopg.Error) as error:
            if self._up:
                _log.warning("gauges_not_read", error=normalise_error(error))
            self._up = False
            return []
        self._up = True
        return [(name, labels, float(value)) for name, labels, value in rows]

    def _own(self) -> Iterator[Metric]:
        """Yield the gauges of this process: whether it reaches the database, who it is, and its pool."""
        up = PROCESS_GAUGES["relevo_database_up"]
        yield GaugeMetricFamily("relevo_database_up", f"{up.says} {_MIN}", float(self._up))
        about = PROCESS_GAUGES["relevo_worker_info"]
        info = GaugeMetricFamily("relevo_worker_info", f"{about.says} {_OWN}", labels=about.labels)
        info.add_metric([self._worker_id, __version__], 1.0)
        yield info
        lost = PROCESS_GAUGES["relevo_log_lines_lost_total"]
        yield CounterMetricFamily("relevo_log_lines_lost", f"{lost.says} {_OWN}", lines_lost())
        stats = self._database.pool_stats()
        for name, (key, says) in _POOL.items():
            yield GaugeMetricFamily(name, f"{says} {_OWN}", float(stats.get(key, 0)))
