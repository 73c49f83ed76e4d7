"""A snapshot that somebody holds open: what fanned out meanwhile stays there as dead rows, and fan-out's looks pass it by."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from relevo.client import verbs
from relevo.client.values import Event
from relevo.core import queries
from relevo.cycles import look_bounds
from support.phones import add_phones, event_row, fan_out, fan_out_to_the_end
from support.query_plans import pages_of

MANY = 10_000
FANOUT = queries.load("fanout")
ASKED = {
    "after_project": "", "given_up": [], "apart": [], "aside": [], "few": 100, "most_events": 1, "most": 10_000, "brake": True,
    "enough": 1, "at_once": False, "now": None, "since": None, "due_since": None, "looks_since": None, "ended_since": None,
}  # fmt: skip
BEGUN = """
insert into relevo.notification_events (event_type, event_key, title, audience, content_hash, scheduled_at, project)
select 'notice', 'dead ' || n, 't', 'installations', '', now() - interval '1 hour' + n * interval '1 ms', 'p' || n %% 2
  from generate_series(1, %(many)s) n
"""
FANNED = """
update relevo.notification_events
   set state = 'fanned', event_day = current_date, fanout_started_at = now(), fanout_finished_at = now(), fanout_upto = 0
"""
SOME = """
insert into relevo.notification_events (event_type, event_key, title, audience, content_hash, scheduled_at, project, lane, turn_at, arguments,
                                        state, event_day, fanout_started_at, fanout_upto)
values ('notice', gen_random_uuid(), 't', 'everyone', '', %(at)s, %(project)s, %(lane)s, %(turn)s, %(arguments)s,
        case when %(begun)s then 'fanning' else 'waiting' end, case when %(begun)s then current_date end,
        case when %(begun)s then now() end, case when %(begun)s then 0 end)
"""


@pytest.fixture
def held(dsn, conn) -> None:
    """Somebody's transaction that keeps every row it could see, to the end of the test."""
    with psycopg.connect(dsn) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select from relevo.due_chunks")
        yield
        holder.rollback()


@pytest.fixture
def always_bound(monkeypatch) -> None:
    """Each look takes long, so that each has a bound, read for that look alone."""
    monkeypatch.setattr(look_bounds, "_LONG_S", 0.0)
    monkeypatch.setattr(look_bounds, "_OFTEN", 0)
    monkeypatch.setattr(look_bounds, "_SHORTEST_S", 0.0)
    monkeypatch.setattr(look_bounds, "_LONGEST_S", 0.0)


def bounds_of(conn: psycopg.Connection[Any]) -> dict[str, Any]:
    """Return the bounds as fan-out reads them."""
    turns, ended = (conn.execute(FANOUT[name]).fetchone() for name in ("find_first_turn", "find_first_ended"))
    assert turns is not None
    assert ended is not None
    return ASKED | {"since": turns[0], "due_since": turns[1], "ended_since": ended[0]}


def test_what_fanned_out_under_it_is_passed_by(conn, held) -> None:
    """Looks for the next event, alone or with others, begin behind it, beside an old event that is at its slices, too."""
    conn.execute(BEGUN, {"many": MANY})
    conn.execute(FANNED)
    old = {"at": datetime.now(UTC) - timedelta(hours=2), "turn": datetime.now(UTC) + timedelta(seconds=10)}
    conn.execute(SOME, old | {"project": "p0", "lane": "bulk", "arguments": None, "begun": True})
    verbs.enqueue(conn, Event("notice", "1", "t", audience=[uuid4()], project="p1"))
    bound = bounds_of(conn)
    assert pages_of(conn, FANOUT["fan_out_next"], ASKED) > 300, "without a bound, a look passes by all of it"
    assert pages_of(conn, FANOUT["fan_out_next"], bound) <= 120
    together = {"after_project": "p0", "at_once": True}
    assert pages_of(conn, FANOUT["fan_out_next"], bound | together) + 300 < pages_of(
        conn, FANOUT["fan_out_next"], ASKED | together
    )


