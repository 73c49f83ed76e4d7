"""Migrations where PgBouncer is the only way in: the lock is the transaction's, so it holds there too."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from relevo import config
from relevo.core.errors import MigrationError
from relevo.database import migrate
from relevo.database.pool import Database

pytestmark = pytest.mark.needs("pgbouncer")


@pytest.fixture
def databases(pooled_empty):
    """Eight doors to one empty database, all through PgBouncer."""
    opened = [Database(pooled_empty, pooled_empty, config.load({}, None)) for _ in range(8)]
    yield opened
    for database in opened:
        database.close()


def test_eight_at_once_apply_each_migration_once(databases, empty_database) -> None:
    """With more migrators than server connections nobody fails, nobody waits for ever, and nothing is applied twice."""
    together = threading.Barrier(len(databases))

    def run(database) -> list[str]:
        together.wait(60)
        return [str(migration) for migration in migrate.migrate(database)]

    with ThreadPoolExecutor(len(databases)) as threads:
        ran = [name for done in threads.map(run, databases, timeout=180) for name in done]
    assert ran == ["baseline"]
    with psycopg.connect(empty_database) as look:
        assert look.execute("select count(*) from relevo.schema_migrations").fetchone() == (len(migrate.available()),)


def test_the_lock_keeps_others_out(databases, empty_database) -> None:
    """A migrator that came directly and one through PgBouncer exclude each other; the wait is bounded."""
    with psycopg.connect(empty_database) as holder:
        holder.execute("create schema relevo")
        started = time.monotonic()
        with pytest.raises(MigrationError, match=r"Another process has been migrating for more than 0\.3 s"):
            migrate.migrate(databases[0], lock_wait_ms=300)
        assert time.monotonic() - started < 30
        holder.rollback()
    assert [str(done) for done in migrate.migrate(databases[0])] == ["baseline"]
