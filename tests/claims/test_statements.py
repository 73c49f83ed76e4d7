"""Every named statement in sql/queries fits the migrated schema."""

from __future__ import annotations

import itertools
import re

import psycopg
import pytest

from relevo import queries

FILES = sorted(path.stem for path in (queries.sql_root() / "queries").glob("*.sql"))
UNPREPARABLE = ("listen ", "create ")  # PostgreSQL prepares neither; they are executed instead
THERE = (psycopg.errors.DuplicateDatabase, psycopg.errors.DuplicateSchema, psycopg.errors.DuplicateTable)


def numbered(statement: bytes) -> str:
    """Turn psycopg's named placeholders into PostgreSQL's numbered ones, one per place: psycopg sends them with a type."""
    numbers = itertools.count(1)
    return re.sub(r"%\(\w+\)s", lambda _: f"${next(numbers)}", statement.decode()).replace("%%", "%")


def bare(statement: bytes) -> str:
    """Return a statement without its comments."""
    return "\n".join(line for line in statement.decode().splitlines() if not line.startswith("--")).strip()


@pytest.mark.parametrize("step", FILES)
def test_every_statement_prepares(conn, step) -> None:
    """Tables, columns, functions and the types of all parameters are what the statements take them for."""
    for name, statement in queries.load(step).items():
        try:
            if bare(statement).startswith(UNPREPARABLE):
                conn.execute(statement)
            else:
                conn.execute(f"prepare {step}_{name} as {numbered(statement)}".encode())
        except THERE:
            assert bare(statement).startswith("create ")
        except psycopg.Error as error:
            pytest.fail(f"{step}.{name}: {error}")


@pytest.mark.parametrize("step", FILES)
def test_every_statement_says_what_it_does(step) -> None:
    """A file holds statements, and each begins with a sentence."""
    statements = queries.load(step)
    assert statements
    for name, statement in statements.items():
        assert statement.decode().startswith("-- "), f"{step}.{name} has no sentence"
