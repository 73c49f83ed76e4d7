"""What runs count stands in the file of their cycle, with its meaning: pages and the guide take it from there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from relevo import cycles
from relevo.core.statuses import STATUSES

PACKAGE = Path(__file__).resolve().parents[2] / "server" / "relevo"
CYCLES = cycles.facts().values()
DESCRIBED = {name for cycle in CYCLES for name in cycle.counts} | {"left_alone"}  # the runner's own, of every cycle
TABLES = re.compile(r"_(?:NEWS_)?COUNTED|_PRUNED|_HELD_AS|_MOVED|_RETIRED")
"""Dictionaries of modules whose values are names that runs count."""


def texts(nodes: list[ast.expr | None]) -> Iterator[str]:
    """Yield the texts among some expressions."""
    yield from (each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str))


def names(tree: ast.AST) -> Iterator[str]:
    """Yield every text and every name of an argument in a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) | ast.keyword(arg=str(text)):
                yield text


def counted(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module counts: in a step, a counter, a report, or by a table of names."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Step"), args=[ast.Dict(keys=keys), *_]):
                yield from texts(keys)
            case ast.Call(func=ast.Name(id="Counter"), args=args, keywords=named):
                yield from (each.arg for each in named if each.arg)
                for each in args:
                    yield from texts(each.keys) if isinstance(each, ast.Dict) else ()
            case ast.AugAssign(
                target=ast.Subscript(value=ast.Attribute(attr="counts"), slice=ast.Constant(value=name))
            ):
                yield str(name)
            case ast.Assign(targets=[ast.Name(id="done" | "counts")], value=ast.Dict(keys=keys)):
                yield from texts(keys)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(values=values))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict(values=values))
            ) if TABLES.fullmatch(name):
                yield from texts(list(values))


def test_each_count_is_described() -> None:
    """Each name that a cycle, or what it calls, counts by stands in `counts` of a cycle, and these have no name that nothing counts by."""
    files = [path for room in ("cycles", "delivery", "archive") for path in sorted((PACKAGE / room).rglob("*.py"))]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    assert {name for tree in trees for name in counted(tree)} - DESCRIBED == set()
    written = Counter(name for tree in trees for name in names(tree))
    described = Counter(name for cycle in CYCLES for name in cycle.counts)
    by_status = {f"{kind}_{status}" for kind in ("notifications", "news") for status in STATUSES}
    assert {name for name, times in described.items() if written[name] <= times} - by_status == set()


def test_each_meaning_is_one_line() -> None:
    """A meaning is a short phrase without a full stop, as a row of a table needs it."""
    assert [
        name
        for cycle in CYCLES
        for name, meaning in cycle.counts.items()
        if not 5 < len(meaning) < 100 or "." in meaning
    ] == []
