"""Every named statement in sql/queries fits the migrated schema."""

from __future__ import annotations

import itertools
import re
from uuid import uuid4

import psycopg
import pytest

from relevo.core import queries
from relevo.database.arrays import text_array, uuid_array

FILES = sorted(path.stem for path in (queries.sql_root() / "queries").glob("*.sql"))
UNPREPARABLE = ("listen ", "create ", "begin ", "commit;", "set ")  # none can be prepared: they are executed
BOUNDS = {"statement_ms": 0, "lock_ms": 0, "idle_ms": 0}
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
                conn.execute((bare(statement) % BOUNDS).encode())
            elif bare(statement).startswith("lock "):
                with conn.transaction():
                    conn.execute(bare(statement).encode())
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


HOT = {
    "fanout": ["fan_out_next"],
    "projects": ["list_due_lanes", "lock_project"],
    "claims": ["claim_due"],
    "journal": ["journal_plain_wave", "phones_unchanged"],
    "settle": ["settle_sent"],
    "receipts": ["claim_awaited", "settle_confirmed"],
}
"""What an ordinary wave asks for: a pooler in between, and so no prepared statement, must not cost it a plan each time."""


@pytest.mark.parametrize("step", HOT)
def test_plans_of_an_ordinary_wave_are_kept_behind_a_pooler(conn, step) -> None:
    """Each of its statements calls a function in plpgsql, whose plans the server process keeps, whoever its client is."""
    for name in HOT[step]:
        called = re.findall(r"relevo\.(\w+)\(", bare(queries.load(step)[name]))
        assert called, f"{step}.{name} calls no function"
        language = "select distinct l.lanname from pg_proc p join pg_language l on l.oid = p.prolang where p.proname = any (%s)"
        assert conn.execute(language, [called]).fetchall() == [("plpgsql",)], name


@pytest.mark.parametrize(
    "texts",
    [[], [""], ["a"], ["ticket-1", "ticket-2"], ["a", "bc"], ['"', "\\"], ["é", "a"], ["x" * 200] * 1_000],
)
def test_arrays_arrive_as_they_were_written(conn, texts) -> None:
    """What is written as an array, in PostgreSQL's own form or as text, is read as the same values in the same order."""
    uuids = [uuid4() for _ in texts]
    asked = [uuid_array(uuids), text_array(texts)]
    assert conn.execute("select %s::uuid[], %s::text[]", asked).fetchall() == [(uuids, texts)]
