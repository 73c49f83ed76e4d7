"""The schema as `sql/tables` and `sql/functions` have it now: a new database runs all of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from graphlib import TopologicalSorter
from pathlib import Path

from relevo.core import queries

_QUOTED = re.compile(r"--[^\n]*|\$(\w*)\$.*?\$\1\$|'(?:[^']|'')*'", re.DOTALL)
_MADE = re.compile(r"^create (?:or replace )?(?:table|type|view|sequence|function) relevo\.(\w+)", re.MULTILINE)
_NAMED = re.compile(r"\brelevo\.(\w+)")


def baseline() -> str:
    """Return the SQL that makes the schema as it is now, in an empty schema relevo."""
    first_rows = read_text(queries.sql_root() / "first_rows.sql")
    return "\n\n".join(["set local check_function_bodies = off;", *parts(), first_rows])


def parts() -> list[str]:
    """Return the paragraphs of `tables/` and the files of `functions/`, each after those that make what it names."""
    root = queries.sql_root()
    found = [part for path in sorted(root.glob("tables/*.sql")) for part in re.split(r"\n{2,}", read_text(path))]
    found += [read_text(path) for path in function_files()]
    return [found[n].strip() for n in in_order(found)]


def function_files() -> list[Path]:
    """Return the files of `functions/`, one for each function and named like it."""
    return sorted(queries.sql_root().glob("functions/*/*.sql"))


def in_order(texts: Sequence[str]) -> Iterable[int]:
    """Return the places of texts, each after those that make what it names.

    What is named in quoted text, as in most functions' bodies, is looked up only when it runs.
    """
    plain = [_QUOTED.sub(" ", text) for text in texts]
    made_in = {name: n for n, text in enumerate(plain) for name in _MADE.findall(text)}
    needed = {
        n: sorted({made_in[name] for name in _NAMED.findall(text) if name in made_in} - {n})
        for n, text in enumerate(plain)
    }
    return TopologicalSorter(needed).static_order()


def read_text(path: Path) -> str:
    """Return the text of a file, its line ends as Unix has them, from any checkout."""
    return path.read_text(encoding="utf-8")
