"""Many events in one call: looked at, written and answered together, and each as if it had come alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, Installation
from relevo.client import checks
from relevo.client.values import Enqueued
from relevo.core.errors import InvalidInputError
from support.processes import PATIENCE_S, eventually

PLAIN = {"type": "chat", "key": "k", "title": "Ana", "audience": "installations", "installations": [str(uuid4())]}
SOON = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
GIVEN: dict[str, list[Any]] = {
    "type": [None, "", " ", "x" * 100, "x" * 101, 7, ["chat"], {"a": "b"}],
    "key": [None, "", "\t", " x ", "ñ" * 300, "ñ" * 301, 7, False, "sha256:" + "0" * 64],
    "title": [None, "", "x" * 500, "x" * 501, 7, []],
    "body": [None, "", "x" * 2000, "x" * 2001, 7, {}],
    "category": [None, "", "x", "x" * 100, "x" * 101, 7, ["x"]],
    "data": [None, {}, {"a": None}, [], "x", 7, {"a": "x" * 3000}, {"a": "x" * 3500}, {"a": '"' * 1500}],
    "push": [None, {}, {"sound": "x"}, [], "x", "{}", 7, {"richContent": {"image": "ñ" * 1600}}, {"a": 1}, {"badge": True}],
    "owners": [None, [], ["ana"]],
    "topics": [None, [], ["a"]],
    "lane": [None, "urgent", "bulk", "fast", "", 7, ["bulk"]],
    "at_most_once": [None, True, False, "true", 1],
    "ttl_s": [None, 1, 60, 60.0, 2419200, 0, -1, 1.5, 2419201, 1e300, "60", True],
    "audience": [None, "everyone", "owners", "matching", "all", 7, ["installations"]],
    "installations": [
        None, [], ["me"], [str(uuid4()).upper()], [str(uuid4())] * 2, [str(uuid4()), None], [str(uuid4()), 7], str(uuid4()), {},
        [f'{uuid4()}", "{uuid4()}'], [[str(uuid4())]], [f"{uuid4()}\n"], [str(uuid4())] * 1000, [str(uuid4())] * 1001, [str(uuid4())] * 100_001,
    ],
    "unknown": [None, "x"],
    "licitacion_id": [None, 1, 1.5],
    "scheduled_at": [None, SOON, "2030-02-30T10:00:00Z", "2030-01-31 10:00:00.5+01:30", "2030-13-01T10:00:00Z", "2030-01-01T25:00:00Z", "soon", 7],
}  # fmt: skip


def verdict(conn: psycopg.Connection[Any], event: object) -> str:
    """Enqueue an event and undo that; return what the door said."""
    try:
        with conn.transaction(force_rollback=True):
            row = conn.execute("select created, same_content from relevo.enqueue(%s)", [Jsonb(event)]).fetchone()
            return str(row)
    except psycopg.errors.InvalidParameterValue as error:
        return str(error.diag.message_primary)


def is_plain(conn: psycopg.Connection[Any], event: object) -> bool | None:
    """Tell whether an event is let through without a closer look."""
    row = conn.execute("select relevo.is_plain_event(%s)", [Jsonb(event)]).fetchone()
    assert row is not None
    return row[0]


def test_the_door_in_python_waves_through_only_what_it_would_not_refuse() -> None:
    """An event that is called plain has no complaint; the usual one is plain, and each of these others is not."""
    usual = {**PLAIN, "body": "and more", "data": {"order": 7}, "push": {}}
    refused = ["\0", "\ud800", "relevo.x", "  ", "", "x" * 2001, 7, None, ["x"]]
    waved = []
    for name, value in [(name, each) for name in ("type", "key", "title", "body") for each in refused] + [
        (name, each) for name, many in GIVEN.items() for each in many
    ]:
        event = {**usual, name: value}
        if name not in ("audience", "installations") and checks.is_plain_event(event):
            checks.check_storable(name, value)
            checks.check_event(event)
            waved.append((name, value))
    assert checks.is_plain_event(usual)
    assert ("body", "") in waved
    assert ("owners", ["ana"]) in waved
    assert not {(name, str(value)) for name, value in waved} & {
        ("key", "\0"),
        ("title", "\ud800"),
        ("type", "relevo.x"),
        ("key", "  "),
    }


class TestPlainEvents:
    """What is plainly right is let through in one look; what that look says must be what the careful one says."""

    def test_both_looks_say_the_same(self, conn) -> None:
        """Whatever is given in a field: with `matching: null`, which means nothing and asks for the careful look, the door says the same."""
        changes = [{name: value} for name, values in GIVEN.items() for value in values]
        changes += [
            {"audience": a, "installations": b} for a, b in product(GIVEN["audience"], GIVEN["installations"][:8])
        ]
        owners = [
            [],
            ["ana"],
            ["ana", "bea"],
            [""],
            [7],
            [None],
            ['"'],
            ["a\\", "b"],
            ["x" * 200],
            ["x" * 201],
            ["x" * 100, "y" * 201],
            ["ñ"] * 1001,
            "ana",
            {},
        ]
        changes += [{"audience": "owners", "installations": None, "owners": each} for each in owners]
        for change in changes:
            event = PLAIN | change
            assert is_plain(conn, event | {"matching": None}) is False
            assert verdict(conn, event) == verdict(conn, event | {"matching": None}), change

    def test_what_is_no_object_is_not_plain(self, conn) -> None:
        """Nothing but an object is let through."""
        for event in [None, [], "x", 7, [PLAIN]]:
            assert not is_plain(conn, event), event

    def test_usual_events_are_plain(self, conn) -> None:
        """The fields that apps give do not need the careful look."""
        usual = [
            {"body": "Hello", "data": {"chat": 7}, "push": {"sound": "default"}, "category": "chats"},
            {"lane": "urgent", "at_most_once": True, "ttl_s": 3600},
            {"scheduled_at": SOON, "deadline_at": SOON},
            {"installations": [str(uuid4()) for _ in range(30)]},
            {"audience": "everyone", "installations": None},
            {"audience": "owners", "installations": None, "owners": ["ana", "bea"]},
        ]
        assert [is_plain(conn, PLAIN | fields) for fields in usual] == [True] * 6

    def test_what_is_plain_fits_into_a_push(self, conn) -> None:
        """However the bytes lie, an event that is let through unweighed is not too heavy once rendered."""
        for field, letter in product(("body", "data", "push"), ("x", "ñ", '"', "📋")):
            event: dict[str, Any] = PLAIN | {"installations": [str(uuid4())]}
            for count in range(100, 3_500, 25):
                text = letter * count
                changed = event | {
                    field: text
                    if field == "body"
                    else {"richContent": {"image": text}}
                    if field == "push"
                    else {"a": text}
                }
                if not is_plain(conn, changed):
                    break
                event = changed
            weigh = "select relevo.push_bytes(e ->> 'title', coalesce(e ->> 'body', ''), coalesce(e -> 'data', '{}'), coalesce(e -> 'push', '{}')) from (select %s::jsonb as e) e"
            (weight,) = conn.execute(weigh, [Jsonb(event)]).fetchone()
            assert 1_000 < weight <= 4096, (field, letter)


class TestAnswers:
    """One answer each, in order."""

    def test_new_and_known_ones_mixed(self, conn) -> None:
        """Known ones keep their ids and say whether they say the same; one that comes twice is made once."""
        old = relevo.enqueue_many(
            conn,
            [
                Event("t", "a", "Hello", audience="everyone"),
                Event("t", "b", "Hello", audience="everyone"),
                Event("u", "a", "Hello", audience="everyone"),
            ],
        )
        again = [
            Event("t", "c", "Hello", audience="everyone"), Event("t", "b", "Goodbye", audience="everyone"), Event("t", "a", "Hello", audience="everyone"), Event("t", "c", "Goodbye", audience="everyone"),
            Event("u", "c", "Hello", audience="everyone"), Event("t", "c", "Hello", audience="everyone"), Event("u", "a", "Hello", audience="everyone"),
        ]  # fmt: skip
        made = relevo.enqueue_many(conn, again, on_conflict="keep")
        assert [(each.created, each.same_content) for each in made] == [
            (True, True), (False, False), (False, True), (False, False), (True, True), (False, True), (False, True),
        ]  # fmt: skip
        assert [made[1].event_id, made[2].event_id, made[6].event_id] == [
            old[1].event_id,
            old[0].event_id,
            old[2].event_id,
        ]
        assert made[3].event_id == made[5].event_id == made[0].event_id
        assert len({each.event_id for each in [*old, *made]}) == 5

    def test_forgotten_and_retired_ones_are_known(self, conn) -> None:
        """An event that is known by the hash of its key, or whose key alone is left, is not made again."""
        kept, hidden, retired = relevo.enqueue_many(
            conn, [Event("t", key, "t", audience="everyone") for key in ("kept", "hidden", "retired")]
        )
        conn.execute(
            "update relevo.notification_events set event_key = relevo.hidden_key(event_type, event_key), content_hash = ''"
            " where event_key = 'hidden'"
        )
        conn.execute(
            "with gone as (delete from relevo.notification_events where event_key = 'retired' returning *)"
            " insert into relevo.event_keys (event_type, event_key, event_id, content_hash, month, state)"
            " select event_type, event_key, id, content_hash, '2020-01-01', 'fanned' from gone"
        )
        made = relevo.enqueue_many(
            conn, [Event("t", key, "t", audience="everyone") for key in ("retired", "new", "hidden", "kept")]
        )
        assert made[0] == Enqueued(retired.event_id, created=False, same_content=True)
        assert made[1].created
        assert (made[2].event_id, made[2].created, made[2].same_content) == (hidden.event_id, False, None)
        assert made[3] == Enqueued(kept.event_id, created=False, same_content=True)

    def test_ids_follow_the_order(self, conn) -> None:
        """Among thousands the ids rise as the events were given, and each has its own audience, once."""
        phones = [uuid4() for _ in range(3_000)]
        made = relevo.enqueue_many(
            conn, [Event("t", str(n), "t", audience=[p, p, phones[0]]) for n, p in enumerate(phones)]
        )
        ids = [each.event_id for each in made]
        assert ids == sorted(ids)
        rows = conn.execute(
            "select event_id, array_agg(installation_id) from relevo.event_audience group by event_id"
        ).fetchall()
        assert {event: set(named) for event, named in rows} == {
            event: {p, phones[0]} for event, p in zip(ids, phones, strict=True)
        }
        assert sum(len(named) for _, named in rows) == 2 * 3_000 - 1

    def test_types_give_what_is_left_open(self, conn) -> None:
        """Each event of a batch gets its own type's lane, policy and time to live."""
        conn.execute(
            "insert into relevo.event_types (event_type, lane, at_most_once, ttl_s) values ('call', 'urgent', true, 60)"
        )
        relevo.enqueue_many(
            conn,
            [
                Event("call", "1", "t", audience="everyone"),
                Event("chat", "1", "t", audience="everyone"),
                Event("call", "2", "t", lane="bulk", ttl_s=9, audience="everyone"),
            ],
        )
        rows = conn.execute(
            "select lane, at_most_once, extract(epoch from deadline_at - scheduled_at)::int from relevo.notification_events order by id"
        ).fetchall()
        assert rows == [("urgent", True, 60), ("bulk", False, None), ("bulk", True, 9)]

    def test_a_deadline_that_passed_refuses_all(self, conn) -> None:
        """A new event that is too late is refused with its batch; one that is known is not judged again."""
        late = Event("t", "late", "t", deadline_at=datetime.now(UTC) - timedelta(hours=1), audience="everyone")
        with pytest.raises(
            InvalidInputError, match=r"^events\.1: deadline_at must lie after now and after scheduled_at"
        ):
            relevo.enqueue_many(conn, [Event("t", "1", "t", audience="everyone"), late])
        assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (0,)
        relevo.enqueue(conn, Event("t", "late", "t", audience="everyone"))
        both = [Event("t", "1", "t", audience="everyone"), late]
        assert [each.created for each in relevo.enqueue_many(conn, both, on_conflict="keep")] == [True, False]


