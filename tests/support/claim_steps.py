"""What tests of claims do again and again; time is an argument that starts at NOW, today's midnight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg

from relevo.app import App
from relevo.core.model import Answer, Delivery, PushRequest
from relevo.core.statuses import Status
from relevo.cycles.reaper import reap_one
from relevo.delivery.claiming.claim import Claim
from support.deliveries import TODAY, add_deliveries

NOW = datetime.combine(TODAY, datetime.min.time(), UTC)
LATER = NOW + timedelta(days=2)  # every claim taken by the real clock has expired by then
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
LEASE = timedelta(milliseconds=60_000)
HTTP_TIMEOUT = timedelta(milliseconds=10_000)


def add(conn: psycopg.Connection[Any], count: int, **columns: Any) -> list[int]:
    """Insert deliveries that are due at NOW."""
    return add_deliveries(conn, count, **{"due": NOW, **columns})


def take(worker: App, now: datetime | None = NOW, **how: Any) -> Claim:
    """Claim what is due; that something is, is part of the test."""
    claim = worker.claims.claim("dispatch", how.pop("project", "default"), how.pop("lane", "bulk"), now=now, **how)
    assert claim is not None
    return claim


def journal(
    worker: App, claim: Claim, now: datetime | None = NOW, deliveries: Sequence[Delivery] | None = None
) -> PushRequest:
    """Journal one request with these deliveries, or all, of which each may be sent."""
    request = PushRequest(uuid4(), tuple(claim.deliveries if deliveries is None else deliveries))
    verdicts = worker.claims.journal(claim, [request], now)
    assert {v.verdict for v in verdicts} == {"send"}
    assert len(verdicts) == len(request.deliveries)
    return request


def answers(claim: Claim, status: Status = "sent", **values: Any) -> list[Answer]:
    """Give the same answer for each delivery of a claim; a ticket of its own if it was sent."""

    def ticket(d: Delivery) -> str | None:
        return ticket_of(claim, d.id) if status == "sent" else None

    return [Answer(d.event_day, d.id, status, **{"ticket_id": ticket(d), **values}) for d in claim.deliveries]


def ticket_of(claim: Claim, delivery_id: int) -> str:
    """Return the ticket the push service gave a delivery when this claim sent it."""
    return f"ticket-{claim.token.hex[:8]}-{delivery_id}"


def send(worker: App, claim: Claim, status: Status = "sent", now: datetime | None = NOW, **values: Any) -> None:
    """Journal, settle and release a claim whose deliveries all get one answer."""
    request = journal(worker, claim, now)
    settlement = worker.claims.settle(claim, answers(claim, status, **values), [request.id], now)
    assert sum(settlement.written.values()) == len(claim.deliveries)
    worker.claims.release(claim, now)


def reap(worker: App, now: datetime) -> Counter[str]:
    """Take back every claim that has expired by then."""
    total: Counter[str] = Counter()
    while True:
        with worker.database.transaction() as connection:
            taken = reap_one(connection, worker.settings, now)
        if taken is None:
            return total
        total += taken.counts


def claims_in(conn: psycopg.Connection[Any]) -> list[UUID]:
    """List the tokens of the claims that stand."""
    return [row[0] for row in conn.execute("select token from relevo.claims order by claimed_at, token").fetchall()]


def late_tickets_in(conn: psycopg.Connection[Any]) -> list[tuple[int, str]]:
    """List the late tickets that wait."""
    return conn.execute("select delivery_id, ticket_id from relevo.late_tickets order by 1, 2").fetchall()


def chunks_in(conn: psycopg.Connection[Any]) -> list[list[int]]:
    """List the ids of each chunk that waits, the next to be claimed first."""
    return [row[0] for row in conn.execute("select ids from relevo.due_chunks order by due_at, id").fetchall()]


def forget_deliveries(conn: psycopg.Connection[Any]) -> None:
    """Make the next round of a test begin without a delivery, in a queue or out of it."""
    for table in (
        "due_chunks",
        "awaited_receipts",
        "late_tickets",
        "dead_letters",
        "failed_attempts",
        "notification_deliveries",
    ):
        conn.execute(f"delete from relevo.{table}".encode())
