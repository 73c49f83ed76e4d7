"""What an event by attributes reads: phones of its own project, however many others have the same attributes."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import relevo
from relevo import Event, Matching
from support.phones import add_phones, fan_out_to_the_end
from support.query_plans import BY_KEY, rows_read_by_table

MANY, FEW = 5_000, 10
TARGETS = b"select relevo.attribute_targets(e, 1000) from relevo.notification_events e where e.id = %(event)s"
PREVIEW = b"select relevo.preview(%(event)s)"
BEGUN = """
update relevo.notification_events
   set state = 'fanning', event_day = now()::date, fanout_started_at = now(), fanout_upto = (select max(seq) from relevo.device_installations)
 where id = %s
"""
MOVED = "update relevo.device_installations set project = %s where project = %s"


@pytest.fixture
def mixed(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """Few phones of a shop after many of a bank, all of them with the same attributes."""
    conn.execute("alter table relevo.attribute_index set (autovacuum_enabled = off)")
    for project, count in (("bank", MANY), ("shop", FEW)):
        add_phones(conn, count, project=project, attributes=Jsonb({"plan": "pro", "city": "Talca"}))
    return conn


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("where", [{"plan": "pro"}, {"plan": "pro", "city": ["Talca", "Lota"]}])
def test_other_projects_cost_nothing(mixed: psycopg.Connection[Any], where: dict[str, Any], analyzed: bool) -> None:
    """Fan-out and preview of a project's event read a few rows for each of its phones, and none of another project's, with statistics and without."""
    if analyzed:
        mixed.execute("analyze relevo.attribute_index, relevo.device_installations")
    event = {"type": "offer", "key": "1", "title": "Hello", "audience": "attributes", "where": where, "project": "shop"}
    done = relevo.enqueue(mixed, Event("offer", "1", "Hello", audience=Matching(where=where), project="shop"))
    mixed.execute(BEGUN, [done.event_id])
    with mixed.transaction(force_rollback=True):
        mixed.execute(BY_KEY)
        for statement, asked in ((TARGETS, {"event": done.event_id}), (PREVIEW, {"event": Jsonb(event)})):
            read = rows_read_by_table(mixed, statement, asked)
            assert read.get("attribute_index", 0) <= 4 * FEW
            assert read.get("device_installations", 0) <= 10 * FEW


def test_all_projects_are_found_in_order(mixed: psycopg.Connection[Any], build: Any) -> None:
    """An event of no project reaches the phones of each, in slices smaller than there are phones of one."""
    relevo.enqueue(mixed, Event("offer", "1", "Hello", audience=Matching(where={"plan": "pro"})))
    fan_out_to_the_end(build(fanout_slice_size=1_000))
    assert mixed.execute("select targets_selected from relevo.notification_events").fetchall() == [(MANY + FEW,)]


def test_the_index_follows_a_phone_to_its_project(mixed: psycopg.Connection[Any]) -> None:
    """Phones that move to another project with attributes that hold there, too, are found there and no longer where they were."""
    mixed.execute(MOVED, ["club", "shop"])
    counts = {
        project: relevo.preview(
            mixed, Event("offer", "1", "Hello", audience=Matching(where={"plan": "pro"}), project=project)
        ).count
        for project in ("shop", "club")
    }
    assert counts == {"shop": 0, "club": FEW}
    left = mixed.execute("select project, count(*) from relevo.attribute_index group by 1 order by 1").fetchall()
    assert left == [("bank", 2 * MANY), ("club", 2 * FEW)]
