"""What the tests of the archive share: stores of both kinds, a real S3 server, started once."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from relevo import app, config, embedded
from relevo.archive import copying
from relevo.core.ports import ArchiveStore

sys.path.insert(0, str(Path(__file__).parent))
from months import add_old_deliveries, clean_up, month_ago, open_store

from seaweed import KEY, SECRET, Seaweed, seaweed

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _in_no_hurry_but_not_starved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let copying threads have a normal priority: beside other processes that run tests they would wait ten times as long."""
    monkeypatch.setattr(copying, "_lower_priority", lambda: None)


@pytest.fixture(autouse=True)
def _ask_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let boto3 ask a service that is busy again after a fiftieth of its pause, as often as ever."""
    soon = SimpleNamespace(sleep=lambda seconds: time.sleep(seconds / 50), time=time.time)
    monkeypatch.setattr("botocore.endpoint.time", soon)


@pytest.fixture(scope="session")
def retired_template(server: embedded.Embedded, admin: psycopg.Connection[Any], template: str) -> str:
    """The name of a database in which a month of 300 deliveries is retired, cloned for each test that asks for `retired`."""
    name = "retired_template"
    admin.execute(f"create database {name} template {template} strategy file_copy".encode())
    dsn = make_conninfo(server.dsn, dbname=name)
    with psycopg.connect(dsn, autocommit=True) as conn:
        add_old_deliveries(conn, month_ago(5), 300)
    with app.build(config.load({"DATABASE_URL": dsn, "HTTP_PORT": "0", "ARCHIVE_PART_ROWS": "100"}, None)) as built:
        assert clean_up(built).outcome == "ok"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("truncate relevo.workers, relevo.worker_runs")
    return name


@pytest.fixture
def dsn(
    request: pytest.FixtureRequest, server: embedded.Embedded, admin: psycopg.Connection[Any], shared_database: Any
) -> Iterator[str]:
    """The DSN of an empty database, or of one in which a month is retired if the test asks for `retired`."""
    if "retired" not in request.fixturenames:
        shared_database.renewed()
        yield shared_database.dsn
        return
    name, source = f"archive_{next(_numbers)}", request.getfixturevalue("retired_template")
    admin.execute(f"create database {name} template {source} strategy file_copy".encode())
    yield f"postgresql://{server.dsn.split('://', 1)[1].rsplit('/', 1)[0]}/{name}"
    admin.execute(f"drop database {name} with (force)".encode())


@pytest.fixture
def conn(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """An observer's connection to the test's database, in autocommit."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="session")
def s3() -> Iterator[Seaweed]:
    """The session's S3 server."""
    with seaweed() as running:
        yield running


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials where boto3 looks for them, and nobody else's."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def s3_settings(s3: Seaweed, aws: None) -> dict[str, Any]:
    """Settings that lead to a bucket of the test's own."""
    bucket = f"bucket-{os.getpid()}-{next(_numbers)}"
    s3.make_bucket(bucket)
    return {"archive_bucket": bucket, "archive_endpoint": s3.endpoint, "archive_timeout_ms": 5_000}


@pytest.fixture
def folder_settings(tmp_path: Path) -> dict[str, Any]:
    """Settings that lead to a folder of the test's own."""
    (tmp_path / "cold").mkdir(exist_ok=True)
    return {"archive_folder": tmp_path / "cold"}


@pytest.fixture(params=["folder", "s3"])
def store_settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of either store."""
    given: dict[str, Any] = request.getfixturevalue(f"{request.param}_settings")
    return given


@pytest.fixture
def store(store_settings: dict[str, Any]) -> ArchiveStore:
    """A store of either kind, empty."""
    return open_store(**store_settings)


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[[bytes], Path]:
    """Write bytes to a file and return its path."""

    def write(content: bytes) -> Path:
        path = tmp_path / f"file-{next(_numbers)}"
        path.write_bytes(content)
        return path

    return write


@pytest.fixture
def retired(build, conn, folder_settings) -> Any:
    """A month of 300 deliveries, retired (the database is cloned from `retired_template`), and an app that exports it."""
    return build(archive_part_rows=100, **folder_settings)
