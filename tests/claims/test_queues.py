"""Which deliveries a claim takes: due ones of one project, lane, lease class and shard, oldest first."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from claiming import LEASE, MINUTE, NOW, SECOND, add, claims_in, take

from deliveries import TODAY, one
from relevo import actions
from relevo.delivery.limits import LeaseClass, batch_of, lease_class
from relevo.model import Delivery, Shard


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
    conn.execute(
        """insert into relevo.notification_deliveries
             (event_day, notification_event_id, installation_id, event_type, project, next_attempt_at)
           select %s, 1, gen_random_uuid(), 'tender.new', 'big', %s - interval '1 hour' from generate_series(1, 20000)""",
        [TODAY, NOW],
    )
    (urgent,) = add(conn, 1, project="big", lane="urgent")
    (other,) = add(conn, 1, project="small")
    worker = build(outbox_batch_size=50)
    assert take(worker, project="small").ids == [other]
    assert take(worker, project="big", lane="urgent").ids == [urgent]
    claim = take(worker, project="big")
    assert {(d.project, d.lane) for d in claim.deliveries} == {("big", "bulk")}
    assert worker.claims.claim("dispatch", "default", "bulk", now=NOW) is None


def test_a_batch_holds_one_lease_class(build, conn) -> None:
    """Types of different leases never share a claim; types of the same lease do, and the oldest decides whose turn it is."""
    worker = build()
    for name, lease_ms in {"slow.a": 120_000, "slow.b": 120_000, "slower": 180_000, "like.default": 60_000}.items():
        actions.set_event_type(worker.database, worker.settings, name, lease_ms=lease_ms)
    order = ["slow.a", "tender.new", "slower", "slow.b", "like.default", "slower"]
    ids = {
        name: [add(conn, 1, event_type=t, due=NOW - MINUTE + n * SECOND)[0] for n, t in enumerate(order) if t == name]
        for name in set(order)
    }
    expected = [
        (120_000, ids["slow.a"] + ids["slow.b"]),
        (60_000, ids["tender.new"] + ids["like.default"]),
        (180_000, ids["slower"]),
    ]
    for lease_ms, held in expected:
        claim = take(worker)
        assert (claim.lease_ms, claim.ids) == (lease_ms, held)
        assert one(conn, held[0])["locked_until"] == NOW + timedelta(milliseconds=lease_ms)


def test_a_types_lease_applies_at_the_next_claim(build, conn) -> None:
    """A lease set for a type holds from the next claim on, and a claim that stands keeps its own."""
    first, second = add(conn, 1), add(conn, 1, due=NOW + SECOND)
    worker = build()
    assert take(worker).lease_ms == 60_000
    actions.set_event_type(worker.database, worker.settings, "tender.new", lease_ms=120_000)
    assert take(worker, NOW + SECOND).lease_ms == 120_000
    assert one(conn, first[0])["locked_until"] == NOW + LEASE
    assert one(conn, second[0])["locked_until"] == NOW + SECOND + 2 * LEASE


def test_another_claimers_oldest_does_not_hide_the_rest(build, conn) -> None:
    """While one claimer is taking the oldest delivery, another finds the next lease class, not an empty queue."""
    worker = build()
    actions.set_event_type(worker.database, worker.settings, "slow", lease_ms=120_000)
    (oldest,) = add(conn, 1, event_type="slow", due=NOW - MINUTE)
    (younger,) = add(conn, 1)
    with conn.transaction():
        conn.execute("select from relevo.notification_deliveries where id = %s for update", [oldest])
        assert take(worker).ids == [younger]


def test_suspects_are_claimed_alone(build, conn) -> None:
    """From two lapses on a delivery is claimed alone, when its turn comes, and does not hold up the others."""
    before = add(conn, 2, due=NOW - 3 * MINUTE, lapses=1)
    (suspect,) = add(conn, 1, due=NOW - 2 * MINUTE, lapses=2)
    (second,) = add(conn, 1, due=NOW - 2 * MINUTE, lapses=4)
    after = add(conn, 2, due=NOW - MINUTE)
    worker = build()
    assert take(worker).ids == before + after
    assert take(worker).ids == [suspect]
    assert take(worker).ids == [second]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 31])
def test_shards_cover_every_delivery_once(build, conn, count) -> None:
    """For any number of shards each delivery lies in exactly one of them."""
    everything = add(conn, 200)
    worker = build()
    seen: Counter[int] = Counter()
    for index in range(count):
        claim = worker.claims.claim("dispatch", "default", "bulk", shard=Shard(index, count), now=NOW)
        seen.update(claim.ids if claim else [])
    assert seen == Counter(everything)


def test_a_shard_and_a_lease_class_together(build, conn) -> None:
    """The oldest delivery of a shard, not of the whole queue, decides which lease class is claimed there."""
    worker = build()
    actions.set_event_type(worker.database, worker.settings, "slow", lease_ms=120_000)
    everything = [add(conn, 1, event_type=("slow", "tender.new")[n % 2], due=NOW - n * SECOND)[0] for n in range(20)]
    seen: Counter[int] = Counter()
    for index in range(3):
        while (claim := worker.claims.claim("dispatch", "default", "bulk", shard=Shard(index, 3), now=NOW)) is not None:
            seen.update(claim.ids)
    assert seen == Counter(everything)


def _delivery(delivery_id: int, lapses: int) -> Delivery:
    values = dict.fromkeys(Delivery._fields)
    return Delivery(**{**values, "id": delivery_id, "lapse_count": lapses})


@pytest.mark.parametrize(
    ("lapses", "kept"),
    [([], []), ([0, 1, 0], [0, 1, 2]), ([2, 0, 0], [0]), ([0, 2, 1, 7], [0, 2]), ([3, 3], [0])],
)
def test_batch_of(lapses, kept) -> None:
    """A suspect at the head is alone; behind it, it waits for its turn."""
    picked = [_delivery(n, count) for n, count in enumerate(lapses)]
    assert [d.id for d in batch_of(picked, 2)] == kept


@pytest.mark.parametrize(
    ("oldest", "leases", "expected"),
    [
        ("a", {}, LeaseClass(60)),
        ("a", {"b": 60}, LeaseClass(60)),
        ("a", {"b": 90, "c": 30}, LeaseClass(60, without=("b", "c"))),
        ("b", {"b": 90, "c": 30, "d": 90}, LeaseClass(90, only=("b", "d"))),
        ("b", {"b": 60, "c": 30}, LeaseClass(60, without=("c",))),
    ],
)
def test_lease_class(oldest, leases, expected) -> None:
    """Types share a claim exactly when they share a lease; an unlisted type has the default."""
    assert lease_class(oldest, leases, 60) == expected
