"""All fixtures of a worker and of commands, on a database as a hosted service gives it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from relevo import config
from relevo.database import migrate
from relevo.database.pool import Database
from support.fixtures.hosted_database import HostedDatabase


@pytest.fixture
def dsn(hosted: HostedDatabase) -> str:
    """The role's address behind the pooler, once the role has migrated by that address alone."""
    database = Database(hosted.pooled, hosted.pooled, config.load({}, None))
    migrate.migrate(database)
    database.close()
    return hosted.pooled


@pytest.fixture
def conn(dsn: str, hosted: HostedDatabase) -> Iterator[psycopg.Connection[Any]]:
    """The connection of the service's staff, for what the role may not do or see."""
    with psycopg.connect(hosted.staff, autocommit=True) as staff:
        yield staff


@pytest.fixture
def role(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """The app's connection: by the role behind the pooler, serializable as the role's sessions are."""
    with psycopg.connect(dsn, prepare_threshold=None) as app:
        yield app
