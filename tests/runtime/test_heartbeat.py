"""The heartbeat: leases live while their holder works, and a holder whose claim is gone learns why, in time."""

from __future__ import annotations

import time
from datetime import datetime
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors as pg

from relevo.core import queries
from relevo.core.errors import DatabaseUnavailableError, OwnershipLostError
from relevo.core.model import PushRequest
from relevo.cycles.reaper import reap_one
from relevo.runtime.heartbeat import Renewed
from relevo.runtime.wakeups import Listener
from support.claim_steps import LATER, LEASE, NOW, SECOND, add, claims_in, reap, take
from support.deliveries import one
from support.postgres_proxy import Proxy
from support.processes import PATIENCE_S, eventually

RENEW = queries.load("claims")["renew_claims"]


@pytest.fixture
def proxy(dsn):
    """A proxy in front of the test's database."""
    with Proxy(dsn) as running:
        yield running


WATCH = """
do $$
declare
  first timestamptz := (select leased_until from relevo.claims);
begin
  for look in 1..1200 loop
    perform pg_sleep(0.05);
    exit when (select leased_until from relevo.claims) > first + interval '1 second';
  end loop;
end $$
"""


def busy_in_sql(worker, _conn) -> None:
    """Keep the main thread inside one long statement, until the lease was extended or a minute is over."""
    with worker.database.connection() as connection:
        connection.execute(WATCH)


def busy_in_python(_worker, conn) -> None:
    """Keep the main thread computing, likewise."""
    first, until = leased_until(conn), time.monotonic() + PATIENCE_S
    while leased_until(conn) <= first + SECOND and time.monotonic() < until:
        for _ in range(300):
            sum(range(10_000))


def leased_until(conn) -> datetime:
    """Read until when the only claim is leased."""
    [(until,)] = conn.execute("select leased_until from relevo.claims").fetchall()
    return until


@pytest.mark.parametrize("busy", [busy_in_sql, busy_in_python])
def test_a_lease_is_extended_while_the_holder_is_busy(build, conn, busy) -> None:
    """A thread and a connection of its own extend the lease while the holder does something long."""
    add(conn, 2)
    worker = build(outbox_lease_duration_ms=30_000, outbox_lease_heartbeat_ms=200)
    worker.heartbeat.start()
    claim = take(worker, None)
    first = leased_until(conn)
    busy(worker, conn)
    assert leased_until(conn) > first + SECOND
    claim.check()
    with worker.database.transaction() as connection:
        assert reap_one(connection, worker.settings) is None


def test_a_lease_shorter_than_usual_does_not_wait_for_the_usual_beat(build, conn) -> None:
    """A type's short lease is extended in time though the heartbeat's own interval is long."""
    conn.execute("insert into relevo.event_types (event_type, lease_ms) values ('hasty', 1200)")
    add(conn, 1, event_type="hasty")
    worker = build()
    worker.heartbeat.start()
    eventually(lambda: worker.heartbeat._due > time.monotonic() + 10)
    claim = take(worker, None)
    assert claim.lease_ms == 1200
    assert worker.heartbeat._pause_s() < claim.lease_ms / 1000 / 3, "two beats may fail before it lapses"
    first = one(conn, claim.ids[0])["locked_until"]
    eventually(lambda: one(conn, claim.ids[0])["locked_until"] > first + 2 * SECOND)
    claim.check()


def test_a_beat_says_that_the_worker_lives(build, conn) -> None:
    """Each beat renews the worker's last-seen, claims or not."""
    worker = build(worker_id="worker-a")
    conn.execute("update relevo.workers set last_seen_at = now() - interval '1 hour', lost_at = now()")
    worker.heartbeat.beat()
    assert conn.execute(
        "select last_seen_at > now() - interval '1 minute', lost_at from relevo.workers"
    ).fetchall() == [(True, None)]


def test_renewal_ends_at_three_leases(build, conn) -> None:
    """A claim is extended by its lease while it is younger than three of them, and not once more."""
    add(conn, 1)
    worker = build()
    claim = take(worker)
    for at in (NOW + SECOND, NOW + 2 * LEASE, NOW + 3 * LEASE - SECOND):
        assert conn.execute(RENEW, {"tokens": [claim.token], "now": at}).fetchall() == [(claim.token, "renewed")]
        assert one(conn, claim.ids[0])["locked_until"] == at + LEASE
    for at in (NOW + 3 * LEASE, NOW + 30 * LEASE):
        assert conn.execute(RENEW, {"tokens": [claim.token], "now": at}).fetchall() == [(claim.token, "held_too_long")]
    assert one(conn, claim.ids[0])["locked_until"] == NOW + 4 * LEASE - SECOND


