"""A snapshot that somebody holds open: what went through the queue meanwhile stays there as dead rows, and costs little."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from relevo.core import queries
from support.claim_steps import NOW, add, answers, journal, take
from support.processes import eventually
from support.query_plans import pages_of

CHURNED, CHUNK = 6_000, 100
CLAIM, LOOK = queries.load("claims")["claim_due"], queries.load("projects")["list_due_lanes"]
ASKED = {
    "worker_id": "a", "cycle": "dispatch", "project": "default", "lane": "bulk", "limit": 1, "now": NOW, "shard_index": None,
    "shard_count": None, "only_types": None, "not_types": None, "not_worded": None, "suspect_lapses": 2, "since": None, "in_shadow": False, "lease_ms": 60_000,
}  # fmt: skip

CHURN = """
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids,
                               installations)
select 'default', 'bulk', now() - interval '1 hour' + n * interval '1 ms', current_date, n, 'notice', now(), 0, 0, false, array[n],
       array[gen_random_uuid()]
  from generate_series(%(from)s::int + 1, %(from)s::int + %(many)s::int) n
"""


def pages_of_a_claim(conn: psycopg.Connection, **how: Any) -> int:
    """Return how many pages a claim of one delivery looks at."""
    return pages_of(conn, CLAIM, ASKED | {"token": uuid4()} | how)


@pytest.fixture
def held(dsn, conn) -> None:
    """Somebody's transaction that keeps every row it could see, to the end of the test."""
    with psycopg.connect(dsn) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select from relevo.due_chunks")
        yield
        holder.rollback()


def test_what_was_sent_under_it_is_passed_by_in_chunks(build, conn, held) -> None:
    """A claim passes by a dead row for each chunk that was sent since, a page each at most, and not by one for each delivery."""
    worker = build(outbox_batch_size=1_000)
    add(conn, CHURNED + CHUNK)
    before = pages_of_a_claim(conn)
    for _ in range(CHURNED // 1_000):
        claim = take(worker)
        request = journal(worker, claim)
        worker.claims.settle(claim, answers(claim), [request.id], NOW, finish=True)
    assert conn.execute("select count(*) from relevo.due_chunks").fetchone() == (1,)
    assert pages_of_a_claim(conn) <= before + CHURNED // CHUNK


def test_pushes_to_one_phone_each_are_not_passed_by_at_all(build, conn, held) -> None:
    """What a worker remembers of a lane lets its next look and claim begin behind all that was sent under the snapshot."""
    projects = build().services.projects
    projects.lanes.read()
    before = pages_of_a_claim(conn)
    for each in range(4):
        conn.execute(CHURN, {"from": 5_000 * each, "many": 5_000})
        assert [lane.project for lane in projects.lanes.read()] == ["default"]
        conn.execute("delete from relevo.due_chunks where id < (select max(id) from relevo.due_chunks)")
    assert pages_of_a_claim(conn, now=None) > before + 300, "without that, a claim passes by all of it"

    def asked() -> dict[str, Any]:
        (lane,) = projects.lanes.read()
        return {
            "now": None, "after_id": projects.lanes._seen_to, "most_new": 10_000, "again_projects": ["default"], "again_lanes": ["bulk"],
            "again_since": [lane.since], "after_project": None, "after_lane": None, "limit": 0,
        }  # fmt: skip

    # who numbered something earlier has to end first, and a server has transactions of its own
    eventually(lambda: pages_of(conn, LOOK, asked()) <= 100, "a look begins behind it")
    (since,) = asked()["again_since"]
    assert pages_of_a_claim(conn, now=None, since=since) <= before + 100
    full = asked() | {"again_since": [None], "after_project": "", "after_lane": "", "limit": 1_000}
    assert pages_of(conn, LOOK, full) > 300, "a full look passes by all of it"


def test_claims_that_are_over_are_passed_by_in_a_look_for_expired_ones(conn, held) -> None:
    """A reaper's look begins at the first claim that is held, behind all that were given up or settled under the snapshot."""
    claim = (
        "insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids) select gen_random_uuid(), 'a', "
        "'dispatch', now() - %s * interval '1 s', 60000, now() - interval '1 s', array[current_date], array[n] from generate_series(1, %s) n"
    )
    conn.execute("alter table relevo.claims set (autovacuum_enabled = off)")
    conn.execute(claim, [3_600, 5_000])
    conn.execute("delete from relevo.claims")
    conn.execute(claim, [60, 1])
    look, bound = queries.load("reaper")["pick_expired_claim"], queries.load("reaper")["find_first_claim"]
    asked = {"now": None, "given_up": []}
    assert pages_of(conn, look, asked | {"since": None}) > 100, "without a bound, it passes by all of them"
    (since,) = conn.execute(bound).fetchone()
    assert pages_of(conn, look, asked | {"since": since}) <= 30
    with conn.transaction(force_rollback=True):
        assert len(conn.execute(look, asked | {"since": since}).fetchall()) == 1
