"""The dashboard with many deliveries, as `make bench ARGS="--only pages"` looks at it: no page reads a whole table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from bench import pages
from bench.pages import PAGES, SEARCH, World
from relevo import app
from relevo.config import Settings
from support.dashboard_person import Person
from support.http_server import Served

MANY = 50_000
LARGE = 12_000
"""A table with so many rows is one that no page may read as a whole; of smaller ones some look at as much."""
READ = """
select coalesce(p.inhparent, r.relid)::regclass::text as name, sum(r.scanned + r.found)::bigint
  from (select t.relid, t.seq_tup_read as scanned, (select coalesce(sum(i.idx_tup_read), 0) from pg_stat_user_indexes i where i.relid = t.relid) as found
          from pg_stat_user_tables t where t.schemaname = 'relevo') r
  left join pg_inherits p on p.inhrelid = r.relid
 group by name
"""
UNDISTURBED = """
do $$
declare
  one record;
begin
  execute format('alter database %I set enable_seqscan = off', current_database());
  for one in select c.oid::regclass as name from pg_class c where c.relnamespace = 'relevo'::regnamespace and c.relkind = 'r' loop
    execute format('alter table %s set (autovacuum_enabled = off)', one.name);
  end loop;
end $$
"""
"""Has the planner go by an index wherever one fits, as it does with tables twenty times as large, and nobody else read them meanwhile."""
ROWS = """
select coalesce(p.inhparent, c.oid)::regclass::text as name, sum(c.reltuples)::bigint
  from pg_class c left join pg_inherits p on p.inhrelid = c.oid
 where c.relnamespace = 'relevo'::regnamespace and c.relkind = 'r'
 group by name having sum(c.reltuples) >= %s
"""


@pytest.fixture(scope="module")
def filled(module_settings: Callable[..., Settings]) -> Iterator[tuple[Served, World, psycopg.Connection[Any]]]:
    """A server whose pages have one connection among them, so that all they read is counted there."""
    settings = module_settings(http_pool_size=1, http_rate_per_second=0)
    with app.build(settings) as built, psycopg.connect(str(settings.database_url), autocommit=True) as conn:
        world = pages.fill(conn, MANY)
        conn.execute(UNDISTURBED)
        served = Served(built)
        served.start()
        yield served, world, conn
        served.close()


def read_so_far(served: Served, conn: psycopg.Connection[Any]) -> dict[str, int]:
    """Return how many rows of each table were read; the pages' own connection, and ours, hand in what they counted."""
    assert served.server.api is not None
    with served.server.api.state.threads.database.connection() as pooled:
        for each in (pooled, conn):
            each.execute("select pg_stat_force_next_flush()")
    return {name: int(read) for name, read in conn.execute(READ).fetchall()}


def open_page(person: Person, name: str, world: World) -> Any:
    """Open a page, or put what leads to it into the box."""
    place = world.address(name)
    if not name.startswith(SEARCH):
        return person.get(place)
    answer = person.send("/dashboard/search", q=place)
    return person.get(answer.headers["location"]) if answer.status_code == 303 else answer


@pytest.fixture(scope="module")
def read(filled: tuple[Served, World, psycopg.Connection[Any]]) -> dict[str, dict[str, int]]:
    """How many rows of which table each page read."""
    served, world, conn = filled
    person = Person(served)
    person.log_in()
    before, by_page = read_so_far(served, conn), {}
    for name in PAGES:
        answer = open_page(person, name, world)
        assert answer.status_code == 200, (name, answer.text)
        after = read_so_far(served, conn)
        by_page[name] = {table: count - before.get(table, 0) for table, count in after.items()}
        before = after
    return by_page


def test_no_page_reads_a_whole_table(read: dict[str, dict[str, int]], filled: Any) -> None:
    """Whatever a page shows or looks for, it reads two thirds of each large table at most."""
    rows = dict(filled[2].execute(ROWS, [LARGE]).fetchall())
    assert {"relevo.notification_deliveries", "relevo.notification_events", "relevo.worker_runs"} <= set(rows)
    whole = {
        (page, table): f"{count} of {rows[table]}"
        for page, tables in read.items()
        for table, count in tables.items()
        if table in rows and count > rows[table] * 2 / 3
    }
    assert whole == {}


def test_most_pages_read_as_little_as_they_show(read: dict[str, dict[str, int]]) -> None:
    """What belongs to one event, push, phone or person is found by its key."""
    few = ("an event for one phone", "a delivery", "a phone", "why ", "an owner", "search: ", "a run")
    much = {page: sum(tables.values()) for page, tables in read.items() if page.startswith(few)}
    assert len(much) >= 17
    assert {page: count for page, count in much.items() if count > 1_000} == {}
