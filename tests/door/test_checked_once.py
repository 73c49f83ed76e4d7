"""What relevo.enqueue and its kin check no CHECK checks again at each insert; nothing else that is expensive for each statement is left there."""

from __future__ import annotations

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
