"""The door is closed to everybody, opens for a role that was granted it, and leads to nothing but itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import released
import relevo
from relevo import Event, Installation, Matching, Preference, app
from relevo.core.errors import UsageError
from relevo.database.pool import Database
from relevo.operators import actions
from support.processes import Processes

DOOR = {
    "enqueue", "enqueue_many", "event_id", "event_id_in_project", "get_event", "cancel", "complete", "complete_installation", "complete_owner",
    "delete_events", "register_installation", "list_installations", "unregister_installation", "unregister_owner",
    "forget_installation", "forget_owner", "set_preference",
    "change", "preview", "explain", "explain_event", "register_many",
    "subscribe_news", "read_news", "acknowledge_news",
    "inbox", "inbox_counts", "mark_inbox", "mark_inbox_before", "report_opened",
    "set_category", "list_categories", "choose", "block_owner", "export_owner",
    "set_quiet", "get_quiet", "set_cap", "list_caps", "set_attributes", "get_attributes",
    "set_event_type", "reset_event_type", "list_event_types",
}  # fmt: skip

CALLABLE = """
select p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
 where n.nspname = 'relevo' and has_function_privilege(current_user, p.oid, 'execute')
"""
REACHABLE = """
select c.relname, privilege from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  cross join unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) as privilege
 where n.nspname = 'relevo' and c.relkind in ('r', 'p', 'v') and has_table_privilege(current_user, c.oid, privilege)
union all
select c.relname, privilege from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  cross join unnest(array['usage', 'select', 'update']) as privilege
 where n.nspname = 'relevo' and c.relkind = 'S' and has_sequence_privilege(current_user, c.oid, privilege)
"""


@pytest.fixture
def database(settings) -> Iterator[Database]:
    """The test's database as the command line opens it."""
    with app.database(settings) as opened:
        yield opened


@pytest.fixture
def role(conn, admin: psycopg.Connection[Any]) -> Iterator[str]:
    """A fresh role that may log in and nothing else."""
    name = f"app {uuid4().hex[:8]}"  # a name that needs quoting
    conn.execute(sql.SQL("create role {} login password 'x'").format(sql.Identifier(name)))
    yield name
    conn.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
    admin.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


@pytest.fixture
def guest(dsn: str, role: str, conn) -> Iterator[psycopg.Connection[Any]]:
    """A session of that role, in autocommit."""
    with psycopg.connect(make_conninfo(dsn, user=role, password="x"), autocommit=True) as connection:
        yield connection


def use_the_door(guest: psycopg.Connection[Any]) -> int:
    """Do everything the door offers; return an event that is left."""
    phone = relevo.register(guest, Installation("ExponentPushToken[a]"))
    assert relevo.set_preference(guest, phone, "work", Preference(keywords=["aseo"]))
    made = relevo.enqueue(guest, Event("t", "1", "t", audience=Matching(text="Aseo")))
    many = relevo.enqueue_many(guest, [Event("t", str(n), "t", audience=[phone]) for n in range(2, 5)])
    assert relevo.cancel(guest, many[0].event_id)
    assert relevo.complete(guest, many[1].event_id)
    assert relevo.complete(guest, phone)
    assert relevo.delete(guest, [many[2].event_id]) == 1
    status = relevo.get(guest, made.event_id)
    assert status is not None
    assert status.state == "waiting"
    return made.event_id


