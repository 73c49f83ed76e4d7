"""Receipts: fetched, read and settled."""

from __future__ import annotations

from collections.abc import Iterator

from bench.environment import Environment
from bench.measuring import Goal, Row, rate


def rows(env: Environment) -> Iterator[Row]:
    """Send an event, and measure how its receipts are settled."""
    with env.worker(receipt_first_poll_ms=1) as built:
        env.queue(built)
        env.drain(built)
        cycle = built.registry["receipt"]
        cost = env.meter.measure(lambda: env.run(built, cycle, "notifications_confirmed"))
    yield rate("receipts", "receipts, fetched and settled", cost, Goal("postgres_ms_per_1000", 25, "ms PostgreSQL"))