class TestWhichOneIsRefused:
    """In plain SQL, too, the complaint about a list names the entry, counted from 0; about a single one it does not."""

    def test_events(self, conn) -> None:
        """Whether a check finds it or only the writing, the first bad one is named."""
        good = {"type": "t", "key": "k", "title": "t", "audience": "everyone"}
        for wrong, complaint in [
            ({"lane": "slow"}, "lane must be urgent or bulk"),
            ({"type": "relevo.x"}, "type must not begin with relevo."),
            ({"title": 7}, "title must be text"),
            ({"scheduled_at": "tomorrow"}, "scheduled_at must be a time with its zone"),
            ({"scheduled_at": "1999-01-01T00:00:00Z"}, "scheduled_at must lie between the years"),
            ({"deadline_at": "2001-01-01T00:00:00Z"}, "deadline_at must lie after now"),
        ]:
            matching, bad = good | {"key": "m", "audience": "matching", "topics": ["a"]}, good | {"key": "b"} | wrong
            assert _refusal(conn, "enqueue_many", [bad]).startswith(complaint), wrong
            assert _refusal(conn, "enqueue_many", [good, matching, bad]).startswith(f"events.2: {complaint}"), wrong
            assert _refusal(conn, "enqueue_many", [good, bad, 7]).startswith("events."), wrong
            assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (0,), wrong

    def test_installations(self, conn) -> None:
        """The first bad one among good ones, usual or not."""
        good, rare = {"token": "ExponentPushToken[a]"}, {"token": "ExponentPushToken[b]", "opt_outs": ["tips"]}
        bad = {"token": "ExponentPushToken[c]", "platform": "toaster"}
        complaint = "platform must be ios, android, web or unknown"
        assert _refusal(conn, "register_many", [bad]) == complaint
        assert _refusal(conn, "register_many", [good, rare, bad, {}, 7]) == f"installations.2: {complaint}"
        assert conn.execute("select count(*) from relevo.device_installations").fetchone() == (0,)