def test_a_beat_that_is_not_committed_extends_nothing(build, conn) -> None:
    """What comes after a claim's renewal in the same beat and fails undoes it: its holder's clock knows nothing of it."""
    add(conn, 1)
    worker = build()
    claim = take(worker, None)
    since, first = claim.since, leased_until(conn)

    def locked(*_) -> None:
        raise pg.LockNotAvailable

    worker.heartbeat.keep(uuid4(), claim, locked)
    with pytest.raises(pg.LockNotAvailable):
        worker.heartbeat.beat()
    assert (claim.since, leased_until(conn)) == (since, first)


def test_a_lease_counts_from_before_the_beats_transaction(build, conn) -> None:
    """The server counts it from the transaction's begin on, however long what comes before its renewal takes."""
    add(conn, 1)
    worker = build()
    begun: list[float] = []

    def first(connection, _leases) -> Renewed:
        connection.execute("select 1")
        begun.append(time.monotonic())
        return Renewed()

    class Lease:
        """Another lease of this process."""

        lease_ms = 60_000

        def lose(self, *_) -> None:
            """Nobody minds."""

    worker.heartbeat.keep(uuid4(), Lease(), first)
    claim = take(worker, None)
    worker.heartbeat.beat()
    assert claim.since > claim.taken_at, "it was renewed"
    assert claim.since < begun[0]


def test_a_claim_held_for_three_leases_is_aborted(build, conn) -> None:
    """Its holder learns `error` before the next request, and the claim is left to the reaper."""
    add(conn, 1)
    worker = build()
    claim = take(worker, None)
    conn.execute("update relevo.claims set claimed_at = claimed_at - interval '3 minutes'")
    worker.heartbeat.beat()
    with pytest.raises(OwnershipLostError, match="three times its lease") as lost:
        claim.check()
    assert lost.value.reason == "error"
    with pytest.raises(OwnershipLostError):
        worker.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)])
    assert claims_in(conn) == [claim.token]


COMPLETE = """update relevo.notification_deliveries
                 set status = 'cancelled', completed_at = now()"""
LOSSES = {
    "taken_by_another_worker": ["delete from relevo.claims"],
    "already_completed": [COMPLETE, "delete from relevo.claims"],
    "not_found": ["delete from relevo.notification_deliveries", "delete from relevo.claims"],
    "error": ["update relevo.claims set claimed_at = claimed_at - interval '1 day'"],
}


@pytest.mark.parametrize("reason", LOSSES)
@pytest.mark.parametrize("noticed_by", ["heartbeat", "journal"])
def test_a_loss_has_a_reason(build, conn, reason, noticed_by) -> None:
    """Whoever looks first, heartbeat or journal, tells the holder which of the four things happened."""
    add(conn, 3)
    worker = build()
    claim = take(worker, None)
    for statement in LOSSES[reason]:
        conn.execute(statement.encode())
    if noticed_by == "heartbeat":
        worker.heartbeat.beat()
    else:
        later = LATER if reason == "error" else None
        with pytest.raises(OwnershipLostError):
            worker.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)], later)
    with pytest.raises(OwnershipLostError) as lost:
        claim.check()
    assert lost.value.reason == reason


def test_a_claim_that_was_locked_is_extended_soon_after(build, conn, dsn) -> None:
    """A beat that found it locked comes back for it within a moment, not with the next beat that is due."""
    add(conn, 1)
    worker = build(outbox_lease_duration_ms=3_600_000, outbox_lease_heartbeat_ms=600_000)
    worker.heartbeat.start()
    claim = take(worker, None)
    eventually(lambda: worker.heartbeat._due > time.monotonic() + PATIENCE_S)
    with psycopg.connect(dsn) as other:
        other.execute("select from relevo.claims for update")
        first = leased_until(conn)
        worker.heartbeat.suspect(claim.token)
        eventually(lambda: worker.heartbeat._look_at < worker.heartbeat._due, "it found the claim locked")
        assert leased_until(conn) == first
    eventually(lambda: leased_until(conn) > first, "it was extended")
    claim.check()


def test_one_loss_is_not_all(build, conn) -> None:
    """Among several claims only the lost one is aborted; one handed back in good order hears nothing."""
    add(conn, 3)
    worker = build()
    lost, kept, returned = (take(worker, None, limit=1) for _ in range(3))
    conn.execute("delete from relevo.claims where token = any (%s)", [[lost.token, returned.token]])
    worker.heartbeat.drop(returned.token)
    worker.heartbeat.beat()
    assert lost.loss is not None
    kept.check()
    returned.check()


