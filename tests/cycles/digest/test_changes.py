"""What becomes of gathered events when preferences, zones, owners and categories change before their digest closes."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

import relevo
from relevo.client import consent, quiet, verbs
from relevo.client.values import Event, Installation, Preference, TenderMatching
from support.phones import add_phones, fan_out, prefer

TOLD = """
select i.installation_id, c.event_id - o from relevo.digest_contents c join relevo.device_installations i using (seq), unnest(c.offsets) o
"""


def announce(conn: psycopg.Connection[Any], app: Any, key: str, region: str = "Maule", **more: Any) -> int:
    """Enqueue an event for whoever asked for a region, and fan it out."""
    event = verbs.enqueue(conn, Event("tender.new", key, key, audience=TenderMatching(region=region), **more)).event_id
    fan_out(app)
    return event


def close(conn: psycopg.Connection[Any], app: Any, delivery: str | None = None) -> None:
    """Close the slots of one kind, or all, now."""
    conn.execute(
        "update relevo.digest_slots set closes_at = now() - interval '1 second' where %(delivery)s::text is null or delivery = %(delivery)s",
        {"delivery": delivery},
    )
    assert app.runner.run(app.registry["digest"], "manual").outcome in ("ok", "idle")


def told(conn: psycopg.Connection[Any], phone: UUID) -> list[int]:
    """Return the events that digests told a phone."""
    return sorted(event for of_phone, event in conn.execute(TOLD).fetchall() if of_phone == phone)


def codes(conn: psycopg.Connection[Any], phone: UUID) -> list[str | None]:
    """Return of a phone's deliveries that are no digests why they were not pushed, the oldest first."""
    rows = conn.execute(
        "select last_error_code from relevo.notification_deliveries where installation_id = %s and event_type <> 'relevo.digest' order by id",
        [phone],
    ).fetchall()
    return [row[0] for row in rows]


def wanted(conn: psycopg.Connection[Any]) -> dict[UUID, tuple[str, str]]:
    """Return of each phone by which digest what was gathered for it is to be told, and in which zone."""
    rows = conn.execute(
        """select distinct i.installation_id, s.delivery, s.zone from relevo.digest_items x
             join relevo.digest_slots s on s.id = x.slot_id join relevo.device_installations i using (seq)"""
    ).fetchall()
    return {phone: (delivery, zone) for phone, delivery, zone in rows}


@pytest.mark.parametrize(
    ("wishes", "finally_by"),
    [
        (("weekly mon 08:00", "now", "daily 08:00"), "daily 08:00"),
        (("daily 08:00", "now", "hourly"), "hourly"),
        (("daily 08:00", "now"), "daily 08:00"),
        (("weekly mon 08:00", "daily 20:00", "weekly fri 07:00"), "weekly fri 07:00"),
    ],
)
def test_what_gathered_is_told_by_the_digest_of_today(
    conn: psycopg.Connection[Any], build, wishes: tuple[str, ...], finally_by: str
) -> None:
    """A phone that changes its mind, while another's digest closes in between, is told once, by the digest that it asks for last."""
    app = build()
    ana, bob = add_phones(conn, 2)
    prefer(conn, [bob], delivery="hourly")
    expected = []
    for number, wish in enumerate(wishes):
        prefer(conn, [ana], delivery=wish)
        event = announce(conn, app, f"{number}")
        if wish != "now":
            expected.append(event)
        if number + 1 < len(wishes):
            conn.execute("update relevo.digest_slots s set closes_at = now() where s.delivery = 'hourly'")
            assert app.runner.run(app.registry["digest"], "manual").outcome == "ok"
            assert told(conn, ana) == []
    assert wanted(conn)[ana] == (finally_by, "UTC")
    for _ in range(2):
        close(conn, app)
        assert told(conn, ana) == expected
    assert len(told(conn, bob)) == len(wishes)


def test_a_preference_that_was_switched_off(conn: psycopg.Connection[Any], build) -> None:
    """`weekly` → off → `daily`: what gathered before stays in the inbox with the reason; what came while it was off is not wanted; the rest is told."""
    app = build()
    [ana, bob] = (add_phones(conn, 1, owner=owner)[0] for owner in ("ana", "bob"))
    prefer(conn, [bob], delivery="hourly")
    prefer(conn, [ana], delivery="weekly mon 08:00")
    before = announce(conn, app, "before")
    prefer(conn, [ana], enabled=False)
    announce(conn, app, "while it is off")
    close(conn, app, "hourly")
    prefer(conn, [ana], delivery="daily 08:00")
    after = announce(conn, app, "after")
    close(conn, app)
    assert told(conn, ana) == [after]
    assert codes(conn, ana) == ["preference_changed", "in_digest"]
    assert [item.event_id for item in relevo.inbox(conn, owner="ana").items] == [after, before]
    why = verbs.explain(conn, before, ana)
    assert (why.gets_it, why.rule) == (False, "preference_changed")
    assert verbs.explain(conn, after, ana).rule == "digested"


