"""Times in texts: the inbox shows the local time that the push of the event shows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import relevo
from relevo.client import quiet
from relevo.client.values import Owners
from relevo.operators import words
from support.sending_worker import Relay

AT = {
    "type": "meeting",
    "default": "en",
    "arguments": {"at": "2026-09-06T04:30:00Z"},
    "texts": {"en": {"title": "At {at, date, ::EEEHHmm}"}, "es": {"title": "El {at, date, ::EEEHHmm}"}},
}
SANTIAGO, TOKYO = "America/Santiago", "Asia/Tokyo"


@pytest.fixture
def worker(relay: Any) -> Relay:
    """A worker that knows a type whose text names a time; ana is in Santiago, and yuki in Tokyo."""
    made: Relay = relay()
    words.save(made.app.database, words.parse(AT))
    made.register("ana", owner="ana", timezone=SANTIAGO, locale="es")
    made.register("yuki", owner="yuki", timezone=TOKYO)
    return made


def tell(worker: Relay, audience: Any, **fields: Any) -> int:
    """Enqueue an event that names a time, for an audience, and send it."""
    at = {"at": datetime(2026, 9, 6, 4, 30, tzinfo=UTC)}
    event = worker.enqueue(type="meeting", title="", body="", arguments=at, audience=audience, **fields)
    worker.fan_out()
    worker.drain()
    return event


def pushed(worker: Relay, phone: str) -> str:
    """Return the title of the newest push that a phone got."""
    return str(worker.messages(phone)[-1]["title"])


def inbox(worker: Relay, **whose: Any) -> str:
    """Return the title of the newest item of an inbox."""
    return relevo.inbox(worker.conn, **whose).items[0].title


def test_two_owners_of_two_events(worker: Relay) -> None:
    """An event for one owner is in the inbox with the local time of its push, whatever zone the project has."""
    quiet.set_quiet(worker.conn, project="default", windows=[], zone="Europe/Warsaw")
    tell(worker, Owners("ana"))
    tell(worker, Owners("yuki"))
    assert (pushed(worker, "ana"), pushed(worker, "yuki")) == ("El dom, 1:30", "At Sun 13:30")
    assert (inbox(worker, owner="ana"), inbox(worker, owner="yuki")) == ("El dom, 1:30", "At Sun 13:30")


def test_phones_by_their_ids(worker: Relay) -> None:
    """An event for given phones is worded for their zone, if they have one zone; so is its own title."""
    worker.register("two", owner="yuki", timezone=TOKYO)
    event = tell(worker, [worker.phones["yuki"], worker.phones["two"]])
    assert {pushed(worker, "yuki"), pushed(worker, "two"), inbox(worker, owner="yuki")} == {"At Sun 13:30"}
    assert worker.rows("select title from relevo.notification_events where id = %s", event) == [
        {"title": "At Sun 13:30"}
    ]


def test_one_event_for_two_zones(worker: Relay) -> None:
    """An event for owners in two zones is in both inboxes with the project's time; each push has the phone's own."""
    quiet.set_quiet(worker.conn, project="default", windows=[], zone="Europe/Warsaw")
    tell(worker, Owners("ana", "yuki"))
    assert (pushed(worker, "ana"), pushed(worker, "yuki")) == ("El dom, 1:30", "At Sun 13:30")
    assert (inbox(worker, owner="ana"), inbox(worker, owner="yuki")) == ("El dom, 6:30", "At Sun 06:30")
    tell(worker, "everyone")
    assert (inbox(worker, owner="ana"), inbox(worker, owner="yuki")) == ("El dom, 6:30", "At Sun 06:30")


def test_no_zone(worker: Relay) -> None:
    """Where neither phones nor project have a known zone, push and inbox show UTC; the zone of quiet hours holds for both."""
    worker.register("lost", owner="lost")
    worker.register("odd", owner="odd")
    worker.conn.execute("update relevo.device_installations set timezone = 'Mars/Base' where owner = 'odd'")
    for name in ("lost", "odd"):
        tell(worker, Owners(name))
        assert (pushed(worker, name), inbox(worker, owner=name)) == ("At Sun 04:30", "At Sun 04:30")
    tell(worker, Owners("ana", "yuki"))
    assert (inbox(worker, owner="ana"), inbox(worker, owner="yuki")) == ("El dom, 4:30", "At Sun 04:30")
    quiet.set_quiet(worker.conn, owner="lost", windows=[], zone=TOKYO)
    tell(worker, Owners("lost"))
    assert (pushed(worker, "lost"), inbox(worker, owner="lost")) == ("At Sun 13:30", "At Sun 13:30")
    quiet.set_quiet(worker.conn, owner="lost", windows=None)
    quiet.set_quiet(worker.conn, project="default", windows=[], zone=SANTIAGO)
    for name in ("lost", "odd"):
        tell(worker, Owners(name))
        assert (pushed(worker, name), inbox(worker, owner=name)) == ("At Sun 01:30", "At Sun 01:30")


def test_zones_that_do_not_count(worker: Relay) -> None:
    """Neither a broken zone nor that of a phone that gets no pushes any more keeps an owner from the own local time."""
    worker.register("odd", "old", owner="ana", locale="es")
    worker.conn.execute(
        "update relevo.device_installations set timezone = 'Mars/Base' where installation_id = %s",
        [worker.phones["odd"]],
    )
    worker.conn.execute(
        "update relevo.device_installations set timezone = %s, active = false where installation_id = %s",
        [TOKYO, worker.phones["old"]],
    )
    tell(worker, Owners("ana"))
    assert (pushed(worker, "ana"), inbox(worker, owner="ana")) == ("El dom, 1:30", "El dom, 1:30")
    worker.conn.execute("update relevo.device_installations set active = false where owner = 'yuki'")
    tell(worker, Owners("yuki"))
    assert inbox(worker, owner="yuki") == "At Sun 13:30"


def test_equal_owners_of_two_projects(worker: Relay) -> None:
    """Zones of another project's phones and hours do not count: ana of the shop is in Tokyo, and the shop in Warsaw."""
    worker.register("shop", owner="ana", timezone=TOKYO, project="shop")
    quiet.set_quiet(worker.conn, project="shop", windows=[], zone="Europe/Warsaw")
    for project, said in (("default", "El dom, 1:30"), ("shop", "At Sun 13:30")):
        tell(worker, Owners("ana"), project=project)
        assert inbox(worker, owner="ana", project=project) == said
    tell(worker, "everyone", project="shop")
    assert inbox(worker, owner="ana", project="shop") == "At Sun 06:30"