def _refusal(conn: psycopg.Connection[Any], verb: str, given: list[Any]) -> str:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        conn.execute(f"select relevo.{verb}(%s)".encode(), [Jsonb(given)])
    return refused.value.diag.message_primary or ""


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_somebody_else_is_at_one_of_them(conn, dsn: str, ending: str) -> None:
    """A batch waits for whoever is writing one of its events: committed, it is theirs; rolled back, it is made here."""
    made: list[Enqueued] = []
    with psycopg.connect(dsn) as other:
        theirs = relevo.enqueue(other, Event("t", "5", "theirs", audience="everyone"))
        with psycopg.connect(dsn, autocommit=True) as mine:
            events = [Event("t", str(n), "mine", audience=[uuid4()]) for n in range(10)]
            thread = threading.Thread(target=lambda: made.extend(relevo.enqueue_many(mine, events, on_conflict="keep")))
            thread.start()
            ask = (
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            )
            eventually(lambda: conn.execute(ask).fetchone() == (1,), "the batch waits")
            other.commit() if ending == "commit" else other.rollback()
            thread.join(PATIENCE_S)
    expected = [True] * 10
    if ending == "commit":
        expected[5] = False
        assert (made[5].event_id, made[5].created, made[5].same_content) == (theirs.event_id, False, False)
    assert [each.created for each in made] == expected
    rows = conn.execute("select count(*), count(distinct event_id) from relevo.event_audience").fetchone()
    assert rows == (sum(expected), sum(expected))


