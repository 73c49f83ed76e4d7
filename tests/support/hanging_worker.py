"""Something that hangs in a worker with short leases, and what is looked at while it does."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from relevo.operators import fleet
from support.processes import eventually
from support.sending_worker import Relay, beside

SHORT = {"outbox_lease_duration_ms": 4_000, "push_request_timeout_ms": 1_900, "outbox_retry_base_ms": 600_000}
"""What is tried again is so later than any machine takes for a test."""
LASTS = 1.25
"""How many leases a claim lasts here: the heartbeat extends it, and nobody waits for three."""


class Trap:
    """Something that hangs until it is opened, once for each call."""

    def __init__(self) -> None:
        self.caught = 0
        self.free = 0
        self._open = threading.Event()
        self._guard = threading.Lock()

    def __call__(self) -> None:
        """Hang."""
        with self._guard:
            self.caught += 1
        assert self._open.wait(120)
        with self._guard:
            self.free += 1

    def open(self) -> None:
        """Let everything go, now and later."""
        self._open.set()


def tell(worker: Relay, project: str, *names: str, **fields: Any) -> int:
    """Register phones of a project, and enqueue and fan out an event for them."""
    worker.register(*(name for name in names if name not in worker.phones), project=project)
    event_id = worker.enqueue(audience=[worker.phones[name] for name in names], **fields)
    worker.fan_out()
    return event_id


def statuses(worker: Relay, *names: str) -> list[str]:
    """Return the states of the last deliveries to some phones."""
    return [worker.delivery(name)["status"] for name in names]


def problems(worker: Relay) -> str:
    """Return what any other process is told of what hangs in this worker, as of its last heartbeat."""
    found = fleet.status(worker.app.database, worker.app.settings).problems
    return "; ".join(problem for problem in found if "has not returned since" in problem)


def is_told(worker: Relay, what: str) -> None:
    """Wait until health says that something hangs in this worker, and since when."""
    words = f"worker {worker.app.worker.worker_id}: {what} has not returned since 20"
    eventually(lambda: words in problems(worker), f"health tells that {what} hangs")


@contextmanager
def dispatching(worker: Relay) -> Iterator[Counter[str]]:
    """Run dispatch again and again, as a scheduler does, until the block is over and a call was given up; yields what
    the runs counted."""
    counts: Counter[str] = Counter()
    over = threading.Event()

    def run() -> None:
        while not (over.is_set() and counts["calls_given_up"]):
            report = worker.dispatch()
            counts.update(report.counts)
            counts[report.outcome] += 1
            counts[report.error] += 1
            if report.outcome == "idle":
                time.sleep(0.1)  # as a scheduler does after a look in vain

    with beside(run):
        try:
            yield counts
        finally:
            over.set()


def others_flow(worker: Relay, trap: Trap, *names: str, **fields: Any) -> None:
    """Check that new pushes of another project, and of the same one, arrive while something hangs."""
    eventually(lambda: trap.caught, "it hangs")
    tell(worker, "two", *(f"two-{name}" for name in names), **fields)
    tell(worker, "one", *(f"one-{name}" for name in names), **fields)
    waited = [f"{project}-{name}" for project in ("one", "two") for name in names]
    eventually(lambda: set(statuses(worker, *waited)) == {"sent"}, "the others are served")
    assert trap.free == 0
