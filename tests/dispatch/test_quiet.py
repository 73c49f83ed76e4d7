"""Quiet hours: what comes meanwhile waits for their end, goes silently or expires, as its type says; and it is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from relaying import Relay, token

from relevo.client import quiet, verbs
from relevo.client.values import Event, Installation, Matching, Owners

AUDIENCES: dict[str, Any] = {"everyone": "everyone", "matching": Matching(), "owners": Owners("ana", "eva")}


def window(begins: float, ends: float) -> str:
    """Return a window of UTC that begins and ends in so many hours."""
    times = [datetime.now(UTC) + timedelta(hours=each) for each in (begins, ends)]
    return "-".join(f"{each:%H:%M}" for each in times)


@pytest.fixture
def worker(relay: Any) -> Relay:
    """A relay with a phone each of ana, who has quiet hours now and for two hours, and of eva, who has none."""
    made: Relay = relay()
    quiet.set_quiet(made.conn, [window(-1, 2)], owner="ana")
    for name in ("ana", "eva"):
        made.phones[name] = verbs.register(made.conn, Installation(token(name), owner=name))
    return made


def send(worker: Relay, audience: Any = "everyone", **more: Any) -> int:
    """Enqueue an event, fan it out, and send what may be sent."""
    key = str(len(worker.rows("select id from relevo.notification_events")))
    told = verbs.enqueue(worker.conn, Event("notice", key, title="Hello", audience=audience, **more))
    worker.fan_out()
    worker.dispatch()
    return told.event_id


def received(worker: Relay) -> list[int]:
    """Return how many pushes ana and eva got."""
    return [worker.received(name) for name in ("ana", "eva")]


@pytest.mark.parametrize("audience", AUDIENCES.values(), ids=AUDIENCES)
def test_what_comes_in_quiet_hours_waits_for_their_end(worker: Relay, audience: Any) -> None:
    """By every way of fan-out it is due within some minutes after they end; then it is sent, with no attempt spent before."""
    send(worker, audience)
    assert received(worker) == [0, 1]
    due_in = worker.delivery("ana")["next_attempt_at"] - datetime.now(UTC)
    assert timedelta(hours=2, minutes=-2) < due_in < timedelta(hours=2, minutes=5)
    assert worker.delivery("ana")["attempt_count"] == 0
    worker.travel(hours=2, minutes=6)
    worker.dispatch()
    assert received(worker) == [1, 1]
