"""How a process starts, or does not: a wrong address is said at once, and nothing is made that nobody asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from support.processes import PATIENCE_S, RELEVO, Processes, eventually

ROLE = "relevo_stranger"


@pytest.fixture
def stranger(admin: psycopg.Connection[Any], dsn: str) -> Iterator[str]:
    """A role that may log in, but not to the test's database."""
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    admin.execute(sql.SQL("create role {} login password 'right'").format(sql.Identifier(ROLE)))
    admin.execute(sql.SQL("revoke connect on database {} from public").format(sql.Identifier(str(name))))
    yield ROLE
    admin.execute(sql.SQL("grant connect on database {} to public").format(sql.Identifier(str(name))))
    admin.execute(sql.SQL("drop role {}").format(sql.Identifier(ROLE)))


def test_a_server_that_does_not_let_us_in_ends_the_start(processes: Processes, dsn: str, stranger: str) -> None:
    """A wrong password, a missing database and a refused role each end `relevo run` with 1 and their own sentence."""
    wrong = {
        "the password is wrong": make_conninfo(dsn, password="wrong"),
        "there is no such database": make_conninfo(dsn, dbname="nowhere"),
        "the role may not connect": make_conninfo(dsn, user=stranger, password="right"),
    }
    started = {words: processes.relevo("run", database_url=url, http_enabled=True) for words, url in wrong.items()}
    for words, process in started.items():
        assert process.ends() == 1
        [fatal] = [json.loads(line) for line in process.stderr.splitlines() if '"fatal"' in line]
        assert words in fatal["error"]
        assert fatal["hint"].startswith("Check ")
        assert "password=" not in process.stderr


def test_an_unreachable_server_is_waited_for(processes: Processes) -> None:
    """Nobody listens: the process waits, says so, and leaves when it is told to."""
    process = processes.relevo("run", database_url="postgresql://relevo:x@127.0.0.1:9/relevo", http_enabled=True)
    eventually(lambda: "database_unreachable" in process.stderr, "it says that nobody answers")
    assert process.stops() == 0


def test_without_an_address_nothing_is_made(tmp_path: Path) -> None:
    """Without DATABASE_URL a command fails, says what to set, and leaves the folder as it was."""
    started = Processes("", tmp_path)
    try:
        for words in (("tick",), ("status",), ("run",), ("run-cycle", "reaper"), ("migrate",)):
            ran = started.relevo(*words, expo_base_url="")
            assert ran.ends() == 2, words
            assert "DATABASE_URL is not set." in ran.stderr, words
            assert "relevo run --demo" in ran.stderr, words
            assert "RELEVO_DATA_DIR" in ran.stderr, words
    finally:
        started.close()
    left = {path.suffix for path in tmp_path.iterdir()}
    assert left == {".log", ".out", ".code"}, "nothing but what it said"


def test_wrong_cycles_are_a_wrong_setting(processes: Processes) -> None:
    """A cycle that does not exist is named together with every other wrong setting, and the known ones beside it."""
    ran = processes.relevo("run", worker_cycles="reaper,foo", log_level="loud")
    assert ran.ends() == 2
    assert "2 settings are wrong" in ran.stderr
    assert "WORKER_CYCLES must name cycles out of reaper, ingest" in ran.stderr
    assert "got 'foo'" in ran.stderr


PROGRAM = """
from relevo import app, config
from relevo.app import service
with app.build(config.load()) as built:
    service.serve(built)
"""


def test_fatal_errors_of_a_program_of_ones_own_are_log_lines(tmp_path: Path, dsn: str) -> None:
    """A program that builds and serves by itself says a fatal error in LOG_FORMAT, too, and ends with 1."""
    url = make_conninfo(dsn, dbname="nowhere")
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DATABASE_URL": url, "LOG_FORMAT": "json"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 1
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert (lines[-1]["event"], "there is no such database" in lines[-1]["error"]) == ("fatal", True)
    assert "Traceback" not in ran.stderr


def test_the_version_can_be_asked_for(tmp_path: Path) -> None:
    """`relevo --version` says the version and nothing else."""
    ran = subprocess.run([str(RELEVO), "--version"], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    said = subprocess.run([str(RELEVO), "version"], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert ran.stdout == said.stdout != ""
