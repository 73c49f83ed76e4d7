"""What relevo.enqueue and its kin check no CHECK checks again at each insert; nothing else that is expensive for each statement is left there."""

from __future__ import annotations

from itertools import product
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.types.json import Jsonb

EVENT: dict[str, Any] = {"type": "chat", "key": "k", "title": "Ana", "audience": "owners", "owners": ["ana"]}
BAD: dict[str, list[Any]] = {
    "type": [None, "", "x" * 101],
    "key": [None, "", "x" * 301],
    "title": ["x" * 501],
    "body": ["x" * 2001],
    "data": ["x", [], 7],
    "push": ["x", [], 7],
    "audience": [None, "", "phones"],
    "category": ["", "x" * 101],
    "lane": ["", "fast"],
    "project": ["", "x" * 201],
    "arguments": ["x", [], 7],
    "collapse": ["", "x" * 65],
    "batch": ["x", [], 7],
    "deadline_at": ["2001-01-01T00:00:00Z"],
}
DOORS: dict[str, LiteralString] = {
    "enqueue": "select * from relevo.enqueue(%(event)s)",
    "enqueue_many": "select * from relevo.enqueue_many(jsonb_build_array(%(other)s::jsonb, %(event)s::jsonb))",
    "change": "select relevo.change(%(event)s)",
}


@pytest.mark.parametrize("door", DOORS)
def test_each_door_refuses(conn: psycopg.Connection[Any], door: str) -> None:
    """What the CHECKs of notification_events refused, or refuse, each function by which apps and sources write events refuses with a sentence."""
    if door == "change":
        conn.execute("select relevo.enqueue(%s)", [Jsonb(EVENT)])
    for name, values in BAD.items():
        for value in values:
            given = {"event": Jsonb(EVENT | {name: value}), "other": Jsonb(EVENT | {"key": "other"})}
            with pytest.raises(psycopg.errors.InvalidParameterValue, match=name):
                conn.execute(DOORS[door], given)


def test_what_is_left_at_the_insert(conn: psycopg.Connection[Any]) -> None:
    """CHECKs are of columns that others write, too, and no generated column or CHECK calls an SQL function, whose text each insert would parse."""
    checked = conn.execute(
        "select array_agg(distinct a.attname::text) from pg_constraint c join pg_attribute a on a.attrelid = c.conrelid and a.attnum = any (c.conkey)"
        " where c.conrelid = 'relevo.notification_events'::regclass and c.contype = 'c'"
    ).fetchone()
    only_by_the_door = {
        "match_monto",
        "scheduled_at",
        "deadline_at",
        "event_type",
        "event_key",
        "data",
        "push",
        "audience",
        "category",
        "lane",
        "project",
        "collapse",
        "batch",
    }
    assert checked is not None
    assert not only_by_the_door & set(checked[0])
    parsed = conn.execute(
        "select p.proname from pg_depend d join pg_proc p on d.refclassid = 'pg_proc'::regclass and d.refobjid = p.oid join pg_language l on l.oid = p.prolang"
        " where l.lanname = 'sql' and (d.classid, d.objid) in (select 'pg_attrdef'::regclass, oid from pg_attrdef where adrelid = 'relevo.notification_events'::regclass"
        " union select 'pg_constraint'::regclass, oid from pg_constraint where conrelid = 'relevo.notification_events'::regclass)"
    ).fetchall()
    assert parsed == []


def test_possible_states(conn: psycopg.Connection[Any]) -> None:
    """An event that began has a day, a start and a last phone, one that is finished or ended has the time of that, and no other state has them."""
    states = ["waiting", "held", "fanning", "fanned", "cancelled", "completed", "lost", ""]
    given = [(state, *there) for state in states for there in product([False, True], repeat=5)]
    answers = conn.execute(
        "select array_agg(relevo.is_possible_event(g.state, case when g.day then current_date end, case when g.started then now() end,"
        " case when g.upto then 7 end, case when g.finished then now() end, case when g.ended then now() end) order by g.n)"
        " from unnest(%s::text[], %s::bool[], %s::bool[], %s::bool[], %s::bool[], %s::bool[]) with ordinality as g(state, day, started, upto, finished, ended, n)",
        [list(column) for column in zip(*given, strict=True)],
    ).fetchone()
    assert answers is not None

    def possible(state: str, day: bool, started: bool, upto: bool, finished: bool, ended: bool) -> bool:
        return (
            state in states[:6]
            and day == started == upto
            and (day or state not in ("fanning", "fanned"))
            and (finished or state != "fanned")
            and ended == (state in ("cancelled", "completed"))
        )

    assert answers[0] == [possible(*each) for each in given]
    assert 0 < sum(answers[0]) < len(given)


def test_an_impossible_state_is_refused(conn: psycopg.Connection[Any]) -> None:
    """The CHECK stands on the table: whoever writes an impossible state, by hand too, is refused."""
    conn.execute("select relevo.enqueue(%s)", [Jsonb(EVENT)])
    for change in (
        "state = 'lost'",
        "state = 'fanned'",
        "ended_at = now()",
        "state = 'cancelled'",
        "event_day = current_date",
        "fanout_upto = 1",
    ):
        with pytest.raises(psycopg.errors.CheckViolation, match="event_is_possible"):
            conn.execute(f"update relevo.notification_events set {change}")
