"""Parts between and behind the replicas that can fail, too: PgBouncer, an S3 server, a clock that is wrong."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from support import s3_server

NOBODY = 65534
BUCKET = "chaos"
SLOW_S = 600
"""By how much a wrong clock is behind."""
_POOLER = """
[databases]
* = host=127.0.0.1 port={server_port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
pool_mode = transaction
default_pool_size = 12
max_client_conn = 200
auth_type = scram-sha-256
auth_file = {folder}/users.txt
logfile = {folder}/pgbouncer.log
"""


def find(program: str) -> str | None:
    """Return the path of a program that no package of Python brings."""
    return shutil.which(program, path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"]))


class Pooler:
    """A PgBouncer in transaction mode in front of the server."""

    def __init__(self, dsn: str, port: int, folder: Path) -> None:
        folder.mkdir()
        server = conninfo_to_dict(dsn)
        text = _POOLER.format(server_port=server["port"], port=port, folder=folder)
        (folder / "pgbouncer.ini").write_text(text)
        (folder / "users.txt").write_text('"{user}" "{password}"\n'.format(**server))
        self.dsn = make_conninfo(dsn, port=port)
        self._command = [find("pgbouncer") or "pgbouncer", "--quiet", str(folder / "pgbouncer.ini")]
        self._folder = folder
        if os.geteuid() == 0:  # which PgBouncer refuses
            for path in (folder, *folder.iterdir()):
                os.chown(path, NOBODY, NOBODY)
            self._command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *self._command]
        self.start()

    def start(self) -> None:
        """Start it, once or again."""
        self._process = subprocess.Popen(self._command, cwd=self._folder, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """Kill it, with all its connections."""
        self._process.kill()
        self._process.wait()


class Store:
    """An S3 server that may go away and come back with what it has."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.start()
        self._running.make_bucket(BUCKET)

    @property
    def settings(self) -> dict[str, str]:
        """The settings that lead a process of Relevo to it."""
        return {
            "ARCHIVE_BUCKET": BUCKET,
            "ARCHIVE_ENDPOINT": self._running.endpoint,
            "ARCHIVE_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": s3_server.KEY,
            "AWS_SECRET_ACCESS_KEY": s3_server.SECRET,
        }

    def start(self) -> None:
        """Start it, once or again, and wait until it answers."""
        self._process, self._running = s3_server.start(self._folder)
        s3_server.await_answer(self._process, self._running, self._folder)

    def freeze(self) -> None:
        """Make it take connections and answer nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """Kill it in the middle of whatever it writes."""
        self._process.kill()
        self._process.wait()

    def objects(self) -> dict[str, bytes]:
        """Return everything that it holds."""
        client = self._running.client()
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        keys = [each["Key"] for page in pages for each in page.get("Contents", [])]
        return {key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}


def slow_clock() -> dict[str, str] | None:
    """Return what makes a process's clock ten minutes slow; None where the library for it is not installed."""
    for path in Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"):
        return {"LD_PRELOAD": str(path), "FAKETIME": f"-{SLOW_S}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return None
