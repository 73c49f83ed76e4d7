"""Which deliveries a claim takes: due ones of one project, lane, lease and shard, oldest first, as many as it may."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import psycopg
import pytest

from relevo.core.model import Shard
from relevo.operators import event_types
from relevo.operators.event_types import TypeSettings
from support.claim_steps import LEASE, MINUTE, NOW, SECOND, add, chunks_in, claims_in, reap, take
from support.deliveries import TODAY, mark_sent, one


def test_the_oldest_due_come_first(build, conn) -> None:
    """A claim takes the longest due deliveries, over event days, up to its limit, and nothing that is not due."""
    yesterday = TODAY - timedelta(days=1)
    (young,) = add(conn, 1, due=NOW)
    (old,) = add(conn, 1, due=NOW - MINUTE)
    (oldest,) = add(conn, 1, due=NOW - 2 * MINUTE, day=yesterday)
    (future,) = add(conn, 1, due=NOW + timedelta(microseconds=1))
    worker = build()
    assert take(worker, limit=2).ids == [oldest, old]
    assert take(worker, limit=2).ids == [young]
    assert worker.claims.claim("dispatch", "default", "bulk", now=NOW) is None
    assert not one(conn, future)["processing"]


def test_a_limit_of_nothing_takes_nothing(build, conn) -> None:
    """An empty token bucket claims nothing, and no limit means the batch size, which no limit exceeds."""
    add(conn, 8)
    worker = build(outbox_batch_size=3)
    assert worker.claims.claim("dispatch", "default", "bulk", limit=0, now=NOW) is None
    assert claims_in(conn) == []
    assert len(take(worker).ids) == 3
    assert len(take(worker, limit=100).ids) == 3


def test_projects_and_lanes_are_queues_of_their_own(build, conn) -> None:
    """A long queue in one project or lane does not hide one delivery in another."""
    add(conn, 100, project="big", due=NOW - 60 * MINUTE)
    conn.execute(
        "analyze relevo.notification_deliveries"
    )  # without any statistics the rest may be queued by a wrong index
    add(conn, 3_900, project="big", due=NOW - 60 * MINUTE)
    (urgent,) = add(conn, 1, project="big", lane="urgent")
    (other,) = add(conn, 1, project="small")
    worker = build(outbox_batch_size=50)
    assert take(worker, project="small").ids == [other]
    assert take(worker, project="big", lane="urgent").ids == [urgent]
    claim = take(worker, project="big")
    assert {(d.project, d.lane) for d in claim.deliveries} == {("big", "bulk")}
    assert worker.claims.claim("dispatch", "default", "bulk", now=NOW) is None


@pytest.mark.parametrize(("limit", "chunks"), [(1, [99, 100]), (99, [1, 100]), (100, [100]), (101, [99]), (250, [])])
def test_a_limit_is_exact(build, conn, limit, chunks) -> None:
    """A claim that may take less than a chunk takes exactly that; the rest is due as before, for the next claim."""
    ids = add(conn, 200)
    worker = build()
    claim = take(worker, limit=limit)
    assert len(claim.ids) == min(limit, 200)
    assert sorted(len(held) for held in chunks_in(conn)) == chunks
    rest = [delivery for delivery in ids if delivery not in claim.ids]
    assert sorted(delivery for held in chunks_in(conn) for delivery in held) == rest
    assert all(due_at == NOW for (due_at,) in conn.execute("select due_at from relevo.due_chunks").fetchall())
    if rest:
        assert sorted(take(worker).ids) == rest


def test_a_split_chunk_keeps_its_past(build, conn) -> None:
    """What is put back of a chunk is as old, as often tried and as suspicious as it was: its creation time too."""
    add(conn, 5, attempts=3, lapses=1)
    conn.execute("update relevo.due_chunks set had_error = true, created_at = created_at - interval '1 hour'")
    columns = (
        "project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error"
    )
    read = f"select {columns} from relevo.due_chunks".encode()
    before = conn.execute(read).fetchall()
    claim = take(build(), limit=2)
    assert conn.execute(read).fetchall() == before
    assert {d.created_at for d in claim.deliveries} == {before[0][6]}


def test_a_claim_ends_where_the_lease_changes(build, conn) -> None:
    """Types of one lease share a claim; one takes from the head up to the first chunk of another lease, and no further."""
    worker = build()
    for name, lease_ms in {"slow.a": 120_000, "slow.b": 120_000, "slower": 180_000, "like.default": 60_000}.items():
        event_types.set_event_type(worker.database, worker.settings, name, TypeSettings(lease_ms=lease_ms))
    order = ["slow.a", "slow.b", "tender.new", "like.default", "slower", "slow.b", "tender.new"]
    ids = [add(conn, 1, event_type=t, due=NOW - MINUTE + n * SECOND)[0] for n, t in enumerate(order)]
    expected = [(120_000, ids[:2]), (60_000, ids[2:4]), (180_000, ids[4:5]), (120_000, ids[5:6]), (60_000, ids[6:])]
    for lease_ms, held in expected:
        claim = take(worker)
        assert (claim.lease_ms, claim.ids) == (lease_ms, held)
        assert one(conn, held[0])["locked_until"] == NOW + timedelta(milliseconds=lease_ms)
    assert chunks_in(conn) == []


def test_a_types_lease_applies_at_the_next_claim(build, conn) -> None:
    """A lease set for a type holds from the next claim on, and a claim that stands keeps its own."""
    first, second = add(conn, 1), add(conn, 1, due=NOW + SECOND)
    worker = build()
    assert take(worker).lease_ms == 60_000
    event_types.set_event_type(worker.database, worker.settings, "tender.new", TypeSettings(lease_ms=120_000))
    assert take(worker, NOW + SECOND).lease_ms == 120_000
    assert one(conn, first[0])["locked_until"] == NOW + LEASE
    assert one(conn, second[0])["locked_until"] == NOW + SECOND + 2 * LEASE


def test_another_claimers_oldest_does_not_hide_the_rest(build, conn) -> None:
    """While one claimer is taking the oldest chunk, another finds the next, of another lease, not an empty queue."""
    worker = build()
    event_types.set_event_type(worker.database, worker.settings, "slow", TypeSettings(lease_ms=120_000))
    (oldest,) = add(conn, 1, event_type="slow", due=NOW - MINUTE)
    (younger,) = add(conn, 1)
    with conn.transaction():
        conn.execute("select from relevo.due_chunks where ids[1] = %s for update", [oldest])
        assert take(worker).ids == [younger]


def test_a_claim_locks_only_what_it_takes(build, conn, dsn) -> None:
    """While a claim of ten is under way, all others are free: its own chunk's rest comes with its commit, no later."""
    ids = add(conn, 1_000)
    first, other = build(), build()
    with psycopg.connect(dsn) as under_way:
        under_way.execute(
            """select * from relevo.claim_due(gen_random_uuid(), 'slow', 'dispatch', 'default', 'bulk', 10, %s,
                                                null, null, null, null, null, 2, 60000, null, false)""",
            [NOW],
        )
        assert len(take(other, limit=500).ids) == 500
        assert len(take(first).ids) == 400, "all but the chunk that is under way"
        assert first.claims.claim("dispatch", "default", "bulk", now=NOW) is None
        under_way.commit()
    assert len(take(first).ids) == 90
    held = conn.execute("select array_agg(u.id order by u.id) from relevo.claims c cross join unnest(c.ids) as u(id)")
    assert held.fetchone() == (ids,)