def test_a_loss_is_learned_once(build, conn) -> None:
    """The first reason stays; what is found later does not replace it."""
    add(conn, 1)
    worker = build()
    claim = take(worker, None)
    reap(worker, LATER)
    worker.heartbeat.beat()
    conn.execute("delete from relevo.notification_deliveries")
    worker.heartbeat.beat()
    claim.lose("error", "again")
    assert claim.loss == ("taken_by_another_worker", "The heartbeat found it ended.")


def test_an_unreachable_database_stops_the_sending(build, conn, proxy) -> None:
    """When the heartbeat cannot reach the database every claim is lost as `error`, well before its lease ends."""
    add(conn, 2)
    worker = build(database_url=proxy.dsn, outbox_lease_duration_ms=20_000, outbox_lease_heartbeat_ms=200)
    worker.heartbeat.start()
    claims = [take(worker, None, limit=1) for _ in range(2)]
    proxy.shut()
    eventually(lambda: all(claim.loss for claim in claims))
    for claim in claims:
        with pytest.raises(OwnershipLostError, match="could not reach the database") as lost:
            claim.check()
        assert lost.value.reason == "error"
    assert len(claims_in(conn)) == 2


def test_one_beat_in_vain_loses_all(build, conn, proxy) -> None:
    """Nobody knows of any lease whether it was extended: the first beat that fails gives up each, not one after the other."""
    add(conn, 2)
    worker = build(database_url=proxy.dsn, outbox_lease_duration_ms=20_000)
    claims = [take(worker, None, limit=1) for _ in range(2)]
    proxy.shut()
    assert worker.heartbeat._beat_or_lose() is None
    assert [claim.loss and claim.loss[0] for claim in claims] == ["error", "error"]


def test_a_frozen_database_stops_the_sending_too(build, conn, proxy) -> None:
    """A server that keeps connections open and answers nothing is noticed; after it thaws, the heart beats on."""
    add(conn, 1)
    worker = build(
        database_url=proxy.dsn,
        outbox_lease_duration_ms=20_000,
        outbox_lease_heartbeat_ms=200,
        database_connect_timeout_ms=2_000,
    )
    worker.heartbeat.start()
    claim = take(worker, None)
    eventually(lambda: worker.heartbeat._connection is not None)
    proxy.freeze()
    eventually(lambda: claim.loss)
    assert claim.loss[0] == "error"
    proxy.thaw()
    conn.execute("update relevo.workers set last_seen_at = now() - interval '1 hour'")
    eventually(
        lambda: conn.execute("select last_seen_at > now() - interval '1 minute' from relevo.workers").fetchone()[0]
    )


def test_a_killed_connection_is_replaced_within_the_beat(build, conn) -> None:
    """Its backend terminated, the heartbeat connects anew at once and loses nothing."""
    add(conn, 1)
    worker = build()
    claim = take(worker, None)
    worker.heartbeat.beat()
    pid = worker.heartbeat._connection.info.backend_pid
    conn.execute("select pg_terminate_backend(%s, 5000)", [pid])
    before = one(conn, claim.ids[0])["locked_until"]
    assert worker.heartbeat._beat_or_lose() == 0
    assert worker.heartbeat._connection.info.backend_pid != pid
    assert one(conn, claim.ids[0])["locked_until"] > before
    claim.check()


def test_connections_cut_under_way_are_replaced(build, conn, proxy, monkeypatch) -> None:
    """However often connections break, a claim is kept while new ones can be made."""
    monkeypatch.setattr("relevo.runtime.heartbeat._PATIENCE_S", PATIENCE_S)  # a slow answer is no cut
    add(conn, 1)
    worker = build(database_url=proxy.dsn, outbox_lease_duration_ms=60_000, outbox_lease_heartbeat_ms=100)
    proxy.latency_s = 0.005
    worker.heartbeat.start()
    claim = take(worker, None)
    for _ in range(5):
        proxy.cut()
        for _ in range(2):  # the second renewal proves that the first was answered
            first = one(conn, claim.ids[0])["locked_until"]
            eventually(lambda before=first: one(conn, claim.ids[0])["locked_until"] > before)
    claim.check()


def test_the_reapers_call_aborts_before_the_next_beat(build, conn) -> None:
    """Reaping tells the former holder, who learns it long before its next regular heartbeat."""
    add(conn, 1)
    worker, reaper = build(outbox_lease_duration_ms=900_000, outbox_lease_heartbeat_ms=200_000), build()
    hearing: list[str] = []
    listener = Listener(
        worker.database, on_wake=hearing.append, on_lost=worker.heartbeat.suspect, on_change=hearing.append
    )
    worker.heartbeat.start()
    listener.start()
    try:
        eventually(lambda: "listening" in hearing)
        eventually(lambda: worker.heartbeat._due > time.monotonic() + 100)  # the next regular beat is far away
        claim, due = take(worker, None), worker.heartbeat._due
        reap(reaper, LATER)
        eventually(lambda: claim.loss)
        assert time.monotonic() < due
        assert claim.loss[0] == "taken_by_another_worker"
        eventually(lambda: "dispatch" in hearing)
    finally:
        listener.stop()


