"""One story for every kind of connection an app may have: rolled back it never was, committed it counts, and wait sees it end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as alchemy

import relevo
from relevo import Event, aio
from relevo.client import inboxes, news
from relevo.client import verbs as door
from relevo.core.errors import InvalidInputError
from support.inboxes import sent

BEYOND = 2**40
"""No event has this id, and an integer of four bytes does not hold it."""


class Undo(Exception):  # noqa: N818 a wish, no error
    """Rolls a transaction back."""


def engine(dsn: str) -> sqlalchemy.Engine:
    """Return an engine that keeps no connection behind our back."""
    return sqlalchemy.create_engine(dsn.replace("postgresql:", "postgresql+psycopg:"), poolclass=sqlalchemy.NullPool)


def async_engine(dsn: str, driver: str) -> alchemy.AsyncEngine:
    """Return an asynchronous engine that keeps no connection behind our back."""
    url = dsn.replace("postgresql:", f"postgresql+{driver}:")
    return alchemy.create_async_engine(url, poolclass=sqlalchemy.NullPool)


@contextmanager
def scoped(dsn: str) -> Iterator[Any]:
    """A session that belongs to the thread, as web frameworks have it."""
    session = orm.scoped_session(orm.sessionmaker(engine(dsn)))
    yield session
    session.remove()


@asynccontextmanager
async def asyncpg_own(dsn: str) -> AsyncIterator[Any]:
    """A connection of asyncpg."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


@asynccontextmanager
async def asyncpg_with_codec(dsn: str) -> AsyncIterator[Any]:
    """A connection of asyncpg that speaks JSON by itself, as many apps have it."""
    async with asyncpg_own(dsn) as connection:
        await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
        yield connection


@asynccontextmanager
async def asyncpg_pooled(dsn: str) -> AsyncIterator[Any]:
    """A connection lent by a pool of asyncpg."""
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        yield connection


@asynccontextmanager
async def psycopg_async(dsn: str) -> AsyncIterator[Any]:
    """An asynchronous connection of psycopg."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        yield connection


SYNCHRONOUS: dict[str, Callable[[str], Any]] = {
    "psycopg": psycopg.connect,
    "psycopg, autocommit": partial(psycopg.connect, autocommit=True),
    "SQLAlchemy Connection": lambda dsn: engine(dsn).connect(),
    "SQLAlchemy Session": lambda dsn: orm.Session(engine(dsn)),
    "SQLAlchemy scoped_session": scoped,
}
ASYNCHRONOUS: dict[str, Callable[[str], AbstractAsyncContextManager[Any]]] = {
    "psycopg": psycopg_async,
    "asyncpg": asyncpg_own,
    "asyncpg with a codec": asyncpg_with_codec,
    "asyncpg pool": asyncpg_pooled,
    "SQLAlchemy AsyncConnection": lambda dsn: async_engine(dsn, "asyncpg").connect(),
    "SQLAlchemy AsyncSession": lambda dsn: alchemy.AsyncSession(async_engine(dsn, "asyncpg")),
    "SQLAlchemy AsyncSession on psycopg": lambda dsn: alchemy.AsyncSession(async_engine(dsn, "psycopg")),
}


class Caller:
    """An app with an open connection; a synchronous one is told the same story."""

    def __init__(self, connection: Any, verbs: Any) -> None:
        self.connection = connection
        self.verbs = verbs

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*arguments: Any, **named: Any) -> Any:
            answer = getattr(self.verbs, name)(self.connection, *arguments, **named)
            return await answer if self.verbs is aio else answer

        return call

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Commit at the end, or roll back, by the library's own means."""
        begin = getattr(self.connection, "transaction", None) or self.connection.begin
        if self.verbs is aio:
            async with begin():
                yield
        else:
            with begin():
                yield


