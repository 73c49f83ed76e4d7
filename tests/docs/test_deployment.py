"""What the pages of deployment and roles print works as printed: the line for cron, and the roles that are made."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from support import installed
from support.docs_pages import DOCS, blocks

RELEVO = str(installed.RELEVO)


def run(words: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program with nothing but this in its environment."""
    return subprocess.run(
        words, env={"PATH": os.defpath, **environ}, capture_output=True, text=True, check=False, timeout=300
    )


def test_the_line_for_cron_ticks(dsn: str, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    """Read by a shell without any setting, the line exports what the file says, and a tick runs on that database."""
    [text] = [each.text for each in blocks(DOCS / "deployment.md") if each.words == ("text",)]
    found = re.fullmatch(r"(?:\S+\s+){5}relevo\s+(.+)\n", text)
    assert found
    file = tmp_path / "relevo.env"
    file.write_text(f"DATABASE_URL={shlex.quote(dsn)}\nRELEVO_INSTANCE=production\n", encoding="utf-8")
    file.chmod(0o600)
    line = found[1].replace("/etc/relevo.env", str(file)).replace("/opt/relevo/bin/relevo", RELEVO)
    assert line != found[1]
    ticked = run(["sh", "-c", f"{line} --runners reaper"], HOME=str(tmp_path))
    assert ticked.returncode == 0, ticked.stderr
    assert conn.execute("select count(*) from relevo.cycle_state where cycle = 'reaper'").fetchone() == (1,)


ROLES = ("relevo_owner", "relevo_worker", "shop")


@pytest.fixture
def owned_database(admin: psycopg.Connection[Any], empty_database: str) -> Iterator[str]:
    """An empty database in which the page's SQL has been run, as printed but for the database's name."""
    statements = [each.text for each in blocks(DOCS / "roles-and-grants.md") if each.words == ("sql",)]
    name = empty_database.rsplit("/", 1)[1]
    try:
        admin.execute(statements[0].replace("database app", f"database {name}").encode())
        yield empty_database
    finally:
        with psycopg.connect(empty_database, autocommit=True) as inside:
            for role in ROLES:
                inside.execute(f"drop owned by {role} cascade".encode())
        for role in ROLES:
            admin.execute(f"drop role {role}".encode())


def test_the_roles_are_made_as_printed(owned_database: str) -> None:
    """The owner migrates and grants with the page's commands; then the worker runs a cycle, and the app enqueues."""
    page = DOCS / "roles-and-grants.md"
    commands = [
        shlex.split(line[2:])
        for block in blocks(page)
        if block.words == ("console",)
        for line in block.text.splitlines()
        if "DATABASE_URL=" in line
    ]
    assert [words[2] for words in commands] == ["migrate", "grant", "grant"]
    for assigned, _, *words in commands:
        user, password = re.fullmatch(r"DATABASE_URL=postgresql://(\w+):([\w-]+)@db\.example/app", assigned).groups()
        url = make_conninfo(owned_database, user=user, password=password)
        done = run([RELEVO, *words], DATABASE_URL=url, RELEVO_INSTANCE="here")
        assert done.returncode == 0, (words, done.stderr)
    worker = make_conninfo(owned_database, user="relevo_worker", password="choose-another")
    ran = run([RELEVO, "run-cycle", "reaper"], DATABASE_URL=worker, RELEVO_INSTANCE="here")
    assert ran.returncode == 0, ran.stderr
    with psycopg.connect(make_conninfo(owned_database, user="shop", password="a-third")) as app:
        event = """{"type": "t", "key": "k", "title": "T", "audience": "everyone"}"""
        assert app.execute("select created from relevo.enqueue(%s)", [event]).fetchone() == (True,)
