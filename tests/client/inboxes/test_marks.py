"""What was touched in an inbox: one item or all before an instant, taken back, and counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import relevo
from relevo import Event, Owners
from relevo.core.errors import InvalidInputError
from support.deliveries import TODAY
from support.inboxes import counts, sent, titles
from support.phones import add_phones
from support.query_plans import rows_read_by_table

ROWS = "select seen_at, read_at, archived_at, xmin::text from relevo.inbox_marks"


@pytest.fixture
def three(conn: psycopg.Connection[Any]) -> list[int]:
    """Three items of ana's, oldest first."""
    [phone] = add_phones(conn, 1, owner="ana")
    return [sent(conn, [phone], title) for title in ("a", "b", "c")]


def test_nothing_is_written_until_something_is_touched(conn: psycopg.Connection[Any], three: list[int]) -> None:
    """Reading and counting leave no mark; what was touched has one."""
    titles(conn, owner="ana")
    assert counts(conn, owner="ana") == (3, 3)
    assert conn.execute("select count(*) from relevo.inbox_marks").fetchone() == (0,)
    assert relevo.mark_inbox(conn, three[0], "seen", owner="ana")
    assert conn.execute("select count(*) from relevo.inbox_marks").fetchone() == (1,)
    assert counts(conn, owner="ana") == (3, 2)


def test_an_inbox_is_of_the_project_whose_events_are_in_it(conn: psycopg.Connection[Any]) -> None:
    """Who has no phone yet has an inbox where an event is for them: in its project, and in each one if it names none."""
    event = relevo.enqueue(conn, Event("t", "1", "a", audience=Owners("somebody"))).event_id
    for owner, project in (("ana", "shop"), ("eva", "")):
        conn.execute(
            "insert into relevo.event_owners (event_id, owner, inbox_place, inbox_project)"
            " values (%s, %s, nextval('relevo.delivery_ids'), %s)",
            [event, owner, project],
        )
    opened = "select relevo.open_inbox(jsonb_populate_record(null::relevo.inbox_subject, jsonb_build_object('owner', %s::text, 'project', %s::text))) is not null"
    made = {
        (owner, project): conn.execute(opened, [owner, project]).fetchone()
        for owner in ("ana", "eva", "nobody")
        for project in ("shop", "bank")
    }
    assert {asked for asked, (is_made,) in made.items() if is_made} == {
        ("ana", "shop"),
        ("eva", "shop"),
        ("eva", "bank"),
    }


def test_each_mark_and_back(conn: psycopg.Connection[Any], three: list[int]) -> None:
    """What is read was seen; what is unseen was not read; what is archived is in no list but its own, and counts nowhere."""
    event = three[1]
    for mark, unread, unseen in (
        ("read", 2, 2),
        ("unread", 3, 2),
        ("read", 2, 2),
        ("unseen", 3, 3),
        ("seen", 3, 2),
        ("archive", 2, 2),
        ("unarchive", 3, 2),
    ):
        assert relevo.mark_inbox(conn, event, mark, owner="ana")
        assert counts(conn, owner="ana") == (unread, unseen), mark
    relevo.mark_inbox(conn, event, "archive", owner="ana")
    assert titles(conn, owner="ana") == ["c", "a"]
    assert titles(conn, owner="ana", status="archived") == ["b"]
    assert titles(conn, owner="ana", status="all") == ["c", "b", "a"]
    relevo.mark_inbox(conn, three[0], "read", owner="ana")
    assert titles(conn, owner="ana", status="read") == ["a"]
    assert titles(conn, owner="ana", status="unread") == ["c"]
    assert titles(conn, owner="ana", status="unseen") == ["c"]


def test_the_same_mark_again_changes_nothing(conn: psycopg.Connection[Any], three: list[int]) -> None:
    """A mark that is there already keeps its time, and nothing is written."""
    for mark in ["read", "unread", "seen", "unseen", "archive", "unarchive"]:
        assert relevo.mark_inbox(conn, three[0], mark, owner="ana"), mark
        first = conn.execute(ROWS).fetchall()
        assert relevo.mark_inbox(conn, three[0], mark, owner="ana"), mark
        assert conn.execute(ROWS).fetchall() == first, mark


def test_what_is_no_item(conn: psycopg.Connection[Any], three: list[int]) -> None:
    """Another's event, or none, is not to be marked, and leaves nothing behind."""
    [other] = add_phones(conn, 1, owner="bea")
    hers = sent(conn, [other], "hers")
    for event in (hers, 10**12):
        assert relevo.mark_inbox(conn, event, "read", owner="ana") is False
    assert relevo.mark_inbox(conn, three[0], "read", owner="nobody") is False
    assert relevo.mark_inbox_before(conn, owner="nobody") is False
    assert conn.execute("select count(*) from relevo.inbox_marks").fetchone() == (0,)
    assert conn.execute("select count(*) from relevo.inboxes where owner = 'nobody'").fetchone() == (0,)


def test_all_before(conn: psycopg.Connection[Any], three: list[int]) -> None:
    """All until an instant is read, what comes later is not, and what is marked one by one since counts."""
    middle = relevo.inbox(conn, owner="ana").items[1]
    relevo.mark_inbox(conn, three[0], "unread", owner="ana")
    assert relevo.mark_inbox_before(conn, middle.at, owner="ana")
    assert titles(conn, owner="ana", status="unread") == ["c"]
    assert counts(conn, owner="ana") == (1, 1)
    assert relevo.mark_inbox(conn, three[0], "unread", owner="ana")
    assert titles(conn, owner="ana", status="unread") == ["c", "a"]
    assert counts(conn, owner="ana") == (2, 1)
    assert relevo.mark_inbox(conn, three[0], "archive", owner="ana")
    assert relevo.mark_inbox(conn, three[0], "unarchive", owner="ana")
    assert relevo.mark_inbox(conn, three[1], "archive", owner="ana")
    assert relevo.mark_inbox(conn, three[1], "unarchive", owner="ana")
    assert titles(conn, owner="ana", status="read") == ["b"]
    assert relevo.mark_inbox_before(conn, middle.at - timedelta(days=1), owner="ana")
    assert titles(conn, owner="ana", status="unread") == ["c", "a"]
    assert relevo.mark_inbox_before(conn, owner="ana")
    assert titles(conn, owner="ana", status="unread") == []
    assert counts(conn, owner="ana") == (0, 0)


