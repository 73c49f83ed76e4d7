"""What a statement reads, as PostgreSQL itself tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

SCANS = {"Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Tid Scan", "Sample Scan"}


def explain(conn: psycopg.Connection[Any], statement: bytes, parameters: dict[str, Any]) -> dict[str, Any]:
    """Run a statement as the workers do, undo it, and return its plan with what each node did."""
    with conn.transaction(force_rollback=True), conn.cursor() as cursor:
        cursor.execute(b"explain (analyze, timing off, format json) " + statement, parameters, prepare=False)
        row = cursor.fetchone()
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a plan's nodes, the top first."""
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


def rows_read(conn: psycopg.Connection[Any], statement: bytes, parameters: dict[str, Any]) -> int:
    """Return how many rows a statement's scans of tables read, those they threw away included."""
    return sum(_read(node) for node in nodes(explain(conn, statement, parameters)))


def _read(node: dict[str, Any]) -> int:
    if node["Node Type"] not in SCANS:
        return 0
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return round((node["Actual Rows"] + removed) * node["Actual Loops"])
