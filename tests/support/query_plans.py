"""What a statement reads, as PostgreSQL itself tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from relevo.database.pool import bounds
from support.kept_connections import end_kept
from support.processes import eventually

BY_KEY = bounds("bound_by_key", statement_ms=60_000, lock_ms=60_000, idle_ms=60_000)
"""What makes an open transaction go by keys, as most of the workers' do."""

READ_SO_FAR = """
select coalesce(sum(seq_tup_read), 0) + coalesce(sum(idx_tup_fetch), 0)
  from pg_stat_user_tables where schemaname = 'relevo' and relname like %s
"""
NOT_YET_HANDED_IN = """
select relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
  from pg_stat_xact_user_tables where schemaname = 'relevo' and coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) > 0
"""
SCANS = {"Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Tid Scan", "Sample Scan"}


def explain(conn: psycopg.Connection[Any], statement: bytes, parameters: dict[str, Any]) -> dict[str, Any]:
    """Run a statement as the workers do, undo it, and return its plan with what each node did."""
    with conn.transaction(force_rollback=True), conn.cursor() as cursor:
        cursor.execute(b"explain (analyze, buffers, timing off, format json) " + statement, parameters, prepare=False)
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


def rows_read_by_table(conn: psycopg.Connection[Any], statement: bytes, parameters: dict[str, Any]) -> dict[str, int]:
    """Run a statement, undo it, and return how many rows of which table it read, in functions that it called, too."""
    with conn.transaction(force_rollback=True):
        before = dict(conn.execute(NOT_YET_HANDED_IN).fetchall())
        conn.execute(statement, parameters)
        after = dict(conn.execute(NOT_YET_HANDED_IN).fetchall())
    return {table: int(count - before.get(table, 0)) for table, count in after.items() if count != before.get(table)}


def pages_of(conn: psycopg.Connection, statement: bytes, asked: dict[str, Any]) -> int:
    """Return how many pages a statement looks at, plans and catalogs aside; it is undone."""
    for _ in range(2):
        with conn.transaction(force_rollback=True):
            conn.execute(BY_KEY)
            ((explained,),) = conn.execute(
                b"explain (analyze, buffers, timing off, format json) " + statement, asked
            ).fetchall()
    plan = explained[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def rows_read_so_far(conn: psycopg.Connection[Any], tables: str) -> int:
    """Return how many rows of these tables (a pattern of names) were read, by PostgreSQL's own count.

    Sessions count for themselves, and hand that in later, at the latest when they end. So no other one may be left.
    """
    others = "datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
    left = f"select pid from pg_stat_activity where {others}"
    end_kept()
    eventually(lambda: not conn.execute(left.encode()).fetchall(), "the other sessions end")
    conn.execute("select pg_stat_force_next_flush()")
    ((count,),) = conn.execute(READ_SO_FAR, [tables]).fetchall()
    return int(count)


def _read(node: dict[str, Any]) -> int:
    if node["Node Type"] not in SCANS:
        return 0
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return round((node["Actual Rows"] + removed) * node["Actual Loops"])
