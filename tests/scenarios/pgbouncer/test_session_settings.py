"""Settings of a database behind PgBouncer: each transaction pins what statements rely on, and leaks it to nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from relevo.app import build
from relevo.config import Settings

STRANGE = {"IntervalStyle": "sql_standard", "DateStyle": "German, DMY", "array_nulls": "off", "bytea_output": "escape"}
ASKED = b"select now(), interval '1 day 2 hours', '{NULL}'::text[], '\\x00'::bytea, current_setting('IntervalStyle')"


@pytest.fixture
def strange(conn: psycopg.Connection[Any], cut_connections: Callable[[], None]) -> Iterator[None]:
    """A database whose sessions begin strangely; PgBouncer opens new ones before and after."""
    name = sql.Identifier(conn.info.dbname)
    for setting, value in STRANGE.items():
        conn.execute(sql.SQL("alter database {} set {} = {}").format(name, sql.Identifier(setting), value))
    cut_connections()
    yield
    conn.execute(sql.SQL("alter database {} reset all").format(name))
    cut_connections()


@pytest.mark.usefixtures("strange")
def test_statements_and_transactions_are_pinned(make_settings: Callable[..., Settings], pooled: str) -> None:
    """A single statement and one in a transaction read the same values, and another client of the pooler sees its own."""
    with build(make_settings()) as app:
        alone = app.database.execute(ASKED).fetchone()
        with app.database.transaction() as connection:
            together = connection.execute(ASKED).fetchone()
        with app.database.single() as single, app.database.begin(single, "bound_transaction"):
            beating = single.execute(ASKED).fetchone()
    for row in (alone, together, beating):
        assert row is not None
        assert isinstance(row[0], datetime)
        assert row[1:] == (timedelta(days=1, hours=2), [None], b"\x00", "postgres")
    with psycopg.connect(pooled, autocommit=True) as other:
        assert other.execute("select current_setting('IntervalStyle')").fetchone() == ("sql_standard",)
