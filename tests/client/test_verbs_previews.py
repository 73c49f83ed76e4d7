"""Whom an event would reach, why a phone gets it or not, and an event that is changed before it starts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, Matching, Owners, Preference, TenderMatching
from relevo.core.errors import InvalidInputError
from support import matching_oracle
from support.phones import add_phones, event_row, fan_out, fan_out_to_the_end, prefer, reached
from support.push_tokens import subscription
from support.query_plans import explain, rows_read_by_table

SOON = datetime.now(UTC) + timedelta(hours=1)


def events(conn: psycopg.Connection[Any]) -> int:
    """Count the events."""
    ((count,),) = conn.execute("select count(*) from relevo.notification_events").fetchall()
    return int(count)


class TestTopics:
    """Topics beside tender preferences: one match, one index."""

    def test_whoever_asked_for_one_of_them(self, build, conn) -> None:
        """Any topic in common is enough, and needed; other conditions of the preference hold as well. Without topics a
        wildcard matches.
        """
        seven, nine, both, narrow, wild, other = phones = add_phones(conn, 6)
        prefer(conn, [seven], topics=["team-7"])
        prefer(conn, [nine], topics=["team-9", "Team-7"])
        prefer(conn, [both], topics=["team-9", "team-7"])
        prefer(conn, [narrow], topics=["team-7"], keywords=["gol"])
        prefer(conn, [wild])
        prefer(conn, [other], keywords=["gol"])
        plain = relevo.enqueue(conn, Event("goal", "1", "Goal!", audience=Matching(), topics=["team-7", "league"]))
        told = relevo.enqueue(conn, Event("goal", "2", "Goal!", audience=Matching(text="¡Gol!"), topics=["team-7"]))
        none = relevo.enqueue(conn, Event("goal", "3", "Goal!", audience=Matching(text="nada")))
        fan_out_to_the_end(build())
        assert reached(conn, plain.event_id) == [seven, both]
        assert reached(conn, told.event_id) == [seven, both, narrow]
        assert reached(conn, none.event_id) == [wild]
        assert set(phones) >= {nine}

    def test_a_narrow_event_is_a_few_look_ups(self, conn) -> None:
        """Among 8,000 phones that ask for other topics, the four that ask for this one are found without reading the rest."""
        conn.execute(
            """
            with made as (insert into relevo.device_installations (token) select 'ExponentPushToken[' || n || ']' from generate_series(1, 8000) n
                          returning installation_id, seq)
            insert into relevo.notification_preferences (installation_id, name, topics)
            select installation_id, 'default', array['team-' || seq % 2000, 'club-' || seq % 2300] from made
            """
        )
        event = Jsonb({"type": "t", "key": "k", "title": "t", "audience": "matching", "topics": ["team-77"]})
        read = rows_read_by_table(conn, b"select relevo.preview(%(event)s, 10)", {"event": event})
        assert sum(read.values()) < 60, read
        assert relevo.preview(conn, Event("t", "k", "t", audience=Matching(), topics=["team-77"])).count == 4

    def test_dispatch_asks_the_same(self, build, conn) -> None:
        """A phone that has since dropped the topic is not told."""
        phones = add_phones(conn, 2)
        prefer(conn, phones, topics=["team-7"])
        relevo.enqueue(conn, Event("goal", "1", "Goal!", audience=Matching(), topics=["team-7"]))
        app = build()
        fan_out(app)
        relevo.set_preference(conn, phones[0], "default", Preference(topics=["team-9"]))
        claim = app.claims.claim("dispatch", "default", "bulk")
        told = {each.installation_id: each.obstacle for each in claim.deliveries}
        assert told == {phones[0]: "preference_changed", phones[1]: None}


class TestPreview:
    """How many, and a sample; nothing stays behind."""

    @pytest.mark.parametrize("kind", ["everyone", "installations", "owners", "matching"])
    def test_it_says_what_fan_out_does(self, build, conn, kind: str) -> None:
        """For every audience preview finds those that fan-out reaches, leaves no event, and reports who is not known."""
        ana, bea = add_phones(conn, 1, owner="ana"), add_phones(conn, 2, owner="bea")
        add_phones(conn, 1, owner="ana", permission="denied")
        add_phones(conn, 1, owner="ana", opt_outs=["tips"])
        prefer(conn, ana, topics=["a"])
        prefer(conn, bea, topics=["b"])
        stranger = uuid4()
        audiences: dict[str, tuple[Any, list[UUID]]] = {
            "everyone": ("everyone", [*ana, *bea]),
            "installations": ([bea[0], stranger], [bea[0]]),
            "owners": (Owners("ana", "nobody"), ana),
            "matching": (Matching(), bea),
        }
        audience, expected = audiences[kind]
        event = Event("t", "1", "t", audience=audience, category="tips", topics=["b"] if kind == "matching" else ())
        seen = relevo.preview(conn, event)
        assert (seen.count, seen.exact, set(seen.sample)) == (len(expected), True, set(expected))
        assert seen.at_least == seen.at_most == seen.count
        assert seen.unknown_installations == ((stranger,) if kind == "installations" else ())
        assert events(conn) == 0
        made = relevo.enqueue(conn, event)
        fan_out(build())
        assert sorted(reached(conn, made.event_id)) == sorted(expected)
        assert relevo.preview(conn, event).count == len(expected), "known or not"
        assert relevo.preview(conn, event, sample=0).sample == ()

    def test_it_warns_of_what_some_phones_lose(self, conn) -> None:
        """It names the kinds of phones, and what of the event would not reach some of them as it is."""
        add_phones(conn, 1, platform="android")
        add_phones(conn, 1, platform="ios")
        event = Event("t", "1", "t", audience="everyone", push={"subtitle": "today", "badge": 3})
        seen = relevo.preview(conn, event)
        assert sorted(each["platform"] for each in seen.raw["kinds"]) == ["android", "ios"]
        assert seen.warnings == (
            "push.subtitle does not reach Expo, Android.",
            "push.badge does not reach Expo, Android.",
        )
        assert relevo.preview(conn, Event("t", "1", "t", audience="everyone")).warnings == ()

    def test_it_warns_of_what_is_too_large_for_some_phones(self, conn) -> None:
        """A push that Expo takes may be too large for a browser."""
        add_phones(conn, 1)
        event = Event("t", "1", "t", audience="everyone", data={"text": "x" * 3_590})
        assert relevo.preview(conn, event).warnings == ()
        relevo.register(conn, relevo.Installation(subscription(), provider="webpush", platform="web"))
        [told] = relevo.preview(conn, event).warnings
        assert told.startswith("It may be too large for Web Push: it has about 4,0")

    def test_many_are_estimated(self, conn) -> None:
        """Beyond 10,000 that were looked at it says that it estimates, and how many are about right."""
        add_phones(conn, 15_000)
        seen = relevo.preview(conn, Event("t", "1", "t", audience="everyone"), sample=3)
        assert (seen.exact, len(seen.sample)) == (False, 3)
        assert 14_500 < seen.count < 15_500
        assert 14_000 < seen.at_least <= 15_000 <= seen.at_most < 16_000

    def test_an_estimate_looks_at_the_newest_phones_as_well(self, conn) -> None:
        """Where the newest may get nothing, the oldest 10,000 do not speak for them."""
        add_phones(conn, 12_000)
        add_phones(conn, 12_000, permission="denied")
        conn.execute(
            "insert into relevo.notification_preferences (installation_id, name) "
            "select installation_id, 'default' from relevo.device_installations"
        )
        for audience in ("everyone", Matching()):
            seen = relevo.preview(conn, Event("t", "1", "t", audience=audience))
            assert not seen.exact
            assert 10_500 < seen.count < 13_500

    def test_an_estimate_sees_phones_that_stand_close_together(self, conn) -> None:
        """Of 50,000 that ask for something, 600 match: in a row, in two crowds, or in turns, it tells about how many.

        A crowd so small that it may be missed lies between the bounds that are told; and it reads a part of them.
        """
        conn.execute(
            """
            with made as (insert into relevo.device_installations (token) select 'ExponentPushToken[' || n || ']' from generate_series(1, 50000) n
                          returning installation_id, seq)
            insert into relevo.notification_preferences (installation_id, name, topics, tipo)
            select installation_id, 'default', array['all'],
                   case when n between 21000 and 21599 then 'row' when n between 33000 and 33299 or n > 49700 then 'crowds'
                        when n % 80 = 7 then 'turns' when n between 44000 and 44019 then 'few' else 'none' end
              from (select installation_id, seq - min(seq) over () + 1 as n from made) m
            """
        )
        for tipo, phones in {"row": 600, "crowds": 600, "turns": 609, "few": 20, "no such": 0}.items():
            seen = relevo.preview(conn, Event("t", "1", "t", audience=TenderMatching(tipo=tipo), topics=["all"]))
            assert not seen.exact
            assert seen.at_least <= phones <= seen.at_most, tipo
            assert phones / 2 <= seen.count <= phones * 2 or tipo == "few", tipo
            assert seen.at_most - seen.at_least < max(2 * phones, 150), tipo
        event = Jsonb(
            {
                "type": "t",
                "key": "k",
                "title": "t",
                "audience": "matching",
                "topics": ["all"],
                "matching": {"tipo": "row"},
            }
        )
        read = rows_read_by_table(conn, b"select relevo.preview(%(event)s, 10)", {"event": event})
        assert sum(read.values()) < 25_000, read

    def test_many_words_are_looked_up_at_fewer_places(self, conn) -> None:
        """An event of 300 words, each of which somebody asks for, looks as much up as one of few: it is as quick."""
        conn.execute(
            """
            with made as (insert into relevo.device_installations (token) select 'ExponentPushToken[' || n || ']' from generate_series(1, 12000) n
                          returning installation_id, seq)
            insert into relevo.notification_preferences (installation_id, name, keywords)
            select installation_id, 'default', array['palabra' || seq % 300] from made
            """
        )
        words = " ".join(f"palabra{n}" for n in range(300))
        seen = relevo.preview(conn, Event("t", "1", "t", audience=Matching(text=words)))
        assert (seen.exact, seen.at_least <= 12_000 <= seen.at_most) == (False, True)
        event = {"type": "t", "key": "k", "title": "t", "audience": "matching", "matching": {"text": words}}
        plan = explain(conn, b"select relevo.preview(%(event)s, 10)", {"event": Jsonb(event)})
        assert plan["Shared Hit Blocks"] < 35_000, "16,391 alone; 26,386 were seen once in a whole run"

    def test_bad_input(self, conn) -> None:
        """An event that could not be enqueued cannot be previewed."""
        with pytest.raises(InvalidInputError, match="sample must be between 0 and 100"):
            relevo.preview(conn, Event("t", "1", "t", audience="everyone"), sample=101)
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="audience must be given"):
            conn.execute("select relevo.preview(%s)", [Jsonb({"type": "t", "key": "k", "title": "t"})])


class TestExplain:
    """Why, or why not, and which rule decided."""

    def test_each_rule_by_name(self, build, conn) -> None:
        """Of a new event each rule that can decide is named, with its values and a sentence that says what matters."""
        (ana,) = add_phones(conn, 1, owner="ana", opt_outs=["tips"])
        (denied,) = add_phones(conn, 1, permission="denied")
        prefer(conn, [ana], "work", topics=["a"])
        prefer(conn, [ana], "home", region="Maule")
        about = TenderMatching(region="Ñuble")
        cases: list[tuple[dict[str, Any], UUID, bool, str, str]] = [
            ({"audience": "everyone"}, ana, True, "everyone", "The event is for everyone."),
            ({"audience": [ana]}, ana, True, "named", "The event names this installation."),
            ({"audience": Owners("ana")}, ana, True, "owner", "The event is for its owner, ana."),
            ({"audience": about, "topics": ["a"]}, ana, True, "preference", "Its preference work matches."),
            ({"audience": about}, ana, False, "preference_differs",
             "None of its preferences matches: home differs in region, work differs in topics."),
            ({"audience": "everyone", "category": "tips"}, ana, False, "opted_out", "It opted out of the category tips."),
            ({"audience": Owners("bea")}, ana, False, "not_named",
             "The event is for others: it names neither this installation nor its owner."),
            ({"audience": "everyone"}, denied, False, "not_allowed", "Pushes may not go to it: permission denied."),
            ({"audience": "everyone"}, uuid4(), False, "installation_gone", "There is no such installation."),
        ]  # fmt: skip
        values = {
            "owner": {"owner": "ana"}, "opted_out": {"category": "tips"}, "not_allowed": {"why_not": "permission denied"},
        }  # fmt: skip
        for fields, phone, gets_it, rule, reason in cases:
            told = relevo.explain(conn, Event("t", "1", "t", **fields), phone)
            assert (told.gets_it, told.rule, told.reason) == (gets_it, rule, reason)
            assert told.raw["values"] == values.get(rule, {})
        conn.execute("update relevo.device_installations set permission = 'granted'")
        told = relevo.explain(conn, Event("t", "1", "t", audience=about), denied)
        assert (told.gets_it, told.rule) == (False, "no_preference")
        assert events(conn) == 0

    def test_an_event_on_its_way(self, build, conn) -> None:
        """Of a stored event it knows the delivery, what was handled and why, what ended, and who came too late."""
        mine = add_phones(conn, 2, owner="ana")
        made = relevo.enqueue(conn, Event("t", "1", "t", audience=Owners("ana")))
        fan_out(build())
        (late,) = add_phones(conn, 1, owner="ana")
        told = relevo.explain(conn, ("t", "1"), mine[0])
        assert (told.gets_it, told.rule, told.raw["delivery"]["status"]) == (True, "owner", "pending")
        assert relevo.explain(conn, made.event_id, late).rule == "came_later"
        relevo.complete(conn, ("t", "1"), "read on the tablet", owner="ana")
        told = relevo.explain(conn, made.event_id, mine[1])
        assert (told.rule, told.reason) == (
            "handled_elsewhere", "Its owner handled the event on another phone: read on the tablet.",
        )  # fmt: skip
        other = relevo.enqueue(conn, Event("t", "2", "t", audience="everyone", scheduled_at=SOON))
        relevo.cancel(conn, ("t", "2"), "sold out")
        told = relevo.explain(conn, other.event_id, late)
        assert (told.gets_it, told.rule, told.reason) == (False, "event_ended", "The event was cancelled: sold out.")
        assert told.raw["values"] == {"state": "cancelled", "reason": "sold out"}
        assert relevo.explain(conn, ("t", "no such"), late).rule == "event_gone"

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(asked=matching_oracle.preferences(), reported=matching_oracle.events())
    def test_it_says_what_the_match_says(self, conn, asked: Preference, reported: Matching) -> None:
        """Whatever is asked and reported: there is a difference exactly if it is no match."""
        with conn.transaction(force_rollback=True):
            (phone,) = add_phones(conn, 1)
            relevo.set_preference(conn, phone, "x", asked)
            made = relevo.enqueue(
                conn, Event("t", "1", "t", audience=reported, topics=matching_oracle.topics_of(reported))
            )
            both = conn.execute(
                """
                select relevo.preference_matches(p, e), relevo.preference_mismatch(p, e) is null
                  from relevo.notification_preferences p, relevo.notification_events e where e.id = %s
                """,
                [made.event_id],
            ).fetchone()
        assert both is not None
        assert both[0] == both[1]


class TestChange:
    """A scheduled event can be changed until it starts."""

    def test_until_it_starts(self, build, conn) -> None:
        """Everything of it changes but its id; started, cancelled or unknown it does not."""
        ana, bea = add_phones(conn, 1, owner="ana"), add_phones(conn, 1, owner="bea")
        made = relevo.enqueue(conn, Event("t", "1", "Old", audience=ana, scheduled_at=SOON))
        push = {"badge": "unread", "sound": "bell"}
        new = Event("t", "1", "New", "Body", audience=Owners("bea"), data={"a": 1}, push=push, lane="urgent", ttl_s=60)
        assert relevo.change(conn, new)
        assert (events(conn), relevo.enqueue(conn, new)) == (1, relevo.Enqueued(made.event_id, False, True))
        fan_out(build())
        assert reached(conn, made.event_id) == bea
        row = event_row(conn, made.event_id)
        assert (row["title"], row["body"], row["data"], row["lane"]) == ("New", "Body", {"a": 1}, "urgent")
        assert (row["push"], row["unread_badge"]) == ({"sound": "bell"}, True)
        assert not relevo.change(conn, new), "it has started"
        assert not relevo.change(conn, Event("t", "2", "New", audience="everyone")), "there is none"
        relevo.enqueue(conn, Event("t", "3", "Old", audience="everyone", scheduled_at=SOON))
        relevo.cancel(conn, ("t", "3"))
        assert not relevo.change(conn, Event("t", "3", "New", audience="everyone")), "it has ended"

    def test_the_callers_rollback_undoes_it(self, dsn: str, conn) -> None:
        """It is the caller's transaction."""
        made = relevo.enqueue(conn, Event("t", "1", "Old", audience="everyone", scheduled_at=SOON))
        with psycopg.connect(dsn) as app:
            assert relevo.change(app, Event("t", "1", "New", audience="everyone"))
            app.rollback()
        assert event_row(conn, made.event_id)["title"] == "Old"


