"""Claims that were lost: when they were taken back, and what tests do with them."""

from __future__ import annotations

from uuid import uuid4

from relevo.core.model import PushRequest
from support.claim_steps import HTTP_TIMEOUT, LEASE, NOW

REAPED_AT = NOW + LEASE
RESEND_AT = REAPED_AT + HTTP_TIMEOUT
PATIENT = {"database_lock_timeout_ms": 15_000, "database_statement_timeout_ms": 16_000}


def ask(worker, claim, now):
    """Journal a claim of one delivery and return what the journal says, and the request it wrote, if it did."""
    request = PushRequest(uuid4(), claim.deliveries)
    (verdict,) = worker.claims.journal(claim, [request], now)
    return verdict, request


def receipt_says_try_again(conn, delivery, now):
    """Do what the receipt cycle does when the provider asks for another try."""
    conn.execute("delete from relevo.awaited_receipts where %s = any (ids)", [delivery])
    again = "update relevo.notification_deliveries set status = 'retryable' where id = %s and status = 'sent'"
    assert conn.execute(again, [delivery]).rowcount == 1
    queue(conn, delivery, now)


def queue(conn, delivery, now):
    """Put a delivery that was opened again into the queue."""
    put = """select relevo.queue_deliveries(array[d.event_day], array[d.id], array[%s::timestamptz])
               from relevo.notification_deliveries d where d.id = %s"""
    assert conn.execute(put, [now, delivery]).fetchone() == (1,)


def awaited_in(conn):
    """List the deliveries whose receipts are awaited, with their tickets."""
    awaited = (
        "select u.id, u.ticket from relevo.awaited_receipts r cross join unnest(r.ids, r.tickets) as u(id, ticket)"
    )
    return conn.execute(awaited).fetchall()


def dead_letters_in(conn):
    """List the deliveries that a redrive would open."""
    return [row[0] for row in conn.execute("select delivery_id from relevo.dead_letters order by 1").fetchall()]


def progress_in(conn):
    """Return by how much the counts of deliveries per status have changed."""
    told = "select status, sum(deliveries)::int from relevo.event_progress_deltas group by status having sum(deliveries) <> 0"
    return dict(conn.execute(told).fetchall())
