"""Every named statement in sql/queries fits the migrated schema."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import fields
from uuid import uuid4

import psycopg
import pytest

from relevo.core import queries
from relevo.cycles import fanout
from relevo.database.arrays import text_array, uuid_array
from relevo.delivery.claiming.columns import Chunk
from relevo.delivery.projects.rate_and_breaker import Project

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


MOST_BY_POSITION = 8
WIDE_ROWS: dict[tuple[str, str], Sequence[str]] = {
    ("claims", "claim_due"): Chunk._fields,
    ("claims", "claim_probe"): Chunk._fields[: Chunk._fields.index("content_id")],
    ("claims", "adopt_claim"): Chunk._fields[: Chunk._fields.index("content_id")],
    ("fanout", "fan_out_next"): (*fanout.Turn._fields[:-1], *fanout.Slice._fields),
    ("projects", "lock_project"): (*[field.name for field in fields(Project)], "now"),
}
"""Statements that return more than twelve columns of a function, and the fields that the columns fill."""


def sources() -> dict[str, str]:
    """Return the text of the statements and functions of this version without their comments, by file."""
    root = queries.sql_root()
    files = [*(root / "queries").glob("*.sql"), *(root / "functions").rglob("*.sql")]
    return {
        str(path.relative_to(root)): re.sub(r"--[^\n]*", "", path.read_text())
        for path in files
        if not any(part.startswith("for_") for part in path.parts)
    }


def calls_of(function: str, text: str) -> list[list[str]]:
    """Return the arguments of each call of a function in SQL; what makes, grants or drops it is none."""
    found = []
    for match in re.finditer(rf"(?<!function )relevo\.{function}\s*\(", text):
        given, depth = [""], 0
        for letter in text[match.end() :]:
            depth += (letter in "([") - (letter in ")]")
            if depth < 0:
                break
            if letter == "," and depth == 0:
                given.append("")
            else:
                given[-1] += letter
        found.append([each.strip() for each in given])
    return found


def test_calls_with_many_arguments_name_them(conn) -> None:
    """A call of a function with more than eight parameters names each argument, so nobody counts positions."""
    wide = "select proname from pg_proc where pronamespace = 'relevo'::regnamespace and pronargs > %s"
    functions = [row[0] for row in conn.execute(wide, [MOST_BY_POSITION])]
    assert "settle_deliveries" in functions
    called = [(file, f, given) for file, text in sources().items() for f in functions for given in calls_of(f, text)]
    assert {f for _, f, _ in called} >= {"settle_deliveries", "claim_due", "fan_out_small"}
    assert [(file, f) for file, f, given in called if not all("=>" in each for each in given)] == []


@pytest.mark.parametrize(("file", "name"), WIDE_ROWS)
def test_wide_rows_are_read_by_the_names_of_their_columns(conn, file, name) -> None:
    """The columns of a statement that returns many have the names and the order of the fields that they fill."""
    statement, kept = numbered(queries.load(file)[name]), f"wide_row_of_{name}".encode()
    assert conn.pgconn.prepare(kept, statement.encode()).status == psycopg.pq.ExecStatus.COMMAND_OK
    described = conn.pgconn.describe_prepared(kept)
    names = [(described.fname(place) or b"").decode() for place in range(described.nfields)]
    assert tuple(names) == tuple(WIDE_ROWS[file, name])
