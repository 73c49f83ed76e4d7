"""A PgBouncer in transaction mode in front of the session's server, with fewer connections than its clients."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relevo import config, embedded
from relevo.config import Settings
from support.optional_parts import find_part
from support.processes import Processes

NOBODY = 65534
POOL_SIZE = 2
CONFIG = """
[databases]
* = host=127.0.0.1 port={server_port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 200
auth_type = scram-sha-256
auth_file = {folder}/users.txt
admin_users = postgres
logfile = {folder}/pgbouncer.log
"""


@pytest.fixture(scope="session")
def pooler_port(server: embedded.Embedded) -> Iterator[int]:
    """The port of a running PgBouncer; every database of the server can be reached through it."""
    folder, port = Path(tempfile.mkdtemp(prefix="relevo-pgbouncer-")), _free_port()
    settings = CONFIG.format(server_port=server.port, port=port, pool_size=POOL_SIZE, folder=folder)
    (folder / "pgbouncer.ini").write_text(settings)
    (folder / "users.txt").write_text('"postgres" "{password}"\n'.format(**conninfo_to_dict(server.dsn)))
    command = ["setpriv", "--pdeathsig=KILL", find_part("pgbouncer"), "--quiet", str(folder / "pgbouncer.ini")]
    if os.geteuid() == 0:  # which PgBouncer refuses
        for path in (folder, *folder.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        command[1:1] = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        _wait_until_it_answers(_through(server.dsn, port), process, folder / "pgbouncer.log")
        yield port
    finally:
        process.kill()
        process.wait(60)
        shutil.rmtree(folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _through(dsn: str, port: int) -> str:
    head, tail = dsn.rsplit(":", 1)
    return f"{head}:{port}/{tail.split('/', 1)[1]}"


def _wait_until_it_answers(dsn: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            said = log.read_text() if log.exists() else "nothing"
            assert process.poll() is None, f"pgbouncer ended; it said: {said}"
            assert time.monotonic() < until, f"pgbouncer does not answer; it said: {said}"
            time.sleep(0.02)
        else:
            return


@pytest.fixture
def pooled(dsn: str, pooler_port: int) -> str:
    """The test's database, through PgBouncer."""
    return _through(dsn, pooler_port)


@pytest.fixture
def pooled_empty(empty_database: str, pooler_port: int) -> str:
    """A database without a schema, through PgBouncer."""
    return _through(empty_database, pooler_port)


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
