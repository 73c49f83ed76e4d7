"""Slots of digests: which zone they go by, what becomes of those that nobody needs, and of a month that is sealed meanwhile."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

import relevo
from relevo.client import quiet, verbs
from relevo.client.values import Event, TenderMatching
from support.phones import add_phones, fan_out, prefer
from support.processes import PATIENCE_S, eventually

WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


def announce(conn: psycopg.Connection[Any], app: Any, key: str, **more: Any) -> int:
    """Enqueue an event for whoever asked for Maule, and fan it out."""
    event = Event(more.pop("type", "tender.new"), key, key, audience=TenderMatching(region="Maule"), **more)
    made = verbs.enqueue(conn, event).event_id
    fan_out(app)
    return made


def close(conn: psycopg.Connection[Any], app: Any) -> None:
    """Close every slot now."""
    conn.execute("update relevo.digest_slots set closes_at = now() - interval '1 second'")
    assert app.runner.run(app.registry["digest"], "manual").outcome in ("ok", "idle")


def zones(conn: psycopg.Connection[Any]) -> dict[UUID, str]:
    """Return by which zone the digests of each phone close."""
    rows = conn.execute(
        """select i.installation_id, s.zone from relevo.digest_items x join relevo.digest_slots s on s.id = x.slot_id
             join relevo.device_installations i using (seq)"""
    ).fetchall()
    return dict(rows)


def test_whose_zone_a_digest_goes_by(conn: psycopg.Connection[Any], build) -> None:
    """A phone's own zone, else that of its quiet hours, else its owner's, else the project's, else UTC; a changed one moves it."""
    own, by_hours, by_owner, by_project = add_phones(conn, 4)
    conn.execute("update relevo.device_installations set timezone = 'Asia/Kathmandu' where installation_id = %s", [own])
    conn.execute("update relevo.device_installations set owner = 'ana' where installation_id = %s", [by_owner])
    prefer(conn, [own, by_hours, by_owner, by_project], delivery="daily 08:00")
    app = build()
    announce(conn, app, "first")
    assert set(zones(conn).values()) == {"Asia/Kathmandu", "UTC"}
    quiet.set_quiet(conn, ["22:00-07:00"], installation_id=by_hours, zone="Europe/Madrid")
    quiet.set_quiet(conn, ["22:00-07:00"], owner="ana", zone="Africa/Casablanca")
    quiet.set_quiet(conn, ["22:00-07:00"], project="default", zone="America/Santiago")
    conn.execute("update relevo.digest_slots set closes_at = now() where zone = 'UTC'")
    app.runner.run(app.registry["digest"], "manual")
    assert zones(conn) == {
        own: "Asia/Kathmandu",
        by_hours: "Europe/Madrid",
        by_owner: "Africa/Casablanca",
        by_project: "America/Santiago",
    }


def test_phones_are_moved_in_one_order(conn: psycopg.Connection[Any], build, dsn: str) -> None:
    """However they are named, what was gathered for phones is locked in one order, so that nobody waits crosswise."""
    low, high = add_phones(conn, 2)
    prefer(conn, [low, high], region="Maule", delivery="daily 08:00")
    announce(conn, build(), "gathered")
    lock = """select i.installation_id from relevo.digest_items x join relevo.device_installations i using (seq)
               where i.installation_id = any (%s) for update of x skip locked"""
    with psycopg.connect(dsn) as holder, psycopg.connect(dsn, autocommit=True) as watcher:
        assert holder.execute(lock, [[high]]).fetchall() == [(high,)]
        mover = threading.Thread(target=lambda: conn.execute("select relevo.place_items(%s)", [[high, low]]))
        mover.start()
        eventually(lambda: watcher.execute(WAITING).fetchone() == (1,), "it waits for the second phone")
        assert watcher.execute(lock, [[low, high]]).fetchall() == [], "it holds the first"
        holder.rollback()
        mover.join(PATIENCE_S)
    assert len(zones(conn)) == 2


