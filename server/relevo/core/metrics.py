"""The counters of one process's work, in Prometheus's form.

Counters and histograms are this process's: add those of all replicas up. Gauges of the fleet are read from the database
(`relevo.operators.gauges`) and are the same on every replica: take the largest, never the
sum. Every HELP says which it is.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

disable_created_metrics()  # type: ignore[no-untyped-call] # else a second line for each, which nobody reads
_MOST_CODES = 100
_OWN = "Of this process: add up all replicas."
_RUN_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 600, 1800)
_REQUEST_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_STALE_S = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class Metrics:
    """The counters of one process, and whatever else is shown with them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._codes: dict[str, set[str]] = {}
        self.runs = self._counter("relevo_runs", "Runs with a row, by outcome.", "cycle", "source", "outcome")
        self.rounds = self._counter("relevo_cycle_rounds", "Rounds of a cycle, idle ones included.", "cycle", "source")
        self.run_seconds = self._histogram(
            "relevo_run_duration_seconds", "Duration of runs with work.", _RUN_S, "cycle"
        )
        self.run_items = self._counter("relevo_run_items", "Counts of runs, by name.", "cycle", "item")
        self.reaper_runs = self._counter("relevo_reaper_runs", "Rounds of the reaper.")
        self.reaper_recovered = self._counter(
            "relevo_reaper_recovered_deliveries", "Deliveries that the reaper returned to the queue."
        )
        self.reaper_stale = self._histogram(
            "relevo_reaper_stale_seconds", "How long a claim was expired when the reaper took it back.", _STALE_S
        )
        self.workers_lost = self._counter("relevo_workers_lost", "Workers that died without reporting their end.")
        self.requests = self._counter(
            "relevo_push_requests", "Requests to push services, by outcome.", "provider", "outcome"
        )
        self.request_seconds = self._histogram(
            "relevo_push_request_duration_seconds", "Duration of requests to push services, by kind of request.",
            _REQUEST_S, "provider", "kind",
        )  # fmt: skip
        self.tickets = self._counter(
            "relevo_tickets", "Tickets by code; ok: the push service accepted the push.", "provider", "code"
        )
        self.receipts = self._counter(
            "relevo_receipts",
            "Receipts by code; ok: Apple's or Google's service accepted the push.",
            "provider",
            "code",
        )
        self.retries = self._counter("relevo_retries", "Deliveries that Relevo tries again, by code.", "code")
        self.reactions = self._counter(
            "relevo_reactions", "Opened pushes and read events, of types that count them.", "kind"
        )
        self.http_seconds = self._histogram(
            "relevo_http_request_duration_seconds", "Duration of Relevo's own HTTP answers.",
            _REQUEST_S, "method", "route", "status",
        )  # fmt: skip

        self.http_refused = self._counter(
            "relevo_http_refused", "Refused requests of unproven callers, by reason.", "reason"
        )

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(name, f"{says} {_OWN}", labels, registry=self.registry)

    def _histogram(self, name: str, says: str, buckets: Iterable[float], *labels: str) -> Histogram:
        return Histogram(name, f"{says} {_OWN}", labels, registry=self.registry, buckets=tuple(buckets))

    def render(self) -> bytes:
        """Return everything in Prometheus's text form."""
        return generate_latest(self.registry)

    def count_round(self, cycle: str, source: str, seconds: float, counts: Mapping[str, int]) -> None:
        """Count a look for work with what it found, and of a run with work how long it took."""
        self.rounds.labels(cycle, source).inc()
        found = {name: count for name, count in counts.items() if count > 0}
        for name, count in found.items():
            self.run_items.labels(cycle, name).inc(count)
        if found:
            self.run_seconds.labels(cycle).observe(seconds)
        if cycle == "reaper":
            self.reaper_runs.inc()
            self.reaper_recovered.inc(found.get("deliveries_recovered", 0))
            self.workers_lost.inc(found.get("workers_lost", 0))

    def count_answer(self, method: str, route: str, status: str, seconds: float) -> None:
        """Count an answer of our own HTTP face."""
        self.http_seconds.labels(method, route, status).observe(seconds)

    def count_refused(self, reason: str) -> None:
        """Count a request of an unproven caller that was refused."""
        self.http_refused.labels(reason).inc()

    def count_codes(self, counter: Counter, codes: Iterable[str | None], *labels: str) -> None:
        """Count codes that others made up, the first hundred by their names: each is a line for ever."""
        known = self._codes.setdefault(str(counter), set())
        for code, count in Counts(code or "ok" for code in codes).items():
            if len(known) < _MOST_CODES:
                known.add(code)
            counter.labels(*labels, code if code in known else "other").inc(count)
