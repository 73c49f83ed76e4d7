"""Digests: what preferences do not want at once comes as one push, with how many there are and the best of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo.client import consent, quiet, verbs
from relevo.client.values import Event, Preference, TenderMatching, TenderPreference
from relevo.core import wordings
from relevo.core.errors import InvalidInputError
from relevo.operators import words
from relevo.sandbox.push_service import phone_key
from support.sending_worker import Relay


@pytest.fixture
def worker(relay) -> Relay:
    """A worker whose slices hold two phones."""
    made: Relay = relay(fanout_slice_size=2)
    return made


def announce(worker: Relay, name: str, region: str = "Maule", **fields: Any) -> int:
    """Enqueue a tender for whoever asked for its region, and fan it out."""
    event = verbs.enqueue(
        worker.conn, Event("tender.new", name, name, "Open", audience=TenderMatching(region=region), **fields)
    ).event_id
    worker.fan_out()
    return event


def close(worker: Relay) -> dict[str, int]:
    """Travel behind the next closing of every slot, close what is due, and send it; return what was counted."""
    row = worker.conn.execute("select max(closes_at) from relevo.digest_slots").fetchone()
    assert row is not None
    worker.clock.travel_to(row[0])
    report = worker.run("digest")
    assert report.outcome in ("ok", "idle"), report
    worker.drain()
    return dict(report.counts)


def shown(worker: Relay, name: str) -> list[tuple[str, str]]:
    """Return title and body of all that a phone got."""
    got = worker.sandbox.received(phone_key(f"ExponentPushToken[{name}]"))
    return [(each["title"], each["body"]) for each in got]


def test_one_push_with_the_best_three(worker: Relay) -> None:
    """A daily digest tells each phone, in its language, how many there are and the best three; others get each at once."""
    daily = TenderPreference(region="Maule", delivery="daily 08:00")
    for phone in worker.register("en", "es", locale="es-CL", timezone="America/Santiago"):
        verbs.set_preference(worker.conn, phone, "default", daily)
    worker.conn.execute("update relevo.device_installations set locale = 'en' where token like '%[en]'")
    [now] = worker.register("now")
    verbs.set_preference(worker.conn, now, "more", TenderPreference(region="Maule", delivery="weekly mon 08:00"))
    for n in range(5):
        announce(worker, f"Tender {n}", push={"relevanceScore": 0.9} if n == 1 else {})
    announce(worker, "Elsewhere", region="Ñuble")
    worker.drain()
    assert shown(worker, "en") == []
    assert len(shown(worker, "now")) == 6, "what one preference wants now is told now"
    assert close(worker) == {"digests_closed": 1, "deliveries_created": 2, "events_digested": 10}
    assert shown(worker, "en") == [("5 new for you", "Tender 1\nTender 4\nTender 3\nand 2 more")]
    assert shown(worker, "es") == [("5 novedades para ti", "Tender 1\nTender 4\nTender 3\ny 2 más")]
    assert close(worker) == {"digests_closed": 1}, "nothing new is no digest"
    assert len(shown(worker, "now")) == 6


def test_it_is_explained(worker: Relay) -> None:
    """Before the digest and after it a phone is told by which it hears of an event; a preview counts who would."""
    [phone] = worker.register("d", timezone="America/Santiago")
    verbs.set_preference(worker.conn, phone, "default", Preference(delivery="weekly sat 08:00"))
    draft = Event("tender.new", "draft", "Draft", audience=TenderMatching(region="Maule"))
    assert (verbs.preview(worker.conn, draft).count, verbs.preview(worker.conn, draft).digested) == (0, 1)
    assert verbs.explain(worker.conn, draft, phone).rule == "in_digest"
    event = announce(worker, "Tender")
    will = verbs.explain(worker.conn, event, phone)
    assert (will.gets_it, will.rule) == (True, "in_digest")
    assert "08:00 (America/Santiago)" in will.reason
    close(worker)
    was = verbs.explain(worker.conn, event, phone)
    assert (was.gets_it, was.rule, was.raw["values"]["at"]) == (True, "digested", will.raw["values"]["at"])
    assert verbs.explain(worker.conn, was.raw["values"]["digest"], phone).gets_it
    late = announce(worker, "Late")
    verbs.cancel(worker.conn, late)
    assert verbs.explain(worker.conn, late, phone).rule == "event_ended"
    assert close(worker) == {"digests_closed": 1}, "what ended is left out"


@pytest.mark.parametrize("delivery", ["soon", "daily", "daily 8:00", "daily 24:00", "weekly 08:00", "weekly day 08:00"])
def test_bad_deliveries_are_refused(worker: Relay, delivery: str) -> None:
    """What is no time for a digest is refused, in Python as in SQL, with what would be one."""
    [phone] = worker.register("d")
    with pytest.raises(InvalidInputError, match=r"delivery must be now, hourly, daily HH:MM or weekly DAY HH:MM"):
        verbs.set_preference(worker.conn, phone, "default", Preference(delivery=delivery))
    with pytest.raises(psycopg.Error, match=r"delivery must be now, hourly, daily HH:MM or weekly DAY HH:MM"):
        worker.conn.execute("select relevo.set_preference(%s, 'x', %s)", [phone, Jsonb({"delivery": delivery})])


def test_its_items_are_in_the_inbox(worker: Relay) -> None:
    """Each gathered event is an item from the start and can be marked; the digest is none, and opens what it told, page by page, without what ended since."""
    [phone] = worker.register("d", owner="ana", locale="es")
    verbs.set_preference(worker.conn, phone, "default", Preference(delivery="hourly"))
    events = [announce(worker, f"Tender {n}") for n in range(4)]
    assert [item.event_id for item in relevo.inbox(worker.conn, owner="ana").items] == events[::-1]
    relevo.mark_inbox(worker.conn, events[1], "read", owner="ana")
    close(worker)
    assert [item.event_id for item in relevo.inbox(worker.conn, owner="ana", status="unread").items] == [
        events[3],
        events[2],
        events[0],
    ]
    digest = worker.rows("select event_id from relevo.digests")[0]["event_id"]
    worker.conn.execute(
        "update relevo.notification_events set state = 'cancelled', ended_at = now() where id = %s", [events[2]]
    )
    [kept] = consent.export_owner(worker.conn, "digests", owner="ana").items
    owned = "update relevo.device_installations set owner = %s where installation_id = %s"
    worker.conn.execute(owned, ["bea", kept["installation_id"]])
    assert consent.export_owner(worker.conn, "digests", owner="ana").items == (kept,), "the phone is another's since"
    assert not consent.export_owner(worker.conn, "digests", owner="bea").items
    worker.conn.execute(owned, ["ana", kept["installation_id"]])
    assert (kept["event_id"], kept["total"], sorted(kept["events"])) == (digest, 4, events)
    first = relevo.inbox(worker.conn, owner="ana", digest=digest, limit=3)
    assert [(each.title, each.read_at is not None) for each in first.items] == [("Tender 3", False), ("Tender 1", True)]
    rest = relevo.inbox(worker.conn, owner="ana", digest=digest, limit=3, before=first.next)
    assert ([each.title for each in rest.items], rest.next) == (["Tender 0"], None)
    assert relevo.inbox(worker.conn, owner="bea", digest=digest).items == ()


def test_who_has_the_phone_later_opens_no_former_digest(worker: Relay) -> None:
    """What a phone was told while it was ana's is not in the inbox of bea, who has it now, even if she knows the digest's id."""
    [phone] = worker.register("d", owner="ana")
    verbs.set_preference(worker.conn, phone, "default", Preference(delivery="hourly"))
    announce(worker, "Tender")
    worker.conn.execute("update relevo.digest_slots set closes_at = now()")
    worker.run("digest")
    digest = worker.rows("select event_id from relevo.digests")[0]["event_id"]
    assert len(relevo.inbox(worker.conn, owner="ana", digest=digest).items) == 1
    worker.conn.execute("update relevo.device_installations set owner = 'bea'")
    assert relevo.inbox(worker.conn, owner="bea", digest=digest).items == ()


def test_workers_that_cannot_tell_it_leave_it_alone(worker: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 0.3.0 claims no digest and is not kept busy by it; one without ICU none that is told by texts, and hands back what it has."""
    texts = {"en": {"title": "{count} tenders"}}
    [phone] = worker.register("d", locale="en")
    verbs.set_preference(worker.conn, phone, "default", Preference(delivery="hourly"))
    announce(worker, "Tender")
    worker.conn.execute("update relevo.digest_slots set closes_at = now()")
    worker.run("digest")
    claims = ("claim_due_4(gen_random_uuid(), 'old', 'dispatch', 'default', 'bulk', 100, null, null, null, null, null, 2, 60000, null)",
              "claim_probe_2(gen_random_uuid(), 'old', 'dispatch', 'default', 'bulk', 100, null, null, null, null, null, 60000, 5000)")  # fmt: skip
    for claim in claims:
        assert worker.rows(f"select event_id from relevo.{claim}") == [], claim
    assert [
        row["wait_s"]
        for row in worker.rows("select wait_s from relevo.due_lanes_2(null, 0, 100, '{}', '{}', '{}', '', '', 100)")
    ] == [5]
    worker.drain()
    words.save(
        worker.app.database,
        words.parse({"type": "relevo.digest", "default": "en", "arguments": {"count": 5}, "texts": texts}),
    )
    announce(worker, "Another")
    monkeypatch.setattr(wordings, "is_available", lambda: False)
    worker.app.claims._unspoken = (float("inf"), [])
    close(worker)
    assert worker.delivery("d")["last_error_code"] == "words_missing"
    worker.app.claims._unspoken = (0.0, [])
    worker.travel(minutes=5)
    worker.dispatch()
    assert len(shown(worker, "d")) == 1
    monkeypatch.undo()
    worker.app.claims._unspoken = (0.0, [])
    worker.drain()
    assert shown(worker, "d")[1:] == [("1 tenders", "")]


