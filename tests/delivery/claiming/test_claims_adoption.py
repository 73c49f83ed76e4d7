"""Lost COMMITs: a claim whose COMMIT answer was lost is adopted, one whose COMMIT was lost can never come to be."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from uuid import uuid4

import psycopg
import pytest

from relevo.core import queries
from relevo.core.errors import DatabaseUnavailableError
from support.claim_steps import LEASE, MINUTE, NOW, SECOND, add, answers, chunks_in, claims_in, journal, reap, take
from support.deliveries import one, states
from support.postgres_proxy import Proxy
from support.processes import eventually

SQL = queries.load("claims")
CLAIMS = b"relevo.claim_due"


@pytest.fixture
def proxy(dsn):
    """A proxy in front of the test's database."""
    with Proxy(dsn) as running:
        yield running


@pytest.fixture
def in_background():
    """Run something in a thread; its result is waited for at the end."""
    with ThreadPoolExecutor(4) as pool:
        yield pool.submit


def blocked(conn) -> bool:
    """Tell whether somebody waits for a lock in this database."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    return conn.execute(waiting).fetchone()[0] > 0


def assert_whole(conn, claim, ids) -> None:
    """Claim, row and queue agree: nothing claimed is missing, nothing missing is claimed, nothing is due as well."""
    assert claim.ids == ids
    assert claims_in(conn) == [claim.token]
    assert conn.execute("select ids from relevo.claims").fetchone()[0] == ids
    held = conn.execute("select id from relevo.deliveries where claim_token = %s order by id", [claim.token])
    assert [row[0] for row in held.fetchall()] == ids
    assert chunks_in(conn) == []


def test_a_claim_whose_commit_answer_was_lost_is_adopted(build, conn, proxy) -> None:
    """The COMMIT was carried out, its answer never came: the claim is read back complete and can be worked with."""
    ids = add(conn, 20)
    worker = build(database_url=proxy.dsn)
    proxy.lose_answer(after=CLAIMS)
    claim = take(worker)
    proxy.wait_until_hit()
    assert_whole(conn, claim, ids)
    request = journal(worker, claim)
    assert worker.claims.settle(claim, answers(claim), [request.id], NOW).written == {"sent": 20}
    assert worker.claims.release(claim, NOW) == {}


def test_an_adopted_claim_keeps_its_lease_and_its_heartbeat(build, conn, proxy) -> None:
    """Adopted is as good as claimed: the lease is the one its type has, and the heartbeat extends it."""
    conn.execute("insert into relevo.event_types (event_type, lease_ms) values ('tender.new', 120000)")
    add(conn, 1)
    worker = build(database_url=proxy.dsn)
    proxy.lose_answer(after=CLAIMS)
    claim = take(worker, None)
    assert claim.lease_ms == 120_000
    before = one(conn, claim.ids[0])["locked_until"]
    worker.heartbeat.beat()
    assert one(conn, claim.ids[0])["locked_until"] > before


def test_a_commit_that_never_arrived_claimed_nothing(build, conn, proxy) -> None:
    """The transaction ends without its COMMIT: nothing is claimed, the token is barred, the next claim works."""
    ids = add(conn, 3)
    worker = build(database_url=proxy.dsn)
    proxy.lose_commit(after=CLAIMS)
    with pytest.raises(DatabaseUnavailableError):
        worker.claims.claim("dispatch", "default", "bulk", now=NOW)
    assert conn.execute("select count(*), sum(cardinality(ids)) from relevo.claims").fetchone() == (1, 0)
    assert chunks_in(conn) == [ids]
    reap(worker, NOW + LEASE)
    assert_whole(conn, take(worker), ids)
    assert {one(conn, delivery)["lapse_count"] for delivery in ids} == {0}


def test_a_commit_that_is_late_is_waited_for(build, conn, proxy, in_background) -> None:
    """The COMMIT is stuck on its way: adoption waits for the open transaction, and adopts what it then finds."""
    ids = add(conn, 5)
    worker = build(database_url=proxy.dsn)
    proxy.hold_commit(after=CLAIMS)
    claiming: Future = in_background(take, worker)
    proxy.wait_until_hit()
    eventually(lambda: blocked(conn))
    proxy.deliver_commit()
    assert_whole(conn, claiming.result(10), ids)


def test_a_commit_that_does_not_come_is_not_waited_for_for_ever(build, conn, proxy, in_background) -> None:
    """A transaction that sits idle is ended by PostgreSQL; adoption waits longer than that, and bars the token."""
    ids = add(conn, 5)
    worker = build(database_url=proxy.dsn, database_idle_transaction_timeout_ms=600, database_lock_timeout_ms=100)
    proxy.hold_commit(after=CLAIMS)
    claiming: Future = in_background(take, worker)
    proxy.wait_until_hit()
    with pytest.raises(DatabaseUnavailableError):
        claiming.result(10)
    assert conn.execute("select count(*), sum(cardinality(ids)) from relevo.claims").fetchone() == (1, 0)
    assert chunks_in(conn) == [ids]


def test_a_database_that_is_gone_claims_nothing(build, conn, proxy) -> None:
    """Nothing answers, neither the claim nor the adoption: an error with a name, and nothing is claimed.

    When it answers again, a claim takes what is due as soon as the pool has a connection once more.
    """
    add(conn, 1)
    worker = build(database_url=proxy.dsn, database_connect_timeout_ms=300)
    proxy.shut()
    with pytest.raises(DatabaseUnavailableError):
        worker.claims.claim("dispatch", "default", "bulk", now=NOW)
    assert claims_in(conn) == []
    proxy.open()

    def claims_again() -> bool:
        with suppress(DatabaseUnavailableError):
            take(worker)
            return True
        return False

    eventually(claims_again)


def zombie(connection: psycopg.Connection, token) -> None:
    """Do what a claim does up to its COMMIT."""
    everything = dict.fromkeys(["shard_index", "shard_count", "only_types", "not_types", "not_worded"])
    who = {"token": token, "worker_id": "zombie", "cycle": "dispatch", "project": "default", "lane": "bulk"}
    how = {"limit": 100, "now": NOW, "suspect_lapses": 2, "since": None, "in_shadow": False, "lease_ms": 60_000}
    connection.execute(SQL["claim_due"], everything | who | how)


def bar(dsn: str, token) -> bool:
    """Bar a token in a transaction of its own; tell whether that was possible."""
    with psycopg.connect(dsn) as connection:
        parameters = {"token": token, "worker_id": "a", "cycle": "dispatch", "now": NOW, "lease_ms": 60_000}
        return connection.execute(SQL["bar_claim"], parameters).fetchone() is not None


@pytest.mark.parametrize("commits", [True, False])
def test_barring_waits_for_a_claim_under_way(conn, dsn, in_background, commits) -> None:
    """While the claim's transaction is open nobody can tell; if it commits the token is taken, else it is barred."""
    ids, token = add(conn, 2), uuid4()
    with psycopg.connect(dsn) as other:
        zombie(other, token)
        barring: Future = in_background(bar, dsn, token)
        eventually(lambda: blocked(conn))
        assert not barring.done()
        (other.commit if commits else other.rollback)()
    assert barring.result(10) == (not commits)
    assert conn.execute("select ids from relevo.claims").fetchone()[0] == (ids if commits else [])


