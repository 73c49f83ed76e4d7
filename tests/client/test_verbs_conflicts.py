"""A known type and key with other content is refused, with what differs; the same content is the same event for good."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, Owners, TenderMatching
from relevo.client.values import Enqueued
from relevo.core.errors import EventConflictError, InvalidInputError

OURS = "23R01"
FIRST = {"type": "order.shipped", "key": "1", "title": "On its way", "audience": "owners", "owners": ["ana", "bea"]}
LATER = datetime(2199, 1, 1, 9, tzinfo=UTC)


def ask(conn: psycopg.Connection[Any], event: dict[str, Any]) -> tuple[bool, bool | None]:
    """Enqueue an event in plain SQL; return whether it is new, and whether it says the same."""
    row = conn.execute("select created, same_content from relevo.enqueue(%s)", [Jsonb(event)]).fetchone()
    assert row is not None
    return row


def refusal(conn: psycopg.Connection[Any], event: dict[str, Any]) -> str:
    """Enqueue an event that is refused in plain SQL; return the sentence."""
    with pytest.raises(psycopg.IntegrityError) as refused, conn.transaction():
        ask(conn, event)
    assert refused.value.diag.sqlstate == OURS
    return refused.value.diag.message_primary or ""


def retire(conn: psycopg.Connection[Any]) -> None:
    """Leave of every event the key alone, as the archive does."""
    conn.execute(
        "with gone as (delete from relevo.notification_events returning *)"
        " insert into relevo.event_keys (event_type, event_key, event_id, content_hash, month, state)"
        " select event_type, case when audience = 'installations' then relevo.hidden_key(event_type, event_key) else event_key end, id,"
        " case when audience = 'installations' then '' else content_hash end, '2020-01-01', 'fanned' from gone"
    )


class TestRefused:
    """Other content under a known key."""

    def test_in_python(self, conn) -> None:
        """The error names the event and both titles; what is there stays, and it is an error of input as well."""
        relevo.enqueue(conn, Event("order.shipped", "1", "On its way", audience="everyone"))
        with pytest.raises(EventConflictError) as refused, conn.transaction():
            relevo.enqueue(conn, Event("order.shipped", "1", "Your parcel left", audience="everyone"))
        assert isinstance(refused.value, InvalidInputError)
        assert refused.value.message == (
            'The event of type "order.shipped" and key "1" already exists with other content: '
            'title is "On its way", given "Your parcel left".'
        )
        assert 'on_conflict="keep"' in refused.value.hint
        assert conn.execute("select title from relevo.notification_events").fetchall() == [("On its way",)]

    def test_each_field_is_named(self, conn) -> None:
        """In plain SQL with a state of our own; what data and push hold is not repeated, nor long texts."""
        ask(conn, FIRST)
        for other, named in [
            ({"title": "x" * 400}, f'title is "On its way", given "{"x" * 30}…"'),
            ({"body": "Soon"}, 'body is "", given "Soon"'),
            ({"data": {"code": "s3cret", "a": 1}}, "data differs in a, code"),
            ({"push": {"badge": 3}}, "push differs in badge"),
            ({"category": "tips"}, 'category is not given, given "tips"'),
            ({"lane": "urgent"}, 'lane is "bulk", given "urgent"'),
            ({"at_most_once": True}, "at_most_once is false, given true"),
            ({"owners": ["ana"]}, "owners differ (2 named, 1 given)"),
            ({"audience": "everyone", "owners": None}, 'audience is "owners", given "everyone"'),
            (
                {"audience": "matching", "owners": None, "topics": ["a"]},
                'audience is "owners", given "matching"; owners differ (2 named, 0 given); topics',
            ),
            ({"scheduled_at": "2199-01-01T09:00:00Z"}, "scheduled_at differs"),
            ({"deadline_at": "2199-01-01T09:00:00Z"}, "deadline_at differs"),
            ({"ttl_s": 60}, "deadline_at differs"),
        ]:
            said = refusal(conn, FIRST | other)
            assert named in said, named
            assert "s3cret" not in said, named
        assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (1,)

    def test_matching_is_named(self, conn) -> None:
        """What an event is about differs."""
        relevo.enqueue(conn, Event("t", "1", "t", audience=TenderMatching(region="Maule", rubros=["1", "2"])))
        with pytest.raises(EventConflictError, match=r"matching differs in region, rubros\."):
            relevo.enqueue(conn, Event("t", "1", "t", audience=TenderMatching(region="Ñuble", rubros=["1"])))

    def test_which_one_of_many(self, conn) -> None:
        """The first of a list is named by its place, and nothing of the list is enqueued."""
        relevo.enqueue(conn, Event("t", "b", "first", audience="everyone"))
        events = [Event("t", key, "second", audience="everyone") for key in "abc"]
        with (
            pytest.raises(EventConflictError, match=r'^events\.1: The event of type "t" and key "b"'),
            conn.transaction(),
        ):
            relevo.enqueue_many(conn, events)
        assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (1,)

    def test_twice_in_one_list(self, conn) -> None:
        """Two events of one list that share a key and differ are refused; the later one is named."""
        events = [Event("t", key, title, audience="everyone") for key, title in [("a", "1"), ("b", "1"), ("a", "2")]]
        with pytest.raises(EventConflictError, match=r"^events\.2: "), conn.transaction():
            relevo.enqueue_many(conn, events)

    def test_after_it_was_archived(self, conn) -> None:
        """Of a retired event the hash is left: the difference is told without fields."""
        ask(conn, FIRST | {"audience": "everyone", "owners": None})
        retire(conn)
        same = FIRST | {"audience": "everyone", "owners": None}
        assert ask(conn, same) == (False, True)
        assert refusal(conn, same | {"title": "x"}).endswith(
            "already exists with other content; it was archived, so what differs is not known"
        )


class TestKept:
    """Asked for, what is there stays, and nobody complains."""

    def test_in_python(self, conn) -> None:
        """One and many, with the answer of before."""
        first = relevo.enqueue(conn, Event("t", "1", "Hello", audience="everyone"), on_conflict="keep")
        other = Event("t", "1", "Goodbye", audience="everyone")
        assert first.created
        assert relevo.enqueue(conn, other, on_conflict="keep") == Enqueued(
            first.event_id, created=False, same_content=False
        )
        assert [each.same_content for each in relevo.enqueue_many(conn, [other], on_conflict="keep")] == [False]
        assert conn.execute("select title from relevo.notification_events").fetchall() == [("Hello",)]

    def test_in_json(self, conn) -> None:
        """As a field of the event, which is no part of its content; `refuse` is what is done without it."""
        assert ask(conn, FIRST | {"on_conflict": "keep"}) == (True, True)
        assert ask(conn, FIRST) == (False, True)
        assert ask(conn, FIRST | {"title": "x", "on_conflict": "keep"}) == (False, False)
        assert "title is" in refusal(conn, FIRST | {"title": "x", "on_conflict": "refuse"})

    def test_no_other_wish(self, conn) -> None:
        """Any other word is refused, in SQL and in Python."""
        for wish in ["replace", "", 7, ["keep"]]:
            with (
                pytest.raises(psycopg.errors.InvalidParameterValue, match="on_conflict must be refuse or keep"),
                conn.transaction(),
            ):
                ask(conn, FIRST | {"on_conflict": wish})
            with pytest.raises(InvalidInputError, match="on_conflict must be refuse or keep"):
                relevo.enqueue(conn, Event("t", "1", "t", audience="everyone"), on_conflict=wish)

    def test_events_of_items(self, conn) -> None:
        """Those follow their source: a tender that was changed is not refused."""
        ask(conn, FIRST | {"licitacion_id": 7})
        assert ask(conn, FIRST | {"licitacion_id": 7, "title": "x"}) == (False, False)

    def test_forgotten_ones(self, conn) -> None:
        """What nobody knows any more is not judged."""
        phone = relevo.register(conn, relevo.Installation("ExponentPushToken[a]"))
        relevo.enqueue(conn, Event("t", "1", "Hello", audience=[phone]))
        relevo.forget(conn, phone)
        again = relevo.enqueue(conn, Event("t", "1", "Goodbye", audience=[phone]))
        assert (again.created, again.same_content) == (False, None)


PHONES = sorted(map(str, (uuid4(), uuid4())))
SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"data": {"a": 1, "b": [2]}}, {"data": {"b": [2.0], "a": 1.00}}),
    ({"data": {"a": 1e2}}, {"data": {"a": 100}}),
    ({"data": {"a": 0.5}}, {"data": {"a": 0.50}, "title": "On its way"}),
    ({"data": {"a": {"b": [{"c": 1}]}}}, {"data": {"a": {"b": [{"c": 1.0}]}}}),
    ({}, {"body": "", "data": {}, "push": {}, "category": None, "lane": None}),
    ({"audience": "owners", "owners": ["ana", "bea"]}, {"audience": "owners", "owners": ["bea", "ana", "bea"]}),
    ({"scheduled_at": "2199-01-01T09:00:00Z"}, {"scheduled_at": "2199-01-01 10:00:00.000+01:00"}),
    ({"deadline_at": "2199-01-01T09:00:00Z"}, {"deadline_at": "2199-01-01T04:00:00-05"}),
    ({"audience": "matching", "owners": None, "topics": ["a", "b"]}, {"audience": "matching", "owners": None, "topics": ["b", "a"]}),
    (
        {"audience": "matching", "owners": None, "matching": {"rubros": ["1", "2"], "monto": 10}},
        {"audience": "matching", "owners": None, "matching": {"monto": 10.0, "rubros": ["2", "1"]}},
    ),
    (
        {"audience": "installations", "owners": None, "installations": PHONES},
        {"audience": "installations", "owners": None, "installations": [each.upper() for each in reversed(PHONES)]},
    ),
]  # fmt: skip


class TestTheSame:
    """The same content in another form."""

    def test_in_the_table_and_after_it_left(self, conn) -> None:
        """Order, number format, zone, and fields that say nothing make no difference, neither then nor for good.

        What a personal event said is not kept for good: then it is not judged.
        """
        for number, (first, again) in enumerate(SAME):
            for audience in ({}, {"audience": "everyone", "owners": None}):
                event = FIRST | {"key": f"{number} {audience}"} | audience
                assert ask(conn, event | first) == (True, True), first
                assert ask(conn, event | again) == (False, True), first
                relevo.cancel(conn, ("order.shipped", event["key"]))
                assert ask(conn, event | again) == (False, True), first
                personal = (event | first)["audience"] in ("owners", "installations")
                retire(conn)
                assert ask(conn, event | again) == (False, None if personal else True), first

    def test_numbers_in_texts_are_texts(self, conn) -> None:
        """A text that looks like a number is compared letter by letter."""
        ask(conn, FIRST | {"data": {"v": "1.0"}})
        assert "data differs in v" in refusal(conn, FIRST | {"data": {"v": "1"}})

    @pytest.mark.parametrize("how", ["in the table", "retired"])
    def test_enqueued_before_the_upgrade(self, conn, how: str) -> None:
        """A hash of before is still known, in the form of then; a row that is there is compared by what it says."""
        event = FIRST | {"audience": "everyone", "owners": None}
        ask(conn, event)
        conn.execute(
            "update relevo.notification_events"
            " set content_hash = encode(sha256(convert_to(jsonb_strip_nulls(%s)::text, 'UTF8')), 'hex')",
            [Jsonb(event)],
        )
        if how == "retired":
            retire(conn)
        else:
            assert ask(conn, event | {"data": {}, "lane": "bulk"}) == (False, True)
        assert ask(conn, event) == (False, True)
        assert refusal(conn, event | {"title": "x"})

    @pytest.mark.parametrize("how", ["in the table", "retired"])
    def test_changed_meanwhile(self, conn, how: str) -> None:
        """What an event said at first and what it was changed into are both the same event; a third is not."""

        def said(title: str) -> Event:
            return Event("t", "1", title, audience="everyone", scheduled_at=LATER)

        first = relevo.enqueue(conn, said("first"))
        for n in range(20):
            assert relevo.change(conn, said(f"change {n}"))
        if how == "retired":
            retire(conn)
        for title in ("first", "change 19", "change 18"):
            assert relevo.enqueue(conn, said(title)) == Enqueued(first.event_id, created=False)
        with pytest.raises(EventConflictError):
            relevo.enqueue(conn, said("third"))

    def test_after_its_deadline(self, conn) -> None:
        """In another form and too late it is still the same."""
        ask(conn, FIRST | {"ttl_s": 60})
        conn.execute(
            "update relevo.notification_events set scheduled_at = now() - interval '2 hours', created_at = now() - interval '2 hours', deadline_at = now() - interval '119 minutes'"
        )
        conn.execute("update relevo.notification_events set content_hash = 'of before'")
        assert ask(conn, FIRST | {"ttl_s": 60.0}) == (False, True)

    def test_one_key_for_two_apps(self, conn) -> None:
        """The story that began it: the second app hears of it, and nobody waits for a push that never comes."""
        phone: UUID = relevo.register(conn, relevo.Installation("ExponentPushToken[a]", owner="ana"))
        relevo.enqueue(conn, Event("order.shipped", "1", "Shop A", audience=[phone]))
        with pytest.raises(EventConflictError, match=r'audience is "installations", given "owners"'):
            relevo.enqueue(conn, Event("order.shipped", "1", "Shop A", audience=Owners("ana")))


def test_a_retry_with_a_clock_of_its_own(conn) -> None:
    """A time reckoned anew at each try is another content: the refusal names it."""
    event = Event("t", "1", "t", audience="everyone", scheduled_at=LATER)
    relevo.enqueue(conn, event)
    with pytest.raises(EventConflictError, match="scheduled_at differs"):
        relevo.enqueue(conn, Event("t", "1", "t", audience="everyone", scheduled_at=LATER + timedelta(seconds=1)))
