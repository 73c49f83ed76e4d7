"""The verbs on asyncpg's connections, of one's own or lent by a pool."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from asyncpg import Connection
from asyncpg.pool import PoolConnectionProxy

from relevo.client.connections.executors import AsyncExecutor, Executor
from relevo.client.connections.steps import Parameter, Rows


def synchronous(_connection: object) -> Executor | None:
    """Return nothing: asyncpg has no synchronous connections."""
    return None


def asynchronous(connection: object) -> AsyncExecutor | None:
    """Return what runs the verbs on this asynchronous connection, if it is of this kind."""
    return _Asynchronous(connection) if isinstance(connection, Connection | PoolConnectionProxy) else None


class _Asynchronous:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def rows(self, sql: str, parameters: Mapping[str, Parameter]) -> Rows:
        numbered, names = _numbered(sql)
        records = await self._connection.fetch(numbered, *(parameters[name] for name in names))
        return [tuple(record) for record in records]

    async def inside(self) -> bool:
        return bool(self._connection.is_in_transaction())

    async def leave(self) -> None:
        """Do nothing: outside a transaction a statement is one of its own."""


@cache
def _numbered(sql: str) -> tuple[str, list[str]]:
    """Number the parameters; JSON goes as text, whatever codec the app has given its connection for jsonb."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", sql)))
    numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", sql)
    return re.sub(r"(\$\d+)::jsonb\b", r"\1::text::jsonb", numbered), names