def test_what_was_swept_under_it_is_passed_by(conn, held) -> None:
    """Looks for ended events of which something is left begin behind those that were swept."""
    conn.execute(BEGUN, {"many": MANY})
    conn.execute(
        "update relevo.notification_events set state = 'cancelled', ended_at = now(), updated_at = now() - interval '1 hour'"
    )
    conn.execute("update relevo.notification_events set swept_at = now()")
    verbs.cancel(conn, verbs.enqueue(conn, Event("notice", "1", "t", audience=[uuid4()])).event_id)
    for name in ("look_beside", "pick_ended_event"):
        asked = {"looks_since": datetime.now(UTC) + timedelta(hours=1)}
        assert pages_of(conn, FANOUT[name], ASKED | asked) > 100, "without a bound, a look passes by all of it"
        assert pages_of(conn, FANOUT[name], bounds_of(conn) | asked) <= 40


@pytest.mark.parametrize("seed", range(8))
def test_a_bound_changes_no_turn(conn, seed: int) -> None:
    """Whatever waits, whenever, at its slices, after a failure or without texts: with its bound a look finds the same event."""
    dice = random.Random(seed)
    for _ in range(dice.choice([5, 40, 250])):
        at = datetime.now(UTC) + timedelta(seconds=dice.randint(-7_200, 60))
        begun = dice.random() < 0.2
        row = {
            "at": at, "project": dice.choice([None, "a", "b", "c"]), "lane": dice.choice(["bulk", "bulk", "urgent"]), "begun": begun,
            "turn": max(at, datetime.now(UTC)) + timedelta(seconds=dice.randint(-30, 30)) if begun or dice.random() < 0.3 else None,
            "arguments": None if begun or dice.random() < 0.8 else "{}",
        }  # fmt: skip
        conn.execute(SOME, row | {"turn": max(row["turn"], at) if row["turn"] else None})
    for _ in range(20):
        bound = bounds_of(conn)
        for after in ("", "a", "b", "c"):
            found = [
                conn.execute(FANOUT["fan_out_next"], each | {"after_project": after}).fetchone()
                for each in (ASKED, bound)
            ]
            assert found[0] == found[1]
        if found[0] is None:
            return
        conn.execute("delete from relevo.notification_events where id = %s", [found[0][0]])


def test_events_are_fanned_out_by_bounded_looks(build, conn, always_bound) -> None:
    """With a bound each look, personal and other events, urgent, of projects and cancelled ones all come to their end."""
    phones = add_phones(conn, 20)
    events = [
        Event(
            "notice",
            str(n),
            "t",
            audience=["everyone", phones[:3], [phones[n % 20]]][n % 3],
            lane="urgent" if n % 5 == 0 else None,
        )
        for n in range(40)
    ]
    made = verbs.enqueue_many(conn, events)
    verbs.cancel(conn, made[7].event_id)
    fan_out_to_the_end(build(fanout_slice_size=10))
    states = [event_row(conn, each.event_id) for each in made]
    assert [row["state"] for row in states] == ["cancelled" if n == 7 else "fanned" for n in range(40)]
    assert states[7]["swept_at"] is not None


def test_a_late_event_is_found_once_the_bound_is_read_again(build, conn, monkeypatch, always_bound) -> None:
    """An event that gets a place before the bound waits until the bound is read again, and the run says when to look again."""
    add_phones(conn, 1)
    app = build()
    monkeypatch.setattr(look_bounds, "_SHORTEST_S", 3_600.0)
    monkeypatch.setattr(look_bounds, "_LONGEST_S", 3_600.0)
    clock = [1_000_000.0]
    monkeypatch.setattr(look_bounds, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    assert fan_out(app).outcome == "idle"
    late = verbs.enqueue(conn, Event("notice", "1", "t", audience="everyone")).event_id
    conn.execute("update relevo.notification_events set scheduled_at = now() - interval '1 hour'")
    assert fan_out(app).outcome == "idle"
    clock[0] += 3_601
    fan_out(app)
    assert event_row(conn, late)["state"] == "fanned"