def test_texts_of_its_own(worker: Relay) -> None:
    """Texts saved for the type say it in the phone's language, with the count and the names."""
    pattern = "{count, plural, one {# tender} other {# tenders}}"
    texts = {
        "en": {"title": pattern, "body": "{first} +{more}"},
        "es": {"title": "{count} licitaciones", "body": "{first}"},
    }
    given = {"type": "relevo.digest", "default": "en", "arguments": {"count": 5, "more": 2, "first": "A"}}
    words.save(worker.app.database, words.parse(given | {"texts": texts}))
    with pytest.raises(InvalidInputError, match="a digest has no argument price; it has count, more, first"):
        words.parse(given | {"arguments": {"price": 1}, "texts": {"en": {"title": "{price}"}}})
    for name, locale in (("en", "en"), ("es", "es-CL")):
        [phone] = worker.register(name, locale=locale)
        verbs.set_preference(worker.conn, phone, "default", Preference(delivery="hourly"))
    for n in range(4):
        announce(worker, f"Tender {n}")
    close(worker)
    assert (shown(worker, "en"), shown(worker, "es")) == (
        [("4 tenders", "Tender 3 +1")],
        [("4 licitaciones", "Tender 3")],
    )
    announce(worker, "Tender 4")
    close(worker)
    assert shown(worker, "en")[1:] == [("1 tender", "Tender 4 +0")], "with fewer than three there are no more"


