"""Receipts: fetched, read and settled."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measuring import Goal, Row, rate
from bench.stand import Stand


def rows(stand: Stand) -> Iterator[Row]:
    """Send an event, and measure how its receipts are settled."""
    with stand.worker(receipt_first_poll_ms=1) as built:
        stand.queue(built)
        stand.drain(built)
        cycle = built.registry["receipt"]
        cost = stand.meter.measure(lambda: stand.run(built, cycle, "notifications_confirmed"))
    yield rate("receipts", "receipts, fetched and settled", cost, Goal("postgres_ms_per_1000", 25, "ms PostgreSQL"))