def test_a_call_about_another_workers_claim_is_ignored(build, conn) -> None:
    """A suspicion about a claim that is not ours, or already handed back, does not even cause a beat."""
    worker = build()
    worker.heartbeat.suspect(uuid4())
    assert not worker.heartbeat._wake.is_set()


def test_a_renewal_passes_by_a_claim_that_is_being_ended(build, conn, dsn) -> None:
    """A beat that meets a reaper, or a settle, at work waits for nobody: the claim is neither lost nor extended, the
    others are extended, and once it was ended the holder learns that it is gone, not a resurrected one."""
    add(conn, 2)
    worker = build()
    ending, other = (take(worker, None, limit=1) for _ in range(2))
    first = {row[0]: row[1] for row in conn.execute("select token, leased_until from relevo.claims")}
    with psycopg.connect(dsn) as reaper:
        reaper.execute("select from relevo.claims where token = %s for update", [ending.token])
        reaper.execute("delete from relevo.claims where token = %s", [ending.token])
        worker.heartbeat.start()
        until = "select token, leased_until from relevo.claims"
        eventually(lambda: dict(conn.execute(until).fetchall())[other.token] > first[other.token])
        assert dict(conn.execute(until).fetchall())[ending.token] == first[ending.token]
        ending.check()
        reaper.commit()
    eventually(lambda: ending.loss)  # asked again long before the next regular beat
    assert worker.heartbeat._due - time.monotonic() > 1
    assert ending.loss[0] == "taken_by_another_worker"
    assert claims_in(conn) == [other.token]
    other.check()


def test_a_claim_that_was_locked_for_a_moment_is_extended_then(build, conn, dsn) -> None:
    """Somebody held the claim and let it go: it is extended by the next look, and nothing was lost."""
    add(conn, 1)
    worker = build()
    claim = take(worker, None)
    until = "select leased_until from relevo.claims"
    first = conn.execute(until).fetchone()
    with psycopg.connect(dsn) as other:
        other.execute("select from relevo.claims for update")
        assert worker.heartbeat.beat() == 1
        assert conn.execute(until).fetchone() == first
    assert worker.heartbeat.beat() == 0
    assert conn.execute(until).fetchone() > first
    claim.check()


@pytest.mark.parametrize("locked", ["workers", "claims"])
def test_a_lock_in_the_way_of_a_beat_costs_no_claim(build, conn, dsn, locked) -> None:
    """Whoever locks the worker's row keeps no lease from being extended, and whoever locks the whole table of claims
    delays the heartbeat only: what is claimed stays claimed, and the heart beats on once the lock is gone."""
    add(conn, 1)
    lock = {
        "workers": "select from relevo.workers for update",
        "claims": "lock table relevo.claims in access exclusive mode",
    }[locked]
    worker = build(outbox_lease_duration_ms=60_000, database_lock_timeout_ms=100)
    claim = take(worker, None)
    conn.execute("update relevo.workers set last_seen_at = now() - interval '1 hour'")
    since = claim.since
    with psycopg.connect(dsn) as other:
        other.execute(lock.encode())
        if locked == "workers":
            assert worker.heartbeat._beat_or_lose() == 0
            assert claim.since > since
        else:
            assert worker.heartbeat._beat_or_lose() is None
            assert claim.since == since
        claim.check()
        assert worker.heartbeat._held
    assert worker.heartbeat._beat_or_lose() == 0
    assert claim.since > since
    assert conn.execute("select last_seen_at > now() - interval '1 minute' from relevo.workers").fetchone() == (True,)


def test_a_look_between_two_beats_loses_nothing(build, conn, proxy) -> None:
    """Somebody said that the database does not answer, and the heartbeat finds it so before its next beat is due: it
    looks again until it is, but what is claimed is given up by the beat alone, for an outage may be shorter."""
    add(conn, 1)
    worker = build(database_url=proxy.dsn)
    worker.heartbeat.start()
    eventually(lambda: worker.heartbeat._due > time.monotonic() + 10)
    claim = take(worker, None)
    proxy.shut()
    with pytest.raises(DatabaseUnavailableError):
        worker.database.ping()
    eventually(lambda: worker.heartbeat.failing)
    assert claim.loss is None
    proxy.open()
    eventually(lambda: not worker.heartbeat.failing)
    assert claim.loss is None
    assert worker.database.ping()
