"""Batches: personal events of one kind come as one push, each is in the inbox, and each "later" is told."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo.client import consent, quiet, verbs
from relevo.client.values import Event, Owners
from relevo.core import wordings
from relevo.core.errors import InvalidInputError
from relevo.operators import event_types, words
from relevo.operators.event_types import TypeSettings
from relevo.sandbox.push_service import phone_key
from support.phones import fan_out_to_the_end
from support.sending_worker import Relay


@pytest.fixture
def worker(relay: Any) -> Relay:
    """A worker with two phones of ana and one of eva; comments are gathered for ten minutes, for thirty at most."""
    made: Relay = relay()
    made.register("a1", "a2", owner="ana")
    made.register("e", owner="eva")
    gather(made, batch_window_s=600, batch_longest_s=1_800)
    return made


def gather(worker: Relay, **settings: Any) -> None:
    """Set what differs for comments."""
    event_types.set_event_type(worker.app.database, worker.app.settings, "comment", TypeSettings(**settings))


def comment(worker: Relay, key: str, *owners: str, **more: Any) -> int:
    """Somebody comments what is ana's, or others'."""
    given = {"title": f"{key} commented", "batch": {"key": "post 7"}} | more
    event = verbs.enqueue(worker.conn, Event("comment", key, audience=Owners(*owners or ("ana",)), **given)).event_id
    worker.fan_out()
    worker.drain()
    return event


def close(worker: Relay, **by: float) -> None:
    """Let time pass, close what is due, and send it."""
    worker.clock.travel(**by or {"minutes": 11})
    worker.fan_out()
    worker.drain()


def shown(worker: Relay, name: str) -> list[str]:
    """Return the titles of all that a phone got."""
    return [each["title"] for each in worker.sandbox.received(phone_key(f"ExponentPushToken[{name}]"))]


def test_five_comments_are_one_push(worker: Relay) -> None:
    """Within a window that each extends they are one push to each phone, by the words of the newest; the inbox has each."""
    first = comment(worker, "Bo", batch={"key": "post 7", "title": "no longer"})
    for name in ("Cy", "Di"):
        worker.clock.travel(minutes=8)
        comment(worker, name, batch={"key": "post 7", "title": "{count} comments, {others} before {first}"})
    comment(worker, "Ed", batch={"key": "post 8"})
    comment(
        worker, "Flo", "eva", "ana", data={"post": 7}, batch={"key": "post 7", "title": "{count}: {first}, {third}"}
    )
    assert (shown(worker, "a1"), shown(worker, "e")) == ([], [])
    told = verbs.explain(worker.conn, first, worker.phones["a1"])
    assert (told.gets_it, told.rule) == (True, "batched")
    assert told.raw["values"]["until"] is not None
    close(worker)
    for name in ("a1", "a2"):
        assert sorted(shown(worker, name)) == ["4: Flo commented, Cy commented", "Ed commented"]
    assert shown(worker, "e") == ["Flo commented"], "one alone says what it says"
    told = verbs.explain(worker.conn, first, worker.phones["a1"])
    assert told.reason.startswith("It was announced together with 3 others by event ")
    carrier = told.raw["values"]["event"]
    assert worker.rows("select event_type from relevo.notification_events where id = %s", carrier) == [
        {"event_type": "comment.batch"}
    ]
    [got] = [each for each in worker.sandbox.received(phone_key("ExponentPushToken[a1]")) if each["title"][0] == "4"]
    assert (got["data"]["post"], got["data"]["batch"]["total"], len(got["data"]["batch"]["events"])) == (7, 4, 4)
    inbox = [each.title for each in relevo.inbox(worker.conn, owner="ana").items]
    assert sorted(inbox) == [f"{name} commented" for name in ("Bo", "Cy", "Di", "Ed", "Flo")]
    close(worker, minutes=60)
    assert len(shown(worker, "a1")) == 2


def test_each_later_is_told(worker: Relay, command: Any) -> None:
    """Preview, the event's story and its counts say what batches, caps and digests hold back, and by what it was told."""
    quiet.set_cap(worker.conn, 1, per="week", category="offers")
    quiet.set_cap(worker.conn, 1, per="week", category="news", over="digest")
    draft = Event("comment", "draft", "Draft", audience=Owners("ana"))
    assert verbs.preview(worker.conn, draft).batched == 2
    first = comment(worker, "Bo")
    comment(worker, "Cy")
    assert "told at " in command("event", "comment", "Bo").out
    close(worker)
    [told_by] = (verbs.explain(worker.conn, first, worker.phones["a1"]).raw["values"]["event"],)
    assert f"2 pushes, told by event {told_by}" in command("event", "comment", "Bo").out
    for category in ("offers", "news"):
        for n in range(2):
            worker.enqueue(type=category, key=str(n), audience=Owners("eva"), category=category)
            worker.fan_out()
    found = verbs.preview(worker.conn, Event("news", "draft", "Draft", audience=Owners("eva"), category="news"))
    assert (found.count, found.capped, found.to_digest) == (1, 0, 1)
    assert "There is no room for it: at most 1 a week of category offers." in command("event", "offers", "1").out
    assert re.search(r"gathered for digests.*1 push, told at \d{4}-", command("event", "news", "1").out)
    counts = worker.rows("select counts from relevo.worker_runs where cycle = 'fanout'")
    kept = ("deliveries_batched", "deliveries_capped", "deliveries_left_to_digests", "batches_closed", "events_batched")
    total = {name: sum(row["counts"].get(name, 0) for row in counts) for name in kept}
    assert list(total.values()) == [4, 1, 1, 1, 2]


