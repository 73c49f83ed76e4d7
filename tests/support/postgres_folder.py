"""A PostgreSQL data folder with the schema in it: made once for all processes of a run, copied for each server.

To make one takes as long as a hundred small tests.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from relevo import config, embedded
from relevo.database import migrate
from relevo.database.pool import Database
from support.processes import eventually

SCHEMA = "migrated"
"""The template of all databases of the tests: nobody connects to it, for it could not be copied meanwhile."""
QUICK = {"fsync": "off", "full_page_writes": "off"}
"""For data that dies with the tests."""


def programs() -> Path | None:
    """Return the bin folder of the PostgreSQL to test with; None: the one that is found."""
    chosen = os.environ.get("RELEVO_TEST_POSTGRES_BIN")
    return Path(chosen) if chosen else None


def prototype(folder: Path) -> Path:
    """Return a folder with the data of a server that has ended, made by whichever process comes first."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder.with_suffix(".done")
        if not done.exists():
            with embedded.acquire(folder, programs(), settings=QUICK, linger_s=0) as server:
                _migrate(server.dsn)
                _hash_once(server.dsn)
            eventually(lambda: not (folder / "data" / "postmaster.pid").exists(), "its server ends")
            done.touch()
    return folder


def _migrate(dsn: str) -> None:
    """Migrate the database that embedded.acquire() makes, and copy it as the template."""
    database = Database(dsn, dsn, config.load({}, None))
    migrate.migrate(database)
    database.close()
    name = sql.Identifier(SCHEMA)
    with psycopg.connect(make_conninfo(dsn, dbname="postgres"), autocommit=True) as connection:
        own = sql.Identifier(str(conninfo_to_dict(dsn)["dbname"]))
        connection.execute(sql.SQL("create database {} template {}").format(name, own))
        connection.execute(sql.SQL("alter database {} allow_connections false").format(name))


def copy(prototype: Path, home: Path) -> None:
    """Lay its data into another folder, where embedded.acquire() finds them."""
    home.mkdir(mode=0o700, parents=True)
    subprocess.run(["cp", "-R", "-p", str(prototype / "data"), str(home / "data")], check=True)
    shutil.copy(prototype / "password", home / "password")


def _hash_once(dsn: str) -> None:
    """Let the password be hashed once, not 4,096 times: that is most of what a connection costs, and tests open many.

    PostgreSQL 15 cannot.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        if connection.info.server_version < 160000:
            return
        connection.execute("set scram_iterations = 1")
        password = sql.Literal(conninfo_to_dict(dsn)["password"])
        connection.execute(sql.SQL("alter role postgres password {}").format(password))