def test_a_late_digest_makes_no_sound(worker: Relay) -> None:
    """A digest that is sent more than an hour after it was due goes silently; one that waited for the end of quiet hours is not late."""
    worker.clock.stop()
    worker.clock.travel(minutes=5)  # ahead of what the database calls now
    for name in ("plain", "asleep"):
        [phone] = worker.register(name, timezone="America/Santiago")
        verbs.set_preference(worker.conn, phone, "default", Preference(delivery="daily 06:00"))
    quiet.set_quiet(worker.conn, ["04:00-09:00"], installation_id=worker.phones["asleep"])
    for number, (minutes, sounds) in enumerate(
        ((10, {"plain": True, "asleep": True}), (61, {"plain": False, "asleep": True}))
    ):
        announce(worker, f"Tender {number}")
        [due] = worker.rows("select max(closes_at) as at from relevo.digest_slots")
        worker.clock.travel_to(due["at"] + timedelta(minutes=minutes))
        worker.run("digest")
        worker.drain()
        worker.clock.travel_to(due["at"] + timedelta(hours=3, minutes=6))  # at 9:06 everything that waited is due
        worker.drain()
        for name, rings in sounds.items():
            got = worker.sandbox.received(phone_key(f"ExponentPushToken[{name}]"))[number]
            assert (got.get("interruptionLevel") != "passive") == rings, (name, minutes)
    [late] = worker.rows(
        "select d.notification_event_id as id from relevo.silent_pushes s join relevo.notification_deliveries d on d.id = s.delivery_id"
    )
    assert "the digest was late" in verbs.explain(worker.conn, late["id"], worker.phones["plain"]).reason