def test_a_window_has_an_end(worker: Relay) -> None:
    """However many come, it closes after the longest window; without one, after the first window."""
    for n in range(5):
        comment(worker, str(n), batch={"title": "{count}"})
        close(worker, minutes=8)
    assert shown(worker, "a1") == ["4"]
    close(worker)
    worker.conn.execute("update relevo.event_types set batch_longest_s = null where event_type = 'comment'")
    comment(worker, "x", batch={"title": "{count}"})
    worker.clock.travel(minutes=8)
    comment(worker, "y", batch={"title": "{count}"})
    close(worker, minutes=3)
    assert shown(worker, "a1") == ["4", "4 commented", "2"]


def test_the_first_at_once(worker: Relay) -> None:
    """If asked the first goes out at once, and only those that follow are gathered; a batch without any is not told."""
    gather(worker, batch_first=True)
    comment(worker, "Bo")
    assert shown(worker, "a1") == ["Bo commented"]
    comment(worker, "Cy")
    comment(worker, "Di")
    close(worker)
    assert shown(worker, "a1") == ["Bo commented", "Di commented (+1)"]
    comment(worker, "Ed")
    close(worker)
    assert shown(worker, "a1")[2:] == ["Ed commented"]
    assert worker.rows("select id from relevo.batches where closed_at is null") == []


def test_a_batch_above_a_cap(worker: Relay) -> None:
    """What a push was to tell that was not sent is not said to be told: the explanation names that push and how it ended."""
    quiet.set_cap(worker.conn, 1, per="day")
    verbs.enqueue(worker.conn, Event("offer", "o", title="An offer", audience=Owners("ana")))
    events = [comment(worker, name) for name in ("Bo", "Cy")]
    assert verbs.explain(worker.conn, events[0], worker.phones["a1"]).gets_it
    close(worker)
    told = verbs.explain(worker.conn, events[0], worker.phones["a1"])
    carrier = told.raw["values"]["event"]
    assert (told.gets_it, told.rule) == (False, "batched")
    assert told.reason == f"Event {carrier} announced it; the push of that event ended as skipped."
    assert shown(worker, "a1") == ["An offer"]
    assert verbs.explain(worker.conn, carrier, worker.phones["a1"]).rule == "capped"


def test_what_ended_or_was_handled_is_left_out(worker: Relay) -> None:
    """What was cancelled, handled or passed its deadline before the batch closes is not told; nothing left is no push."""
    gone = [comment(worker, name) for name in ("Bo", "Cy")]
    comment(worker, "Di", ttl_s=300)
    verbs.cancel(worker.conn, gone[0])
    verbs.complete(worker.conn, gone[1], owner="ana")
    close(worker)
    assert shown(worker, "a1") == []
    told = verbs.explain(worker.conn, ("comment", "Di"), worker.phones["a1"])
    assert (told.gets_it, told.rule) == (False, "batched")


