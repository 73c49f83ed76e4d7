"""The snippets work: every Python block compiles, and those marked `run` run, with SQL blocks, as they stand there."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest

from support import installed
from support.docs_pages import PAGES, blocks

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLE_DSN = "app:secret@localhost/app"
"""What a snippet connects to, without its scheme: some drivers have one of their own."""
PYTHON = [block for page in PAGES for block in blocks(page) if block.words[:1] == ("python",)]
RUNNABLE = (("python", "run"), ("sql", "run"))
RUN = [page for page in PAGES if any(block.words in RUNNABLE for block in blocks(page))]


def test_python_compiles() -> None:
    """It is Python, as it stands there; what awaits at its top level is meant to stand in a function."""
    for block in PYTHON:
        where = f"{block.page}:{block.line}"
        compile(block.text, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_snippets_run(page: Path, dsn: str) -> None:
    """The blocks of a page that are marked `run` run one after the other in a process and a database of their own.

    What a page takes for granted is set up before, and what it defines is called after, by the programs of its name.
    """
    address = dsn.partition("://")[2]
    played = [
        (block.words[0], block.text.replace(EXAMPLE_DSN, address), f"{block.page}:{block.line}")
        for block in blocks(page)
        if block.words in RUNNABLE
    ]
    played = [*program(page, "before"), *played, *program(page, "after")]
    done = subprocess.run(
        [installed.PYTHON, "-W", "error", PROGRAMS / "play.py", dsn],
        input=json.dumps(played),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")


def program(page: Path, when: str) -> list[tuple[str, str, str]]:
    """Return what is run before or after a page's snippets."""
    path = PROGRAMS / f"{page.stem.replace('-', '_')}_{when}.py"
    return [("python", path.read_text(encoding="utf-8"), str(path))] if path.exists() else []
