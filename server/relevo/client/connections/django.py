"""The verbs on Django's connection: `django.db.connection`, or one of `django.db.connections`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from relevo.client.connections.executors import AsyncExecutor, Executor
from relevo.client.connections.steps import Parameter, Rows
from relevo.core.errors import InvalidInputError


def synchronous(connection: object) -> Executor | None:
    """Return what runs the verbs on this connection, if it is of this kind."""
    return _Synchronous(connection) if isinstance(connection, BaseDatabaseWrapper | ConnectionProxy) else None


def asynchronous(_connection: object) -> AsyncExecutor | None:
    """Return nothing: Django has no asynchronous connections."""
    return None


class _Synchronous:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        if connection.vendor != "postgresql":
            raise InvalidInputError(
                f"This Django connection leads to {connection.vendor}.", hint="Relevo lives in PostgreSQL."
            )

    def rows(self, sql: str, parameters: Mapping[str, Parameter]) -> Rows:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            rows: Rows = cursor.fetchall()
            return rows

    def inside(self) -> bool:
        return bool(self._connection.in_atomic_block or not self._connection.get_autocommit())

    def leave(self) -> None:
        """Do nothing: outside a transaction a statement is one of its own."""
