"""The verbs on SQLAlchemy's connections and sessions, synchronous and asynchronous, over any driver for PostgreSQL."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from sqlalchemy import Connection, TextClause, text
from sqlalchemy.orm import Session, scoped_session

from relevo.client.connections.executors import AsyncExecutor, Executor
from relevo.client.connections.steps import Parameter, Rows
from relevo.core.errors import InvalidInputError


def synchronous(connection: object) -> Executor | None:
    """Return what runs the verbs on this connection or session, if it is of this kind."""
    if isinstance(connection, scoped_session):
        return _Synchronous(connection())
    return _Synchronous(connection) if isinstance(connection, Connection | Session) else None


def asynchronous(connection: object) -> AsyncExecutor | None:
    """Return what runs the verbs on this asynchronous connection or session, if it is of this kind."""
    library = sys.modules.get("sqlalchemy.ext.asyncio")  # needs more than SQLAlchemy itself: the app's business
    if library is None:
        return None
    kinds = (library.AsyncConnection, library.AsyncSession, library.async_scoped_session)
    return _Asynchronous(connection) if isinstance(connection, kinds) else None


class _Synchronous:
    def __init__(self, connection: Connection | Session) -> None:
        self._connection = connection

    def rows(self, sql: str, parameters: Mapping[str, Parameter]) -> Rows:
        owner = self._connection
        connection = owner.connection() if isinstance(owner, Session) else owner
        if connection.dialect.name != "postgresql":
            raise InvalidInputError(
                f"This SQLAlchemy connection leads to {connection.dialect.name}.", hint="Relevo lives in PostgreSQL."
            )
        return [tuple(row) for row in connection.execute(_text(sql), parameters)]

    def inside(self) -> bool:
        return self._connection.in_transaction()

    def leave(self) -> None:
        self._connection.rollback()


class _Asynchronous:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def rows(self, sql: str, parameters: Mapping[str, Parameter]) -> Rows:
        def send(below: Connection | Session) -> Rows:
            return _Synchronous(below).rows(sql, parameters)

        return cast("Rows", await self._connection.run_sync(send))

    async def inside(self) -> bool:
        return bool(self._connection.in_transaction())

    async def leave(self) -> None:
        await self._connection.rollback()


@cache
def _text(sql: str) -> TextClause:
    """Return the statement in SQLAlchemy's own words, which every driver gets translated."""
    return text(re.sub(r"%\((\w+)\)s", r":\1", sql.replace(":", r"\:")))