def test_a_digest_that_tries_made_late_makes_no_sound(worker: Relay) -> None:
    """Tries that fail for hours make a digest late, too; one that slid into quiet hours by them is due at their end."""
    worker.clock.stop()
    worker.clock.travel(minutes=5)  # ahead of what the database calls now
    for name, zone in (("late!MessageRateExceeded*8", "UTC"), ("asleep!MessageRateExceeded*8", "UTC")):
        [phone] = worker.register(name, timezone=zone)
        verbs.set_preference(worker.conn, phone, "default", Preference(delivery="daily 20:00"))
    quiet.set_quiet(worker.conn, ["22:30-07:00"], installation_id=phone)
    announce(worker, "Tender")
    [due] = worker.rows("select max(closes_at) as at from relevo.digest_slots")
    worker.clock.travel_to(due["at"])
    worker.run("digest")
    worker.drain()
    while waiting := worker.rows("select min(due_at) as at from relevo.due_chunks having count(*) > 0"):
        worker.clock.travel_to(waiting[0]["at"])
        worker.drain()
    for name, is_silent in (("late", True), ("asleep", False)):
        [got] = worker.sandbox.received(f"ExponentPushToken[{name}!MessageRateExceeded*8]")
        assert (got.get("interruptionLevel") == "passive") == is_silent, name


def test_what_is_refused_after_it_closed_is_not_named(worker: Relay) -> None:
    """A digest that waits for the morning tells nothing of a category that is refused by then, nor what was handled; an empty one is not sent."""
    worker.clock.stop()
    worker.clock.travel(minutes=5)  # ahead of what the database calls now
    consent.set_category(worker.conn, "offers")
    for name, owner in (("ana", "ana"), ("bea", "bea")):
        [phone] = worker.register(name, owner=owner, timezone="UTC")
        verbs.set_preference(worker.conn, phone, "default", TenderPreference(region="Maule", delivery="daily 06:00"))
    verbs.set_preference(
        worker.conn, worker.phones["bea"], "default", TenderPreference(region="Ñuble", delivery="daily 06:00")
    )
    quiet.set_quiet(worker.conn, ["04:00-09:00"], project="default", zone="UTC")
    announce(worker, "Offer", category="offers", push={"relevanceScore": 1})
    announce(worker, "Other offer", region="Ñuble", category="offers")
    for number in range(4):
        announce(worker, f"Tender {number}")
    [due] = worker.rows("select max(closes_at) as at from relevo.digest_slots")
    worker.clock.travel_to(due["at"])
    worker.run("digest")
    worker.drain()
    for owner in ("ana", "bea"):
        consent.choose(worker.conn, "offers", owner=owner, wanted=False)
    worker.clock.travel(hours=3, minutes=6)
    worker.drain()
    assert shown(worker, "ana") == [("4 new for you", "Tender 3\nTender 2\nTender 1\nand 1 more")]
    assert shown(worker, "bea") == []
