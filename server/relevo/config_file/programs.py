"""The verbs of `relevo apply` for a program: plan and apply plain values, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import psycopg
from psycopg.rows import tuple_row

from relevo.config_file import applying, items, reading
from relevo.config_file.applying import Applied, Change
from relevo.core.errors import UsageError
from relevo.database.pool import Connection


def plan_config(connection: psycopg.Connection[Any], config: Mapping[str, Any]) -> list[Change]:
    """Return what a configuration would change; nothing is. It has the keys of the file of `relevo apply`.

    The connection is one of psycopg whose role may do what `relevo apply` does: that of `relevo migrate`.
    """
    with _plainly(connection) as plain:
        return applying.plan_in(plain, items.desired(reading.of_values(config)))


def apply_config(connection: psycopg.Connection[Any], config: Mapping[str, Any]) -> Applied:
    """Change what differs from a configuration, all or nothing, in the caller's transaction: the caller commits.

    `secrets` of the answer has the secret of each token that was made. It is told nowhere again: keep it once the
    transaction is committed.
    """
    with _plainly(connection) as plain:
        return applying.apply_in(plain, items.desired(reading.of_values(config)))


@contextmanager
def _plainly(connection: psycopg.Connection[Any]) -> Iterator[Connection]:
    """Read rows as tuples meanwhile, in a transaction of the app's: psycopg would commit one of ours."""
    if not isinstance(connection, psycopg.Connection):
        raise UsageError(
            f"A connection of psycopg is needed, got {type(connection).__name__}.",
            hint="With SQLAlchemy: connection.connection.driver_connection.",
        )
    before, connection.row_factory = connection.row_factory, tuple_row
    try:
        if not connection.autocommit:
            connection.execute("")  # begins the app's transaction, if it has begun none
        yield cast("Connection", connection)
    finally:
        connection.row_factory = before
