"""A claim from its taking to its end, on a real database."""

from __future__ import annotations

from uuid import uuid4

from relevo.core.model import Answer, PushRequest
from support.deliveries import add_deliveries, one, states


def test_a_claim_travels_from_due_to_sent(build, conn) -> None:
    """Claim, journal, settle and release: all end sent, unclaimed, with their ticket, and the claim is gone."""
    ids = add_deliveries(conn, 3)
    worker = build()
    claim = worker.claims.claim("dispatch", "default", "bulk")
    assert claim is not None
    assert sorted(claim.ids) == sorted(ids)
    assert one(conn, ids[0])["processing"]
    request = PushRequest(uuid4(), claim.deliveries)
    verdicts = worker.claims.journal(claim, [request])
    assert {verdict.verdict for verdict in verdicts} == {"send"}
    answers = [Answer(d.event_day, d.id, "sent", ticket_id=f"ticket-{d.id}") for d in claim.deliveries]
    assert worker.claims.settle(claim, answers, [request.id]).written == {"sent": 3}
    worker.claims.release(claim)
    assert states(conn) == {"sent": 3}
    row = one(conn, ids[0])
    assert (row["attempt_count"], row["provider_ticket_id"], row["locked_by"]) == (1, f"ticket-{ids[0]}", None)
    assert conn.execute("select count(*) from relevo.claims").fetchone() == (0,)
    assert conn.execute("select count(*) from relevo.push_requests where answered_at is null").fetchone() == (0,)
