"""A PgBouncer in transaction mode in front of the session's server, with fewer connections than its clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relevo import config, embedded
from relevo.config import Settings
from support.pooler import pooling, through
from support.processes import Processes


@pytest.fixture(scope="session")
def pooler_port(server: embedded.Embedded) -> Iterator[int]:
    """The port of a running PgBouncer; every database of the server can be reached through it."""
    with pooling(server.dsn, {"postgres": str(conninfo_to_dict(server.dsn)["password"])}) as port:
        yield port


@pytest.fixture
def pooled(dsn: str, pooler_port: int) -> str:
    """The test's database, through PgBouncer."""
    return through(dsn, pooler_port)


@pytest.fixture
def pooled_empty(empty_database: str, pooler_port: int) -> str:
    """A database without a schema, through PgBouncer."""
    return through(empty_database, pooler_port)


@pytest.fixture
def make_settings(pooled: str) -> Callable[..., Settings]:
    """Make settings that lead through PgBouncer, for migrations and LISTEN too: as if only DATABASE_URL were set."""

    def make(**changes: object) -> Settings:
        return config.load(
            {"DATABASE_URL": pooled} | {name.upper(): str(value) for name, value in changes.items()}, None
        )

    return make


@pytest.fixture
def processes(pooled: str, tmp_path: Path) -> Iterator[Processes]:
    """Start processes whose only address is PgBouncer's."""
    started = Processes(pooled, tmp_path)
    yield started
    started.close()


@pytest.fixture
def cut_connections(pooled: str, conn: psycopg.Connection[Any]) -> Iterator[Callable[[], None]]:
    """Have PgBouncer drop every connection to the test's database, as when its server dies, and take new ones."""
    with psycopg.connect(make_conninfo(pooled, dbname="pgbouncer"), autocommit=True) as console:

        def cut() -> None:
            console.execute(f"KILL {conn.info.dbname}".encode())
            console.execute(f"RESUME {conn.info.dbname}".encode())

        yield cut
