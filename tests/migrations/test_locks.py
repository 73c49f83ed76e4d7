"""A migration never deadlocks with an app: it waits for a strong lock only while it holds none that others wait for."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import released
from relevo.database import functions, migrate
from support import soak
from support.processes import eventually

WAITS = "select count(*) from pg_locks where locktype = 'relation' and not granted"
TABLES = """
select string_agg(oid::regclass::text, ', ') from pg_class
 where relnamespace = 'relevo'::regnamespace and relkind = 'r' and relname <> 'schema_migrations'
"""
"""All that an app may write; the ledger is written by migrations alone, which take turns by a lock on it."""


CHANGES = [
    re.compile(r"alter table (?:only )?relevo\.(\w+)"),
    re.compile(r"create (?:unique )?index [^;]*? on relevo\.(\w+)"),
    re.compile(r"(?:create|drop) (?:or replace )?trigger [^;]*?\bon relevo\.(\w+)"),
]
READ = ["device_installations", "workers"]


@pytest.mark.parametrize("table", soak.cases(READ, whole=[*READ, "event_owners", "event_types"]))
def test_who_has_read_a_table_may_write_any(database, empty_database, look, table) -> None:
    """A transaction that read a table before a migration came to it, or the functions, writes whatever it likes; both come to their end."""
    released.make(empty_database, released.versions()[0])
    known = migrate.available()
    look.execute(f"alter database {look.info.dbname} set deadlock_timeout = '100ms'")
    [tables] = look.execute(TABLES).fetchone()
    with ThreadPoolExecutor(1) as threads, psycopg.connect(empty_database) as app:
        for count in range(1, len(known) + 2):
            files = functions.available() if count > len(known) else []
            app.execute(f"select from relevo.{table}")
            migrating = threads.submit(migrate.migrate, database, known[:count], files)
            eventually(lambda m=migrating: m.done() or look.execute(WAITS).fetchone() != (0,), "it waits, or is done")
            app.execute(f"lock table {tables} in row exclusive mode")
            app.commit()
            [done] = migrating.result(60)
            assert str(done).startswith("functions:" if files else str(known[count - 1]))


def test_a_migration_changes_one_table_that_calls_use() -> None:
    """A migration that waited for a second table would hold the first: a call that uses both in the other order would deadlock."""
    frozen = json.loads((released.RELEASED / released.versions()[0] / "release.json").read_text())["migrations"]
    new = [path for path in sorted((released.ROOT / "sql" / "migrations").glob("*.sql")) if path.stem not in frozen]
    assert new
    texts = {path.name: path.read_text(encoding="utf-8") for path in new}
    made = {table for text in texts.values() for table in re.findall(r"create table relevo\.(\w+)", text)}
    found = {name: {table for each in CHANGES for table in each.findall(text)} - made for name, text in texts.items()}
    both = {name for name, tables in found.items() if len(tables) > 1}
    assert both == {"0101_news_of_opens.sql"}, "which changes subscriptions to news first: enqueue does not use them"
