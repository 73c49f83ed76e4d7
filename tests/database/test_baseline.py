"""One truth of the schema: `sql/tables` and `sql/functions` say what is there, and migrations bring a released database to it."""

from __future__ import annotations

import re

import psycopg
import pytest

import released
from relevo import app, config
from relevo.core import queries
from relevo.database import migrate
from relevo.database.functions import Changes
from support.delivery_life import live_through

FUNCTIONS = sorted((queries.sql_root() / "functions").glob("*/*.sql"))


@pytest.mark.parametrize("version", released.versions())
def test_a_released_database_becomes_what_a_new_one_is(dsn, empty_database, version) -> None:
    """Its ledger keeps its rows and gets the new ones; its catalog is that of a new one thing by thing, the texts of
    functions included; deliveries live on it from claim to reap."""
    released.make(empty_database, version)
    with (
        app.build(config.load({"DATABASE_URL": empty_database}, None)) as worker,
        psycopg.connect(empty_database, autocommit=True) as conn,
    ):
        before = conn.execute("select version, applied_by from relevo.schema_migrations order by 1").fetchall()
        ran = migrate.prepare(worker.database)
        new = [each for each in migrate.available() if each.version not in {number for number, _ in before}]
        assert ran[: len(new)] == new
        assert all(isinstance(each, Changes) for each in ran[len(new) :])
        after = conn.execute("select version, applied_by from relevo.schema_migrations order by 1").fetchall()
        assert after[: len(before)] == before
        assert [number for number, _ in after[len(before) :]] == [each.version for each in new]
        differing = released.differences(released.catalog(empty_database), released.catalog(dsn))
        assert not differing, (
            f"sql/tables says something else than the migrations make: {', '.join(map(str, differing))}. "
            "Write what makes it so into the next migration."
        )
        worker.worker.record_start("run", [])
        live_through(worker, conn)


CHANGES = [
    "alter table relevo.workers add column more text",
    "alter table relevo.workers alter column pid drop not null",
    "alter table relevo.workers alter column pid set default 1",
    "alter table relevo.claims alter column ids set storage main",
    "alter table relevo.claims set (fillfactor = 51)",
    "alter table relevo.claims drop constraint claims_check",
    "create index on relevo.claims (worker_id)",
    "drop trigger note_news on relevo.dead_letters",
    "comment on table relevo.claims is 'more'",
    "comment on column relevo.claims.ids is 'more'",
    "alter sequence relevo.run_ids increment 2",
    "create function relevo.more() returns int language sql return 1",
    "alter function relevo.refuse(text) set work_mem = '1MB'",
    "grant execute on function relevo.refuse(text) to public",
    "create or replace function relevo.is_finished(id_of_event bigint) returns boolean language sql stable as 'select true'",
]


def test_a_difference_is_seen(conn, dsn) -> None:
    """A column, a default, an index, a right, a comment or a function's text that is not written down is named."""
    before = released.catalog(dsn)
    for change in CHANGES:
        conn.execute(change.encode())
        after = released.catalog(dsn)
        assert len(released.differences(before, after)) == 1, change
        before = after


def test_each_function_has_one_file_of_its_name() -> None:
    """It begins with a sentence, defines that function and no other, and takes it from the public; so there is one of each name."""
    faults = []
    for path in FUNCTIONS:
        text = path.read_text(encoding="utf-8")
        made = re.findall(r"^create (?:or replace )?function relevo\.(\w+)", text, re.MULTILINE | re.IGNORECASE)
        if (
            not text.startswith("-- ")
            or set(made) != {path.stem}
            or f"revoke all on function relevo.{path.stem} from public;" not in text
        ):
            faults.append(path.name)
    assert faults == []
    assert len({path.stem for path in FUNCTIONS}) == len(FUNCTIONS)


def test_nothing_of_today_calls_what_old_replicas_call() -> None:
    """`functions/for_0_3_0` holds what 0.3.0 calls beside 0.4: thin calls, and no name with a number is anywhere else."""
    old = [path for path in FUNCTIONS if path.parent.name.startswith("for_")]
    today = [*(queries.sql_root() / "queries").glob("*.sql"), *(path for path in FUNCTIONS if path not in old)]
    used = {name for path in today for name in re.findall(r"relevo\.(\w+)\(", path.read_text(encoding="utf-8"))}
    assert used & {path.stem for path in old} == set()
    assert [path.stem for path in FUNCTIONS if re.search(r"_\d$", path.stem) and path not in old] == []


def test_nothing_else_makes_functions() -> None:
    """Not the tables, nor the statements; a migration brings what was current when it was written."""
    root = queries.sql_root()
    others = [*root.glob("tables/*.sql"), *root.glob("queries/*.sql"), root / "first_rows.sql"]
    assert [
        path.name for path in others if re.search(r"create (or replace )?function", path.read_text(), re.IGNORECASE)
    ] == []