def test_a_zombie_cannot_claim_with_a_barred_token(conn, dsn) -> None:
    """Barred first, the late claim is refused by the key, and leaves no delivery claimed by nobody."""
    ids, token = add(conn, 2), uuid4()
    with psycopg.connect(dsn) as other:
        assert bar(dsn, token)
        with pytest.raises(psycopg.errors.UniqueViolation):
            zombie(other, token)
        other.rollback()
    assert chunks_in(conn) == [ids]


def test_a_claim_reaped_before_it_could_be_adopted_is_not(build, conn) -> None:
    """Somebody took it back between COMMIT and adoption: nothing is adopted, and the token is no claim."""
    add(conn, 2)
    worker = build()
    claim = take(worker)
    reap(worker, NOW + LEASE)
    parameters = {"token": claim.token, "worker_id": "a", "cycle": "dispatch", "lease_ms": 60_000, "now": NOW + MINUTE}
    assert worker.claims._adopt(parameters) is None
    assert states(conn) == {"pending": 2}


WRITTEN_BY_A_SETTLE = (
    "notification_deliveries",
    "due_chunks",
    "awaited_receipts",
    "dead_letters",
    "late_tickets",
    "push_requests",
    "push_tallies",
    "event_progress_deltas",
    "event_repeat_deltas",
)


