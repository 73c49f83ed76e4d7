"""The verbs on psycopg's connections, synchronous and asynchronous."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, AsyncRawCursor, Connection, Cursor, RawCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from relevo.client.connections.executors import AsyncExecutor, Executor
from relevo.client.connections.steps import Parameter, Rows


def synchronous(connection: object) -> Executor | None:
    """Return what runs the verbs on this connection, if it is of this kind."""
    return _Synchronous(connection) if isinstance(connection, Connection) else None


def asynchronous(connection: object) -> AsyncExecutor | None:
    """Return what runs the verbs on this asynchronous connection, if it is of this kind."""
    return _Asynchronous(connection) if isinstance(connection, AsyncConnection) else None


class _Synchronous:
    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    def rows(self, sql: str, parameters: Mapping[str, Parameter]) -> Rows:
        with self._cursor() as cursor:
            return cursor.execute(sql.encode(), parameters).fetchall()

    def _cursor(self) -> Cursor[tuple[Any, ...]]:
        """Return a cursor that makes tuples and takes parameters by name, whatever those of the app do."""
        if issubclass(self._connection.cursor_factory, RawCursor):
            return Cursor(self._connection, row_factory=tuple_row)
        return self._connection.cursor(row_factory=tuple_row)

    def inside(self) -> bool:
        return self._connection.info.transaction_status != TransactionStatus.IDLE

    def leave(self) -> None:
        if not self._connection.autocommit:
            self._connection.rollback()


class _Asynchronous:
    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection

    async def rows(self, sql: str, parameters: Mapping[str, Parameter]) -> Rows:
        async with self._cursor() as cursor:
            await cursor.execute(sql.encode(), parameters)
            return await cursor.fetchall()

    def _cursor(self) -> AsyncCursor[tuple[Any, ...]]:
        """Return a cursor that makes tuples and takes parameters by name, whatever those of the app do."""
        if issubclass(self._connection.cursor_factory, AsyncRawCursor):
            return AsyncCursor(self._connection, row_factory=tuple_row)
        return self._connection.cursor(row_factory=tuple_row)

    async def inside(self) -> bool:
        return self._connection.info.transaction_status != TransactionStatus.IDLE

    async def leave(self) -> None:
        if not self._connection.autocommit:
            await self._connection.rollback()
