"""One database for all tests of claims, emptied before each: quicker than a clone for each of some two hundred."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from relevo import embedded

sys.path.insert(0, str(Path(__file__).parent))

EMPTY = """
do $$
declare
  used text;
begin
  perform pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid();
  select string_agg(oid::regclass::text, ', ') into used from pg_class
   where relnamespace = 'relevo'::regnamespace and relkind = 'r' and relname not in ('schema_migrations', 'providers') and pg_relation_size(oid) > 0;
  if used is not null then
    execute format('truncate %s cascade', used);
  end if;
end $$
"""


@pytest.fixture(scope="session")
def claims_dsn(server: embedded.Embedded, admin: psycopg.Connection[Any], template: str) -> Iterator[str]:
    """The DSN of the database these tests share."""
    admin.execute(f"create database claims template {template}".encode())
    yield make_conninfo(server.dsn, dbname="claims")
    admin.execute("drop database claims with (force)")


@pytest.fixture
def conn(claims_dsn: str, observe: Callable[[str, str], psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    """An observer's connection to the emptied database, in autocommit."""
    return observe(claims_dsn, EMPTY)


@pytest.fixture
def dsn(claims_dsn: str, conn: psycopg.Connection[Any]) -> str:
    """The DSN of a migrated database without a row, or a connection but the observer's, left in it."""
    return claims_dsn
