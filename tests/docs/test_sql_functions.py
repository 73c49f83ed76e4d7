"""The page on the SQL functions: its examples run, and its functions are those that a grant opens."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "server" / "docs" / "sql-functions.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```sql\n(.*?);\n-- → (.*?)\n```", PAGE, re.DOTALL)


def shown(value: object) -> str:
    """Write a value as the page does."""
    match value:
        case bool():
            return str(value).lower()
        case list():
            return "{" + ",".join(map(str, value)) + "}"
    return str(value)


def test_the_examples_run(conn) -> None:
    """Each example, in order, returns what the page says."""
    assert len(EXAMPLES) == PAGE.count("```sql")
    for statement, told in EXAMPLES:
        (row,) = conn.execute(statement).fetchall()
        assert ", ".join(shown(value) for value in row) == told, statement


def test_every_function_of_the_door_is_on_it(conn) -> None:
    """What a grant opens is on the page."""
    ((doors,),) = conn.execute("select relevo.app_functions()").fetchall()
    missing = [door for door in doors if f"`{door.partition('(')[0]}(" not in PAGE]
    assert not missing
