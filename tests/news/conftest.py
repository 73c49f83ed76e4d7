"""One database for all tests of news, emptied before each: quicker than a clone for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from relevo import embedded

EMPTY = """
do $$
declare
  used text;
begin
  perform pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid();
  select string_agg(oid::regclass::text, ', ') into used from pg_class
   where relnamespace = 'relevo'::regnamespace and relkind = 'r' and relname not in ('schema_migrations', 'providers')
     and pg_relation_size(oid) > 0;
  if used is not null then
    execute format('truncate %s cascade', used);
  end if;
end $$
"""


@pytest.fixture(scope="session")
def news_dsn(server: embedded.Embedded, admin: psycopg.Connection[Any], template: str) -> Iterator[str]:
    """The DSN of the database these tests share."""
    admin.execute(f"create database news template {template}".encode())
    yield server.dsn.rsplit("/", 1)[0] + "/news"
    admin.execute("drop database news with (force)")


@pytest.fixture
def dsn(news_dsn: str) -> str:
    """The DSN of a migrated database without a row or a connection left in it."""
    with psycopg.connect(news_dsn, autocommit=True) as connection:
        connection.execute(EMPTY)
    return news_dsn
