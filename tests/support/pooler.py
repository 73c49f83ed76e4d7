"""A PgBouncer in transaction mode in front of a server, with fewer connections than its clients."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from support.optional_parts import find_part

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


@contextmanager
def pooling(dsn: str, users: Mapping[str, str]) -> Iterator[int]:
    """Run a PgBouncer and return its port: these users reach every database of a DSN's server through it."""
    folder, port = Path(tempfile.mkdtemp(prefix="relevo-pgbouncer-")), _free_port()
    settings = CONFIG.format(server_port=conninfo_to_dict(dsn)["port"], port=port, pool_size=POOL_SIZE, folder=folder)
    (folder / "pgbouncer.ini").write_text(settings)
    (folder / "users.txt").write_text("".join(f'"{name}" "{word}"\n' for name, word in users.items()))
    command = ["setpriv", "--pdeathsig=KILL", find_part("pgbouncer"), "--quiet", str(folder / "pgbouncer.ini")]
    if os.geteuid() == 0:  # which PgBouncer refuses
        for path in (folder, *folder.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        command[1:1] = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        _wait_until_it_answers(through(dsn, port), process, folder / "pgbouncer.log")
        yield port
    finally:
        process.kill()
        process.wait(60)
        shutil.rmtree(folder)


def through(dsn: str, port: int) -> str:
    """Return a DSN that leads through the PgBouncer of a port."""
    head, tail = dsn.rsplit(":", 1)
    return f"{head}:{port}/{tail.split('/', 1)[1]}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