@pytest.mark.parametrize("chunks", [1, 20, 21])
def test_a_claim_holds_what_its_chunks_held(build, conn, chunks: int) -> None:
    """Few chunks or many, of several days and events: the claim has their deliveries in order, each with its day."""
    days = [TODAY - timedelta(days=n % 2) for n in range(chunks)]
    ids = [add(conn, 1 + n % 3, event=n + 1, day=day, due=NOW - n * SECOND) for n, day in enumerate(days)]
    claim = take(build())
    row = conn.execute("select days, ids, events, due_at from relevo.claims where token = %s", [claim.token]).fetchone()
    in_order = list(zip(days, ids, strict=True))[::-1]
    assert row[0] == [day for day, made in in_order for _ in made]
    assert row[1] == [each for _, made in in_order for each in made] == claim.ids
    assert (sorted(row[2]), row[3]) == (list(range(1, chunks + 1)), NOW - (chunks - 1) * SECOND)


def test_suspects_are_claimed_alone(build, conn) -> None:
    """From two lapses on a chunk is claimed alone, when its turn comes: not behind others, nor others behind it."""
    before = add(conn, 2, due=NOW - 3 * MINUTE, lapses=1)
    (suspect,) = add(conn, 1, due=NOW - 2 * MINUTE, lapses=2)
    (second,) = add(conn, 1, due=NOW - 2 * MINUTE, lapses=4)
    after = add(conn, 2, due=NOW - MINUTE)
    worker = build()
    assert [take(worker).ids for _ in range(4)] == [before, [suspect], [second], after]


