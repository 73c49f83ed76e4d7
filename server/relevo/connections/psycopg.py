"""The door on psycopg's connections, synchronous and asynchronous."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from relevo.connections.executors import AsyncExecutor, Executor
from relevo.connections.steps import Parameter, Rows


def synchronous(connection: object) -> Executor | None:
    """Return what runs the door on this connection, if it is of this kind."""
    return _Synchronous(connection) if isinstance(connection, Connection) else None


def asynchronous(connection: object) -> AsyncExecutor | None:
    """Return what runs the door on this asynchronous connection, if it is of this kind."""
    return _Asynchronous(connection) if isinstance(connection, AsyncConnection) else None


class _Synchronous:
    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    def rows(self, sql: str, parameters: Mapping[str, Parameter]) -> Rows:
        with self._connection.cursor(row_factory=tuple_row) as cursor:  # whatever rows the app's connection makes
            return cursor.execute(sql.encode(), parameters).fetchall()

    def inside(self) -> bool:
        return self._connection.info.transaction_status != TransactionStatus.IDLE

    def leave(self) -> None:
        if not self._connection.autocommit:
            self._connection.rollback()


class _Asynchronous:
    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection

    async def rows(self, sql: str, parameters: Mapping[str, Parameter]) -> Rows:
        async with self._connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(sql.encode(), parameters)
            return await cursor.fetchall()

    async def inside(self) -> bool:
        return self._connection.info.transaction_status != TransactionStatus.IDLE

    async def leave(self) -> None:
        if not self._connection.autocommit:
            await self._connection.rollback()
