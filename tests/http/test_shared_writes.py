"""Events that several requests enqueue at the same moment: one write, an answer for each, and no harm by one to others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from relevo.access.api_tokens import Token
from relevo.access.phones import NotAllowedError
from relevo.app import App
from relevo.client.values import Enqueued
from relevo.core.errors import EventConflictError, InvalidInputError
from relevo.http.database_threads import DatabaseThreads
from relevo.http.problems import Problem
from relevo.http.shared_writes import SharedWrites
from support.http_server import EVENT, Served

APP = Token("a", "an app", "app")
SHOP, BANK = Token("s", "a shop", "app", "shop"), Token("b", "a bank", "app", "bank")
PATIENT_MS = 60_000
"""As long as a test may wait: what is held up for so long fails."""
EVENTS = "relevo.notification_events"

Story = Callable[[SharedWrites, DatabaseThreads], Awaitable[None]]
Tell = Callable[..., None]


@pytest.fixture
def tell(build: Callable[..., App]) -> Tell:
    """Tell a story of shared writes, with a pool of so many connections and locks that last."""

    def told(story: Story, size: int = 2, wait_s: float = 60, **how: Any) -> None:
        settings = {"database_lock_timeout_ms": PATIENT_MS, "database_statement_timeout_ms": PATIENT_MS}
        database = build(outbox_lease_duration_ms=4 * PATIENT_MS, **settings).database.beside("relevo test", size)

        async def whole() -> None:
            threads = DatabaseThreads(database, size, wait_s)
            try:
                async with asyncio.timeout(60):
                    await story(SharedWrites(threads, **how), threads)
            finally:
                threads.close()

        try:
            asyncio.run(whole())
        finally:
            database.close()

    return told


def event(key: str, **more: Any) -> dict[str, Any]:
    """Return an event with a key of its own."""
    return {**EVENT, "key": key, **more}


def begin(
    writes: SharedWrites, caller: Token, *events: dict[str, Any], size: int = 100
) -> list[asyncio.Task[Enqueued]]:
    """Have requests come at the same moment."""
    return [asyncio.create_task(writes.enqueue(caller, each, size)) for each in events]


async def until_locked(conn: psycopg.Connection[Any], count: int = 1) -> list[int]:
    """Wait until so many statements wait for locks; return the server's processes."""
    asked = "select pid from pg_stat_activity where application_name = 'relevo test' and datname = current_database() and wait_event_type = 'Lock'"
    while len(found := conn.execute(asked).fetchall()) < count:
        await asyncio.sleep(0.001)
    return [pid for (pid,) in found]


@asynccontextmanager
async def held(dsn: str, statement: str) -> AsyncIterator[psycopg.Connection[Any]]:
    """Hold a transaction open in which this was done."""
    with psycopg.connect(dsn) as other:
        other.execute(statement.encode())
        yield other
        other.rollback()


@asynccontextmanager
async def write_held(
    writes: SharedWrites, conn: psycopg.Connection[Any], dsn: str
) -> AsyncIterator[asyncio.Task[Enqueued]]:
    """Keep a write of one request under way, so that those who come gather."""
    async with held(dsn, f"lock table {EVENTS} in access exclusive mode"):
        [first] = begin(writes, APP, event("first"))
        await until_locked(conn)
        yield first


def transactions(conn: psycopg.Connection[Any]) -> Counter[str]:
    """Return how many events each transaction wrote."""
    return Counter(dict(conn.execute(f"select xmin::text, count(*) from {EVENTS} group by 1").fetchall()))


def keys(conn: psycopg.Connection[Any]) -> list[str]:
    """Return the keys of all events."""
    return [key for (key,) in conn.execute(f"select event_key from {EVENTS} order by 1").fetchall()]


