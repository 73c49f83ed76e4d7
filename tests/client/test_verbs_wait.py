"""Wait: until nothing of an event is left to send, or to confirm, or the time is over."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
import pytest

import relevo
from relevo import Event
from relevo.core.errors import InvalidInputError
from relevo.core.model import Answer
from support.phones import add_phones, fan_out
from support.processes import PATIENCE_S


def settle(app: Any, status: str) -> None:
    """Settle everything that is due, as dispatch will."""
    claim = app.claims.claim("dispatch", "default", "bulk")
    assert claim is not None
    ticket = "ticket" if status == "sent" else None
    app.claims.settle(claim, [Answer(d.event_day, d.id, status, ticket_id=ticket) for d in claim.deliveries])
    app.claims.release(claim)


@pytest.mark.parametrize("autocommit", [True, False])
class TestWait:
    """On connections of both kinds."""

    def test_until_nothing_is_left_to_send(self, dsn: str, conn, build, autocommit: bool) -> None:
        """It sees the event through fan-out and settlement and returns as soon as nothing is left."""
        add_phones(conn, 3)
        with psycopg.connect(dsn, autocommit=autocommit) as caller:
            made = relevo.enqueue(caller, Event("t", "1", "t", audience="everyone"))
            caller.commit()
            worker = build()

            def work() -> None:
                time.sleep(0.2)
                fan_out(worker)
                time.sleep(0.2)
                settle(worker, "sent")

            working = threading.Thread(target=work)
            began = time.monotonic()
            working.start()
            status = relevo.wait(caller, made.event_id, timeout_s=2 * PATIENCE_S)
            took = time.monotonic() - began
            working.join(PATIENCE_S)
            assert status is not None
            assert (status.state, status.deliveries) == ("fanned", {"sent": 3})
            assert 0.2 < took < PATIENCE_S
            assert caller.info.transaction_status == psycopg.pq.TransactionStatus.IDLE

    def test_the_time_is_over(self, dsn: str, conn, autocommit: bool) -> None:
        """When the time is over it returns how far the event is, and not much later."""
        made = relevo.enqueue(conn, Event("t", "1", "t", audience="everyone"))
        with psycopg.connect(dsn, autocommit=autocommit) as caller:
            began = time.monotonic()
            status = relevo.wait(caller, made.event_id, timeout_s=0.3)
            assert time.monotonic() - began < PATIENCE_S / 2
            assert status is not None
            assert status.left_to_send
            assert caller.info.transaction_status == psycopg.pq.TransactionStatus.IDLE

    def test_not_inside_a_transaction(self, dsn: str, autocommit: bool) -> None:
        """An event that is not committed can never be sent: waiting for it is refused, and the transaction stands."""
        with psycopg.connect(dsn, autocommit=autocommit) as caller, caller.transaction():
            made = relevo.enqueue(caller, Event("t", "1", "t", audience="everyone"))
            with pytest.raises(InvalidInputError, match="outside a transaction"):
                relevo.wait(caller, made.event_id)
            assert relevo.get(caller, made.event_id) is not None

    def test_what_is_not_there(self, dsn: str, autocommit: bool) -> None:
        """A missing event is None at once."""
        with psycopg.connect(dsn, autocommit=autocommit) as caller:
            began = time.monotonic()
            assert relevo.wait(caller, 4711, timeout_s=2 * PATIENCE_S) is None
            assert time.monotonic() - began < PATIENCE_S
            assert relevo.get(caller, 4711) is None


class TestWhatIsLeft:
    """What counts as left."""

    def test_confirmed_is_more_than_sent(self, conn, build) -> None:
        """`until="confirmed"` waits for the receipts too."""
        add_phones(conn, 2)
        made = relevo.enqueue(conn, Event("t", "1", "t", audience="everyone"))
        app = build()
        fan_out(app)
        settle(app, "sent")
        sent = relevo.wait(conn, made.event_id, timeout_s=5)
        assert sent is not None
        assert not sent.left_to_send
        unsure = relevo.wait(conn, made.event_id, timeout_s=0.2, until="confirmed")
        assert unsure is not None
        assert unsure.left_to_confirm

    def test_a_retry_is_left_to_send(self, conn, build) -> None:
        """A delivery that is to be tried again is not through."""
        add_phones(conn, 1)
        made = relevo.enqueue(conn, Event("t", "1", "t", audience="everyone"))
        app = build()
        fan_out(app)
        settle(app, "retryable")
        status = relevo.get(conn, made.event_id)
        assert status is not None
        assert (status.deliveries, status.left_to_send) == ({"retryable": 1}, True)

    def test_a_cancelled_event_is_through_once_it_is_swept(self, conn, build) -> None:
        """Cancelled before its fan-out nothing is left; with open deliveries they are swept first."""
        add_phones(conn, 1)
        app = build()
        early, late = (relevo.enqueue(conn, Event("t", key, "t", audience="everyone")).event_id for key in "12")
        relevo.cancel(conn, early)
        status = relevo.wait(conn, early, timeout_s=5)
        assert status is not None
        assert (status.state, status.left_to_send) == ("cancelled", False)
        fan_out(app)
        relevo.cancel(conn, late)
        status = relevo.get(conn, late)
        assert status is not None
        assert status.left_to_send
        fan_out(app)
        status = relevo.wait(conn, late, timeout_s=5)
        assert status is not None
        assert status.deliveries == {"cancelled": 1}

    def test_the_raw_answer_tells_the_rest(self, conn) -> None:
        """What is not a field of its own is in `raw`, as the SQL function tells it."""
        made = relevo.enqueue(conn, Event("t", "1", "Title", "Body", category="c", audience="everyone"))
        status = relevo.get(conn, made.event_id)
        assert status is not None
        assert (status.type, status.key, status.deliveries) == ("t", "1", {})
        reported = (
            status.raw["title"],
            status.raw["body"],
            status.raw["category"],
            status.raw["audience"],
            status.raw["lane"],
        )
        assert reported == ("Title", "Body", "c", "everyone", "bulk")