def test_what_lapsed_comes_back_in_tenths(build, conn) -> None:
    """A chunk whose claim lapsed comes back as chunks of ten, and those that lapse again as single deliveries."""
    ids = add(conn, 100)
    worker = build()
    assert take(worker).ids == ids
    assert chunks_in(conn) == []
    reap(worker, NOW + LEASE)
    assert chunks_in(conn) == [ids[n : n + 10] for n in range(0, 100, 10)]
    lapsed_twice = take(worker, NOW + LEASE, limit=10).ids
    assert lapsed_twice == ids[:10]
    reap(worker, NOW + 2 * LEASE)
    assert sorted(chunks_in(conn), key=lambda held: held[0])[:10] == [[delivery] for delivery in lapsed_twice]
    assert sorted(map(len, chunks_in(conn))) == [1] * 10 + [10] * 9
    assert conn.execute("select count(distinct due_at) from relevo.due_chunks").fetchone() == (1,), "as due as before"


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 31])
def test_shards_cover_every_delivery_once(build, conn, count) -> None:
    """For any number of shards each chunk lies in exactly one of them, and so does each delivery."""
    everything = [delivery for _ in range(40) for delivery in add(conn, 5)]
    worker = build()
    seen: Counter[int] = Counter()
    for index in range(count):
        claim = worker.claims.claim("dispatch", "default", "bulk", shard=Shard(index, count), now=NOW)
        seen.update(claim.ids if claim else [])
    assert seen == Counter(everything)


def test_shards_divide_probes_and_receipts_too(build, conn) -> None:
    """A probe, and a question for receipts, takes what is in its shard; between them the shards have all of it, once."""
    everything = [delivery for _ in range(12) for delivery in add(conn, 1)]
    worker = build()
    shards, tomorrow = [Shard(index, 3) for index in range(3)], NOW + timedelta(days=2)
    probes = [worker.claims.claim("dispatch", "default", "bulk", shard=each, now=NOW, probe=True) for each in shards]
    assert sorted(key for claim in probes for key in claim.ids) == everything
    for claim in probes:
        assert 0 < len(claim.ids) < len(everything)
        worker.claims.release(claim, NOW)
    mark_sent(conn, everything)
    asking = [worker.claims.claim_awaiting("default", limit=100, shard=each, now=tomorrow) for each in shards]
    assert sorted(key for claim in asking for key in claim.ids) == everything


def test_a_shard_and_a_lease_together(build, conn) -> None:
    """The oldest chunk of a shard, not of the whole queue, decides which lease is claimed there."""
    worker = build()
    event_types.set_event_type(worker.database, worker.settings, "slow", TypeSettings(lease_ms=120_000))
    everything = [add(conn, 1, event_type=("slow", "tender.new")[n % 2], due=NOW - n * SECOND)[0] for n in range(20)]
    seen: Counter[int] = Counter()
    for index in range(3):
        while (claim := worker.claims.claim("dispatch", "default", "bulk", shard=Shard(index, 3), now=NOW)) is not None:
            seen.update(claim.ids)
    assert seen == Counter(everything)
