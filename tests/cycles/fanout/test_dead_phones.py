"""Phones that are gone: out of the index at once, back when they register again, deleted after a while."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from relevo.client import values, verbs
from relevo.client.values import Event, Matching
from support.phones import add_phones, fan_out_to_the_end, one_step, prefer, reached
from support.processes import eventually

GONE = """
update relevo.device_installations set invalidated_at = now(), invalid_reason = 'DeviceNotRegistered'
 where installation_id = any (%s)
"""


def indexed(conn: psycopg.Connection[Any]) -> set[UUID]:
    """Return the phones whose preferences stand in the index."""
    return {row[0] for row in conn.execute("select installation_id from relevo.preference_index").fetchall()}


def test_who_dies_leaves_the_index_and_comes_back_by_registering(build, conn) -> None:
    """A disabled, a logged out and a forbidden phone stand in the index no more; each is found again once it is back."""
    phones = [verbs.register(conn, values.Installation(f"ExponentPushToken[{n}]")) for n in range(4)]
    assert indexed(conn) == set(phones)
    conn.execute(GONE, [phones[:1]])
    verbs.unregister(conn, phones[1])
    verbs.register(conn, values.Installation("ExponentPushToken[2]", phones[2], permission="denied"))
    assert indexed(conn) == {phones[3]}
    verbs.set_preference(conn, phones[0], "more", values.Preference(keywords=["aseo"]))
    assert indexed(conn) == {phones[3]}, "what a dead phone asks for is kept, but not looked at"
    for n in range(3):
        verbs.register(conn, values.Installation(f"ExponentPushToken[{n}new]", phones[n]))
    assert indexed(conn) == set(phones)
    made = verbs.enqueue(conn, Event("tender", "1", "t", audience=Matching(text="aseo")))
    fan_out_to_the_end(build())
    assert reached(conn, made.event_id) == phones


@pytest.mark.parametrize("first", ["phone", "preference"])
def test_a_phone_that_comes_back_while_its_preference_is_set_is_found(build, conn, dsn, first: str) -> None:
    """Two transactions at once, one that has a phone back and one that has it ask for something: it is in the index."""
    (phone,) = add_phones(conn, 1)
    conn.execute(GONE, [[phone]])
    back = (
        "update relevo.device_installations set invalidated_at = null, invalid_reason = null where installation_id = %s"
    )
    ask = "insert into relevo.notification_preferences (installation_id) values (%s)"
    before, after = (back, ask) if first == "phone" else (ask, back)
    waits = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    with psycopg.connect(dsn) as one, psycopg.connect(dsn) as two:
        one.execute(before, [phone])
        second = threading.Thread(target=two.execute, args=[after, [phone]])
        second.start()
        eventually(lambda: conn.execute(waits).fetchall(), "the second waits for the first")
        one.commit()
        second.join()
        two.commit()
    assert indexed(conn) == {phone}


def test_the_dead_are_deleted_after_their_retention(build, conn) -> None:
    """Cleanup deletes phones, owners' names and preferences, that have been dead for long; no living, no recent one."""
    old, gone_out, recent, alive = add_phones(conn, 4, owner="ana")
    prefer(conn, [old, gone_out, recent, alive])
    made = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone"))
    fan_out_to_the_end(build())
    conn.execute(GONE, [[old, recent]])
    verbs.unregister(conn, gone_out)
    conn.execute(
        "update relevo.device_installations set dead_since = now() - interval '31 days' where installation_id = any (%s)",
        [[old, gone_out]],
    )
    app = build(dead_phones_retention_days=30)
    report = app.runner.run(app.registry["cleanup"], "manual")
    assert report.counts["dead_phones_pruned"] == 2
    left = conn.execute("select installation_id from relevo.device_installations order by seq").fetchall()
    assert left == [(recent,), (alive,)]
    assert conn.execute("select count(*) from relevo.notification_preferences").fetchone() == (2,)
    kept = conn.execute(
        "select count(*) from relevo.notification_deliveries where notification_event_id = %s", [made.event_id]
    )
    assert kept.fetchone() == (4,), "deliveries know only its id"


def test_one_that_comes_back_is_dead_no_more(conn) -> None:
    """Whatever brings a phone back, the time since when it was dead is forgotten; dying again begins anew."""
    phone = verbs.register(conn, values.Installation("ExponentPushToken[a]"))
    since = "select dead_since from relevo.device_installations"
    assert conn.execute(since).fetchone() == (None,)
    verbs.unregister(conn, phone)
    assert conn.execute(since).fetchone()[0] is not None
    verbs.register(conn, values.Installation("ExponentPushToken[a]", phone))
    assert conn.execute(since).fetchone() == (None,)
    long_ago = datetime.now(UTC) - timedelta(days=50)
    conn.execute("update relevo.device_installations set invalidated_at = %s, invalid_reason = 'x'", [long_ago])
    assert conn.execute(since).fetchone() == (long_ago,)


def test_a_phone_that_leaves_its_owner_during_a_fan_out_is_left_out(build, conn) -> None:
    """A long list of owners is read once; who is another's by the time of its slice gets nothing."""
    phones = add_phones(conn, 6)
    conn.execute("update relevo.device_installations set owner = 'ana' || seq")
    owners = [row[0] for row in conn.execute("select owner from relevo.device_installations").fetchall()]
    made = verbs.enqueue(conn, Event("notice", "1", "t", audience=values.Owners(*owners)))
    app = build(fanout_slice_size=2)
    one_step(app)
    conn.execute("update relevo.device_installations set owner = 'bea' where installation_id = %s", [phones[3]])
    fan_out_to_the_end(app)
    assert reached(conn, made.event_id) == [*phones[:3], *phones[4:]]