def test_requests_that_wait_are_written_together(tell: Tell, conn: psycopg.Connection[Any], dsn: str) -> None:
    """One request is written at once; all who come during that write share the next one, whoever they are."""

    async def story(writes: SharedWrites, _: DatabaseThreads) -> None:
        async with write_held(writes, conn, dsn) as first:
            others = [task for caller in (APP, SHOP, BANK) for task in begin(writes, caller, event("x"), event("y"))]
            await asyncio.sleep(0)
            assert len(await until_locked(conn)) == 1
        done = await asyncio.gather(first, *others)
        assert all(each.created for each in done)
        assert len({each.event_id for each in done}) == 7

    tell(story, lock_ms=PATIENT_MS)
    assert sorted(transactions(conn).values()) == [1, 6]


def test_a_write_is_bounded_and_shared_fairly(tell: Tell, conn: psycopg.Connection[Any], dsn: str) -> None:
    """A write takes 100 events at most; a caller with one event is in the next write, behind nobody's 250."""

    async def story(writes: SharedWrites, _: DatabaseThreads) -> None:
        async with write_held(writes, conn, dsn):
            many = begin(writes, APP, *(event(f"many {n}") for n in range(250)))
            [one] = begin(writes, BANK, event("one"))
            await asyncio.sleep(0)
        await asyncio.gather(*many, one)
        assert max(transactions(conn).values()) == 100

    tell(story, lock_ms=PATIENT_MS)
    assert sorted(transactions(conn).values()) == [1, 51, 100, 100]
    before = f"select count(*) from {EVENTS} where id < (select id from {EVENTS} where event_key = 'one')"
    assert conn.execute(before).fetchone()[0] <= 2


def test_a_write_takes_so_many_bytes(tell: Tell, conn: psycopg.Connection[Any], dsn: str) -> None:
    """Large events share writes of 256 KiB at most; one larger than 32 KiB shares none, and takes its own way."""
    owners = [f"{n:0200}" for n in range(150)]

    async def story(writes: SharedWrites, _: DatabaseThreads) -> None:
        async with write_held(writes, conn, dsn):
            many = begin(writes, APP, *(event(f"{n}", audience="owners", owners=owners) for n in range(20)))
            huge = begin(writes, APP, event("huge 1"), event("huge 2"), size=40_000)
            await until_locked(conn, 2)
        assert all(each.created for each in await asyncio.gather(*many, *huge))

    tell(story, size=3, lock_ms=PATIENT_MS)
    found = sorted(transactions(conn).values())
    assert sum(found) == 23
    assert found[:3] == [1, 1, 1]
    assert found[-1] == 262_144 // 30_500


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"title": " "}, "an event"),
        ({"scheduled_at": "soon"}, "scheduled_at"),
        ({"data": {"a": float("nan")}}, "data.a"),
    ],
)
def test_one_bad_event_fails_alone(tell: Tell, conn: psycopg.Connection[Any], bad: dict[str, Any], says: str) -> None:
    """An event that is refused fails with the words of a request of its own; those beside it are enqueued."""

    async def story(writes: SharedWrites, _: DatabaseThreads) -> None:
        good = begin(writes, APP, event("1"), event("2"))
        [wrong] = begin(writes, SHOP, event("3", **bad))
        good += begin(writes, BANK, event("4"), event("5"))
        done = await asyncio.gather(*good)
        assert all(each.created for each in done)
        with pytest.raises(InvalidInputError, match=f"^{says} "):
            await wrong
        [again] = begin(writes, SHOP, event("3"))
        assert (await again).created

    tell(story)
    assert keys(conn) == ["1", "2", "3", "4", "5"]