def test_a_stranger_can_do_nothing(guest: psycopg.Connection[Any]) -> None:
    """Without a grant a role can call none of the functions and read none of the tables."""
    assert guest.execute(CALLABLE).fetchall() == []
    assert guest.execute(REACHABLE).fetchall() == []
    for statement in ("select relevo.enqueue('{}')", "select relevo.get_event(1)", "table relevo.notification_events"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            guest.execute(statement)
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
        relevo.get(guest, 1)
    assert "`relevo grant ROLE`" in refused.value.__notes__[0]


def test_the_grant_opens_exactly_the_door(database: Database, role: str, guest: psycopg.Connection[Any]) -> None:
    """After the grant a role can call the functions of the door, all of them, and still touches no table."""
    actions.grant(database, role)
    assert {row[0] for row in guest.execute(CALLABLE).fetchall()} == DOOR
    assert guest.execute(REACHABLE).fetchall() == []
    use_the_door(guest)
    for statement in (
        "table relevo.notification_events",
        "insert into relevo.device_installations (token) values ('x')",
        "delete from relevo.notification_preferences",
        "select relevo.end_event(1, 'completed', '')",
        "select relevo.grant_app('public')",
        "select relevo.wake('fanout')",
        """select relevo.write_choice('{"owner": "ana", "category": "offers", "wanted": true}', 'operator')""",
        "select nextval('relevo.delivery_ids')",
        "create table relevo.mine ()",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            guest.execute(statement)


def test_granting_twice_is_once(database: Database, role: str, guest: psycopg.Connection[Any]) -> None:
    """A grant can be repeated, e.g. after an upgrade."""
    actions.grant(database, role)
    actions.grant(database, role)
    use_the_door(guest)


def test_a_role_that_is_not_there(database: Database) -> None:
    """A grant to nobody is refused in words, and PUBLIC is nobody."""
    for nobody in ("no such role", "public", "x; drop table y", ""):
        with pytest.raises(UsageError, match="There is no role"):
            actions.grant(database, nobody)


TRAPS = """
create schema trap authorization {role};
grant create on database {database} to {role};
"""


def test_the_callers_search_path_changes_nothing(
    database: Database, role: str, guest: psycopg.Connection[Any], conn
) -> None:
    """Functions, operators and tables of the same names, first on the caller's path or temporary, are never used."""
    actions.grant(database, role)
    name = conn.execute("select current_database()").fetchone()[0]
    conn.execute(sql.SQL(TRAPS).format(role=sql.Identifier(role), database=sql.Identifier(name)))
    guest.execute(
        """
        create function trap.spring(what text) returns boolean language plpgsql as $$
          begin raise exception 'trap: % as %', what, current_user; end $$;
        create function trap.format(text, variadic text[]) returns text language sql as $$ select trap.spring('format')::text $$;
        create function trap.length(text) returns int language sql as $$ select trap.spring('length')::int $$;
        create function trap.lower(text) returns text language sql as $$ select trap.spring('lower')::text $$;
        create function trap.btrim(text) returns text language sql as $$ select trap.spring('btrim')::text $$;
        create function trap.now() returns timestamptz language sql as $$ select trap.spring('now')::text::timestamptz $$;
        create function trap.jsonb_typeof(jsonb) returns text language sql as $$ select trap.spring('typeof')::text $$;
        create function trap.jsonb_object_keys(jsonb) returns setof text language sql as $$ select trap.spring('keys')::text $$;
        create function trap.jsonb_array_length(jsonb) returns int language sql as $$ select trap.spring('array')::int $$;
        create function trap.pg_notify(text, text) returns void language sql as $$ select trap.spring('notify') $$;
        create function trap.arrow(jsonb, text) returns text language sql as $$ select trap.spring('arrow')::text $$;
        create operator trap.->> (leftarg = jsonb, rightarg = text, function = trap.arrow);
        create function trap.same(text, text) returns boolean language sql as $$ select trap.spring('=') $$;
        create operator trap.= (leftarg = text, rightarg = text, function = trap.same);
        create function trap.same(bigint, bigint) returns boolean language sql as $$ select trap.spring('= int') $$;
        create operator trap.= (leftarg = bigint, rightarg = bigint, function = trap.same);
        create function trap.joined(text, text) returns text language sql as $$ select trap.spring('||')::text $$;
        create operator trap.|| (leftarg = text, rightarg = text, function = trap.joined);
        create temp table notification_events (id bigint, event_type text, event_key text, content_hash text);
        create temp table device_installations (installation_id uuid, token text);
        create temp table gone (installation_id uuid, name text);
        create temp table come (installation_id uuid, name text);
        create temp table pg_class (relname text);
        set search_path = trap, pg_temp, pg_catalog, public;
        """
    )
    with pytest.raises(psycopg.errors.RaiseException, match="trap: length"):
        guest.execute("select length('x'::pg_catalog.text)")  # the trap is set
    event_id = use_the_door(guest)
    rows = conn.execute(
        "select id, state, match_words from relevo.notification_events where event_key = '1'"
    ).fetchall()
    assert rows == [(event_id, "waiting", " aseo ")]
    assert conn.execute("select bucket from relevo.preference_index order by 1").fetchall() == [("*",), ("k:aseo",)]


def test_the_door_runs_in_rights_and_path_of_its_own(
    database: Database, role: str, guest: psycopg.Connection[Any], conn
) -> None:
    """Every function that a grant opens runs with its owner's rights and a fixed search path."""
    actions.grant(database, role)
    owners = conn.execute(
        """
        select distinct p.prosecdef, p.proconfig from pg_proc p join pg_namespace n on n.oid = p.pronamespace
         where n.nspname = 'relevo' and has_function_privilege(%s, p.oid, 'execute')
        """,
        [role],
    ).fetchall()
    assert all(is_owners and "search_path=pg_catalog, pg_temp" in config for is_owners, config in owners)
    assert owners


def test_a_role_of_the_door_can_use_the_command(dsn: str, role: str, database: Database, tmp_path: Path) -> None:
    """`relevo enqueue` needs no more than the door, whatever else the command would like to look at."""
    actions.grant(database, role)
    url = make_conninfo(dsn, user=role, password="x")
    running = Processes(url, tmp_path)
    done = running.relevo("enqueue", "notice", "1", "--title", "Hi", "--to", str(uuid4()))
    assert (done.ends(), "Enqueued as event" in done.stdout) == (0, True), done.stderr
    running.close()


CLOSED = (
    "select f from unnest(relevo.app_functions()) as f where not has_function_privilege(%s, 'relevo.' || f, 'execute')"
)


def test_a_role_of_the_door_keeps_it_through_an_upgrade(empty_database: str, role: str) -> None:
    """Functions that a migration replaces or adds are open to whoever might use the door before it. Scripts of 0.3.0 that
    open it by its old name still do."""
    released.make(empty_database, released.versions()[-1])
    with psycopg.connect(empty_database, autocommit=True) as owner:
        owner.execute("select relevo.grant_door(%s)", [role])
        assert released.bring_up_to_date(empty_database)
        assert owner.execute(CLOSED, [role]).fetchall() == []
        owner.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
        assert owner.execute(CLOSED, [role]).fetchall() != []
        owner.execute("select relevo.grant_door(%s)", [role])
        closed = owner.execute(CLOSED, [role]).fetchall()
        owner.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
    assert closed == []
