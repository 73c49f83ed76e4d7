"""Beside somebody's long writing transaction, dispatch's looks do not read again and again what they saw."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psycopg

from relevo.delivery.claiming import due_lanes

CHUNK = """
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids,
                               installations)
select %(project)s, 'bulk', now(), current_date, n, 'notice', now(), 0, 0, false, array[n], array[gen_random_uuid()]
  from generate_series(1, %(many)s::int) n
"""


@contextmanager
def writing(dsn: str, project: str = "late"):
    """Keep a transaction open that has added a chunk."""
    with psycopg.connect(dsn) as writer:
        writer.execute(CHUNK, {"project": project, "many": 1})
        yield writer
        writer.rollback()


def test_a_look_reads_what_is_new_and_little_more(build, conn, dsn, monkeypatch) -> None:
    """With 6,000 chunks numbered since the long transaction began, a look during work reads a thousand of them again."""
    lanes = build().services.projects.lanes
    clock = [1_000.0]
    monkeypatch.setattr(due_lanes, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    lanes.read()
    with writing(dsn):
        conn.execute(CHUNK, {"project": "default", "many": 6_000})
        lanes.read()
        lanes._all_new_at = clock[0] + 1

        asked: list[int] = []
        query = lanes._query

        def noted(*given: Any, **named: Any) -> Any:
            asked.append(lanes._numbered - named["after_id"])
            return query(*given, **named)

        monkeypatch.setattr(lanes, "_query", noted)
        assert [lane.project for lane in lanes.read()] == ["default"]
        assert asked == [1_000]
        clock[0] += 2
        lanes.read()
        assert asked[1] >= 6_000, "now and then all"


def test_what_the_long_transaction_adds_is_found(build, conn, dsn, monkeypatch) -> None:
    """Its chunk, far behind those that were seen, is found by the next look at all during work, and at once without work."""
    lanes = build().services.projects.lanes
    clock = [1_000.0]
    monkeypatch.setattr(due_lanes, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    lanes.read()
    for ends_work in (False, True):
        late = f"late {ends_work}"
        with writing(dsn, late) as writer:
            conn.execute(CHUNK, {"project": "default", "many": 2_000})
            lanes.read()
            lanes._all_new_at = clock[0] + 1
            writer.commit()
            assert late not in [lane.project for lane in lanes.read()]
            if ends_work:
                conn.execute("delete from relevo.due_chunks where project = 'default'")
                lanes.rest("default", "bulk", 60)
            else:
                clock[0] += 1.5
            assert late in [lane.project for lane in lanes.read()]
            conn.execute("delete from relevo.due_chunks where project = %s", [late])
            lanes.read()
