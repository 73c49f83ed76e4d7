"""The database that tests share one after the other: emptied before each, replaced when one changed more than rows."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from support.kept_connections import KeptConnections

NAME = "shared"
PROBES = """
create table public.probe (
  id bigint generated always as identity primary key, cycle text, worker_id text, run_id bigint, slot_at timestamptz,
  trigger text, word text, at timestamptz default clock_timestamp());
create table public.probe_work (id bigint generated always as identity primary key, cycle text);
"""
"""Where the cycles of programs/relay.py write what they do, and find their work."""
WATCH = """
create table tests.changed (what text, made boolean);
create table tests.schema_migrations as table relevo.schema_migrations;
create table tests.applied_functions as table relevo.applied_functions;
create table tests.providers as table relevo.providers;
create function tests.note_change() returns event_trigger language plpgsql security definer as $$
begin
  if tg_event = 'sql_drop' then
    insert into tests.changed
    select d.object_identity, false from pg_event_trigger_dropped_objects() d
     where not d.is_temporary
       and not exists (select from tests.changed c
                        where c.made and split_part(c.what, ' on ', 1) = split_part(d.object_identity, ' on ', 1));
    delete from tests.changed c using pg_event_trigger_dropped_objects() d where c.made and c.what = d.object_identity;
  else
    insert into tests.changed
    select object_identity, command_tag = 'CREATE TRIGGER' or (command_tag = 'CREATE FUNCTION' and schema_name <> 'relevo')
      from pg_event_trigger_ddl_commands() where schema_name is distinct from 'pg_temp';
  end if;
end $$;
create event trigger note_change on ddl_command_end execute function tests.note_change();
create event trigger note_drop on sql_drop execute function tests.note_change();
alter event trigger note_change enable always;
alter event trigger note_drop enable always;
"""
"""Keeps the rows that every database has, and notes every change of the schema, so that the next test gets a new database.

A trigger that a test made, or its function, leaves nothing behind once it is dropped, also on the partitions of its table.
"""
IS_CHANGED = """
select exists (select from tests.changed)
    or exists (select from pg_db_role_setting where setdatabase = (select oid from pg_database where datname = current_database()))
    or exists (select from pg_class where relnamespace = 'relevo'::regnamespace and relkind = 'r' and reltuples >= 0)
    or exists (select from pg_prepared_xacts where database = current_database())
    or exists ((table relevo.schema_migrations except table tests.schema_migrations)
               union all (table tests.schema_migrations except table relevo.schema_migrations))
    or exists ((table relevo.applied_functions except table tests.applied_functions)
               union all (table tests.applied_functions except table relevo.applied_functions))
    or exists ((table relevo.providers except table tests.providers)
               union all (table tests.providers except table relevo.providers))
"""
"""Tells of changes of the schema, of settings, of statistics and of the rows that every database has, and of transactions that were prepared."""
EMPTYING = """
declare
  used regclass;
  pages bigint;
begin
  set local session_replication_role = replica;
  for used, pages in select oid, pg_relation_size(oid) / 8192 from pg_class
                      where relnamespace in ('relevo'::regnamespace, 'public'::regnamespace) and relkind = 'r'
                        and relname not in ('schema_migrations', 'applied_functions', 'providers') and pg_relation_size(oid) > 0 loop
    if pages > 10 then
      execute format('truncate %s cascade', used);
    else
      execute format('delete from %s', used);
    end if;
  end loop;
  perform setval(seqrelid, seqstart, false) from pg_sequence join pg_class on pg_class.oid = seqrelid
    where relnamespace = 'relevo'::regnamespace and pg_sequence_last_value(seqrelid) is not null;
end
"""
"""A few rows in many tables are quicker deleted than truncated; a planner sees no table as larger than ten pages."""
EMPTY = f"do $$ {EMPTYING} $$"
OURS = f"""
create schema tests;
create function tests.end_others(kept int[]) returns void language plpgsql as $$
declare
  here oid := (select oid from pg_database where datname = current_database());
begin
  perform pg_terminate_backend(pid) from pg_stat_get_activity(null) where datid = here and pid <> all (kept);
  for round in 1 .. 5000 loop
    perform pg_stat_clear_snapshot();
    exit when not exists (select from pg_stat_get_activity(null) where datid = here and pid <> all (kept));
    perform pg_sleep(0.001);
  end loop;
end $$;
create function tests.is_changed() returns boolean language plpgsql as $$ begin return ({IS_CHANGED}); end $$;
create function tests.empty() returns void language plpgsql as $$ {EMPTYING} $$;
"""
"""What is done before each test, as functions: a connection that is kept has compiled and planned them.

The first waits by itself: pg_terminate_backend looks ten times a second whether a connection has ended.
"""
AS_NEW = """
set session authorization default; reset all; unlisten *; discard temp; select pg_advisory_unlock_all()
"""
"""Plans stay: to make them again is a tenth of what a test costs. Whoever fills tables analyzes them, which ends their plans."""


class SharedDatabase:
    """One database for one test after the other, and the connection that looks after it.

    The connection is kept: what it has read of the catalog is a quarter of what a small test costs.
    """

    def __init__(self, admin: psycopg.Connection[Any], server_dsn: str, template: str) -> None:
        self._admin = admin
        self._template = template
        self.dsn = f"{server_dsn.rsplit('/', 1)[0]}/{NAME}"
        self._conn: psycopg.Connection[Any] | None = None
        self.kept = KeptConnections(self.dsn)
        self.kept.start()

    def renewed(self) -> psycopg.Connection[Any]:
        """Return a connection to the database, in which there is nothing a new one would not have."""
        if self._conn is not None:
            with suppress(psycopg.OperationalError):  # the test before this one may have ended it
                return self._emptied(self._conn)
        return self._replaced()

    def close(self) -> None:
        """Remove the database."""
        self.kept.clear()
        if self._conn is not None:
            self._conn.close()
        self._admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(NAME)))

    def _emptied(self, conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
        conn.rollback()
        conn.autocommit, conn.row_factory = True, tuple_row
        conn.execute(AS_NEW)
        conn.execute("select tests.end_others(%s)", [[conn.info.backend_pid, *self.kept.pids]])
        if conn.execute("select tests.is_changed()").fetchone() == (True,):
            return self._replaced()
        conn.execute("select tests.empty()")
        return conn

    def _replaced(self) -> psycopg.Connection[Any]:
        self.close()
        copied = "create database {} template {} strategy file_copy"  # as WAL it would be written twice
        self._admin.execute(sql.SQL(copied).format(sql.Identifier(NAME), sql.Identifier(self._template)))
        self._conn = psycopg.connect(self.dsn, autocommit=True)
        self._conn.execute(PROBES)
        self._conn.execute(OURS.encode())
        self._conn.execute(WATCH)
        return self._conn
