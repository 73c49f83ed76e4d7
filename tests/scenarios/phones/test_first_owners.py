"""A phone without owner that gets one keeps what waits: the same person logged in. The second owner gets none of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo.client import verbs
from relevo.client.values import Installation, Matching, Owners, TenderMatching, TenderPreference
from support.sending_worker import Relay, token

IN_AN_HOUR = timedelta(hours=1)


@pytest.fixture
def worker(relay: Any) -> Relay:
    """A relay with two phones that have no owner."""
    made: Relay = relay()
    made.register("first", "second")
    return made


def log_in(worker: Relay, *owners: str | None) -> None:
    """Register the first phone for one owner after another; the second phone is its first owner's, and stays that one's."""
    for owner in owners:
        phone = {"installation_id": str(worker.phones["first"]), "owner": owner}
        worker.conn.execute("select relevo.register_installation(%s)", [Jsonb(phone)])
    phone = {"installation_id": str(worker.phones["second"]), "owner": owners[0]}
    worker.conn.execute("select relevo.register_installation(%s)", [Jsonb(phone)])


def titles(worker: Relay, owner: str) -> list[str]:
    """Return the titles in an owner's inbox."""
    return [item.title for item in relevo.inbox(worker.conn, owner=owner).items]


def rule(worker: Relay, event: int) -> str:
    """Return by which rule the first phone gets an event, or not."""
    return verbs.explain(worker.conn, event, worker.phones["first"]).rule


@pytest.mark.parametrize("audience", ["phones", "matching"])
@pytest.mark.parametrize("last", ["bea", None])
def test_what_waits_goes_to_the_first_owner_alone(worker: Relay, audience: str, last: str | None) -> None:
    """What was made before anybody logged in ends once ana passes the phone on, and goes to the phone that ana keeps."""
    event = worker.enqueue(audience=Matching() if audience == "matching" else list(worker.phones.values()))
    worker.fan_out()
    log_in(worker, "ana", last)
    assert rule(worker, event) == "owner_changed"
    worker.drain()
    found = worker.delivery("first")
    assert (found["status"], found["last_error_code"], worker.received("first")) == ("skipped", "owner_changed", 0)
    assert worker.received("second") == 1
    assert rule(worker, event) == "owner_changed"


def test_an_event_for_everyone_is_the_phones(worker: Relay) -> None:
    """An event for everyone still goes, whoever has the phone."""
    worker.enqueue()
    worker.fan_out()
    log_in(worker, "ana", "bea")
    worker.drain()
    assert (worker.received("first"), worker.received("second")) == (1, 1)


def test_what_is_made_after_an_owner_left(worker: Relay) -> None:
    """What is made while the phone has no owner again goes to the next one, who is the first after that."""
    log_in(worker, "ana", None)
    worker.enqueue(audience=[worker.phones["first"]])
    worker.fan_out()
    log_in(worker, "bea")
    worker.drain()
    assert worker.received("first") == 1


def test_a_scheduled_event_that_names_the_phone(worker: Relay) -> None:
    """An event that was enqueued before anybody logged in does not go to the second owner, nor to that inbox."""
    phones = list(worker.phones.values())
    event = worker.enqueue(audience=phones, title="Your result", scheduled_at=datetime.now(UTC) + IN_AN_HOUR)
    log_in(worker, "ana", "bea")
    assert rule(worker, event) == "owner_changed"
    worker.travel(hours=2)
    worker.fan_out()
    worker.drain()
    assert (worker.received("first"), worker.received("second")) == (0, 1)
    assert (titles(worker, "ana"), titles(worker, "bea")) == (["Your result"], [])
    assert rule(worker, event) == "owner_changed"


def test_a_long_audience_that_names_the_phone(relay: Any) -> None:
    """The same holds for an event whose phones are more than a slice."""
    worker: Relay = relay(fanout_slice_size=2)
    phones = worker.register("first", "second", "third", "fourth")
    worker.enqueue(audience=phones, title="Your result", scheduled_at=datetime.now(UTC) + IN_AN_HOUR)
    log_in(worker, "ana", "bea")
    worker.travel(hours=2)
    worker.fan_out()
    worker.drain()
    assert [worker.received(name) for name in worker.phones] == [0, 1, 1, 1]


def test_a_batch(worker: Relay) -> None:
    """What gathered for the phone before anybody logged in is not told to the second owner; what came for bea is."""
    worker.conn.execute("insert into relevo.event_types (event_type, batch_window_s) values ('notice', 600)")
    events = [worker.enqueue(audience=list(worker.phones.values()), title="Your result") for _ in range(2)]
    worker.fan_out()
    log_in(worker, "ana", "bea")
    worker.enqueue(audience=[worker.phones["first"]], title="For bea")
    worker.fan_out()
    assert rule(worker, events[0]) == "owner_changed"
    worker.travel(hours=1)
    worker.fan_out()
    worker.drain()
    assert [message["title"] for message in worker.messages("first")] == ["For bea"]
    assert [message["title"] for message in worker.messages("second")] == ["Your result (+1)"]


def test_a_digest_that_closed(worker: Relay) -> None:
    """A digest that closed before anybody logged in, and was not sent yet, is not told to the second owner."""
    for phone in worker.phones.values():
        verbs.set_preference(worker.conn, phone, "default", TenderPreference(region="Maule", delivery="hourly"))
    worker.enqueue(audience=TenderMatching(region="Maule"))
    worker.fan_out()
    [due] = worker.rows("select max(closes_at) as at from relevo.digest_slots")
    worker.clock.travel_to(due["at"])
    worker.run("digest")
    log_in(worker, "ana", "bea")
    worker.drain()
    assert (worker.received("first"), worker.received("second")) == (0, 1)


def test_an_owner_of_before_the_upgrade(worker: Relay) -> None:
    """A delivery that 0.3.0 made for ana names no inbox; it does not go to bea either."""
    log_in(worker, "ana")
    worker.enqueue(audience=Owners("ana"))
    worker.fan_out()
    worker.conn.execute("update relevo.notification_deliveries set inbox_id = null")
    worker.conn.execute("update relevo.due_chunks set inboxes = null")
    log_in(worker, "ana", "bea")
    worker.drain()
    assert (worker.received("first"), worker.received("second")) == (0, 1)


def test_a_batch_of_an_owner_is_explained(relay: Any) -> None:
    """What gathered for ana is never told by ana's phone that bea has now: the explanation names the owner, before and after."""
    worker: Relay = relay()
    worker.phones["first"] = verbs.register(worker.conn, Installation(token("first"), owner="ana"))
    worker.conn.execute("insert into relevo.event_types (event_type, batch_window_s) values ('notice', 600)")
    events = [worker.enqueue(audience=Owners("ana")) for _ in range(2)]
    worker.fan_out()
    phone = {"installation_id": str(worker.phones["first"]), "owner": "bea"}
    worker.conn.execute("select relevo.register_installation(%s)", [Jsonb(phone)])
    for _ in range(2):
        assert {rule(worker, event) for event in events} == {"owner_changed"}
        worker.travel(hours=1)
        worker.fan_out()
        worker.drain()
    assert worker.received("first") == 0
