"""The kinds of connections by name, for type checkers and editors alone: importing this needs every library."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import psycopg
from sqlalchemy import Connection as AlchemyConnection
from sqlalchemy.ext.asyncio import AsyncConnection as AlchemyAsyncConnection
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session


class DjangoConnection(Protocol):
    """The attribute by which Django's connection is recognized."""

    vendor: str
    in_atomic_block: bool

    def get_autocommit(self) -> bool:
        """Return whether each statement is a transaction of its own."""


class AsyncpgConnection(Protocol):
    """The attribute by which asyncpg's connections are recognized, both own ones and those lent by a pool."""

    def is_in_transaction(self) -> bool:
        """Return whether a transaction is open."""


Connection: TypeAlias = psycopg.Connection[Any] | AlchemyConnection | Session | scoped_session[Any] | DjangoConnection
AsyncConnection: TypeAlias = (
    psycopg.AsyncConnection[Any] | AsyncpgConnection | AlchemyAsyncConnection | AsyncSession | async_scoped_session[Any]
)