def test_a_conflict_is_its_callers_own(tell: Tell, conn: psycopg.Connection[Any]) -> None:
    """Other content under a known key is refused to that request; the same key of other projects is another event."""

    async def story(writes: SharedWrites, _: DatabaseThreads) -> None:
        [first] = begin(writes, SHOP, event("k"))
        known = (await first).event_id
        [same], [other], [banks], [kept] = (
            begin(writes, SHOP, event("k")),
            begin(writes, SHOP, event("k", title="Other")),
            begin(writes, BANK, event("k", title="Other")),
            begin(writes, SHOP, event("k", title="Other", on_conflict="keep")),
        )
        with pytest.raises(EventConflictError, match=r"^The event of type"):
            await other
        assert await same == Enqueued(known, created=False, same_content=True, unknown_installations=())
        assert await kept == Enqueued(known, created=False, same_content=False, unknown_installations=())
        assert (await banks).created
        [strange] = begin(writes, SHOP, event("k", project="bank"))
        with pytest.raises(NotAllowedError):
            await strange

    tell(story)
    found = conn.execute(f"select project, title from {EVENTS} order by 1").fetchall()
    assert found == [("bank", "Other"), ("shop", EVENT["title"])]


def test_the_same_event_twice_in_one_write(tell: Tell, conn: psycopg.Connection[Any]) -> None:
    """Of equal requests that share a write one makes the event, and the others find it."""

    async def story(writes: SharedWrites, _: DatabaseThreads) -> None:
        done = await asyncio.gather(*begin(writes, APP, *(event("k") for _ in range(5))))
        assert sorted(each.created for each in done) == [False] * 4 + [True]
        assert len({each.event_id for each in done}) == 1
        assert all(each.same_content for each in done)

    tell(story)


def test_a_locked_key_holds_up_its_own_request_alone(tell: Tell, conn: psycopg.Connection[Any], dsn: str) -> None:
    """While an open transaction holds the key of some requests, all other callers' events are written."""
    key = "select relevo.enqueue(jsonb_build_object('type', 'order.shipped', 'key', 'locked', 'title', 'On its way', 'audience', 'everyone', 'project', 'shop'))"

    async def story(writes: SharedWrites, _: DatabaseThreads) -> None:
        async with held(dsn, key) as other:
            locked = begin(writes, SHOP, *(event("locked") for _ in range(5)))
            beside = begin(writes, BANK, *(event(f"beside {n}") for n in range(5)))
            assert all(each.created for each in await asyncio.gather(*beside))
            await until_locked(conn)  # of two connections one is left to others
            locked += begin(writes, SHOP, *(event("locked") for _ in range(5)))
            for caller in (APP, BANK):
                later = begin(writes, caller, event(f"later {caller.id}"), event("locked"))
                assert all(each.created for each in await asyncio.gather(*later)), "this key is locked in shop alone"
            mine = begin(writes, SHOP, event("free"), event("free", title="Other"), event("last"))
            done = await asyncio.gather(*mine, return_exceptions=True)
            assert isinstance(done.pop(1), EventConflictError), "nor do those of the same caller wait"
            assert all(each.created for each in done)
            assert not any(each.done() for each in locked)
            other.commit()
        done = await asyncio.gather(*locked)
        assert {(each.created, each.same_content) for each in done} == {(False, True)}
        [healthy] = begin(writes, SHOP, event("healthy"))
        assert (await healthy).created

    tell(story)


def test_an_overdue_write_is_not_waited_for(tell: Tell, conn: psycopg.Connection[Any], dsn: str) -> None:
    """A write that takes too long, for whatever reason, keeps its own requests; who waits is written by another one."""

    async def story(writes: SharedWrites, _: DatabaseThreads) -> None:
        async with held(
            dsn,
            "select relevo.enqueue(jsonb_build_object('type', 't', 'key', 'k', 'title', 't', 'audience', 'everyone'))",
        ):
            [slow] = begin(writes, APP, event("k", type="t", title="t"))
            await until_locked(conn)
            others = begin(writes, APP, event("1"), event("2"))
            assert all(each.created for each in await asyncio.gather(*others))
            [later] = begin(writes, BANK, event("3"))
            assert (await later).created
            assert not slow.done()
        assert (await slow).created

    tell(story, lock_ms=PATIENT_MS, overdue_s=0.01)


