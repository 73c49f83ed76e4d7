"""Badges that are how much is unread: counted once for a wave, and only for events that ask."""

from __future__ import annotations

from typing import Any

import pytest

import relevo
from relevo.client.values import Owners
from relevo.delivery.composing import drafts


def badges(worker: Any, name: str) -> list[Any]:
    """Return the badges of the pushes a phone received."""
    return [message.get("badge") for message in worker.messages(name)]


def test_the_badge_is_what_is_unread_when_it_is_sent(relay) -> None:
    """It counts the owner's inbox, this event included; without owner the phone's own; other events have their own badge."""
    worker = relay()
    worker.register("ana", "tablet", owner="ana", platform="ios")
    worker.register("alone", "quiet", platform="ios")
    first = worker.enqueue(audience=Owners("ana"), title="one")
    worker.enqueue(audience=Owners("ana"), title="two", push={"badge": "unread"})
    worker.enqueue(audience=[worker.phones["alone"]], push={"badge": "unread"})
    worker.enqueue(audience=[worker.phones["quiet"]], push={"badge": 7})
    worker.fan_out()
    worker.dispatch()
    assert badges(worker, "ana") == badges(worker, "tablet") == [None, 2]
    assert (badges(worker, "alone"), badges(worker, "quiet")) == ([1], [7])
    relevo.mark_inbox_before(worker.conn, owner="ana")
    worker.enqueue(audience=Owners("ana"), title="three", push={"badge": "unread"})
    worker.enqueue(audience=Owners("ana"), title="for the app", push={"badge": "unread"}, type="quiet")
    worker.conn.execute("insert into relevo.event_types (event_type, inbox) values ('quiet', false)")
    relevo.mark_inbox(worker.conn, first, "unread", owner="ana")
    worker.fan_out()
    worker.dispatch()
    assert badges(worker, "ana")[2:] == [2, 2]


def test_many_are_told_as_99(relay) -> None:
    """Beyond 99 the badge stays: no icon has room for more, and nobody walks along a whole inbox for it."""
    worker = relay()
    [phone] = worker.register("ana", platform="ios")
    for _ in range(120):
        worker.enqueue(audience=[phone])
    worker.fan_out()
    worker.conn.execute("delete from relevo.due_chunks")
    worker.tell("ana", push={"badge": "unread"})
    worker.dispatch()
    assert badges(worker, "ana") == [99]


def test_nobody_counts_where_nobody_asks(relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of events with no such badge nothing is read; of those that ask, once for all phones of a batch."""
    worker = relay()
    asked: list[int] = []
    count = drafts.Drafts._count_unread

    def counted(self: Any, deliveries: Any) -> None:
        count(self, deliveries)
        asked.append(len(self._unread))

    monkeypatch.setattr(drafts.Drafts, "_count_unread", counted)
    worker.add_phones(20)
    worker.tell_everyone()
    worker.dispatch()
    assert set(asked) == {0}
    asked.clear()
    worker.tell_everyone(push={"badge": "unread"})
    worker.dispatch()
    assert asked == [20]


def test_a_count_that_fails_holds_nothing_up(relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A push whose badge cannot be counted goes without one, and what is beside it goes as ever."""
    worker = relay()
    broken = "select i.id, 1 / 0 from unnest(%(installations)s::uuid[]) as i(id)"
    monkeypatch.setattr(drafts, "_SQL", {**drafts._SQL, "count_unread": broken})
    worker.tell("ana", "eva", push={"badge": "unread"})
    worker.tell("eva", push={"badge": 7})
    worker.dispatch()
    assert (badges(worker, "ana"), sorted(badges(worker, "eva"), key=str)) == ([None], [7, None])


def test_a_composer_sees_the_number(relay) -> None:
    """Code of the app's own gets the message with the badge as it is sent."""
    seen: list[Any] = []

    def compose(message: Any, *_: Any) -> Any:
        seen.append(message.get("badge"))
        return message

    worker = relay(composers={"notice": compose})
    worker.tell("ana", push={"badge": "unread"})
    worker.dispatch()
    assert (seen, badges(worker, "ana")) == ([1], [1])