def test_what_ended_after_the_batch_closed_is_left_out(worker: Relay) -> None:
    """A batch waits for the morning: what is handled, cancelled, superseded or read until then is not told, and count and words follow."""
    now = worker.clock.now()
    quiet.set_quiet(
        worker.conn, [f"{now - timedelta(hours=1):%H:%M}-{now + timedelta(hours=2):%H:%M}"], owner="ana", zone="UTC"
    )
    gather(worker, complete_on="read")
    more = {"batch": {"key": "post 7", "title": "{count}: {first}, {second}"}}
    gone = [comment(worker, name, **more) for name in ("Bo", "Cy", "Di")]
    comment(worker, "Ed", collapse="Ed", **more)
    for name in ("Flo", "Gus"):
        comment(worker, name, **more)
    single = comment(worker, "Hal", batch={"key": "alone"})
    for name in ("Ida", "Jo"):
        comment(worker, name, batch={"key": "one left"})
    close(worker)
    comment(worker, "Ed again", collapse="Ed", batch={"key": "other"})
    assert (verbs.cancel(worker.conn, gone[0]), verbs.complete(worker.conn, gone[1], owner="ana")) == (True, True)
    relevo.mark_inbox(worker.conn, gone[2], "read", owner="ana")
    verbs.cancel(worker.conn, single)
    verbs.complete(worker.conn, ("comment", "Jo"), owner="ana")
    close(worker, hours=3)
    assert sorted(shown(worker, "a1")) == ["2: Gus commented, Flo commented", "Ed again commented", "Ida commented"]
    assert shown(worker, "a2") == shown(worker, "a1")
    [empty] = worker.rows(
        "select distinct d.status, d.last_error_code from relevo.notification_deliveries d join relevo.batches b on b.event_id = d.notification_event_id where b.key = 'alone'"
    )
    assert empty == {"status": "cancelled", "last_error_code": "event_ended"}


def test_opening_the_push_of_a_batch_completes_its_events(worker: Relay) -> None:
    """What tells a batch stands for its events: opened on one phone it is told to no other, if their type says so."""
    gather(worker, complete_on="opened")
    now = worker.clock.now()
    hours = f"{now - timedelta(hours=1):%H:%M}-{now + timedelta(hours=2):%H:%M}"
    quiet.set_quiet(worker.conn, [hours], installation_id=worker.phones["a2"], zone="UTC")
    events = [comment(worker, name) for name in ("Bo", "Cy")]
    close(worker)
    assert (shown(worker, "a1"), shown(worker, "a2")) == (["Cy commented (+1)"], [])
    assert relevo.report_opened(worker.conn, worker.phones["a1"], worker.delivery("a1")["id"]) == "noted"
    done = worker.rows("select event_id from relevo.event_completions where owner = 'ana'")
    assert {row["event_id"] for row in done} >= set(events)
    close(worker, hours=3)
    assert shown(worker, "a2") == []


def test_what_tells_batches_follows_their_type(worker: Relay) -> None:
    """The type of batches has what its type says now, but for what was set for itself; a window of 0 switches batches off."""

    def told() -> dict[str, Any]:
        rows = {row["event_type"]: row for row in event_types.list_event_types(worker.app.database)}
        return (
            {name: rows["comment.batch"][name] for name in ("lane", "quiet", "ttl_s")}
            if "comment.batch" in rows
            else {}
        )

    own = TypeSettings(quiet="silent")
    event_types.set_event_type(worker.app.database, worker.app.settings, "comment.batch", own)
    gather(worker, lane="urgent", quiet="ignore", ttl_s=90)
    assert told() == {"lane": "urgent", "quiet": "silent", "ttl_s": 90}
    event_types.reset_event_type(worker.app.database, "comment.batch")
    assert told()["quiet"] == "ignore"
    gather(worker, batch_window_s=0)
    comment(worker, "Bo", batch=None)
    assert shown(worker, "a1") == ["Bo commented"]
    event_types.reset_event_type(worker.app.database, "comment")
    assert told() == {}