def test_who_leaves_while_waiting_is_not_written(tell: Tell, conn: psycopg.Connection[Any], dsn: str) -> None:
    """A request that ends before its write began leaves nothing; one that ends during it keeps nobody's answer."""

    async def story(writes: SharedWrites, _: DatabaseThreads) -> None:
        async with write_held(writes, conn, dsn) as first:
            leaving, staying = begin(writes, APP, event("leaving"), event("staying"))
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.sleep(0)
            first.cancel()
        assert (await staying).created
        for each in (leaving, first):
            with pytest.raises(asyncio.CancelledError):
                await each

    tell(story, lock_ms=PATIENT_MS)
    assert keys(conn) == ["first", "staying"]


def test_who_gets_no_turn_is_told_so(tell: Tell, conn: psycopg.Connection[Any], dsn: str) -> None:
    """While all connections are in use, a request is answered 503 in time, and its event is not written later."""

    async def story(writes: SharedWrites, threads: DatabaseThreads) -> None:
        for _ in range(threads.size):
            await threads.turns.take()
        for each in begin(writes, APP, event("1"), event("2")):
            with pytest.raises(Problem, match="in use") as refused:
                await each
            assert refused.value.status == 503
        for _ in range(threads.size):
            threads.turns.release()
        [later] = begin(writes, APP, event("3"))
        assert (await later).created

    tell(story, wait_s=0.05)
    assert keys(conn) == ["3"]


def test_a_lost_connection_costs_nobody_an_answer(tell: Tell, conn: psycopg.Connection[Any], dsn: str) -> None:
    """If a shared write loses its connection, each of its requests is written by itself."""

    async def story(writes: SharedWrites, _: DatabaseThreads) -> None:
        async with held(dsn, f"lock table {EVENTS} in access exclusive mode"):
            both = begin(writes, APP, event("1"), event("2"))
            [lost] = await until_locked(conn)
            conn.execute("select pg_terminate_backend(%s)", [lost])
            await until_locked(conn, 2)
        assert all(each.created for each in await asyncio.gather(*both))

    tell(story, lock_ms=PATIENT_MS)


def statuses(callers: Sequence[Any], bodies: Sequence[dict[str, Any]]) -> list[Any]:
    """Have callers post at the same time; return their answers."""
    with ThreadPoolExecutor(len(bodies)) as threads:
        return list(threads.map(lambda pair: pair[0].post("/v1/events", pair[1]), zip(callers, bodies, strict=True)))


def test_callers_at_once_get_their_own_answers(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Over HTTP, 24 callers at once: what each is told fits its own event, good, known, conflicting or bad."""
    served.client("app", project="shop").post("/v1/events", event("known"))
    callers = [served.client("app", project=("shop", "bank")[n % 2]) for n in range(24)]
    kinds = [
        {},
        {"key": "known"},
        {"key": "known", "title": "Other"},
        {"title": " "},
        {"lane": "fast"},
        {"project": "x"},
    ]
    bodies = [event(f"key {n}") | kinds[n // 2 % len(kinds)] for n in range(24)]
    answers = statuses(callers, bodies)
    banks = [each.status_code for n, each in enumerate(answers) if n % 2 and bodies[n]["key"] == "known"]
    assert sorted(banks)[:1] == [200] or sorted(banks)[:1] == [201]
    for n, (body, answer) in enumerate(zip(bodies, answers, strict=True)):
        kind = n // 2 % len(kinds)
        if n % 2 == 0 or kind not in (1, 2):  # the bank's first is one of these
            assert answer.status_code == (201, 200, 409, 400, 400, 403)[kind], answer.text
        if answer.status_code in (200, 201):
            row = f"select event_key, project from {EVENTS} where id = %s"
            assert conn.execute(row, [answer.json()["event_id"]]).fetchone() == (body["key"], ("shop", "bank")[n % 2])
