"""Functions that run with the owner's rights reach what is Relevo's, and nothing else that the owner has."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from relevo import app
from relevo.operators import actions
from support import soak

QUERIES = Path(__file__).parents[2] / "sql" / "queries"
MONTH = "2020-01-01"
FOREIGN = ("salaries", "salaries_2020_01", "notification_deliveries_2020_01", "push_requests_2020_01")
"""Tables of the owner's that have nothing to do with Relevo, some by names that months of Relevo might have."""
CANARY = "canary 4711"
NAMES = (
    *("shop.salaries", "salaries", "../shop.salaries", '"shop"."salaries"', "shop.salaries; select 1", "", "pg_authid"),
    *("notification_deliveries", "push_requests", "notification_events", "licitaciones"),
)
DEFINERS = """
select p.oid, p.proname as name, p.prokind, p.prorettype = 'trigger'::regtype as is_trigger, p.proconfig as config,
       array(select format_type(a.type, null) from unnest(p.proargtypes) with ordinality as a(type, n) order by a.n) as types
  from pg_proc p where p.pronamespace = 'relevo'::regnamespace and p.prosecdef order by 2
"""
TOUCHED = """
select c.relname, l.mode from pg_locks l join pg_class c on c.oid = l.relation
 where l.pid = %s and c.relnamespace = 'shop'::regnamespace and l.granted
"""
CHANGED = """
select c.relname, c.relacl::text, c.relnamespace::regnamespace::text, c.reltuples,
       (select count(*) from pg_trigger t where t.tgrelid = c.oid), c.relispartition, c.relchecks, c.relnatts
  from pg_class c where c.relnamespace = 'shop'::regnamespace and c.relkind = 'r' order by 1
"""


class Definer(NamedTuple):
    """A function that runs with its owner's rights."""

    oid: int
    name: str
    kind: str
    is_trigger: bool
    config: list[str] | None
    types: list[str]


def definers(conn: psycopg.Connection[Any]) -> list[Definer]:
    """List them all."""
    return [Definer(*row) for row in conn.execute(DEFINERS).fetchall()]


@pytest.fixture
def shop(conn: psycopg.Connection[Any]) -> None:
    """Tables of the owner's own, in a schema that everybody may look into, and that nobody else may read."""
    conn.execute("create schema shop")
    conn.execute("grant usage on schema shop to public")
    for name in FOREIGN:
        table = sql.Identifier("shop", name)
        conn.execute(sql.SQL("create table {} (id int, secret text)").format(table))
        conn.execute(sql.SQL("insert into {} values (1, {})").format(table, CANARY))


GUESTS = ["none", "app", "reader", "worker", "everything"]


@pytest.fixture(params=soak.cases(["worker", "everything"], whole=GUESTS))  # who may call most, and who may call all
def guest(
    request: pytest.FixtureRequest,
    conn: psycopg.Connection[Any],
    admin: psycopg.Connection[Any],
    dsn: str,
    settings: Any,
) -> Iterator[psycopg.Connection[Any]]:
    """A session of a role: without a grant, of the app, of an analyst, of a worker, and one that may call everything."""
    name = f"relevo_{request.param}_{uuid4().hex[:8]}"
    role = sql.Identifier(name)
    conn.execute(sql.SQL("create role {} login password 'x'").format(role))
    if request.param in ("app", "worker"):
        with app.database(settings) as database:
            actions.grant(database, name, worker=request.param == "worker")
    if request.param in ("reader", "everything"):
        conn.execute(sql.SQL("grant usage on schema relevo to {}").format(role))
        conn.execute(sql.SQL("grant select on all tables in schema relevo to {}").format(role))
    if request.param == "everything":
        conn.execute(sql.SQL("grant execute on all functions in schema relevo to {}").format(role))
        conn.execute(sql.SQL("grant insert, update on relevo.archive_exports to {}").format(role))
    with psycopg.connect(make_conninfo(dsn, user=name, password="x"), autocommit=True) as connection:
        yield connection
    conn.execute(sql.SQL("drop owned by {} cascade").format(role))
    admin.execute(sql.SQL("drop role {}").format(role))


