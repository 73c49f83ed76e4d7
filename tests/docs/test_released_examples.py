"""What the guide of an earlier release taught works: its examples run on today's code and schema, with deprecation warnings alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from support.docs_pages import blocks

RELEASED = Path(__file__).parent / "released"
"""By release the examples that its tests ran, as its guide had them."""
PROGRAMS = Path(__file__).parent / "programs"
"""By release what its examples took for granted; and what plays them."""
PLAY = PROGRAMS / "play.py"
EXAMPLE_DSN = "app:secret@localhost/app"
PAGES = sorted(page for page in RELEASED.glob("*/*.md") if page.stem != "sql-door")
WARNING = re.compile(r"\S+:\d+: DeprecationWarning: .*\b0\.6\b.*|  .*")


def program(page: Path, when: str) -> list[tuple[str, str, str]]:
    """Return what is run before or after a page's examples."""
    path = PROGRAMS / page.parent.name / f"{page.stem.replace('-', '_')}_{when}.py"
    return [("python", path.read_text(encoding="utf-8"), str(path))] if path.exists() else []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name} {page.stem}")
def test_examples_run(page: Path, dsn: str) -> None:
    """The examples of a page run one after the other; all that is said are warnings of names that leave in 0.6."""
    address = dsn.partition("://")[2]
    played = [
        (block.words[0], block.text.replace(EXAMPLE_DSN, address), f"{block.page}:{block.line}")
        for block in blocks(page)
    ]
    played = [*program(page, "before"), *played, *program(page, "after")]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "default::DeprecationWarning", PLAY, dsn],
        input=json.dumps(played),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not WARNING.fullmatch(line)] == []


def shown(value: object) -> str:
    """Write a value as the page did."""
    match value:
        case bool():
            return str(value).lower()
        case list():
            return "{" + ",".join(map(str, value)) + "}"
    return str(value)


@pytest.mark.parametrize("page", sorted(RELEASED.glob("*/sql-door.md")), ids=lambda page: page.parent.name)
def test_sql_functions_answer_as_they_did(page: Path, conn: psycopg.Connection) -> None:
    """Each example of the page on the SQL functions, in order, returns what that page said."""
    found = re.findall(r"```sql\n(.*?);\n-- → (.*?)\n```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(found) > 10
    for statement, told in found:
        (row,) = conn.execute(statement).fetchall()
        assert ", ".join(shown(value) for value in row) == told, statement


def test_a_former_place_of_errors() -> None:
    """`relevo.errors`, which the guide of 0.3 imported, has today's errors, and says where they are."""
    code = "import relevo, relevo.errors as e; assert e.InvalidInputError is relevo.InvalidInputError; print(hasattr(e, 'nothing'))"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\n"
    assert "relevo.errors leaves in 0.6: write `from relevo import InvalidInputError`" in done.stderr