async def tell(app: Caller, conn: psycopg.Connection[Any]) -> None:
    """Tell the story: roll back, commit, be refused, wait."""
    with suppress(Undo):
        async with app.transaction():
            phone = await app.register(relevo.Installation("ExponentPushToken[a]", owner="ana"))
            assert await app.set_preference(phone, "work", relevo.TenderPreference(keywords=["aseo"], monto_min=7))
            assert await app.set_preference(phone, "default", None)
            gone = await app.enqueue(Event("t", "gone", "t", audience=[phone]))
            assert await app.complete(phone)
            assert await app.delete([gone.event_id]) == 1
            raise Undo
    assert events(conn) == []

    async with app.transaction():
        made = await app.enqueue(Event("t", "1", "Título ñ :x %s", data={"a": [1, None, "ñ"]}, audience="everyone"))
        again, other = await app.enqueue_many(
            [Event("t", "1", "else", audience="everyone"), Event("t", "2", "t", audience="everyone")],
            on_conflict="keep",
        )
        assert (made.created, again.created, again.same_content, other.created) == (True, False, False, True)
        seen = await app.get(made.event_id)
        assert (seen.key, seen.state, seen.raw["title"]) == ("1", "waiting", "Título ñ :x %s")
        with pytest.raises(InvalidInputError, match="outside a transaction"):
            await app.wait(made.event_id)
    assert events(conn) == ["1", "2"]

    with pytest.raises(InvalidInputError, match=r"deadline_at must lie .* Nothing was written"):
        async with app.transaction():
            await app.enqueue(Event("t", "3", "t", deadline_at=datetime(2020, 1, 1, tzinfo=UTC), audience="everyone"))
    with pytest.raises(relevo.EventConflictError, match='title is "Título ñ :x %s", given "else"'):
        async with app.transaction():
            await app.enqueue(Event("t", "1", "else", audience="everyone"))
    assert (await app.wait(made.event_id, timeout_s=0.1)).left_to_send
    assert open_transactions(conn) == 0
    async with app.transaction():
        assert await app.cancel(made.event_id, "changed our mind")
        assert not await app.cancel(BEYOND)
        assert await app.get(BEYOND) is None
    ended = await app.wait(made.event_id)
    assert (ended.state, ended.left_to_send) == ("cancelled", False)
    assert await app.wait(BEYOND) is None
    await tell_of_an_inbox(app, conn)


async def tell_of_an_inbox(app: Caller, conn: psycopg.Connection[Any]) -> None:
    """Tell the story of an inbox: read, counted, marked and rolled back, marked and committed."""
    async with app.transaction():
        phone = await app.register(relevo.Installation("ExponentPushToken[i]", owner="ana ñ"))
    event = sent(conn, [phone], "Título ñ :x %s", category="c")
    with suppress(Undo):
        async with app.transaction():
            page = await app.inbox(owner="ana ñ", category="c", status="unread", limit=1)
            assert [(item.event_id, item.title, dict(item.data)) for item in page.items] == [
                (event, "Título ñ :x %s", {"to": "screen"})
            ]
            assert await app.mark_inbox(event, "read", owner="ana ñ")
            assert not await app.mark_inbox(BEYOND, "read", owner="ana ñ")
            assert await app.inbox_counts(owner="ana ñ") == relevo.InboxCounts(0, 0)
            raise Undo
    async with app.transaction():
        assert await app.inbox_counts(owner="ana ñ") == relevo.InboxCounts(1, 1)
        assert await app.mark_inbox_before(datetime.now(UTC) + timedelta(hours=1), "seen", owner="ana ñ")
    async with app.transaction():
        assert await app.inbox_counts(owner="ana ñ") == relevo.InboxCounts(1, 0)
    with pytest.raises(InvalidInputError, match="status must be"):
        async with app.transaction():
            await app.inbox(owner="ana ñ", status="new")


def events(conn: psycopg.Connection[Any]) -> list[str]:
    """Return the keys of all events that were committed."""
    return [key for (key,) in conn.execute("select event_key from relevo.notification_events order by id")]