READ_WHOLE = """
select relname from pg_stat_xact_user_tables where schemaname = 'relevo' and seq_scan > 0 and relname not in ('cycle_state', 'providers')
"""
"""These have a row for each cycle and for each push service, and no more."""


class TestPlans:
    """Plans that an app's connection keeps."""

    @pytest.fixture
    def conn(self, dsn) -> Iterator[psycopg.Connection[Any]]:
        """A connection that has made no plan yet."""
        with psycopg.connect(dsn, autocommit=True) as connection:
            yield connection

    def test_made_on_tiny_tables_they_go_by_keys(self, conn) -> None:
        """What was planned while there were three events and phones reads no table whole, however many come later."""
        phones = relevo.register_many(conn, [Installation(f"ExponentPushToken[{n}]") for n in range(3)])
        for n in range(3):
            relevo.enqueue(conn, Event("t", str(n), "Hello", audience=phones))
        conn.execute("vacuum analyze")
        with conn.transaction():
            for n in range(8):  # more often than plans are made anew each time
                relevo.enqueue_many(conn, [Event("t", f"again {n}", "Hello", audience=phones)])
                relevo.register_many(conn, [Installation(f"ExponentPushToken[again-{n}]")])
            assert conn.execute(READ_WHOLE).fetchall() == []
