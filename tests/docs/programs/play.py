"""Runs the blocks of a page, given as JSON on stdin, one after the other in one namespace, awaiting what they await."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import sys
from typing import Any

import psycopg


def play(kind: str, text: str, where: str, names: dict[str, Any]) -> None:
    """Run one block."""
    if kind == "sql":
        with psycopg.connect(sys.argv[1], autocommit=True) as connection:
            connection.execute(text.encode())
        return
    code = compile(text, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    waited = eval(code, names)
    if inspect.iscoroutine(waited):
        asyncio.run(waited)


def main() -> None:
    """Run them all."""
    names: dict[str, Any] = {"__name__": "snippet", "DSN": sys.argv[1]}
    sys.modules["snippet"] = type(sys)("snippet")
    sys.modules["snippet"].__dict__.update(names)
    names = sys.modules["snippet"].__dict__
    for kind, text, where in json.load(sys.stdin):
        play(kind, text, where, names)


main()