def test_slots_for_which_nothing_is_gathered_go(conn: psycopg.Connection[Any], build) -> None:
    """A slot is pruned once nothing is gathered for it, and not while something is."""
    app = build()
    phones = add_phones(conn, 2)
    prefer(conn, phones[:1], region="Maule", delivery="daily 08:00")
    prefer(conn, phones[1:], region="Maule", delivery="hourly")
    announce(conn, app, "gathered")
    prune = "select relevo.prune_digest_slots(10)"
    assert conn.execute(prune).fetchone() == (0,)
    conn.execute("update relevo.digest_slots set closes_at = now() where delivery = 'hourly'")
    app.runner.run(app.registry["digest"], "manual")
    assert conn.execute(prune).fetchone() == (1,)
    assert conn.execute("select delivery from relevo.digest_slots").fetchall() == [("daily 08:00",)]


def test_a_zone_that_is_not_known_any_more(conn: psycopg.Connection[Any], build) -> None:
    """A slot whose zone this server does not know closes by UTC; its phones are told in the zone that holds for them now."""
    app = build()
    phones = add_phones(conn, 2)
    prefer(conn, phones, region="Maule", delivery="daily 08:00")
    announce(conn, app, "told")
    conn.execute("update relevo.digest_slots set zone = 'America/Nowhere'")
    close(conn, app)
    at = conn.execute("select closes_at at time zone 'UTC' from relevo.digest_slots").fetchall()
    assert {(each.hour, each.minute) for (each,) in at} == {(8, 0)}
    assert set(zones(conn).values()) == {"UTC"}
    close(conn, app)
    assert conn.execute("select count(*) from relevo.digest_contents").fetchone() == (2,)


def test_a_month_that_is_sealed_meanwhile(conn: psycopg.Connection[Any], build) -> None:
    """If the month of a digest that began is sealed before its last slice, the other phones are told by another digest."""
    app = build(fanout_slice_size=1)
    phones = add_phones(conn, 2)
    prefer(conn, phones, region="Maule", delivery="daily 08:00")
    announce(conn, app, "told")
    conn.execute("update relevo.digest_slots set closes_at = now() - interval '1 second'")
    one = "select c.phones from relevo.digest_slots s cross join lateral relevo.close_digest_slice(s, 1, null) c"
    assert conn.execute(one).fetchone() == (1,)
    conn.execute("update relevo.notification_events set event_day = '2020-01-15' where event_type = 'relevo.digest'")
    conn.execute(
        "insert into relevo.archive_exports (entity, month, state, relation, part_rows, sealed_at)"
        " values ('notification_deliveries', '2020-01-01', 'sealed', 'x', 1, now())"
    )
    assert conn.execute(one).fetchone() == (1,)
    rows = conn.execute(
        "select installation_id, notification_event_id from relevo.notification_deliveries where event_type = 'relevo.digest'"
    ).fetchall()
    assert {phone for phone, _ in rows} == set(phones)
    assert len({event for _, event in rows}) == 2


def test_what_stays_out_of_inboxes_is_on_no_page_of_a_digest(conn: psycopg.Connection[Any], build) -> None:
    """A digest may tell an event whose type stays out of inboxes; the list behind it has only the others."""
    app = build()
    phones = add_phones(conn, 1, owner="ana")
    prefer(conn, phones, region="Maule", delivery="daily 08:00")
    conn.execute("insert into relevo.event_types (event_type, inbox) values ('secret', false)")
    shown = announce(conn, app, "shown")
    announce(conn, app, "hidden", type="secret")
    close(conn, app)
    [(digest, total)] = conn.execute("select event_id, total from relevo.digest_contents").fetchall()
    assert total == 2
    assert [item.event_id for item in relevo.inbox(conn, owner="ana", digest=digest).items] == [shown]


def test_quiet_hours_are_those_of_the_phones_that_are_told_at_once(conn: psycopg.Connection[Any], build) -> None:
    """Of phones of which the first is told by a digest, the one in quiet hours waits for their end, and no other."""
    app = build()
    phones = add_phones(conn, 3)
    prefer(conn, phones[:1], region="Maule", delivery="daily 08:00")
    prefer(conn, phones[1:], region="Maule")
    now = datetime.now(UTC)
    hours = [f"{now - timedelta(hours=1):%H:%M}-{now + timedelta(hours=2):%H:%M}"]
    quiet.set_quiet(conn, hours, installation_id=phones[1], zone="UTC")
    announce(conn, app, "told")
    waiting = conn.execute(
        """select d.installation_id, q.due_at > now() + interval '1 hour'
             from relevo.due_chunks q cross join unnest(q.ids) as u(id) join relevo.notification_deliveries d on d.id = u.id"""
    ).fetchall()
    assert dict(waiting) == {phones[1]: True, phones[2]: False}
