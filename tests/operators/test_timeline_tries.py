"""The story of one delivery tells each try: what was said then, the death before a redrive, the pause it waited through."""

from __future__ import annotations

from typing import Any

import pytest

from relevo.cli.delivery import lines, ordinal
from relevo.operators import actions, audit, deliveries, events
from relevo.operators.actions import DeadLetters
from support.sending_worker import Relay


def story(worker: Relay, name: str) -> list[tuple[str, str]]:
    """Return what is told of the delivery to a phone, in order: what, and what was said of it."""
    seen = deliveries.push(worker.app.database, worker.delivery(name)["id"])
    assert seen is not None
    return [line[1:] for line in sorted(lines(seen), key=lambda line: line[0])]


def said(told: list[tuple[str, str]], what: str) -> str:
    """Return what was said of one thing that happened once."""
    (found,) = [detail for each, detail in told if each == what]
    return found


def test_each_try_says_what_was_said_then(relay) -> None:
    """An answer of 500, a connection that was cut, a ticket refused and one that a receipt refused are told apart, in order."""
    worker: Relay = relay(push_breaker_failures=50)
    worker.tell("ana!receipt-MessageRateExceeded*1")
    worker.clock.stop()
    for fault in ("500", "reset", None):
        if fault:
            worker.sandbox.add_fault(fault, times=1)
        worker.dispatch()
        worker.travel(minutes=20)
    worker.ask()
    worker.travel(minutes=20)
    worker.dispatch()
    worker.travel(minutes=20)
    worker.ask()
    told = story(worker, "ana!receipt-MessageRateExceeded*1")
    assert [what for what, _ in told] == [
        *("made by fan-out", "1st try", "2nd try", "3rd try", "receipt: not delivered", "4th try", "accepted", "ok"),
    ]
    assert "The push service failed with an internal error (500). (INTERNAL_SERVER_ERROR" in said(told, "1st try")
    assert "no clear answer came, so it is unknown which pushes were accepted. The" in said(told, "2nd try")
    assert "The connection broke before the complete answer came" in said(told, "2nd try")
    assert said(told, "receipt: not delivered").startswith("Too many pushes went to this phone within a short time.")
    assert said(told, "4th try").startswith("alone, after ")


def test_the_death_before_a_redrive_is_told(relay) -> None:
    """What killed it stands before the redrive, which is told once; what became of it afterwards behind."""
    worker: Relay = relay(outbox_max_attempts=1)
    worker.tell("ana!MessageTooBig*1")
    worker.dispatch()
    name = "ana!MessageTooBig*1"
    assert [what for what, _ in story(worker, name)] == ["made by fan-out", "1st try", "failed"]
    assert actions.redrive(worker.app.database, DeadLetters(ids=[worker.delivery(name)["id"]])) == 1
    worker.dispatch()
    told = story(worker, name)
    assert [what for what, _ in told] == [
        *("made by fan-out", "1st try", "failed for good", "sent again", "2nd try", "accepted", "receipt is asked for"),
    ]
    assert "The message is too long" in said(told, "1st try")
    assert "too long" not in said(told, "2nd try")


def test_a_pause_that_is_over_is_told_where_pushes_waited(relay) -> None:
    """Who paused sending and why, who resumed it and after how long: of the event that waited, and of its delivery, not of another."""
    worker: Relay = relay()
    database = worker.app.database
    before = worker.tell("before")
    worker.dispatch()
    with audit.acting_as("ana", "cli"):
        actions.pause(database, "dispatch", "a drill")
    waited = worker.tell("waited")
    worker.dispatch()
    assert paused(worker, waited) == []
    with audit.acting_as("bea", "http"):
        assert actions.resume(database, "dispatch")
    worker.dispatch()
    after = worker.tell("after")
    worker.dispatch()
    (begun, ended) = paused(worker, waited)
    assert begun == ("dispatch paused", "by ana: a drill")
    assert ended[0] == "dispatch resumed"
    assert ended[1].startswith("by bea, after ")
    assert [paused(worker, each) for each in (before, after)] == [[], []]
    told = story(worker, "waited")
    assert [what for what, _ in told] == [
        *("dispatch paused", "made by fan-out", "dispatch resumed", "1st try", "accepted", "receipt is asked for"),
    ]
    assert [what for what, _ in story(worker, "after")] == [
        "made by fan-out",
        "1st try",
        "accepted",
        "receipt is asked for",
    ]


def paused(worker: Relay, event_id: int) -> list[tuple[str, str]]:
    """Return what the story of an event tells of pauses."""
    found = events.story(worker.app.database, event_id)
    assert found is not None
    return [(each.what, each.detail) for each in found.moments if each.code in ("paused", "resumed")]


def test_a_pause_of_fanout_and_one_that_failed(relay) -> None:
    """A pause of fan-out is told of the event that waited for it; a resume that changed nothing is no end of one."""
    worker: Relay = relay()
    database = worker.app.database
    actions.pause(database, "fanout", "a drill")
    event = worker.enqueue(audience=worker.register("ana"))
    assert actions.resume(database, "fanout")
    assert not actions.resume(database, "fanout")
    worker.fan_out()
    assert [what for what, _ in paused(worker, event)] == ["fanout paused", "fanout resumed"]


@pytest.mark.parametrize(("n", "written"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (22, "22nd")])
def test_tries_are_counted_as_people_do(n: int, written: Any) -> None:
    """First, second, third."""
    assert ordinal(n) == written
