"""A snapshot that somebody holds open: what went through the queue meanwhile stays there as dead rows, and costs little."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest
from claiming import NOW, add, answers, journal, take

from plans import BY_KEY
from relevo import queries

CHURNED, CHUNK = 6_000, 100
CLAIM = queries.load("claims")["claim_due"]
ASKED = {
    "worker_id": "a", "cycle": "dispatch", "project": "default", "lane": "bulk", "limit": 1, "now": NOW, "shard_index": None,
    "shard_count": None, "only_types": None, "not_types": None, "suspect_lapses": 2, "lease_ms": 60_000,
}  # fmt: skip


def pages_of_a_claim(conn: psycopg.Connection) -> int:
    """Return how many pages a claim of one delivery looks at, plans and catalogs aside; it is undone."""
    for _ in range(2):
        with conn.transaction(force_rollback=True):
            conn.execute(BY_KEY)
            statement = b"explain (analyze, buffers, timing off, format json) " + CLAIM
            ((explained,),) = conn.execute(statement, ASKED | {"token": uuid4()}).fetchall()
    plan = explained[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


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
