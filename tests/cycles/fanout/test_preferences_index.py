"""The index of preferences finds exactly whom a scan of all preferences finds, whatever happened to them before."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from relevo.client import values, verbs
from relevo.client.values import Event, Matching, TenderMatching
from support import matching_oracle
from support.matching_oracle import Change
from support.phones import add_phones, prefer

PHONES = 12
EVERYTHING = 10**15

FOUND = """
select e.id,
       array(select distinct p.installation_id
               from relevo.notification_preferences p join relevo.device_installations i using (installation_id)
              where relevo.preference_matches(p, e) and relevo.may_receive(i) order by 1) as by_scan,
       array(select t.installation_id
               from relevo.find_draft_targets(e, '{}', '{}', relevo.event_buckets(e), 0, %(everything)s) t
              order by 1) as by_index,
       array(select distinct x.installation_id from relevo.preference_index x
              where x.bucket = any (relevo.event_buckets(e)) order by 1) as candidates,
       array(select distinct p.phone
               from relevo.matching_targets(jsonb_populate_record(e, '{"fanout_upto": 1000000000}'), 10000) a
               cross join unnest(a.phones) as p(phone) order by 1) as by_slice,
       array(select p.phone
               from relevo.matching_targets(jsonb_populate_record(e, '{"fanout_upto": 1000000000}'), 3) a
               cross join relevo.matching_targets(jsonb_populate_record(e, jsonb_build_object(
                            'fanout_upto', 1000000000, 'fanout_cursor', coalesce(a.last_seq, 0))), 10000) b
               cross join unnest(a.phones || b.phones) as p(phone) order by 1) as by_two_slices
  from relevo.notification_events e
 order by e.id
"""
STRAY = """
(select x.bucket, x.seq, x.installation_id, x.name, x.sure from relevo.preference_index x
 except
 select b.bucket, i.seq, i.installation_id, p.name, b.sure
   from relevo.notification_preferences p
   join relevo.device_installations i using (installation_id)
   cross join lateral relevo.preference_buckets(p) b
  where relevo.may_receive(i))
union all
(select b.bucket, i.seq, i.installation_id, p.name, b.sure
   from relevo.notification_preferences p
   join relevo.device_installations i using (installation_id)
   cross join lateral relevo.preference_buckets(p) b
  where relevo.may_receive(i)
 except
 select x.bucket, x.seq, x.installation_id, x.name, x.sure from relevo.preference_index x)
"""


DIE = """
update relevo.device_installations set invalidated_at = now(), invalid_reason = 'DeviceNotRegistered'
 where installation_id = %s and invalidated_at is null
"""
DENY = "update relevo.device_installations set permission = 'denied' where installation_id = %s"
COME_BACK = """
update relevo.device_installations set invalidated_at = null, invalid_reason = null, permission = 'granted', updated_at = now()
 where installation_id = %s