def test_by_type_key_and_project(conn) -> None:
    """Equal keys of two projects are two events: every verb reaches the one whose project is named, and asks for it."""
    made = [relevo.enqueue(conn, Event("t", "1", "t", audience="everyone", project=each)) for each in ("a", "b")]
    assert [each.created for each in made] == [True, True]
    with pytest.raises(InvalidInputError, match="project must be given: events of type t and key 1 are there in a, b"):
        relevo.get(conn, ("t", "1"))
    for project, enqueued in zip(("a", "b"), made, strict=True):
        seen = relevo.get(conn, ("t", "1", project))
        assert seen is not None
        assert (seen.id, seen.raw["project"]) == (enqueued.event_id, project)
    assert relevo.get(conn, ("t", "1", "c")) is None
    assert relevo.change(conn, Event("t", "1", "other", audience="everyone", project="b"))
    assert relevo.cancel(conn, ("t", "1", "a"))
    states = [relevo.get(conn, ("t", "1", each)) for each in ("a", "b")]
    assert [(each.state, each.raw["title"]) for each in states if each] == [("cancelled", "t"), ("waiting", "other")]
    assert not relevo.enqueue(conn, Event("t", "1", "other", audience="everyone", project="b")).created
    plain = relevo.enqueue(conn, Event("t", "1", "t", audience="everyone"))
    assert plain.created
    assert relevo.get(conn, ("t", "1")).id == plain.event_id  # type: ignore[union-attr]