def arguments(types: list[str]) -> Iterator[tuple[Any, ...]]:
    """Make arguments that name what is not Relevo's, in every way that a function's types allow."""
    by_type: dict[str, tuple[Any, ...]] = {
        "regclass": tuple(f"shop.{name}" for name in FOREIGN),
        "text": NAMES,
        "date": (MONTH,),
        "date[]": ([MONTH],),
        "bigint": (1,),
        "bigint[]": ([1],),
        "integer": (1,),
        "boolean": (True,),
        "uuid": (uuid4(),),
        "timestamp with time zone": ("infinity",),
        "jsonb": (
            '{"type": "shop.salaries", "key": "k", "title": "t", "audience": "everyone", "name": "salaries", "relation": "shop.salaries"}',
            '[{"type": "shop.salaries", "key": "shop.salaries", "title": "t", "audience": "everyone"}]',
        ),
    }
    yield from itertools.product(*(by_type[each] for each in types))


def call(guest: psycopg.Connection[Any], definer: Definer, given: tuple[Any, ...]) -> str:
    """Call a function as somebody; return what it said."""
    places = sql.SQL(", ").join(sql.SQL("%s::" + each) for each in definer.types)  # type: ignore[arg-type]
    statement = sql.SQL("select * from {}({}) as told").format(sql.Identifier("relevo", definer.name), places)
    try:
        return str(guest.execute(statement, given).fetchall())
    except psycopg.Error as error:
        return str(error)


def claim_months(guest: psycopg.Connection[Any]) -> None:
    """Have the table of exports name foreign relations, if this role may write there."""
    entities = ("notification_deliveries", "push_requests", "notification_events", "licitaciones")
    rows = zip(itertools.cycle(entities), (*FOREIGN, *(f"shop.{name}" for name in FOREIGN)), strict=False)
    may = "select has_schema_privilege('relevo', 'usage') and has_table_privilege('relevo.archive_exports', 'insert')"
    if guest.execute(may).fetchone() != (True,):
        return
    guest.cursor().executemany(
        "insert into relevo.archive_exports (entity, month, state, relation, part_rows, sealed_at)"
        " values (%s, %s::date + %s * interval '1 month', 'sealed', %s, 1, now())",
        [(entity, MONTH, n, relation) for n, (entity, relation) in enumerate(rows)],
    )


@pytest.mark.usefixtures("shop")
def test_nothing_foreign_is_read_or_frozen(conn: psycopg.Connection[Any], guest: psycopg.Connection[Any]) -> None:
    """Whatever names are handed in, by whatever role, no foreign relation is locked, read, granted or changed."""
    before = conn.execute(CHANGED).fetchall()
    touched: set[str] = set()
    callable_ones = [each for each in definers(conn) if not each.is_trigger]
    assert len(callable_ones) > 30
    for definer in callable_ones:
        guest.execute("begin")
        claim_months(guest)
        for given in arguments(definer.types):
            guest.execute("savepoint before")
            assert CANARY not in call(guest, definer, given), (definer.name, given)
            if conn.execute(TOUCHED, [guest.info.backend_pid]).fetchall():
                touched.add(definer.name)
            guest.execute("rollback to savepoint before")
        guest.execute("rollback")
    assert touched == set()
    assert conn.execute(CHANGED).fetchall() == before


def test_a_helper_has_no_rights_but_its_caller_s(conn: psycopg.Connection[Any]) -> None:
    """The owner's rights are for what somebody calls from outside: the door, statements of ours, triggers."""
    called = set(re.findall(r"\brelevo\.(\w+)\(", "\n".join(file.read_text() for file in QUERIES.glob("*.sql"))))
    door = {row[0] for row in conn.execute("select split_part(f, '(', 1) from unnest(relevo.app_functions()) f")}
    helpers = [each.name for each in definers(conn) if not each.is_trigger and each.name not in called | door]
    assert helpers == [], "let these be security invoker: who calls them has the owner's rights already"


def test_the_owner_s_rights_go_with_a_fixed_path_and_not_to_everybody(conn: psycopg.Connection[Any]) -> None:
    """No function of ours is PUBLIC's, and each that runs with the owner's rights finds names where it must."""
    assert [each.name for each in definers(conn) if "search_path=pg_catalog, pg_temp" not in (each.config or [])] == []
    assert [each.name for each in definers(conn) if each.kind != "f"] == []
    open_to_all = """
    select p.proname from pg_proc p cross join aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
     where p.pronamespace = 'relevo'::regnamespace and p.prosecdef and a.grantee = 0
    """
    assert conn.execute(open_to_all).fetchall() == []