"""


class Model:
    """What the phones ask for, kept in a dictionary beside the tables."""

    def __init__(self, conn: psycopg.Connection[Any], phones: list[UUID]) -> None:
        self.conn = conn
        self.phones = phones
        self.asked: dict[tuple[UUID, str], values.Preference] = {}
        self.forgotten: set[UUID] = set()
        self.dead: set[UUID] = set()

    def apply(self, change: Change) -> None:
        """Do one thing to the tables and to the dictionary."""
        key = (self.phones[change.phone], change.name)
        if key[0] in self.forgotten:
            return
        match change.what:
            case "set":
                verbs.set_preference(self.conn, *key, change.preference)
                self.asked[key] = change.preference
            case "remove":
                assert verbs.set_preference(self.conn, *key, None) == (self.asked.pop(key, None) is not None)
            case "switch off" | "switch on":
                self._switch(key, on=change.what == "switch on")
            case "rename":
                self._rename(key)
            case "die":
                self.conn.execute(DENY if change.name == "night" else DIE, key[:1])
                self.dead.add(key[0])
            case "come back":
                self.conn.execute(COME_BACK, key[:1])
                self.dead.discard(key[0])
            case "forget":
                self.conn.execute("delete from relevo.device_installations where installation_id = %s", key[:1])
                self.forgotten.add(key[0])
                self.asked = {each: asked for each, asked in self.asked.items() if each[0] != key[0]}

    def _switch(self, key: tuple[UUID, str], *, on: bool) -> None:
        statement = "update relevo.notification_preferences set enabled = %s where installation_id = %s and name = %s"
        self.conn.execute(statement, [on, *key])
        if key in self.asked:
            self.asked[key] = values.TenderPreference(**vars(self.asked[key]) | {"enabled": on})

    def _rename(self, key: tuple[UUID, str]) -> None:
        if key not in self.asked:
            return
        statement = "update relevo.notification_preferences set name = %s where installation_id = %s and name = %s"
        self.conn.execute(statement, [f"{key[1]} again", *key])
        self.asked[key[0], f"{key[1]} again"] = self.asked.pop(key)

    def who_asked(self, reported: Matching) -> list[UUID]:
        """Say who asked for an event, by plain Python."""
        asking = {phone for (phone, _), asked in self.asked.items() if matching_oracle.matches(asked, reported)}
        return sorted(asking - self.dead)


def compare(model: Model, reported: list[Matching]) -> tuple[int, int]:
    """Hold index, scan and plain Python against each other; count who was found and how many candidates it took."""
    # A rename may hit a name that is taken: the plan of a life is made so that it does not.
    made = verbs.enqueue_many(
        model.conn,
        [
            Event("t", str(n), "t", audience=each, topics=matching_oracle.topics_of(each))
            for n, each in enumerate(reported)
        ],
    )
    rows = model.conn.execute(FOUND, {"everything": EVERYTHING}).fetchall()
    assert [row[0] for row in rows] == [each.event_id for each in made]
    for (_, by_scan, by_index, candidates, *by_slices), about in zip(rows, reported, strict=True):
        assert by_scan == model.who_asked(about), about
        assert by_index == by_scan, about
        assert set(by_scan) <= set(candidates), about
        assert by_slices == [by_scan, by_scan], about
    assert model.conn.execute(STRAY).fetchall() == []
    return sum(len(row[2]) for row in rows), sum(len(row[3]) for row in rows)


def test_the_index_finds_whom_a_scan_finds(conn) -> None:
    """After any life of any preferences the index holds what it should, and finds exactly whom a scan finds."""
    phones = add_phones(conn, PHONES)
    found, candidates = 0, 0

    @settings(
        max_examples=30, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(
        st.lists(matching_oracle.changes(PHONES), min_size=15, max_size=50),
        st.lists(matching_oracle.events(), min_size=3, max_size=8),
    )
    def live(life: list[Change], reported: list[Matching]) -> None:
        nonlocal found, candidates
        with conn.transaction(force_rollback=True):
            model = Model(conn, phones)
            renamed: set[tuple[int, str]] = set()
            for change in life:
                if change.what == "rename" and (change.phone, change.name) in renamed:
                    continue
                if change.what == "rename":
                    renamed.add((change.phone, change.name))
                model.apply(change)
            counts = compare(model, reported)
        found, candidates = found + counts[0], candidates + counts[1]

    live()
    assert found > 100, "the lives must leave something to be found"
    assert candidates > found, "some candidates must fail the last look"


def test_one_statement_over_many_preferences_keeps_the_index(conn) -> None:
    """The triggers work by statement: a bulk insert, update or delete leaves no stray entry."""
    add_phones(conn, 200)
    conn.execute(
        """
        insert into relevo.notification_preferences (installation_id, name, keywords, rubro_prefix)
        select i.installation_id, n.name, case when i.seq % 3 = 0 then array['aseo', 'Aseo', 'agua potable'] end,
               case when i.seq % 3 = 1 then '72' end
          from relevo.device_installations i cross join unnest(array['a', 'b']) as n(name)
        """
    )
    assert conn.execute(STRAY).fetchall() == []
    conn.execute("update relevo.notification_preferences set keywords = null, region = 'Ñuble' where name = 'a'")
    assert conn.execute(STRAY).fetchall() == []
    conn.execute("delete from relevo.notification_preferences where name = 'b'")
    assert conn.execute(STRAY).fetchall() == []
    assert conn.execute("select count(*), count(distinct bucket) from relevo.preference_index").fetchone() == (200, 2)


def test_a_rolled_back_change_leaves_the_index_as_it_was(conn) -> None:
    """Index and preference change in one transaction."""
    phones = add_phones(conn, 1)
    prefer(conn, phones, keywords=["aseo"])
    before = conn.execute("select * from relevo.preference_index").fetchall()
    with conn.transaction(force_rollback=True):
        prefer(conn, phones, keywords=["agua"])
        assert conn.execute("select * from relevo.preference_index").fetchall() != before
    assert conn.execute("select * from relevo.preference_index").fetchall() == before


def test_a_phone_without_a_preference_is_found_by_nothing(conn) -> None:
    """No preference row means no pushes of matching events, whatever they are about."""
    add_phones(conn, 3)
    model = Model(conn, [])
    assert compare(model, [Matching(), TenderMatching(text="aseo", rubros=["72"], region="Ñuble", tipo="LE")]) == (0, 0)


def test_a_phrase_is_found_by_its_words(conn) -> None:
    """A keyword of several words is found wherever they stand side by side, whatever stands between them."""
    phones = add_phones(conn, 1)
    prefer(conn, phones, keywords=["Agua  Potable, rural"])
    assert compare_one(conn, "Red de (agua potable) RURAL") == phones
    assert compare_one(conn, "Agua rural potable") == []


def test_long_words_of_any_script_can_be_asked_for(conn) -> None:
    """The longest keyword the door accepts fits into the index, however its letters unfold."""
    phones = add_phones(conn, 1)
    hangul = "".join(chr(0xAC00 + (n * 7919) % 11_172) for n in range(100))
    prefer(conn, phones, keywords=[hangul])
    assert compare_one(conn, f"x {hangul} y") == phones
    assert compare_one(conn, f"x{hangul}") == []


def compare_one(conn: psycopg.Connection[Any], text: str) -> list[UUID]:
    """Return whom the index finds for an event of this text."""
    made = verbs.enqueue(conn, Event("one", text[:50], "t", audience=Matching(text=text)))
    rows = conn.execute(
        "select t.installation_id from relevo.notification_events e"
        " cross join relevo.find_draft_targets(e, '{}', '{}', relevo.event_buckets(e), 0, %s) t where e.id = %s",
        [EVERYTHING, made.event_id],
    ).fetchall()
    return [row[0] for row in rows]
