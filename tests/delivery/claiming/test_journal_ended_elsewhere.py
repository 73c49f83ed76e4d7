"""Claims whose deliveries were ended by somebody else: the holder learns why before its next request."""

from __future__ import annotations

from uuid import uuid4

import pytest

from relevo.client import verbs
from relevo.client.values import Event, Installation
from relevo.core.errors import OwnershipLostError
from relevo.core.model import Answer, PushRequest


@pytest.fixture
def held(build, conn):
    """A worker, its claim of one delivery, and the event behind it."""
    verbs.register(conn, Installation("ExponentPushToken[a]"))
    event_id = verbs.enqueue(conn, Event("notice", "1", "Hello", audience="everyone")).event_id
    worker = build()
    worker.runner.run(worker.registry["fanout"], "manual")
    claim = worker.claims.claim("dispatch", "default", "bulk")
    assert claim is not None
    return worker, claim, event_id


def test_a_deleted_event_is_not_sent(held, conn) -> None:
    """After `delete` the journal says that the event is gone, no request is recorded, and settling that writes nothing."""
    worker, claim, event_id = held
    assert verbs.delete(conn, [event_id]) == 1
    verdicts = worker.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)])
    assert [verdict.verdict for verdict in verdicts] == ["event_gone"]
    assert conn.execute("select count(*) from relevo.push_requests").fetchone() == (0,)
    gone = [Answer(v.event_day, v.id, "cancelled", attempted=False, error_code="event_gone") for v in verdicts]
    assert worker.claims.settle(claim, gone, finish=True).written == {}
    assert conn.execute("select count(*) from relevo.claims").fetchone() == (0,)


def test_a_deleted_event_whose_claim_was_taken_back_is_not_found(held, conn) -> None:
    """After `delete` and a reaper the next journal raises `not_found`: nothing is sent."""
    worker, claim, event_id = held
    assert verbs.delete(conn, [event_id]) == 1
    conn.execute("delete from relevo.claims")
    with pytest.raises(OwnershipLostError) as lost:
        worker.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)])
    assert lost.value.reason == "not_found"


def test_a_completed_event_is_not_sent(held, conn) -> None:
    """After `complete` the journal says so, and no request is recorded."""
    worker, claim, event_id = held
    assert verbs.complete(conn, event_id, "read in the app")
    verdicts = worker.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)])
    assert [verdict.verdict for verdict in verdicts] == ["event_ended"]
    assert conn.execute("select count(*) from relevo.push_requests").fetchone() == (0,)


def test_what_was_finished_elsewhere_is_already_completed(held, conn) -> None:
    """Deliveries that were ended after the claim was taken back tell its former holder so."""
    worker, claim, _ = held
    conn.execute("update relevo.notification_deliveries set status = 'cancelled', completed_at = now()")
    conn.execute("delete from relevo.claims")
    with pytest.raises(OwnershipLostError) as lost:
        worker.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)])
    assert lost.value.reason == "already_completed"
