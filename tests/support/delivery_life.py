"""A delivery's whole life in a few lines, for tests that vary the ground it stands on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg

from relevo.app import App
from relevo.core.model import Answer, PushRequest
from relevo.cycles import reaper
from support.deliveries import add_deliveries, one, states


def live_through(worker: App, conn: psycopg.Connection[Any]) -> None:
    """One delivery is claimed, kept by a heartbeat, journalled and settled; its neighbour is handed back and reaped."""
    sent, left = add_deliveries(conn, 2)
    claim = worker.claims.claim("dispatch", "default", "bulk")
    assert claim is not None
    assert sorted(claim.ids) == [sent, left]
    before = _leased_until(conn)
    worker.heartbeat.beat()
    assert _leased_until(conn) > before
    request = PushRequest(uuid4(), tuple(d for d in claim.deliveries if d.id == sent))
    assert [(v.id, v.verdict) for v in worker.claims.journal(claim, [request])] == [(sent, "send")]
    answers = [Answer(d.event_day, d.id, "sent", ticket_id="ticket") for d in request.deliveries]
    assert worker.claims.settle(claim, answers, [request.id]).written == {"sent": 1}
    assert +worker.claims.release(claim) == {"pending": 1}

    again = worker.claims.claim("dispatch", "default", "bulk")
    assert again is not None
    assert again.ids == [left]
    late = datetime.now(UTC) + timedelta(days=1)
    with worker.database.transaction() as connection:
        taken = reaper.reap_one(connection, worker.settings, late)
    assert taken is not None
    assert (taken.counts["claims_reaped"], taken.counts["deliveries_recovered"]) == (1, 1)
    worker.heartbeat.beat()
    assert again.loss is not None
    assert again.loss[0] == "taken_by_another_worker"
    assert states(conn) == {"sent": 1, "pending": 1}
    assert one(conn, left)["lapse_count"] == 1


def _leased_until(conn: psycopg.Connection[Any]) -> datetime:
    [(until,)] = conn.execute("select leased_until from relevo.claims").fetchall()
    return until