def everything_written(conn) -> dict[str, list[tuple]]:
    """Return all that a settle writes to."""
    return {
        table: sorted(conn.execute(f"select t::text from relevo.{table} t".encode()).fetchall())
        for table in WRITTEN_BY_A_SETTLE
    }


@pytest.mark.parametrize("finish", [False, True])
@pytest.mark.parametrize("status", ["sent", "retryable", "failed", "invalid", "unknown"])
def test_a_settle_whose_answer_was_lost_is_settled_again(build, conn, proxy, status, finish) -> None:
    """The settle was carried out; handing the answers in again writes nothing at all, and is no error."""
    add(conn, 4)
    worker = build(database_url=proxy.dsn)
    claim = take(worker)
    request = journal(worker, claim)
    proxy.lose_answer()
    with pytest.raises(DatabaseUnavailableError):
        worker.claims.settle(claim, answers(claim, status), [request.id], NOW, finish=finish)
    assert states(conn) == {status: 4}
    before = everything_written(conn)
    again = worker.claims.settle(claim, answers(claim, status), [request.id], NOW + SECOND, finish=finish)
    assert (again.written, again.closed_late, again.kept_as_evidence) == ({}, 0, 0)
    assert everything_written(conn) == before
    assert len(claims_in(conn)) == (not finish)


def test_a_settle_that_never_arrived_is_settled_again(build, conn, proxy) -> None:
    """The settle was lost on its way; handing the answers in again writes them, once."""
    add(conn, 4)
    worker = build(database_url=proxy.dsn)
    claim = take(worker)
    request = journal(worker, claim)
    proxy.lose_commit()
    with pytest.raises(DatabaseUnavailableError):
        worker.claims.settle(claim, answers(claim), [request.id], NOW)
    assert worker.claims.settle(claim, answers(claim), [request.id], NOW).written == {"sent": 4}


def test_a_journal_whose_answer_was_lost_is_ambiguous(build, conn, proxy) -> None:
    """Nothing was sent, but the journal may say so: the deliveries are tried again as if it had been."""
    add(conn, 1)
    worker = build(database_url=proxy.dsn)
    claim = take(worker)
    proxy.lose_answer()
    with pytest.raises(DatabaseUnavailableError):
        journal(worker, claim)
    assert worker.claims.release(claim, NOW) == {"retryable": 1, "ambiguous": 1}


def test_a_release_whose_answer_was_lost_is_done(build, conn, proxy) -> None:
    """The hand-back was carried out; doing it again finds nothing left to do."""
    add(conn, 2)
    worker = build(database_url=proxy.dsn)
    claim = take(worker)
    proxy.lose_answer()
    with pytest.raises(DatabaseUnavailableError):
        worker.claims.release(claim, NOW)
    assert worker.claims.release(claim, NOW) == {}
    assert (states(conn), claims_in(conn)) == ({"pending": 2}, [])


def test_a_proxy_lets_other_commits_through(conn, proxy) -> None:
    """What the proxy waits for is the transaction it was told of, and no other."""
    proxy.lose_answer(after=b"the one")
    done = threading.Event()
    with psycopg.connect(proxy.dsn) as other:
        other.execute("select 'another'")
        other.commit()
        done.set()
        other.execute("select 'the one'")
        with pytest.raises(psycopg.OperationalError):
            other.commit()
    assert done.is_set()
