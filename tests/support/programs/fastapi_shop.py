"""A small shop in FastAPI: an order and its event in one transaction, by SQLAlchemy's AsyncSession and by asyncpg."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import asyncpg
import httpx
from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import relevo
from relevo.core.errors import InvalidInputError

DSN = sys.argv[1]
ENGINE = create_async_engine(DSN.replace("postgresql:", "postgresql+asyncpg:"))
sessions = async_sessionmaker(ENGINE)


class Base(DeclarativeBase):
    """The shop's tables."""


class Order(Base):
    """An order that was shipped."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Make the table and the pools."""
    async with ENGINE.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with asyncpg.create_pool(DSN, min_size=1, max_size=2) as app.state.pool:
        yield
    await ENGINE.dispose()


app = FastAPI(lifespan=lifespan)


async def a_session() -> AsyncIterator[AsyncSession]:
    """Lend a session for a request."""
    async with sessions() as session:
        yield session


async def a_connection() -> AsyncIterator[Any]:
    """Lend a connection of asyncpg for a request."""
    async with app.state.pool.acquire() as connection:
        yield connection


Session = Annotated[AsyncSession, Depends(a_session)]
Connection = Annotated[Any, Depends(a_connection)]


def shipped(order: int) -> relevo.Event:
    """Tell of an order."""
    return relevo.Event("order.shipped", str(order), f"{order} is on its way", audience="everyone")


def check_stock(order: int) -> None:
    """Fail at the last moment, for unlucky orders."""
    if order % 100 == 13:
        raise HTTPException(409, "out of stock")


@app.get("/alchemy/ship/{order}")
async def ship_by_alchemy(order: int, session: Session) -> dict[str, Any]:
    """Ship an order and tell of it."""
    async with session.begin():
        session.add(Order(id=order))
        made = await relevo.aio.enqueue(session, shipped(order))
        seen = await relevo.aio.get(session, made.event_id)
        assert seen is not None
        check_stock(order)
    return {"event": made.event_id, "state": seen.state, "title": seen.raw["title"]}


@app.get("/asyncpg/ship/{order}")
async def ship_by_asyncpg(order: int, connection: Connection) -> dict[str, Any]:
    """Ship an order and tell of it."""
    async with connection.transaction():
        await connection.execute("insert into orders values ($1)", order)
        made = await relevo.aio.enqueue(connection, shipped(order))
        seen = await relevo.aio.get(connection, made.event_id)
        assert seen is not None
        check_stock(order)
    return {"event": made.event_id, "state": seen.state, "title": seen.raw["title"]}


@app.get("/alchemy/wait/{event}")
async def wait_by_alchemy(event: int, session: Session) -> dict[str, Any]:
    """Wait for an event's end."""
    status = await relevo.aio.wait(session, event, timeout_s=120)
    return {"state": status and status.state}


@app.get("/asyncpg/wait/{event}")
async def wait_by_asyncpg(event: int, connection: Connection) -> dict[str, Any]:
    """Wait for an event's end."""
    status = await relevo.aio.wait(connection, event, timeout_s=120)
    return {"state": status and status.state}


@app.get("/alchemy/early/{event}")
async def early_by_alchemy(event: int, session: Session) -> dict[str, Any]:
    """Wait where nothing can come of it."""
    try:
        async with session.begin():
            await relevo.aio.wait(session, event)
    except InvalidInputError as error:
        return {"refused": str(error)}
    return {}


@app.get("/asyncpg/early/{event}")
async def early_by_asyncpg(event: int, connection: Connection) -> dict[str, Any]:
    """Wait where nothing can come of it."""
    try:
        async with connection.transaction():
            await relevo.aio.wait(connection, event)
    except InvalidInputError as error:
        return {"refused": str(error)}
    return {}


async def main() -> None:
    """Ask for each page, in both manners at once, and tell what came."""
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop", timeout=300) as client,
    ):

        async def ask(page: str) -> Any:
            answer = await client.get(page)
            return answer.json() if answer.status_code == 200 else answer.status_code

        async def visit(manner: str, unlucky: int, order: int) -> dict[str, Any]:
            failed, made = await ask(f"/{manner}/ship/{unlucky}"), await ask(f"/{manner}/ship/{order}")
            early = await ask(f"/{manner}/early/{made['event']}")
            return {
                "failed": failed,
                "shipped": made,
                "early": early,
                "ended": await ask(f"/{manner}/wait/{made['event']}"),
            }

        print(json.dumps(await asyncio.gather(visit("alchemy", 13, 7), visit("asyncpg", 113, 107))))


asyncio.run(main())
