"""The duties of each kind of connection; none of them commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from relevo.client.connections.steps import Parameter, Rows


class Executor(Protocol):
    """The app's connection, of one synchronous kind."""

    def rows(self, sql: str, parameters: Mapping[str, Parameter]) -> Rows:
        """Send a statement with parameters as `%(name)s`; return its rows as tuples."""

    def inside(self) -> bool:
        """Return whether a transaction is open."""

    def leave(self) -> None:
        """End the transaction that reading began."""


class AsyncExecutor(Protocol):
    """The app's connection, of one asynchronous kind."""

    async def rows(self, sql: str, parameters: Mapping[str, Parameter]) -> Rows:
        """Send a statement with parameters as `%(name)s`; return its rows as tuples."""

    async def inside(self) -> bool:
        """Return whether a transaction is open."""

    async def leave(self) -> None:
        """End the transaction that reading began."""


class Kind(Protocol):
    """A file of this folder that knows one library's connections."""

    def synchronous(self, connection: object, /) -> Executor | None:
        """Return what runs the verbs on this connection, if it is one of the library's."""

    def asynchronous(self, connection: object, /) -> AsyncExecutor | None:
        """Return what runs the verbs on this asynchronous connection, if it is one of the library's."""