def test_texts_in_each_language(worker: Relay) -> None:
    """Texts of the type with .batch behind its name tell several, with how many, the last three and the newest's arguments."""
    if not wordings.is_available():
        pytest.fail("icu4py is missing")
    worker.conn.execute("update relevo.device_installations set locale = 'es' where token like '%[a2]'")
    said = {
        "en": {"title": "{who} and {others, plural, one {# other} other {# others}}"},
        "es": {"title": "{who} y {others} más"},
    }
    sample = {"who": "Bo", "others": 1}
    given = {"type": "comment.batch", "default": "en", "arguments": sample, "texts": said}
    words.save(worker.app.database, words.parse(given))
    own = {"en": {"title": "{who} wrote"}, "es": {"title": "{who} escribió"}}
    words.save(worker.app.database, words.parse(given | {"type": "comment", "arguments": {"who": "Bo"}, "texts": own}))
    for name in ("Bo", "Cy"):
        comment(worker, name, title="", arguments={"who": name})
    close(worker)
    assert (shown(worker, "a1"), shown(worker, "a2")) == (["Cy and 1 other"], ["Cy y 1 más"])
    named = {name: comment(worker, name, title="", arguments={"who": name}) for name in ("Bo 2", "Cy 2", "Di 2")}
    worker.clock.travel(minutes=11)
    worker.fan_out()
    verbs.cancel(worker.conn, named["Cy 2"])
    worker.drain()
    assert shown(worker, "a2")[1:] == ["Di 2 y 1 más"], "rendered anew for what is left"
    comment(worker, "Di", title="", arguments={"who": "Di"})
    close(worker)
    assert (shown(worker, "a1")[2:], shown(worker, "a2")[2:]) == (["Di wrote"], ["Di escribió"])


def test_what_the_texts_of_a_batch_may_name(worker: Relay) -> None:
    """How many there are, how many others than the newest, how many more than three, and the last three, the newest first."""
    if not wordings.is_available():
        pytest.fail("icu4py is missing")
    sample = {"count": 2, "others": 1, "more": 0, "first": "a", "second": "b", "third": "c"}
    said = {"en": {"title": "{count} {others} {more}: {first}|{second}|{third}"}}
    given = {"type": "comment.batch", "default": "en", "arguments": sample, "texts": said}
    words.save(worker.app.database, words.parse(given))
    for total in (2, 3, 4, 5):
        for number in range(total):
            comment(worker, f"{total}.{number}", title=f"{total}.{number}")
        close(worker)
    assert shown(worker, "a1") == [
        "2 1 0: 2.1|2.0|",
        "3 2 0: 3.2|3.1|3.0",
        "4 3 1: 4.3|4.2|4.1",
        "5 4 2: 5.4|5.3|5.2",
    ]


@pytest.mark.parametrize("batch", [{"keys": "x"}, {"key": ""}, {"key": "x" * 65}, {"title": 5}])
def test_bad_batches_are_refused(worker: Relay, batch: dict[str, Any]) -> None:
    """What says nothing about a batch is refused, in Python as in SQL, by the field's name."""
    with pytest.raises(InvalidInputError, match=r"batch"):
        comment(worker, "x", batch=batch)
    asked = {"type": "comment", "key": "x", "title": "x", "audience": "owners", "owners": ["ana"], "batch": batch}
    with pytest.raises(psycopg.Error, match=r"batch"):
        worker.conn.execute("select relevo.enqueue(%s)", [Jsonb(asked)])


def test_a_batch_has_one_category(worker: Relay) -> None:
    """Events of two categories are two batches: what is refused of one does not travel in the push of the other, nor keeps it back."""
    for category in ("offers", "replies"):
        consent.set_category(worker.conn, category)
    for number, category in enumerate(("offers", "replies", "offers", "replies")):
        comment(worker, f"{category} {number}", category=category)
    consent.choose(worker.conn, "offers", owner="ana", wanted=False)
    close(worker)
    assert shown(worker, "a1") == ["replies 3 commented (+1)"]
    assert (
        sorted(each.category for each in relevo.inbox(worker.conn, owner="ana").items)
        == ["offers"] * 2 + ["replies"] * 2
    )


def test_a_batch_that_is_joined_in_two_slices(relay: Any) -> None:
    """Phones of one owner in different slices of an event: the event is in the batch once, also if the batch closed in between."""
    made: Relay = relay(fanout_slice_size=1)
    made.register("a1", "a2", owner="ana")
    gather(made, batch_window_s=600)
    for key in ("Bo", "Cy"):
        verbs.enqueue(
            made.conn,
            Event("comment", key, key, audience=Owners("ana"), batch={"key": "post", "title": "{count} in all"}),
        )
        fan_out_to_the_end(made.app)
    assert [len(row["events"]) for row in made.rows("select events from relevo.batches")] == [2]
    close(made)
    fan_out_to_the_end(made.app)
    made.drain()
    assert [shown(made, name) for name in ("a1", "a2")] == [["2 in all"]] * 2
