"""Requests for receipts in tests: how many there were, and when the next is due."""

from __future__ import annotations

from datetime import timedelta

from support.deliveries import put_off_receipts
from support.sending_worker import Relay

MINUTE, HOUR = 60, 3_600
FIRST_MS = 15 * 60_000


def asked(worker: Relay) -> int:
    """Count the receipts that were asked for."""
    return int(worker.sandbox.totals()["receiptsAsked"])


def requests(worker: Relay) -> int:
    """Count the requests for receipts."""
    return int(worker.sandbox.totals()["receiptRequests"])


def ask_later(worker: Relay, name: str) -> None:
    """Put a delivery's next look off for a while."""
    put_off_receipts(worker.conn, [worker.delivery(name)["id"]], timedelta(days=10))


def ask_now(worker: Relay, name: str) -> None:
    """Make a delivery's next look due."""
    put_off_receipts(worker.conn, [worker.delivery(name)["id"]], -timedelta(days=20))