def open_transactions(conn: psycopg.Connection[Any]) -> int:
    """Count the connections to this database that sit in a transaction."""
    row = conn.execute(
        "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'"
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("kind", SYNCHRONOUS)
def test_synchronous_connections(kind: str, dsn: str, conn) -> None:
    """Every verb works, nothing commits by itself, and a look of wait's leaves no transaction open."""
    with SYNCHRONOUS[kind](dsn) as connection:
        asyncio.run(tell(Caller(connection, relevo), conn))
        with pytest.raises(InvalidInputError, match=r"Write relevo.enqueue\(…\), without await"):
            asyncio.run(aio.enqueue(connection, Event("t", "1", "t", audience="everyone")))


@pytest.mark.parametrize("kind", ASYNCHRONOUS)
def test_asynchronous_connections(kind: str, dsn: str, conn) -> None:
    """The same through relevo.aio."""

    async def live() -> None:
        async with ASYNCHRONOUS[kind](dsn) as connection:
            await tell(Caller(connection, aio), conn)
            with pytest.raises(InvalidInputError, match=r"Write: await relevo.aio.enqueue"):
                relevo.enqueue(connection, Event("t", "1", "t", audience="everyone"))

    asyncio.run(live())


PSYCOPG2 = type("connection", (), {"__module__": "psycopg2.extensions"})


@pytest.mark.parametrize(
    "thing", ["postgresql://localhost/app", None, object(), sqlalchemy.create_engine("sqlite://"), PSYCOPG2()]
)
def test_what_is_no_connection_is_refused(thing: Any) -> None:
    """An object that cannot be used is refused with a sentence that says what can."""
    for verbs in (relevo, aio):
        with pytest.raises(InvalidInputError) as caught:
            asyncio.run(Caller(thing, verbs).enqueue(Event("t", "1", "t", audience="everyone")))
        assert f"cannot use {type(thing).__module__}".replace(" builtins", " ") in str(caught.value)
        for taken in ("psycopg Connection", "SQLAlchemy Connection or Session", "Django", "asyncpg", "AsyncSession"):
            assert taken in str(caught.value)
        assert "select relevo.enqueue(" in str(caught.value)


def test_another_database_is_refused() -> None:
    """A connection that leads to something else than PostgreSQL is refused by the name of that."""
    with (
        sqlalchemy.create_engine("sqlite://").connect() as connection,
        pytest.raises(InvalidInputError, match="leads to sqlite"),
    ):
        relevo.enqueue(connection, Event("t", "1", "t", audience="everyone"))


def test_every_verb_has_its_twin() -> None:
    """Each verb of the door is one of the package and, to be awaited, one of relevo.aio."""
    modules = {**vars(door), **vars(news), **vars(inboxes)}
    verbs = {name: thing for name, thing in modules.items() if hasattr(thing, "__signature__")}
    assert len(verbs) >= 13
    assert sorted(verbs.keys() - vars(aio).keys()) == [], "write in client/aio.py: NAME = awaited(door.NAME)"
    assert sorted(verbs.keys() - set(relevo.__all__)) == []
    for name, thing in verbs.items():
        assert (getattr(aio, name).__name__, getattr(aio, name).__doc__) == (name, thing.__doc__)


def test_a_wait_rests_outside_any_transaction() -> None:
    """Between two looks nothing is held open: each look is left before the pause, whatever the connection."""
    waiting = [({"id": 7, "type": "t", "key": "1", "state": "waiting", "deliveries": {}},)]
    plan = door.wait.__wrapped__(7, timeout_s=60)  # type: ignore[attr-defined]
    answers = [None, None, waiting, None, None, waiting, None]
    taken = [type(plan.send(answer)).__name__ for answer in answers]
    assert taken == ["IsInside", "Call", "Leave", "Pause", "Call", "Leave", "Pause"]