def test_a_zone_or_a_wish_that_changes_every_few_days(conn: psycopg.Connection[Any], build) -> None:
    """Forty-two events over seventeen days, while zone and preference change every few days: each is told once."""
    begin = datetime.now(UTC) + timedelta(days=1)
    [phone] = add_phones(conn, 1)
    wishes = ("weekly mon 08:00", "daily 08:00", "daily 20:00", "now", "hourly")
    zones = ("America/Santiago", "Asia/Kathmandu", "Europe/Madrid")
    prefer(conn, [phone], delivery=wishes[0])
    for number in range(42):
        now = begin + timedelta(hours=10 * number)
        app = build(now=now)
        if number % 5 == 4:
            prefer(conn, [phone], delivery=wishes[number // 5 % len(wishes)])
        if number % 7 == 6:
            conn.execute("update relevo.device_installations set timezone = %s", [zones[number // 7 % len(zones)]])
        announce(conn, app, f"{number}")
        assert app.runner.run(app.registry["digest"], "manual").outcome in ("ok", "idle")
    close(conn, build(now=begin + timedelta(days=30)))
    pushed = conn.execute(
        "select notification_event_id from relevo.notification_deliveries where event_type <> 'relevo.digest' and status = 'pending'"
    ).fetchall()
    counts = Counter(told(conn, phone)) + Counter(row[0] for row in pushed)
    assert (len(counts), set(counts.values())) == (42, {1})


def test_which_digest_tells_it(conn: psycopg.Connection[Any], build) -> None:
    """The most frequent of the preferences that match; over a cap the most frequent of all; else one at 08:00, where the phone is."""
    app = build()
    several, capped, plain = add_phones(conn, 3, timezone="Europe/Madrid")
    prefer(conn, [several], region="Maule", delivery="weekly tue 08:00")
    prefer(conn, [several], "more", delivery="weekly mon 20:00")
    prefer(conn, [several], "others", region="Ñuble", delivery="hourly")
    prefer(conn, [capped], region="Maule")
    prefer(conn, [capped], "more", region="Maule", delivery="weekly tue 08:00")
    prefer(conn, [capped], "others", region="Ñuble", delivery="daily 21:00")
    prefer(conn, [plain], region="Maule")
    quiet.set_cap(conn, 1, per="week", over="digest")
    announce(conn, app, "first")
    announce(conn, app, "second")
    assert wanted(conn) == {
        several: ("weekly mon 20:00", "Europe/Madrid"),
        capped: ("daily 21:00", "Europe/Madrid"),
        plain: ("daily 08:00", "Europe/Madrid"),
    }


def test_another_owner_is_told_nothing(conn: psycopg.Connection[Any], build) -> None:
    """What gathered for ana is not told bea, who has the phone next, nor ana when she comes back; a phone that gets its first owner keeps it."""
    app = build()
    [phone, free] = add_phones(conn, 1, owner="ana") + add_phones(conn, 1)
    prefer(conn, [phone, free], delivery="daily 08:00")
    event = announce(conn, app, "for ana")
    for owner in ("bea", "ana"):
        verbs.register(conn, Installation(None, phone, owner=owner))
        verbs.register(conn, Installation(None, free, owner="cy"))
    close(conn, app)
    assert (told(conn, phone), told(conn, free)) == ([], [event])
    assert codes(conn, phone) == ["owner_changed"]
    assert verbs.explain(conn, event, phone).rule == "owner_changed"


def test_what_is_left_out_when_it_closes(conn: psycopg.Connection[Any], build) -> None:
    """Ended, late, handled and refused events, and those of a phone that may not get pushes, are not told, and the delivery has the reason."""
    app = build()
    ana, bea, off = (add_phones(conn, 1, owner=owner)[0] for owner in ("ana", "bea", "off"))
    prefer(conn, [ana, bea, off], delivery="hourly")
    consent.set_category(conn, "offers")
    announce(conn, app, "told")
    announce(conn, app, "refused", category="offers")
    verbs.cancel(conn, announce(conn, app, "cancelled"))
    announce(conn, app, "too late from the start", deadline_at=datetime.now(UTC) + timedelta(seconds=10))
    late = announce(conn, app, "late")
    conn.execute("update relevo.notification_events set deadline_at = now() where id = %s", [late])
    consent.choose(conn, "offers", owner="ana", wanted=False)
    conn.execute("update relevo.device_installations set permission = 'denied' where installation_id = %s", [off])
    close(conn, app)
    assert codes(conn, ana) == ["in_digest", "refused", "event_ended", "deadline_before_digest", "deadline_passed"]
    assert codes(conn, bea) == ["in_digest", "in_digest", "event_ended", "deadline_before_digest", "deadline_passed"]
    assert codes(conn, off) == [
        "not_allowed",
        "not_allowed",
        "event_ended",
        "deadline_before_digest",
        "deadline_passed",
    ]
    assert [len(told(conn, each)) for each in (ana, bea, off)] == [1, 2, 0]
    assert conn.execute("select count(*) from relevo.digest_items").fetchone() == (0,)
    shown = [item.title for item in relevo.inbox(conn, owner="ana").items]
    assert shown == ["late", "too late from the start", "refused", "told"]


def test_the_zone_of_a_project_moves_what_gathered(conn: psycopg.Connection[Any], build) -> None:
    """If a project gets another zone, what gathered is told at the time of the new zone, once, and not at that of the old one."""
    app = build()
    phones = add_phones(conn, 3)
    prefer(conn, phones, delivery="daily 08:00")
    event = announce(conn, app, "gathered")
    quiet.set_quiet(conn, ["22:00-07:00"], project="default", zone="America/Santiago")
    close(conn, app)
    assert [told(conn, each) for each in phones] == [[], [], []]
    assert set(wanted(conn).values()) == {("daily 08:00", "America/Santiago")}
    close(conn, app)
    assert [told(conn, each) for each in phones] == [[event]] * 3


@pytest.mark.timeout(120)  # a digest that does not move on closes the same slice for ever
@pytest.mark.parametrize("phones_of_slice", [1, 2])
def test_what_another_transaction_moves_is_left_to_it(
    conn: psycopg.Connection[Any], build, dsn: str, phones_of_slice: int
) -> None:
    """A preference that is being changed holds up no closing: other phones are told, and this one by its next digest."""
    app = build(fanout_slice_size=phones_of_slice)
    ana, bob = add_phones(conn, 2)
    prefer(conn, [ana, bob], delivery="daily 08:00")
    event = announce(conn, app, "gathered")
    with psycopg.connect(dsn) as other:
        verbs.set_preference(other, ana, "default", Preference(delivery="daily 09:00"))
        close(conn, app)
        assert (told(conn, ana), told(conn, bob)) == ([], [event])
    assert wanted(conn) == {ana: ("daily 09:00", "UTC")}
    close(conn, app)
    assert (told(conn, ana), told(conn, bob)) == ([event], [event])


def test_a_phone_that_left_the_project_is_told_nothing(conn: psycopg.Connection[Any], build) -> None:
    """An event of the shop that gathered for a phone is not told by the digest of the club, where the phone is now; its neighbour is told."""
    app = build()
    moved, stays = add_phones(conn, 2, owner="ana", project="shop")
    prefer(conn, [moved, stays], delivery="daily 08:00")
    event = announce(conn, app, "of the shop", project="shop")
    verbs.register(conn, Installation(None, moved, project="club"))
    close(conn, app)
    assert (told(conn, moved), told(conn, stays)) == ([], [event])
    assert codes(conn, moved) == ["project_changed"]


def test_an_item_that_gathered_while_the_phone_changed_hands(conn: psycopg.Connection[Any], build) -> None:
    """An item that a fan-out wrote for ana just after the phone became bea's is not told bea."""
    app = build()
    [phone] = add_phones(conn, 1, owner="bea")
    prefer(conn, [phone], delivery="daily 08:00")
    announce(conn, app, "for ana")
    conn.execute("update relevo.digest_items set inbox_id = inbox_id + 1000")
    close(conn, app)
    assert told(conn, phone) == []
    assert codes(conn, phone) == ["owner_changed"]


def test_an_item_that_gathered_while_the_phone_changed_its_project(conn: psycopg.Connection[Any], build) -> None:
    """An item of the shop that a fan-out wrote just after the phone moved to the club is not told."""
    app = build()
    [phone] = add_phones(conn, 1, project="club")
    prefer(conn, [phone], delivery="daily 08:00")
    event = announce(conn, app, "of the shop", project="club")
    conn.execute("update relevo.notification_events set project = 'shop' where id = %s", [event])
    close(conn, app)
    assert told(conn, phone) == []
    assert codes(conn, phone) == ["project_changed"]