def test_by_type_and_key(conn) -> None:
    """An event is named by its id or by (type, key), in every verb; anything else is refused."""
    made = relevo.enqueue(conn, Event("t", "1", "t", audience="everyone"))
    seen = relevo.get(conn, ("t", "1"))
    assert seen is not None
    assert seen.id == made.event_id
    assert relevo.wait(conn, ("t", "1"), timeout_s=0).left_to_send  # type: ignore[union-attr]
    assert relevo.cancel(conn, ("t", "1"), "no more")
    assert not relevo.complete(conn, ("t", "1"))
    assert relevo.get(conn, ("t", "2")) is None
    assert conn.execute("select relevo.event_id('t', '1')").fetchone() == (made.event_id,)
    for strange in ((), ("t",), ("t", 1), ("t", "1", 2), ("t", "1", "x", "y")):
        with pytest.raises(InvalidInputError, match=r"by its id, by \(type, key\) or by \(type, key, project\)"):
            relevo.get(conn, strange)  # type: ignore[arg-type]


def test_in_a_read_only_transaction(conn, dsn: str) -> None:
    """A preview and an explanation write nothing, so that they work where nothing may be written, as on a standby."""
    phone = relevo.register(conn, relevo.Installation("ExponentPushToken[read-only]", owner="ana"))
    relevo.set_preference(conn, phone, "team", relevo.Preference(topics=["team-7"]))
    for audience in [
        {"audience": "everyone"},
        {"audience": "owners", "owners": ["ana", "nobody"]},
        {
            "audience": "matching",
            "matching": {"region": "Maule", "rubros": ["43"], "monto": 10, "moneda": "CLP", "text": "Aseo"},
        },
        {"audience": "matching", "topics": ["team-7"]},
    ]:
        event = {"type": "t", "key": "k", "title": "t", **audience}
        before = conn.execute("select last_value from relevo.notification_events_id_seq").fetchone()
        with psycopg.connect(dsn) as app:
            app.read_only = True
            seen = relevo.preview_json(app, event)
            [told] = app.execute("select relevo.explain(%s, %s)", [Jsonb(event), phone]).fetchall()
        assert (seen.count, seen.exact, seen.sample) == (1, True, (phone,)), audience
        assert told[0]["gets_it"] is True, audience
        assert conn.execute("select last_value from relevo.notification_events_id_seq").fetchone() == before, audience