def test_all_before_is_walked_along_once(conn: psycopg.Connection[Any]) -> None:
    """However many types ask for it, marking all as read reads each delivery once, and counts every event that asks."""
    [phone] = add_phones(conn, 1, owner="ana")
    for number in range(300):
        sent(conn, [phone], type=f"t{number % 30}")
    conn.execute(
        "insert into relevo.event_types (event_type, opens) select 't' || n, true from generate_series(0, 28) n"
    )
    marked = b'select relevo.mark_inbox_before(\'{"owner": "ana"}\')'
    assert rows_read_by_table(conn, marked, {})[f"notification_deliveries_{TODAY:%Y_%m}"] <= 1_000
    assert relevo.mark_inbox_before(conn, owner="ana")
    assert conn.execute("select count(distinct event_id) from relevo.event_reactions").fetchone() == (290,)


def test_all_seen_before(conn: psycopg.Connection[Any], three: list[int]) -> None:
    """What was seen is not read; an instant to come is now."""
    assert relevo.mark_inbox_before(conn, datetime.now(UTC) + timedelta(days=9), "seen", owner="ana")
    assert counts(conn, owner="ana") == (3, 0)
    [phone] = conn.execute("select installation_id from relevo.device_installations").fetchone() or [None]
    sent(conn, [phone], "d", at=datetime.now(UTC) + timedelta(minutes=1))
    assert counts(conn, owner="ana") == (4, 1)


def test_a_marked_item_whose_first_phone_left(conn: psycopg.Connection[Any]) -> None:
    """It stays one item, where it came to the phone that is still there, and counts once."""
    first, second = add_phones(conn, 2, owner="ana")
    sent(conn, [first], "before")
    assert relevo.mark_inbox_before(conn, owner="ana")
    event = sent(conn, [first, second], "both")
    assert relevo.mark_inbox(conn, event, "seen", owner="ana")
    relevo.register(conn, relevo.Installation(None, first, owner="bea"))
    assert counts(conn, owner="ana") == (1, 0)
    assert titles(conn, owner="ana", status="unread") == ["both"]


@pytest.mark.parametrize(("many", "shown"), [(0, 0), (1, 1), (99, 99), (100, "99+"), (230, "99+")])
def test_counts(conn: psycopg.Connection[Any], many: int, shown: Any) -> None:
    """Counts are exact up to 99, then "99+", on two phones as on one."""
    phones = add_phones(conn, 2, owner="ana")
    for n in range(many):
        sent(conn, phones, f"{n}")
    assert counts(conn, owner="ana") == (shown, shown)


def test_counts_of_an_inbox_read_one_by_one(conn: psycopg.Connection[Any]) -> None:
    """What was read one by one is passed by, however much it is, until what is unread is found."""
    [phone] = add_phones(conn, 1, owner="ana")
    events = [sent(conn, [phone], f"{n}") for n in range(700)]
    for event in events[5:]:
        relevo.mark_inbox(conn, event, "read", owner="ana")
    assert counts(conn, owner="ana") == (5, 5)
    assert titles(conn, owner="ana", status="unread") == ["4", "3", "2", "1", "0"]


@pytest.mark.parametrize(("seen", "unseen"), [(110, 40), (51, 99), (50, "99+"), (10, "99+")])
def test_counts_of_an_inbox_that_was_looked_at(conn: psycopg.Connection[Any], seen: int, unseen: Any) -> None:
    """What is unseen is counted exactly up to 99 where more is unread than is counted."""
    [phone] = add_phones(conn, 1, owner="ana")
    events = [sent(conn, [phone], f"{n}") for n in range(150)]
    for event in events[145 - seen : 145]:
        relevo.mark_inbox(conn, event, "seen", owner="ana")
    assert counts(conn, owner="ana") == ("99+", unseen)


def test_what_python_refuses(conn: psycopg.Connection[Any]) -> None:
    """A wrong word, number or time is named before anything is sent."""
    wrong: list[tuple[Any, str]] = [
        (lambda: relevo.inbox(conn), "An inbox is an owner's"),
        (lambda: relevo.inbox(conn, owner="a", status="new"), "status must be current"),  # type: ignore[arg-type]
        (lambda: relevo.inbox(conn, owner="a", limit=0), "limit must be between"),
        (lambda: relevo.inbox(conn, owner="a\0"), "owner"),
        (lambda: relevo.inbox(conn, owner=7), "owner must be text"),  # type: ignore[arg-type]
        (lambda: relevo.inbox(conn, installation_id="x"), "installation_id must be the UUID"),  # type: ignore[arg-type]
        (lambda: relevo.mark_inbox(conn, 0, "read", owner="a"), "event_id must be a whole number"),
        (lambda: relevo.mark_inbox(conn, 1, "gone", owner="a"), "mark must be read"),  # type: ignore[arg-type]
        (lambda: relevo.mark_inbox_before(conn, datetime(2026, 1, 1), owner="a"), "before must be a datetime"),  # noqa: DTZ001
    ]
    for call, complaint in wrong:
        with pytest.raises(InvalidInputError, match=complaint):
            call()
